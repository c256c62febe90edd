"""Drain, undrain and shutdown of nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody, Text
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.route_table import Mutate, Route
from corral.controller.http.pipeline.scoping import Scoping, check_scope
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.drain_dry_runs import drain_described, stranded_groups
from corral.controller.http.resources.dry_runs import ConfirmedOrDry, DryRunShape, dry_mutation
from corral.controller.http.resources.instances.instance_changes import workspace
from corral.controller.http.resources.node_schemas import NodeShape, node_shape
from corral.controller.http.resources.nodes import Reason, the_node
from corral.controller.instances.confirmations import before_node_is_drained
from corral.controller.instances.node_drains import DrainOrder, drain_node, undrain_node
from corral.controller.instances.workspace import Workspace
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.controller.workload.service import Workloads
from corral.domain.permissions import Permission
from corral.domain.records import NodeDrain, NodeRecord
from corral.domain.spec import invalid

Deadline = Annotated[int, msgspec.Meta(ge=0, le=365 * 86_400)]


class NodeShutdown(RequestBody, frozen=True, kw_only=True):
    reason: Text = ""
    deadline_seconds: Deadline | UnsetType | None = UNSET
    force: bool = False


class NodeDraining(NodeShutdown, frozen=True, kw_only=True):
    shutdown: bool | UnsetType = UNSET


def drain(
    state: ClusterState,
    nodes: LiveNodes,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[NodeDraining, ConfirmedOrDry],
) -> Mutation:
    if call.body.shutdown is True:
        authorise(call.caller, Permission.NODES_SHUTDOWN)
        check_scope(Scoping.NODE, call.caller.access, Permission.NODES_SHUTDOWN, state, call.path)
    return _drain(state, nodes, instances, workload, call, "nodes.drain", shutdown=call.body.shutdown)


def shutdown(
    state: ClusterState,
    nodes: LiveNodes,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[NodeShutdown, ConfirmedOrDry],
) -> Mutation:
    return _drain(state, nodes, instances, workload, call, "nodes.shutdown", shutdown=True)


def _drain(
    state: ClusterState,
    nodes: LiveNodes,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[Any, ConfirmedOrDry],
    action: str,
    *,
    shutdown: bool | UnsetType,
) -> Mutation:
    node, body = state.nodes.require(call.path["id"]).record, call.body
    if body.force and body.deadline_seconds not in (0, UNSET):
        raise invalid(
            "force", "force stops everything at once, and a deadline is given", "leave one of them out"
        )
    order = DrainOrder(
        reason=body.reason,
        deadline_seconds=0 if body.force else body.deadline_seconds,
        shutdown=shutdown,
    )
    live = nodes.live(node.id)
    ws = workspace(instances, call, action)
    changed = drain_node(ws, node.id, order)
    ordered = changed.drain
    assert ordered is not None
    strays = live.stray_count if live is not None and ordered.shutdown else 0
    if call.query.dry_run:
        shape = drain_described(ws, instances.signals, workload, node.id, strays=strays)
        return dry_mutation(action, node.id, shape)
    if changed is not node:  # else it was confirmed before
        before_node_is_drained(
            state,
            node.id,
            call.query.confirm,
            players=workload.vitals.players_of,
            deadline_seconds=ordered.deadline_seconds,
            strays=strays,
            stranded=stranded_groups(ws, instances.signals, node.id),
        )
    return _changing(
        state, nodes, instances, workload, call, action, lambda ws: drain_node(ws, node.id, order)
    )


def undrain(
    state: ClusterState,
    nodes: LiveNodes,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[Reason, NoQuery],
) -> Mutation:
    id, reason = call.path["id"], call.body.reason
    return _changing(
        state,
        nodes,
        instances,
        workload,
        call,
        "nodes.undrain",
        lambda ws: undrain_node(ws, id, reason=reason),
    )


def _changing(
    state: ClusterState,
    nodes: LiveNodes,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[Any, Any],
    action: str,
    change: Callable[[Workspace], NodeRecord],
) -> Mutation:
    stored = state.nodes.require(call.path["id"])
    ws = workspace(instances, call, action)
    changed = change(ws)
    shown = StoredRecord(stored.revision, changed)
    return Mutation(
        action=action,
        subject=stored.record.id,
        steps=ws.steps(),
        body=node_shape(
            state,
            nodes,
            shown,
            players=workload.vitals.players_of,
            empty_at=instances.signals.counts_as_empty_at,
        ),
        before=_audited(stored.record.drain, stored.record),
        after=_audited(changed.drain, changed),
    )


def _audited(drain: NodeDrain | None, record: NodeRecord) -> dict[str, object]:
    asked: dict[str, object] = {"admission": record.admission.value}
    if drain is not None:
        asked |= {
            "reason": drain.reason,
            "deadline_seconds": drain.deadline_seconds,
            "shutdown": drain.shutdown,
        }
    return asked


def _order(
    verb: str,
    summary: str,
    body: type[RequestBody],
    handler: Callable[..., Mutation],
    permission: Permission = Permission.NODES_DRAIN,
) -> Mutate:
    return Mutate(
        method="POST",
        path=f"/api/v1/nodes/{{id}}/{verb}",
        permission=permission,
        summary=summary,
        body=body,
        query=ConfirmedOrDry,
        response=NodeShape,
        handler=handler,
        revises=the_node,
        dry_run=DryRunShape,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _order(
        "drain", "Move everything away from a node, and stop the rest at the deadline", NodeDraining, drain
    ),
    _order(
        "shutdown", "Drain a node, then end its daemon", NodeShutdown, shutdown, Permission.NODES_SHUTDOWN
    ),
    Mutate(
        method="POST",
        path="/api/v1/nodes/{id}/undrain",
        permission=Permission.NODES_DRAIN,
        summary="New instances on a drained node again",
        body=Reason,
        response=NodeShape,
        handler=undrain,
        revises=the_node,
    ),
)
