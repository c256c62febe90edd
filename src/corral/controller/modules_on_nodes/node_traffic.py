"""Traffic about modules between this controller and its nodes: orders, states, events, capabilities, metrics."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from corral.controller.events.hub import EventHub
from corral.controller.modules_on_nodes import module_states as states
from corral.controller.modules_on_nodes.capability_server import CapabilityServer, OfferSender
from corral.controller.modules_on_nodes.distributor import Distributor
from corral.controller.modules_on_nodes.event_bridge import DeclaredNames, EventBridge
from corral.controller.modules_on_nodes.event_frames import wire_cursor
from corral.controller.modules_on_nodes.module_states import StateFold
from corral.controller.modules_on_nodes.module_sync import SyncProgress
from corral.controller.modules_on_nodes.node_metrics import NodeMetrics
from corral.controller.modules_on_nodes.published_events import PublishedEvents
from corral.controller.sessions.node_links import ModuleLink
from corral.controller.state.collections import MODULE_PACKAGES
from corral.controller.state.ledger import Ledger, Step
from corral.domain.ids import NodeId
from corral.domain.modules.records import PackageRecord
from corral.errors import Code
from corral.modules.capabilities.capability_registry import CapabilityRegistry
from corral.store.port import BlobEngine, Commit
from corral.system.clock import Clock
from corral.wire.features import support_of
from corral.wire.frame_table import NodeFrame
from corral.wire.handshake_lists import desired_entry
from corral.wire.v1.module_pb2 import (
    CapabilityCall,
    EventCursor,
    EventPublish,
    EventSubscribe,
    EventUnsubscribe,
    ModuleMetrics,
    ModuleSetEntry,
    ModuleStateUpdate,
)
from corral.wire.v1.node_pb2 import Handshake


class NodeModuleTraffic:
    """The `ModuleTraffic` of a term. Calls return at once; `close` ends the tasks they began."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        blobs: BlobEngine,
        hub: EventHub,
        registry: CapabilityRegistry,
        metrics: NodeMetrics,
        clock: Clock,
    ) -> None:
        """`registry` and `metrics` are those of the controller's own modules."""
        self._state = ledger.state
        self._clock = clock
        self._progress: Final = SyncProgress()
        self._distributor: Final = Distributor(state=ledger.state, blobs=blobs, progress=self._progress)
        self._forwarding: Final = EventBridge(
            hub=hub, clock=clock, declared=functools.partial(DeclaredNames, ledger.state)
        )
        self._offering: Final = OfferSender(registry)
        self._capabilities: Final = CapabilityServer(registry=registry, records=self._record, clock=clock)
        self._metrics: Final = metrics
        self._publishing: Final = PublishedEvents(clock=clock)

    def _record(self, id: str) -> PackageRecord | None:
        stored = self._state.modules.find(id)
        return stored.record if stored is not None else None

    # sessions

    def desired(self, node_id: NodeId) -> list[ModuleSetEntry]:
        return [desired_entry(desired) for desired in self._distributor.desired(node_id)]

    def event_head(self) -> EventCursor:
        return wire_cursor(self._forwarding.head)

    def joined(self, link: ModuleLink, hello: Handshake) -> None:
        self._distributor.joined(link, hello)
        self._forwarding.joined(link)
        self._offering.joined(link)

    def left(self, link: ModuleLink) -> None:
        self._distributor.left(link)
        self._forwarding.left(link)
        self._offering.left(link)
        self._capabilities.left(link)
        self._metrics.left(link)

    def follow(self, commit: Commit) -> None:
        """Follow a commit right after it is applied in memory."""
        self._distributor.follow(commit)
        if any(change.collection == MODULE_PACKAGES.name for change in commit.changes):
            self._forwarding.modules_changed()

    def resync(self) -> None:
        self._distributor.resync()
        self._forwarding.modules_changed()

    # frames from nodes

    def subscribed(self, link: ModuleLink, names: EventSubscribe) -> None:
        self._forwarding.subscribed(link, names)

    def unsubscribed(self, link: ModuleLink, unwanted: EventUnsubscribe) -> None:
        self._forwarding.unsubscribed(link, unwanted)

    def called(self, link: ModuleLink, call: CapabilityCall) -> None:
        self._capabilities.called(link, call)

    def metrics_reported(self, link: ModuleLink, metrics: ModuleMetrics) -> None:
        self._metrics.received(link, metrics)

    def state_reported(self, link: ModuleLink, update: ModuleStateUpdate, *, on_its_way: bool) -> None:
        node_id = link.facts.node_id
        complaint = states.update_error(self._state, node_id, update)
        if complaint is not None:
            late = complaint.code is Code.NOT_FOUND and self._distributor.knows(link, update.module_id)
            if not late:  # late: it was uninstalled while the report was on its way
                link.report(complaint, context="modules")
        elif on_its_way:
            self._progress.fetched(
                node_id, update.module_id, fetched=update.fetched_bytes, size=update.size_bytes
            )

    # what is stored

    def too_fast(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> list[NodeFrame]:
        """Frames to skip because the node publishes faster than its limit; each call counts its frames."""
        return [
            frame
            for frame in frames
            if frame.kind == "event_publish"
            and not self._publishing.admit(node_id, frame.message.event_publish)
        ]

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> list[Step]:
        """Steps for spooled messages about modules; pure."""
        now = self._clock.now()
        fold = StateFold(self._state, node_id, now=now)
        events: list[Step] = []
        for frame in frames:
            match payload := frame.payload:
                case ModuleStateUpdate():
                    events += fold.take(payload)
                case EventPublish():
                    events += self._publishing.steps(node_id, payload, self._record(payload.module_id))
        return fold.writes() + events

    def fold_inventory(self, node_id: NodeId, hello: Handshake) -> list[Step]:
        """The rows brought in line with the node's list; pure. An older daemon has no list."""
        if not support_of(hello.features).modules:
            return []
        return states.fold_list(self._state, node_id, hello, now=self._clock.now())

    # operators

    def connected(self, node_id: NodeId) -> bool:
        return self._distributor.connected(node_id)

    def progress(self, node_id: NodeId, id: str) -> str:
        """Progress of a module on its way to a node; empty when it is not."""
        return self._progress.text(node_id, id)

    async def close(self) -> None:
        """End the traffic with the term. Idempotent."""
        await self._distributor.close()
        await self._forwarding.close()
        await self._capabilities.close()
