"""A term with a real store, writer and hub, and nodes of which the test holds the other end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from corral.controller.events.hub import RING_EVENTS, EventHub
from corral.controller.events.reader import EventLog
from corral.controller.modules_on_nodes.event_bridge import EventBridge
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger
from corral.domain.events import Cursor, Draft, Event, EventType
from corral.domain.ids import Epoch, NodeId, SessionId
from corral.errors import CorralError
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.port import Commit, Store
from corral.store.writer import Writer
from corral.system.clock import Clock, SystemClock
from corral.system.entropy import SystemEntropy
from corral.wire import features
from corral.wire.features import PeerSupport, support_of
from corral.wire.outbox import Outbox
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.module_pb2 import EventCursor, EventSubscribe, EventUnsubscribe, ModuleEvent


class AllNames:
    """As if some module for nodes declared everything."""

    def __contains__(self, _: object) -> bool:
        return True


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    id: SessionId
    node_id: NodeId
    supports: PeerSupport


class HeldLink:
    """A session whose frames wait in a real outbox until the test takes them, as from a node that reads."""

    def __init__(self, node_id: str = "north", *, session: str = "s1", known: tuple[str, ...] = ()) -> None:
        spoken = support_of(known or (features.MODULES,))
        self.facts = Facts(id=SessionId(session), node_id=NodeId(node_id), supports=spoken)
        self.outbox: Outbox[ControllerMessage] = Outbox(bundle=None)
        self.over = asyncio.Event()
        self.complaints: list[CorralError] = []
        self.seen: list[ControllerMessage] = []

    def send(self, message: ControllerMessage, /) -> bool:
        return self.outbox.send(message)

    def report(self, error: CorralError, *, context: str) -> None:
        assert context
        self.complaints.append(error)

    def take(self) -> list[ControllerMessage]:
        """Read all that waits; what was read before is in `seen`."""
        taken = []
        while len(self.outbox):
            taken += self.outbox._take()
        self.seen += taken
        return taken

    def events(self) -> list[ModuleEvent]:
        """All event frames so far, places without an event left out."""
        self.take()
        told = [m.module_event for m in self.seen if m.WhichOneof("payload") == "module_event"]
        return [event for event in told if event.event_type]

    def places(self) -> list[Cursor]:
        """The cursors of all event frames so far, with or without an event."""
        self.take()
        told = [m.module_event.cursor for m in self.seen if m.WhichOneof("payload") == "module_event"]
        return [Cursor(cursor.epoch, cursor.sequence) for cursor in told]

    def subjects(self) -> list[str]:
        return [payload(event)["subject"] for event in self.events() if not event.missed]


def payload(event: ModuleEvent) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(event.payload_json)
    return decoded


class BridgeBench:
    """One term on one store, with the bridge under test."""

    def __init__(self, store: Store, epoch: Epoch) -> None:
        self.store = store
        self.epoch = epoch
        self.state = ClusterState()
        self.commits = 0
        """How many are published."""
        self.hub: EventHub
        self.writer: Writer
        self.ledger: Ledger
        self.forwarding: EventBridge
        self.log: Any = store.reads
        """Where events are read from."""

    async def begin(self, *, ring_events: int, clock: Clock | None) -> None:
        clock = clock or SystemClock()
        snapshot = await self.store.reads.snapshot(self.state.collections)
        self.state.load(snapshot)
        self.hub = EventHub(log=self.log, clock=clock, head=snapshot.head.cursor, ring_events=ring_events)
        self.writer = Writer(
            self.store.commits,
            epoch=self.epoch,
            clock=clock,
            entropy=SystemEntropy(),
            on_commit=self._fold,
            on_fenced=lambda fenced: None,
            on_fatal=lambda error: None,
        )
        self.ledger = Ledger(self.writer, self.state)
        self.forwarding = EventBridge(hub=self.hub, clock=clock, declared=AllNames)

    def _fold(self, commit: Commit) -> None:
        self.state.apply(commit)
        self.hub.publish(commit)
        self.commits += 1

    async def tell(self, *subjects: str, type: EventType = EventType.GROUP_CREATED) -> list[Event]:
        """Events of the cluster, all in one commit."""
        named = type is EventType.GROUP_CREATED
        drafts = [Draft(type=type, subject=each, data={"min": 7} if named else {}) for each in subjects]
        return list((await self.ledger.commit(*drafts)).events)

    def join(self, link: HeldLink | None = None) -> HeldLink:
        link = link or HeldLink()
        self.forwarding.joined(link)
        return link

    def subscribe(self, link: HeldLink, *types: str, after: Cursor | None = None) -> None:
        place = EventCursor(epoch=after.epoch, sequence=after.sequence) if after else None
        self.forwarding.subscribed(link, EventSubscribe(event_types=types, after=place))

    def unsubscribe(self, link: HeldLink, *types: str) -> None:
        self.forwarding.unsubscribed(link, EventUnsubscribe(event_types=types))


@contextlib.asynccontextmanager
async def term_on(
    store: Store,
    *,
    ring_events: int = RING_EVENTS,
    clock: Clock | None = None,
    log: Callable[[EventLog], EventLog] | None = None,
) -> AsyncIterator[BridgeBench]:
    """A term of leading, from its election to its end. `log` is put around the store's."""
    term = await Leadership(store.leases, clock=SystemClock(), holder="bench", uncontested=True).acquire()
    bench = BridgeBench(store, term.epoch)
    if log is not None:
        bench.log = log(store.reads)
    await bench.begin(ring_events=ring_events, clock=clock)
    async with bench.writer:
        try:
            yield bench
        finally:
            await bench.forwarding.close()
            await bench.hub.close()


@contextlib.asynccontextmanager
async def bridge_bench(directory: pathlib.Path, **options: Any) -> AsyncIterator[BridgeBench]:
    store = await open_store("sqlite", data=directory)
    try:
        async with term_on(store, **options) as bench:
            yield bench
    finally:
        await store.close()
