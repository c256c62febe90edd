"""Nodes: look, label, limit, cordon, revoke, forget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.http.messages.call import ApiCall, Confirmed, NoQuery, RequestBody, Text
from corral.controller.http.messages.list_pages import ITEMS_A_REQUEST, SummaryPage
from corral.controller.http.messages.paging import Page
from corral.controller.http.pipeline.route_table import Mutate, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.dry_runs import (
    ConfirmedOrDry,
    DryRunShape,
    dry_mutation,
    removal_described,
)
from corral.controller.http.resources.node_schemas import NodeShape, node_shape, node_within_scope
from corral.controller.http.resources.node_summaries import NodeQuery, NodeSummary, list_nodes
from corral.controller.instances.confirmations import before_node_goes, before_node_is_revoked, on_node
from corral.controller.modules_on_nodes.module_states import forget_node
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state import node_changes
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.controller.state.node_changes import LabelChanges, NodeChange, insist_on_node
from corral.controller.workload.service import Workloads
from corral.domain.node_claims import MOST_CPUS, MOST_MEMORY_MB
from corral.domain.node_states import NodeState
from corral.domain.permissions import Permission
from corral.domain.records import NodeRecord

Label = Annotated[str, msgspec.Meta(max_length=255)]


class NodePatch(RequestBody, frozen=True, kw_only=True):
    """Settings of a node by an operator; those not named stay as they are. They override what the node reports."""

    labels: dict[str, Label | None] = msgspec.field(default_factory=dict)
    """By key: the value; null: the node has no such label, whatever it claims."""
    as_claimed: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()
    """Keys of labels that are up to the node again."""
    memory_mb: Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMORY_MB)] | UnsetType | None = UNSET
    """At most so much counts; null: as claimed."""
    cpus: Annotated[int, msgspec.Meta(ge=1, le=MOST_CPUS)] | UnsetType | None = UNSET
    runtimes: (
        Annotated[tuple[Annotated[str, msgspec.Meta(max_length=63)], ...], msgspec.Meta(max_length=16)]
        | UnsetType
        | None
    ) = UNSET
    """Only these count; null: all that are claimed."""


class Reason(RequestBody, frozen=True, kw_only=True):
    reason: Text = ""


async def get_node(
    state: ClusterState,
    nodes: LiveNodes,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[None, NoQuery],
) -> NodeShape:
    stored = state.nodes.require(call.path["id"])
    empty_at = instances.signals.counts_as_empty_at
    shape = node_shape(state, nodes, stored, workload.vitals.players_of, empty_at)
    return node_within_scope(call.caller.access, shape)


def the_node(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[NodeRecord]:
    return state.nodes.require(path["id"])


def _changing(
    state: ClusterState,
    nodes: LiveNodes,
    call: ApiCall[Reason, Any],
    action: str,
    change: Callable[[StoredRecord[NodeRecord]], NodeChange],
) -> Mutation:
    stored = state.nodes.require(call.path["id"])
    changed = change(stored)
    return Mutation(
        action=action,
        subject=stored.record.id,
        steps=(*changed.steps, *insist_on_node(state, stored.record.id)) if changed.steps else (),
        body=node_shape(state, nodes, StoredRecord(stored.revision, changed.record)),
        before=_audited(stored.record),
        after=_audited(changed.record),
    )


def _audited(record: NodeRecord) -> dict[str, object]:
    return {
        "state": record.state.value,
        "reason": record.reason,
        "admission": record.admission.value,
        "admission_reason": record.admission_reason,
    }


def cordon_node(state: ClusterState, nodes: LiveNodes, call: ApiCall[Reason, NoQuery]) -> Mutation:
    reason = call.body.reason
    return _changing(
        state, nodes, call, "nodes.cordon", lambda node: node_changes.cordon(node, reason=reason)
    )


def uncordon_node(state: ClusterState, nodes: LiveNodes, call: ApiCall[Reason, NoQuery]) -> Mutation:
    reason = call.body.reason
    return _changing(
        state, nodes, call, "nodes.uncordon", lambda node: node_changes.uncordon(node, reason=reason)
    )


def patch_node(state: ClusterState, nodes: LiveNodes, call: ApiCall[NodePatch, NoQuery]) -> Mutation:
    asked, stored = call.body, state.nodes.require(call.path["id"])
    settings = node_changes.relabelled(
        stored.record.settings, LabelChanges(values=asked.labels, as_claimed=asked.as_claimed)
    )
    limits = {
        name: value or default
        for name, value, default in (
            ("memory_mb", asked.memory_mb, 0),
            ("cpus", asked.cpus, 0),
            ("runtimes", asked.runtimes, ()),
        )
        if value is not UNSET
    }
    node_changes.check_runtimes(state, asked.runtimes or ())
    changed = node_changes.configure(stored, msgspec.structs.replace(settings, **limits))
    return Mutation(
        action="nodes.configure",
        subject=stored.record.id,
        steps=(*changed.steps, *insist_on_node(state, stored.record.id)) if changed.steps else (),
        body=node_shape(state, nodes, StoredRecord(stored.revision, changed.record)),
        before=msgspec.to_builtins(stored.record.settings),
        after=msgspec.to_builtins(changed.record.settings),
    )


def revoke_node(state: ClusterState, nodes: LiveNodes, call: ApiCall[Reason, Confirmed]) -> Mutation:
    reason, now = call.body.reason, call.now
    if state.nodes.require(call.path["id"]).record.state is not NodeState.REVOKED:
        before_node_is_revoked(state, call.path["id"], call.query.confirm)
    forgotten = forget_node(state, call.path["id"])

    def revoked(node: StoredRecord[NodeRecord]) -> NodeChange:
        change = node_changes.revoke(node, reason=reason, now=now)
        return msgspec.structs.replace(change, steps=(*change.steps, *forgotten) if change.steps else ())

    return _changing(state, nodes, call, "nodes.revoke", revoked)


def delete_node(
    state: ClusterState, nodes: LiveNodes, workload: Workloads, call: ApiCall[None, ConfirmedOrDry]
) -> Mutation:
    stored = state.nodes.require(call.path["id"])
    removal = node_changes.removal(stored, has_session=nodes.live(stored.record.id) is not None)
    if call.query.dry_run:
        concerned = on_node(state, stored.record.id)
        return dry_mutation("nodes.remove", stored.record.id, removal_described(concerned, workload))
    before_node_goes(state, stored.record.id, call.query.confirm)
    return Mutation(
        action="nodes.remove",
        subject=stored.record.id,
        steps=(
            *removal,
            *forget_node(state, stored.record.id),
        ),
        status=204,
        before=_audited(stored.record),
    )


def _operation(verb: str, summary: str, handler: Callable[..., Mutation], **more: Any) -> Mutate:
    return Mutate(
        method="POST",
        path=f"/api/v1/nodes/{{id}}/{verb}",
        permission=Permission.NODES_MANAGE,
        summary=summary,
        body=Reason,
        response=NodeShape,
        handler=handler,
        revises=the_node,
        **more,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/nodes",
        permission=Permission.NODES_READ,
        scope=Scoping.FILTERS,
        summary="List nodes",
        query=NodeQuery,
        response=Page[NodeShape],
        compact=SummaryPage[NodeSummary],
        items_a_request=ITEMS_A_REQUEST,
        handler=list_nodes,
    ),
    Read(
        method="GET",
        path="/api/v1/nodes/{id}",
        permission=Permission.NODES_READ,
        summary="Show a node",
        response=NodeShape,
        handler=get_node,
    ),
    Mutate(
        method="PATCH",
        path="/api/v1/nodes/{id}",
        permission=Permission.NODES_MANAGE,
        summary="Set labels and limits of a node, which override what it reports",
        body=NodePatch,
        response=NodeShape,
        handler=patch_node,
        revises=the_node,
    ),
    _operation("cordon", "No new instances on a node", cordon_node),
    _operation("uncordon", "New instances on a node again", uncordon_node),
    _operation("revoke", "Refuse a node's certificates from now on", revoke_node, query=Confirmed),
    Mutate(
        method="DELETE",
        path="/api/v1/nodes/{id}",
        permission=Permission.NODES_MANAGE,
        summary="Forget a node that is not connected",
        query=ConfirmedOrDry,
        status=204,
        handler=delete_node,
        revises=the_node,
        dry_run=DryRunShape,
    ),
)
