"""The rooms that receive what nodes send, as sessions see them; and the count of reports that were refused."""

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
from corral.wire.v1.node_pb2 import Handshake
from corral.wire.v1.plan_pb2 import CacheStatus, TemplateRequest


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What reports change, and what is to be done once that is stored."""

    steps: tuple[Step, ...] = ()
    strays: tuple[Any, ...] = ()
    over: tuple[str, ...] = ()
    """Ids of runs that are not the node's by any record, and that it says have ended."""
    refused: dict[str, int] = {}
    """By kind, how many were about what is not the node's."""


class NodeReports(Protocol):
    """Understands reports. The folds are pure: they look at the state and describe a change."""

    def opening(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> AsyncIterator[Reported]:
        """The runs that a connecting node lists as alive, in portions: each is committed before the next is
        asked for. Begun anew after a conflict it changes what is not changed yet. Raises what a commit raises."""

    def judgement(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> AsyncIterator[Reported]:
        """In portions likewise: the node's spool is taken in as far as it reached at the handshake, so that what
        it did not list is decided."""

    async def unaccounted(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> list[RunName]:
        """The runs of this node that the records have alive, and that it did not list."""

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> Reported:
        """Reports in the order in which they came; one that makes no sense changes nothing."""

    def stored(self, node_id: NodeId, reported: Reported) -> None:
        """What was folded is committed now."""

    def opened(self, node_id: NodeId) -> None:
        """The runs that the node listed are taken in."""

    def judged(self, node_id: NodeId, session_id: SessionId) -> None:
        """The judgement is committed: the records say what the node has."""

    def heard(self, node_id: NodeId, update: InstanceStatusUpdate) -> None:
        """What a report says about the moment alone: stage and players. Nothing of it is stored."""

    def order_answered(self, node_id: NodeId, id: str, incarnation: int) -> None:
        """A node answered an order; what it said about the run is folded apart."""

    def command_answered(self, node_id: NodeId, ack: SendCommandAck) -> None: ...


_SECONDS: Final = 60.0
_SHOWN: Final = 80
_log = structlog.get_logger("corral.controller.reports")


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


class FrameReceivers(msgspec.Struct, frozen=True, kw_only=True):
    """Those of a term who hear what nodes say."""

    reports: NodeReports
    consoles: ConsoleSink
    files: FileTraffic
    modules: ModuleTraffic


class RefusedReports:
    """Of one term."""

    def __init__(self, *, metrics: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._counter = Counter(
            "corral_node_reports_refused",
            "Reports of nodes about instances that are not theirs.",
            ["node", "kind"],
            registry=metrics,
        )
        self._untold: dict[NodeId, collections.Counter[str]] = {}
        self._told_at: dict[NodeId, float] = {}

    def forget_metrics(self, metrics: CollectorRegistry) -> None:
        """A term's figures end with the term."""
        metrics.unregister(self._counter)

    def count(self, node_id: NodeId, kind: str, *, subject: str = "", number: int = 1) -> None:
        """So many of a kind; `subject` is one that they were about, where that is known."""
        self._counter.labels(node=node_id, kind=kind).inc(number)
        untold = self._untold.setdefault(node_id, collections.Counter())
        untold[kind] += number
        now = self._clock.monotonic()
        if now - self._told_at.get(node_id, -_SECONDS) >= _SECONDS:
            self._told_at[node_id] = now
            del self._untold[node_id]
            _log.warning("reports.refused", node=node_id, subject=subject[:_SHOWN], **untold)
