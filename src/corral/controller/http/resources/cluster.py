"""Cluster as a whole: leader and members, contents, and operations of administrators."""

from __future__ import annotations

import collections
import datetime as dt
import itertools
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, Name, NoQuery, RequestBody, Text
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_table import Act, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.term_ports import (
    ClusterControl,
    InstanceControl,
    IssuedCertificate,
    LeaderView,
    MemberView,
)
from corral.controller.http.resources.probes import notes_of
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import ADMIN_CERTIFICATES
from corral.controller.state.ledger import Mutation
from corral.controller.state.quarantine import Unreadable
from corral.domain.ids import TokenId
from corral.domain.permissions import Permission
from corral.domain.records import AdminCertificateRecord
from corral.store.port import ABSENT

_SHOWN_UNREADABLE: Final = 1000


class ClusterShape(msgspec.Struct, frozen=True, kw_only=True):
    """`commit` is the number of the last change; `nodes` counts those within the scope of the caller by state. `unreadable`
    are documents of the store that cannot be read, for callers without a scope: they are left as they are, and everything
    else works."""

    id: str
    created_at: dt.datetime
    leader: LeaderView
    members: list[MemberView]
    version: str
    store: str
    nodes: dict[str, int]
    commit: int
    unreadable: list[Unreadable]
    notes: list[str]


class EpochShape(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int


class SequenceShape(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is how far the counter had been moved, `highest_used` the highest number of a start that a
    record has; `ignored` records have a number that no cluster reaches."""

    before: int
    highest_used: int
    ignored: int


class ShutDown(RequestBody, frozen=True, kw_only=True):
    reason: Text = ""


class ShutDownShape(msgspec.Struct, frozen=True, kw_only=True):
    """The controller that ends now. Another one takes the lead, if there is one; instances go on in any case."""

    holder: str
    http: str


class RequestCertificate(RequestBody, frozen=True, kw_only=True):
    name: Name
    csr_pem: Annotated[str, msgspec.Meta(min_length=1, max_length=16384)]


async def get_cluster(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    cluster: ClusterControl,
    setting: ProcessContext,
    call: ApiCall[None, NoQuery],
) -> ClusterShape:
    identity, access = state.identity, call.caller.access
    everything = access.allows_everywhere(Permission.CLUSTER_READ)
    seen = (
        each.record
        for each in state.nodes
        if everything or access.allows_on_node(Permission.CLUSTER_READ, each.record.id)
    )
    return ClusterShape(
        id=identity.id,
        created_at=identity.created_at,
        leader=cluster.leader(),
        members=list(cluster.members()),
        version=setting.version,
        store=cluster.store,
        nodes=dict(collections.Counter(each.state.value for each in seen)),
        commit=state.number,
        unreadable=list(itertools.islice(state.quarantine, _SHOWN_UNREADABLE)) if everything else [],
        notes=notes_of(setting, state, modules, nodes),
    )


async def raise_epoch(state: ClusterState, cluster: ClusterControl, call: ApiCall[None, NoQuery]) -> Mutation:
    before = cluster.leader().epoch
    epoch = await cluster.raise_epoch(actor=call.caller.actor)
    return Mutation(
        action="cluster.raise_epoch",
        subject=state.identity.id,
        steps=(),
        body=EpochShape(epoch=epoch),
        before={"epoch": before},
        after={"epoch": epoch},
    )


async def shut_down(cluster: ClusterControl, call: ApiCall[ShutDown, NoQuery]) -> Mutation:
    leader = cluster.leader()
    reason = call.body.reason or f"ordered by {call.caller.actor.label or call.caller.actor.name}"
    return Mutation(
        action="cluster.shutdown",
        subject=leader.holder,
        steps=(),
        body=ShutDownShape(holder=leader.holder, http=leader.http),
        after={"reason": reason},
        afterwards=lambda: cluster.shut_down(reason),
    )


async def repair_sequence(
    state: ClusterState, instances: InstanceControl, call: ApiCall[None, NoQuery]
) -> Mutation:
    repair = await instances.repair_numbers(call.caller.actor)
    return Mutation(
        action="cluster.repair_sequence",
        subject=state.identity.id,
        steps=(),
        body=SequenceShape(before=repair.before, highest_used=repair.highest_used, ignored=repair.ignored),
    )


async def issue_certificate(cluster: ClusterControl, call: ApiCall[RequestCertificate, NoQuery]) -> Mutation:
    asked = call.body
    issued = await cluster.issue_certificate(name=asked.name, csr_pem=asked.csr_pem)
    record = AdminCertificateRecord(
        serial=issued.serial, name=asked.name, token_id=TokenId(call.caller.id), expires_at=issued.expires_at
    )
    return Mutation(
        action="cluster.issue_certificate",
        subject=asked.name,
        steps=(ADMIN_CERTIFICATES.put(issued.serial, record, expect=ABSENT),),
        body=issued,
        status=201,
        after={"serial": issued.serial, "expires_at": issued.expires_at.isoformat()},
    )


def _the_cluster(call: ApiCall[Any, Any]) -> str:
    del call
    return "cluster"


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/cluster",
        permission=Permission.CLUSTER_READ,
        scope=Scoping.FILTERS,
        summary="Who leads, and what the cluster holds",
        response=ClusterShape,
        handler=get_cluster,
    ),
    Act(
        method="POST",
        path="/api/v1/cluster/raise-epoch",
        permission=Permission.CLUSTER_MANAGE,
        summary="Lift the epoch above every one that a restore may have left behind",
        response=EpochShape,
        handler=raise_epoch,
        action="cluster.raise_epoch",
        subject=_the_cluster,
        ends_term=True,
    ),
    Act(
        method="POST",
        path="/api/v1/cluster/shutdown",
        permission=Permission.CLUSTER_MANAGE,
        summary="End the controller that leads, in order; instances and daemons go on",
        body=ShutDown,
        response=ShutDownShape,
        handler=shut_down,
        action="cluster.shutdown",
        subject=_the_cluster,
        details=lambda call: {"reason": call.body.reason} if call.body.reason else {},
    ),
    Act(
        method="POST",
        path="/api/v1/cluster/repair-sequence",
        permission=Permission.CLUSTER_MANAGE,
        summary="Set the counter of starts just above the highest number that a record uses",
        response=SequenceShape,
        handler=repair_sequence,
        action="cluster.repair_sequence",
        subject=_the_cluster,
    ),
    Act(
        method="POST",
        path="/api/v1/cluster/certificates",
        permission=Permission.CLUSTER_MANAGE,
        summary="Issue an administrator's certificate; it ends with the token that asked for it",
        body=RequestCertificate,
        response=IssuedCertificate,
        status=201,
        handler=issue_certificate,
        action="cluster.issue_certificate",
        subject=lambda call: call.body.name,
    ),
)
