"""Connected nodes in memory: the result of the handshake, and the present load. Never stored."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Collection
from typing import Final, Protocol

import msgspec

from corral.domain.ids import Epoch, NodeId, SessionId
from corral.wire.features import PeerSupport
from corral.wire.v1.node_pb2 import NodeStatus, ShutdownNodeAck

_MAX_PORT: Final = 65_535
_MOST_PORTS: Final = 4096
_MOST_RUNS: Final = 1_000_000
_LONGEST_STOP: Final = 7 * 86_400
_LONGEST_ID: Final = 128
_STATUSES_OF_MEAN: Final = 12
"""One comes every five seconds."""


class StrayRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run on a node that nothing proves to be one of this cluster's."""

    instance: str
    group: str
    incarnation: int
    reason: str


class DrainAck(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a node to the order of its drain."""

    drain_id: str
    running_instances: int
    """What runs there, strays included."""
    estimated_seconds: int
    """The longest stop ladder of what runs there."""


class LiveNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node's load as of its last status, and the time of its last message."""

    session_id: SessionId
    connected_at: dt.datetime
    last_seen: dt.datetime
    cpu_usage: float = 0.0
    cpu_mean: float = 0.0
    """Its mean over about a minute, in which a short peak counts little."""
    memory_mb: int = 0
    used_memory_mb: int = 0
    free_disk_mb: int = 0
    total_disk_mb: int = 0
    instance_count: int = 0
    used_ports: tuple[int, ...] = ()
    stray_count: int = 0
    strays: tuple[StrayRun, ...] = ()
    """The first stray runs of the node."""
    drain_ack: DrainAck | None = None
    """The last answer in this session to an order of the node's drain."""


def loaded(live: LiveNode, status: NodeStatus) -> LiveNode:
    """The same node with the load of a status, as far as its values are plausible."""
    cpu_usage = min(1.0, max(0.0, status.cpu_usage)) if math.isfinite(status.cpu_usage) else 0.0
    return msgspec.structs.replace(
        live,
        cpu_usage=cpu_usage,
        cpu_mean=live.cpu_mean + (cpu_usage - live.cpu_mean) / _STATUSES_OF_MEAN,
        memory_mb=max(0, status.total_memory_mb),
        used_memory_mb=max(0, status.used_memory_mb),
        free_disk_mb=max(0, status.free_disk_mb),
        total_disk_mb=max(0, status.total_disk_mb),
        instance_count=max(0, status.instance_count),
        used_ports=_ports(status),
    )


def drain_ack(answer: ShutdownNodeAck) -> DrainAck:
    """The answer, within plausible bounds."""
    return DrainAck(
        drain_id=answer.drain_id[:_LONGEST_ID],
        running_instances=max(0, min(answer.running_instances, _MOST_RUNS)),
        estimated_seconds=max(0, min(answer.estimated_drain_seconds, _LONGEST_STOP)),
    )


def _ports(status: NodeStatus) -> tuple[int, ...]:
    """The ports of a status, each once and bounded in number: they are only shown."""
    ports = dict.fromkeys(port for port in status.used_ports[:_MAX_PORT] if 0 < port <= _MAX_PORT)
    return tuple(itertools.islice(ports, _MOST_PORTS))


class LiveNodes(Protocol):
    """The nodes that are connected now."""

    @property
    def ahead_of_store(self) -> Collection[str]:
        """Nodes with confirmations that the store has lost."""

    def live(self, node_id: NodeId) -> LiveNode | None: ...

    def set_log_level(self, node_id: NodeId, level: str) -> None:
        """Send the level to the node, if it is connected; otherwise it receives the level with its next
        handshake."""


class HostIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon process, boot and machine that hold a session."""

    machine_id: str
    boot_id: str
    run_id: str

    def is_process(self, other: HostIdentity) -> bool:
        """Is the other certainly the same process? Published daemons do not identify their process, so two of
        them are never known to be the same."""
        return self == other and any((self.machine_id, self.boot_id, self.run_id))


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the handshake."""

    id: SessionId
    node_id: NodeId
    serial: str
    certificate_expires_at: dt.datetime
    host: HostIdentity
    spool_id: str
    epoch: Epoch
    supports: PeerSupport
