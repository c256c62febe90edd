"""What only the present session of a node knows; never stored."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, Protocol

import msgspec

from corral.controller.sessions.node_links import ModuleLink
from corral.controller.state.ledger import Step
from corral.domain.ids import NodeId, SessionId
from corral.wire.frame_table import NodeFrame
from corral.wire.v1.instance_pb2 import (
    ConsoleBatch,
    ConsoleOutput,
    ConsolePosition,
    ConsoleQueryFailed,
    InstanceFileContent,
    InstanceFileTree,
    SaveFilesFailed,
)
from corral.wire.v1.module_pb2 import (
    CapabilityCall,
    EventCursor,
    EventSubscribe,
    EventUnsubscribe,
    ModuleMetrics,
    ModuleSetEntry,
    ModuleStateUpdate,
)
from corral.wire.v1.node_pb2 import Handshake, NodeStatus
from corral.wire.v1.plan_pb2 import CacheStatus, TemplateRequest

_MAX_PORT: Final = 65_535
_MOST_PORTS: Final = 4096


class StrayRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that a node has and nothing proves to be one of this cluster's."""

    instance: str
    group: str
    incarnation: int
    reason: str


class LiveNode(msgspec.Struct, frozen=True, kw_only=True):
    """The node's load as of its last status, and when it was last heard."""

    session_id: SessionId
    connected_at: dt.datetime
    last_seen: dt.datetime
    cpu_usage: float = 0.0
    memory_mb: int = 0
    used_memory_mb: int = 0
    free_disk_mb: int = 0
    total_disk_mb: int = 0
    instance_count: int = 0
    used_ports: tuple[int, ...] = ()
    stray_count: int = 0
    strays: tuple[StrayRun, ...] = ()
    """The first of them."""


def loaded(live: LiveNode, status: NodeStatus) -> LiveNode:
    """The same node under the load that it tells of, as far as that can be."""
    return msgspec.structs.replace(
        live,
        cpu_usage=min(1.0, max(0.0, status.cpu_usage)) if math.isfinite(status.cpu_usage) else 0.0,
        memory_mb=max(0, status.total_memory_mb),
        used_memory_mb=max(0, status.used_memory_mb),
        free_disk_mb=max(0, status.free_disk_mb),
        total_disk_mb=max(0, status.total_disk_mb),
        instance_count=max(0, status.instance_count),
        used_ports=_ports(status),
    )


def _ports(status: NodeStatus) -> tuple[int, ...]:
    """Each once, and no more than anybody reads: they are shown and nothing else."""
    told = dict.fromkeys(port for port in status.used_ports[:_MAX_PORT] if 0 < port <= _MAX_PORT)
    return tuple(itertools.islice(told, _MOST_PORTS))


class LiveNodes(Protocol):
    """Who is connected right now."""

    @property
    def ahead_of_store(self) -> Collection[str]:
        """Nodes that were found to know of confirmations that the store has lost."""

    def live(self, node_id: NodeId) -> LiveNode | None: ...

    def set_log_level(self, node_id: NodeId, level: str) -> None:
        """Tell the node, if it is connected; one that is not learns it in its next handshake."""


class ConsoleSink(Protocol):
    """Takes what consoles bring. Every call returns at once: it runs in the reader of a stream."""

    def receive(
        self, node_id: NodeId, confirm: Callable[[ConsolePosition], None], batch: ConsoleBatch
    ) -> None:
        """Bytes of some consoles; `confirm` tells the node how far one is kept here."""

    def receive_line(self, node_id: NodeId, line: ConsoleOutput) -> None:
        """One line, of a node that knows no batches."""

    def positions(self, node_id: NodeId) -> list[ConsolePosition]:
        """How far the consoles of a connecting node are kept here."""

    def query_failed(self, node_id: NodeId, failed: ConsoleQueryFailed) -> None: ...


class FileTraffic(Protocol):
    """Takes what nodes say about templates, caches and files. Every call returns at once."""

    def template_requested(self, node_id: NodeId, request: TemplateRequest) -> None:
        """A node wants a version; the answer goes to its session when it is ready."""

    def cache_told(self, node_id: NodeId, status: CacheStatus) -> None:
        """What a node's cache holds: the answer to a question, or on its own account."""

    def save_failed(self, node_id: NodeId, failed: SaveFilesFailed) -> None:
        """A node cannot give the files that it was asked for."""

    def files_told(self, node_id: NodeId, answer: InstanceFileTree | InstanceFileContent) -> None:
        """What lies in the directory of an instance, or a part of a file there."""


class ModuleTraffic(Protocol):
    """Takes what nodes say about modules, and tells them what they shall have. Every call returns at once."""

    def wanted(self, node_id: NodeId) -> list[ModuleSetEntry]:
        """The modules that a connecting node shall have."""

    def event_head(self) -> EventCursor:
        """The end of the event log: where subscriptions of a node that connects now begin."""

    def joined(self, link: ModuleLink, hello: Handshake) -> None:
        """The node was welcomed; what it lacks is sent from now on."""

    def left(self, link: ModuleLink) -> None:
        """This very session has ended."""

    def state_told(self, link: ModuleLink, update: ModuleStateUpdate, *, on_its_way: bool) -> None:
        """Where a module stands; `on_its_way`: how much of its archive has come, which holds for the moment."""

    def subscribed(self, link: ModuleLink, wanted: EventSubscribe) -> None: ...

    def unsubscribed(self, link: ModuleLink, unwanted: EventUnsubscribe) -> None: ...

    def called(self, link: ModuleLink, call: CapabilityCall) -> None:
        """A capability of the controller is called; the answer goes to this session."""

    def metrics_told(self, link: ModuleLink, metrics: ModuleMetrics) -> None: ...

    def too_fast(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> list[NodeFrame]:
        """Those that are passed over because the node tells more than it may. Each is counted by this: it is
        asked once, however often one tries to store them."""

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> list[Step]:
        """What the stored frames about modules change, in the order in which they came; pure."""

    def fold_judgement(self, node_id: NodeId, hello: Handshake) -> list[Step]:
        """What the list in the handshake changes, once everything before it is stored, and nothing that was said
        after it; pure."""
