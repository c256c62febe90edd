"""The receivers of what nodes send, as protocols for sessions; and the count of refused reports."""

from __future__ import annotations

import collections
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter

from corral.controller.sessions.node_links import ModuleLink
from corral.controller.state.ledger import Step
from corral.domain.ids import NodeId, SessionId
from corral.system.clock import Clock
from corral.wire.frame_table import NodeFrame
from corral.wire.v1.instance_pb2 import (
    ConsoleBatch,
    ConsoleOutput,
    ConsolePosition,
    ConsoleQueryFailed,
    InstanceFileContent,
    InstanceFilesAnswer,
    InstanceFileTree,
    InstanceStatusUpdate,
    RunName,
    RunningInstance,
    SaveFilesFailed,
    SendCommandAck,
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
from corral.wire.v1.node_pb2 import Handshake, NodeCommandResult, ShutdownNodeAck
from corral.wire.v1.plan_pb2 import CacheStatus, TemplateRequest


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The changes by reports, and the actions that follow once they are stored."""

    steps: tuple[Step, ...] = ()
    strays: tuple[Any, ...] = ()
    over: tuple[str, ...] = ()
    """Ids of runs that no record assigns to the node, and that it reports as ended."""
    refused: dict[str, int] = {}
    """By kind, the number of reports about what does not belong to the node."""


class NodeReports(Protocol):
    """Interprets reports. The folds are pure: they read the state and describe a change."""

    def opening(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> AsyncIterator[Reported]:
        """Fold the runs that a connecting node lists as alive, in portions: each is committed before the next
        is requested. Repeated after a conflict it changes only what is not changed yet. Raises what a commit
        raises."""

    def complete_inventory(
        self, node_id: NodeId, listed: Sequence[RunningInstance]
    ) -> AsyncIterator[Reported]:
        """Complete the inventory, in portions likewise: the node's spool is stored up to its head at the
        handshake, so the state of runs that it did not list is decided."""

    async def unaccounted(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> list[RunName]:
        """The runs of this node that the records have alive, and that it did not list."""

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> Reported:
        """Fold reports in the order of arrival; an invalid one changes nothing."""

    def stored(self, node_id: NodeId, reported: Reported) -> None:
        """The folded changes are committed."""

    def opened(self, node_id: NodeId) -> None:
        """The runs that the node listed are stored."""

    def inventory_complete(self, node_id: NodeId, session_id: SessionId) -> None:
        """The inventory is complete: the records match what the node has."""

    def transient(self, node_id: NodeId, update: InstanceStatusUpdate, *, spooled: bool) -> None:
        """The transient part of a report: stage and players. It is not stored. `spooled`: the report may be old."""

    def order_answered(self, node_id: NodeId, id: str, incarnation: int) -> None:
        """A node answered an order; its report about the run is folded separately."""

    def command_answered(self, node_id: NodeId, ack: SendCommandAck) -> None: ...

    def node_command_answered(self, node_id: NodeId, result: NodeCommandResult) -> None: ...

    def drain_answered(self, node_id: NodeId, ack: ShutdownNodeAck) -> None:
        """A node answered an order of its drain."""


_SECONDS: Final = 60.0
_SHOWN: Final = 80
_log = structlog.get_logger("corral.controller.sessions")


class ConsoleSink(Protocol):
    """Receives console data. Every call returns at once: it runs in the reader of a stream."""

    def receive(
        self, node_id: NodeId, confirm: Callable[[Sequence[ConsolePosition]], None], batch: ConsoleBatch
    ) -> None:
        """Bytes of some consoles; `confirm` sends the node the positions up to which they are kept here."""

    def receive_line(self, node_id: NodeId, line: ConsoleOutput) -> None:
        """One line, of a node that does not send batches."""

    def positions(self, node_id: NodeId) -> list[ConsolePosition]:
        """The positions up to which the consoles of a connecting node are kept here."""

    def query_failed(self, node_id: NodeId, failed: ConsoleQueryFailed) -> None: ...


class FileTraffic(Protocol):
    """Receives frames about templates, caches and files. Every call returns at once."""

    def template_requested(self, node_id: NodeId, request: TemplateRequest) -> None:
        """A node requests a version; the answer goes to its session when it is ready."""

    def cache_reported(self, node_id: NodeId, status: CacheStatus) -> None:
        """The content of a node's cache: the answer to a query, or unrequested."""

    def save_failed(self, node_id: NodeId, failed: SaveFilesFailed) -> None:
        """A node cannot provide requested files."""

    def files_reported(
        self, node_id: NodeId, answer: InstanceFileTree | InstanceFileContent | InstanceFilesAnswer
    ) -> None:
        """The listing of an instance's directory, a part of a file there, or what became of a change."""


class ModuleTraffic(Protocol):
    """Receives frames about modules, and sends nodes the modules that they should have. Every call returns at
    once."""

    def desired(self, node_id: NodeId) -> list[ModuleSetEntry]:
        """The modules that a connecting node should have."""

    def event_head(self) -> EventCursor:
        """The end of the event log: where subscriptions of a node that connects now begin."""

    def joined(self, link: ModuleLink, hello: Handshake) -> None:
        """The node was welcomed; missing modules are sent from now on."""

    def left(self, link: ModuleLink) -> None:
        """This session, and no later one of the node, has ended."""

    def state_reported(self, link: ModuleLink, update: ModuleStateUpdate, *, on_its_way: bool) -> None:
        """The state of a module; `on_its_way`: the received part of its archive, which is transient."""

    def subscribed(self, link: ModuleLink, names: EventSubscribe) -> None: ...

    def unsubscribed(self, link: ModuleLink, unwanted: EventUnsubscribe) -> None: ...

    def called(self, link: ModuleLink, call: CapabilityCall) -> None:
        """A capability of the controller is called; the answer goes to this session."""

    def metrics_reported(self, link: ModuleLink, metrics: ModuleMetrics) -> None: ...

    def too_fast(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> list[NodeFrame]:
        """The frames to skip because the node exceeds its rate. The call counts each frame, so it is made
        once, however often their storage is attempted."""

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> list[Step]:
        """The changes by stored frames about modules, in the order of arrival; pure."""

    def fold_inventory(self, node_id: NodeId, hello: Handshake) -> list[Step]:
        """The changes by the list in the handshake, once everything before it is stored, and nothing that was
        sent after it; pure."""


class FrameReceivers(msgspec.Struct, frozen=True, kw_only=True):
    """The receivers of node frames in one term."""

    reports: NodeReports
    consoles: ConsoleSink
    files: FileTraffic
    modules: ModuleTraffic


class RefusedReports:
    """The count of refused reports in one term."""

    def __init__(self, *, metrics: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._counter = Counter(
            "corral_node_reports_refused",
            "Reports of nodes about instances that are not theirs.",
            ["node", "kind"],
            registry=metrics,
        )
        self._untold: dict[NodeId, collections.Counter[str]] = {}
        self._logged_at: dict[NodeId, float] = {}

    def forget_metrics(self, metrics: CollectorRegistry) -> None:
        """Remove the metrics of this term."""
        metrics.unregister(self._counter)

    def count(self, node_id: NodeId, kind: str, *, subject: str = "", number: int = 1) -> None:
        """Count reports of a kind; `subject` is an example of what they were about, where known."""
        self._counter.labels(node=node_id, kind=kind).inc(number)
        untold = self._untold.setdefault(node_id, collections.Counter())
        untold[kind] += number
        now = self._clock.monotonic()
        if now - self._logged_at.get(node_id, -_SECONDS) >= _SECONDS:
            self._logged_at[node_id] = now
            del self._untold[node_id]
            _log.warning("reports.refused", node=node_id, subject=subject[:_SHOWN], **untold)
