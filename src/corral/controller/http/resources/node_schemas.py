"""Schemas of nodes in the API."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import msgspec

from corral.controller.http.resources.node_drain_schemas import (
    NodeDrainShape,
    drain_shape,
    drain_within_scope,
)
from corral.controller.sessions.live_nodes import LiveNode, LiveNodes, StrayRun
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.access import Access
from corral.domain.node_claims import NodeClaims, NodeSettings, in_force
from corral.domain.node_states import Admission, NodeState
from corral.domain.permissions import Permission
from corral.domain.records import NodeRecord


class NodeShape(msgspec.Struct, frozen=True, kw_only=True):
    """A node: what is stored about it, and its load while it is connected."""

    id: str
    state: NodeState
    state_since: dt.datetime
    reason: str
    admission: Admission
    admission_reason: str
    labels: dict[str, str]
    address: str
    memory_mb: int
    reserved_memory_mb: int
    used_memory_mb: int
    cpus: int
    cpu_usage: float
    free_disk_mb: int
    instances: int
    used_ports: list[int]
    runtimes: list[str]
    capabilities: list[str]
    """Features that its daemon has proven to work there, such as `memory-limit`."""
    session: str | None
    last_seen: dt.datetime | None
    """Time of its last message; of a node that is gone, the last of its last session."""
    version: str
    host: dict[str, str | int]
    machine_id: str
    enrolled_at: dt.datetime
    log_level: str
    claims: NodeClaims
    """Values that the node reports; `labels`, `memory_mb`, `cpus` and `runtimes` above are those in effect."""
    settings: NodeSettings
    """Settings by operators."""
    stray_count: int
    strays: list[StrayRun]
    """The first of the runs that it has and nothing proves to be this cluster's; they are left alone."""
    drain: NodeDrainShape | None
    revision: int


def node_shape(
    state: ClusterState,
    nodes: LiveNodes,
    stored: StoredRecord[NodeRecord],
    players: Callable[[str], int | None] = lambda _: None,
    empty_at: Callable[[str], dt.datetime | None] = lambda _: None,
) -> NodeShape:
    """For what a drain waits for: `players`: the number of players of an instance; `empty_at`: when it counts as empty,
    where that is not known."""
    record = stored.record
    live = nodes.live(record.id)
    return NodeShape(
        id=record.id,
        state=record.state,
        state_since=record.state_since,
        reason=record.reason,
        admission=record.admission,
        admission_reason=record.admission_reason,
        labels=record.labels,
        address=record.address,
        memory_mb=memory_in_force(record, live),
        reserved_memory_mb=state.reservations.usage(record.id).memory_mb,
        used_memory_mb=live.used_memory_mb if live else 0,
        cpus=record.cpus,
        cpu_usage=live.cpu_usage if live else 0.0,
        free_disk_mb=live.free_disk_mb if live else 0,
        instances=state.instances.live_on(record.id),
        used_ports=list(live.used_ports) if live else [],
        runtimes=list(record.runtimes),
        capabilities=list(record.capabilities),
        session=live.session_id if live else None,
        last_seen=live.last_seen if live else record.last_seen,
        version=record.version,
        host=record.host_info,
        machine_id=record.machine_id,
        enrolled_at=record.enrolled_at,
        log_level=record.log_level,
        claims=record.claimed,
        settings=record.settings,
        stray_count=live.stray_count if live else 0,
        strays=list(live.strays) if live else [],
        drain=drain_shape(state, record, live, players, empty_at),
        revision=stored.revision,
    )


def memory_in_force(record: NodeRecord, live: LiveNode | None) -> int:
    """The memory that counts for placement: what the node reports now, within the limits of its operator."""
    memory_mb = live.memory_mb if live else 0
    claimed = msgspec.structs.replace(record.claimed, memory_mb=memory_mb or record.claimed.memory_mb)
    return in_force(claimed, record.settings).memory_mb


def node_within_scope(access: Access, shape: NodeShape) -> NodeShape:
    if shape.drain is None or access.allows_everywhere(Permission.NODES_READ):
        return shape
    return msgspec.structs.replace(shape, drain=drain_within_scope(access, shape.drain, shape.id))
