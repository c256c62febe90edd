"""Decisions about an instance or a group: the result, its reasons, and the rejected alternatives."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.paging import Page, TimedPageQuery, newest_entries
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import (
    EVERY_DECISION,
    Journal,
    deployment_decisions,
    group_decisions,
    instance_decisions,
    node_decisions,
)
from corral.domain.access import Access
from corral.domain.decisions import Alternative, DecisionKind
from corral.domain.groups.instance_records import DecisionRecord
from corral.domain.permissions import Permission
from corral.domain.planning.refusals import sentence
from corral.errors import Code, Rejected
from corral.store.port import Entry, ReadEngine

_RECENT: Final = 20
_NAMED: Final = 3
"""Most instances that are not ready whose reason is shown with their group."""
_INSTANCE: Final = "instance/"
_GROUP: Final = "group/"

Subject = Annotated[
    str,
    msgspec.Meta(
        max_length=80,
        description="`instance/ID`, `group/NAME` or `node/ID`.",
        extra_json_schema={"pattern": "^(instance|group|node)/[a-z0-9._-]+$"},
    ),
]


class DecisionShape(msgspec.Struct, frozen=True, kw_only=True):
    """One decision; `rejected` is what was considered and not done."""

    number: int
    id: str
    at: dt.datetime
    kind: DecisionKind
    subject: str
    reason: str
    cause: str
    epoch: int
    inputs: dict[str, str | int | float | bool]
    rejected: list[Alternative]
    request: str
    rule: str
    node: str
    deployment: str
    rejected_counts: dict[str, int]
    ties: list[str]
    causes: list[str]
    root: str
    wake_at: dt.datetime | None


class DecisionQuery(TimedPageQuery, frozen=True, kw_only=True):
    subject: Subject | None = None


_JOURNALS: Final = {
    "instance": instance_decisions,
    "group": group_decisions,
    "node": node_decisions,
    "deployment": deployment_decisions,
}


def _journal(subject: str) -> Journal[DecisionRecord]:
    kind, _, id = subject.partition("/")
    if id and kind in _JOURNALS:
        return _JOURNALS[kind](id)
    raise Rejected(
        Code.INVALID_FIELD,
        f"'{subject}' is no subject of decisions",
        hint="use instance/ID, group/NAME, node/ID or deployment/ID",
        field="subject",
    )


async def list_decisions(
    state: ClusterState, reads: ReadEngine, call: ApiCall[None, DecisionQuery]
) -> Page[DecisionShape]:
    """The newest first, about one subject or about all. What was decided about things that are gone stays for
    a while."""
    query = call.query
    journal = EVERY_DECISION if query.subject is None else _journal(query.subject)
    found, following = await newest_entries(
        reads, journal.name, query, prefix=query.subject is None, once=_decision_id
    )
    shapes = [decision_shape(journal, entry) for entry in found]
    return Page(
        items=[each for each in shapes if _is_covered(state, call.caller.access, each)], next=following
    )


def _is_covered(state: ClusterState, access: Access, decision: DecisionShape) -> bool:
    """Whether a decision is about a group, an instance or a node within the scope of the caller. That of a deployment is
    in the journal of its group, too."""
    permission = Permission.DECISIONS_READ
    if access.allows_everywhere(permission):
        return True
    kind, _, id = decision.subject.partition("/")
    match kind:
        case "instance":
            stored = state.instances.find(id)  # of one that is gone it is not known whose it was
            return stored is not None and access.allows_on_instance(
                permission, stored.record.group, decision.node or stored.record.node
            )
        case "group":
            return access.allows_on_group(permission, id)
        case "node":
            return access.allows_on_node(permission, id)
        case _:
            return False


class _Identified(msgspec.Struct, frozen=True):
    id: str


_IDENTIFIED: Final = msgspec.json.Decoder(_Identified)


def _decision_id(entry: Entry) -> str:
    """A decision is appended to the journals of its instance, its group and its node, one after the other."""
    return _IDENTIFIED.decode(entry.body).id


def decision_shape(journal: Journal[DecisionRecord], entry: Entry) -> DecisionShape:
    record = journal.decode(entry.body)
    return DecisionShape(
        number=entry.number,
        id=record.id,
        at=record.at,
        kind=record.kind,
        subject=record.subject,
        reason=record.reason,
        cause=record.cause,
        epoch=record.epoch,
        inputs=record.inputs,
        rejected=[worded(each) for each in record.rejected],
        request=record.request,
        rule=record.rule,
        node=record.node,
        deployment=record.deployment,
        rejected_counts=record.rejected_counts,
        ties=list(record.ties),
        causes=list(record.causes),
        root=record.root,
        wake_at=record.wake_at,
    )


def worded(other: Alternative) -> Alternative:
    """With its sentence, which is not stored where there is a code."""
    reason = other.reason or sentence(other.code, other.numbers)
    return msgspec.structs.replace(other, reason=reason)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/decisions",
        permission=Permission.DECISIONS_READ,
        scope=Scoping.FILTERS,
        summary="List decisions about an instance, a group or a node, the newest first",
        query=DecisionQuery,
        response=Page[DecisionShape],
        handler=list_decisions,
    ),
)
