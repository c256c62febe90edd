"""Modules on nodes: the state of a module on each node, and the modules of one node."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, Literal

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.paging import Page, PageQuery, page_of_sorted
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.modules.module_service import Modules
from corral.controller.modules_on_nodes.module_states import is_unhealthy, runs_with_refusal
from corral.controller.modules_on_nodes.module_sync import TOO_LARGE
from corral.controller.modules_on_nodes.node_metrics import ModuleUsage
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState
from corral.domain.ids import NodeId
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import NodeModuleState, PackageRecord, awaited_capability, node_module_key
from corral.domain.node_states import NodeState
from corral.domain.permissions import Permission

PendingRequest = Literal["recover", "reload"]


class NodeStateShape(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a module on a node, as the node reported last; `phase` is null before its first report.
    `current`: it has the installed archive. `refused`: the installed archive did not come up there and is
    not sent again before an operator recovers it. `declined`: it runs, but not with the settings or the signature
    that it was given last. `pending`: what an operator asked for and the node has not done yet. `settled`: nothing
    of it is under way. `error` is empty for callers that may not read logs. `live` is null while it has no process there."""

    node: str
    connected: bool
    phase: ModulePhase | None
    version: str
    sha256: str
    intent: ModuleIntent | None
    reason: str
    error: str
    current: bool
    refused: bool
    declined: bool
    pending: list[PendingRequest]
    settled: bool
    progress: str
    """`offered`, `fetching 12 of 40 MB`, `ordered`: while an archive is on its way there."""
    updated_at: dt.datetime | None
    live: ModuleUsage | None


class OnNodesShape(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the nodes on which a module shall be (`wanted`), is `active` with the installed archive, and is
    `degraded`, which is for an operator to look at: failed, refused, or without the settings or the signature that
    it shall have; as they reported last. `waiting`: so many of the others wait for a capability. `disconnected`: so
    many of the `wanted` are not connected now."""

    wanted: int
    active: int
    degraded: int
    waiting: int
    disconnected: int


class ModuleOnNodeShape(NodeStateShape, frozen=True, kw_only=True):
    """A module of a node; `installed` is null when the node shall not have it (any more)."""

    module: str
    installed: str | None
    """The version it shall have."""


def nodes_of(state: ClusterState, record: PackageRecord) -> list[NodeId]:
    """The nodes that have the module or shall have it, in order."""
    known = {stored.record.node for stored in state.module_node_states.of_module(record.id)}
    if ModuleHost.DAEMON in record.manifest.hosts:
        nodes = (stored.record for stored in state.nodes)
        known |= {node.id for node in nodes if node.state is not NodeState.REVOKED}
    return sorted(node for node in known if state.nodes.find(node) is not None)


def modules_of(state: ClusterState, node: str) -> list[str]:
    """The modules that a node has or shall have, in order."""
    known = {stored.record.module for stored in state.module_node_states.of_node(node)}
    packages = (stored.record for stored in state.modules)
    return sorted(known | {each.id for each in packages if ModuleHost.DAEMON in each.manifest.hosts})


def on_nodes_shape(state: ClusterState, nodes: LiveNodes, record: PackageRecord) -> OnNodesShape:
    desired = disconnected = active = degraded = waiting = 0
    for each in state.nodes if ModuleHost.DAEMON in record.manifest.hosts else ():
        if each.record.state is not NodeState.REVOKED:
            desired += 1
            disconnected += nodes.live(each.record.id) is None
    for row in state.module_node_states.rows_of_module(record.id):
        active += row.phase is ModulePhase.ACTIVE and row.sha256 == record.sha256
        unhealthy = is_unhealthy(row, record.sha256) or runs_with_refusal(row)
        degraded += unhealthy
        waiting += bool(not unhealthy and awaited_capability(row))
    return OnNodesShape(
        wanted=desired, active=active, degraded=degraded, waiting=waiting, disconnected=disconnected
    )


def node_states(
    state: ClusterState, modules: Modules, nodes: LiveNodes, call: ApiCall[Any, Any], record: PackageRecord
) -> list[NodeStateShape]:
    return [node_state_shape(state, modules, nodes, call, record, node) for node in nodes_of(state, record)]


def node_state_shape(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    call: ApiCall[Any, Any],
    record: PackageRecord,
    node: NodeId,
) -> NodeStateShape:
    return NodeStateShape(**_fields(state, modules, nodes, call, record.id, record, node))


def module_on_node_shape(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    call: ApiCall[Any, Any],
    module: str,
    node: NodeId,
) -> ModuleOnNodeShape:
    stored = state.modules.find(module)
    record = stored.record if stored and ModuleHost.DAEMON in stored.record.manifest.hosts else None
    return ModuleOnNodeShape(
        **_fields(state, modules, nodes, call, module, record, node),
        module=module,
        installed=record.version if record else None,
    )


def _fields(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    call: ApiCall[Any, Any],
    module: str,
    record: PackageRecord | None,
    node: NodeId,
) -> dict[str, Any]:
    stored = state.module_node_states.find(node_module_key(node, module))
    row = stored.record if stored else None
    progress = modules.progress(node, module)
    pending = pending_requests(row, record)
    shown = {
        "node": node,
        "connected": nodes.live(node) is not None,
        "phase": row.phase if row else None,
        "version": row.version if row else "",
        "sha256": row.sha256 if row else "",
        "intent": row.intent if row else None,
        "reason": row.reason if row else "",
        "error": row.error if row and call.caller.access.allows_everywhere(Permission.LOGS_READ) else "",
        "current": bool(row and record and row.sha256 == record.sha256),
        "refused": bool(row and record and row.refused_sha256 == record.sha256),
        "declined": bool(row and runs_with_refusal(row)),
        "pending": pending,
        "progress": progress,
        "updated_at": row.updated_at if row else None,
        "live": modules.usage_on(node, module),
    }
    finished = not progress and not pending and settled(row, record)
    return {**shown, "settled": progress == TOO_LARGE or finished}


def pending_requests(row: NodeModuleState | None, record: PackageRecord | None) -> list[PendingRequest]:
    """Requests of operators that a node has not done yet. Where nothing of the module runs there is
    nothing to be reloaded, and a daemon that does not count reloads has none pending."""
    if row is None or record is None:
        return []
    pending: list[PendingRequest] = ["recover"] if row.pending_recover_ms else []
    counts = row.sha256 and row.reload_done_ms is not None
    return [*pending, "reload"] if counts and (row.reload_done_ms or 0) < record.reload_asked_ms else pending


def settled(row: NodeModuleState | None, record: PackageRecord | None) -> bool:
    """Whether the module stays in this state until an operator acts."""
    if row is None or record is None:
        return row is None and record is None
    refused = row.refused_sha256 == record.sha256
    answered = row.refused_signature_sha256 if refused else row.signature_sha256
    if record.signature is not None and answered not in (None, record.signature.blob):
        return False  # the report is about an earlier signature
    if refused or row.phase is ModulePhase.FAILED:
        return refused or row.sha256 == record.sha256
    if row.sha256 != record.sha256 or row.intent is not record.intent:
        return False
    if record.intent is not ModuleIntent.ACTIVE:
        return row.phase is ModulePhase.INSTALLED
    waits = row.phase is ModulePhase.WAITING and row.reason.startswith("waiting_for_")
    return row.phase is ModulePhase.ACTIVE or waits


async def list_nodes_of_module(
    state: ClusterState, modules: Modules, nodes: LiveNodes, call: ApiCall[None, PageQuery]
) -> Page[NodeStateShape]:
    await modules.look_at_nodes()
    record = state.modules.require(call.path["id"]).record
    return page_of_sorted(
        nodes_of(state, record),
        call.query,
        kind=f"module-nodes/{record.id}",
        key=str,
        shape=lambda node: node_state_shape(state, modules, nodes, call, record, node),
    )


async def list_modules_of_node(
    state: ClusterState, modules: Modules, nodes: LiveNodes, call: ApiCall[None, PageQuery]
) -> Page[ModuleOnNodeShape]:
    await modules.look_at_nodes()
    node = state.nodes.require(call.path["id"]).record
    return page_of_sorted(
        modules_of(state, node.id),
        call.query,
        kind=f"node-modules/{node.id}",
        key=str,
        shape=lambda module: module_on_node_shape(state, modules, nodes, call, module, node.id),
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/modules/{id}/nodes",
        permission=Permission.MODULES_READ,
        summary="List the states of a module on its nodes",
        query=PageQuery,
        response=Page[NodeStateShape],
        handler=list_nodes_of_module,
    ),
    Read(
        method="GET",
        path="/api/v1/nodes/{id}/modules",
        permission=Permission.MODULES_READ,
        summary="List the modules of a node",
        query=PageQuery,
        response=Page[ModuleOnNodeShape],
        handler=list_modules_of_node,
    ),
)
