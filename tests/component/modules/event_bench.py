"""A store, a writer and a hub, with modules that are played by the test."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from corral.controller.events.hub import RING_EVENTS, EventHub
from corral.controller.modules.module_events import ModuleEvents
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger
from corral.domain.events import Draft, Event, EventType
from corral.domain.ids import Epoch
from corral.modules.scope import Scope
from corral.modules.services.host_operations import OperationTable
from corral.sdk.protocol.messages import (
    DELIVER,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    EventBody,
    Publish,
    Published,
    Subscribe,
    Unsubscribe,
)
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.port import Commit, Store
from corral.store.writer import Writer
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy


class EventBench:
    """One term on one store. `events` are the operations under test."""

    def __init__(self, store: Store, epoch: Epoch) -> None:
        self.store = store
        self.epoch = epoch
        self.state = ClusterState()
        self.hub: EventHub
        self.writer: Writer
        self.ledger: Ledger
        self._table: OperationTable

    async def begin(self, *, ring_events: int) -> None:
        clock = SystemClock()
        snapshot = await self.store.reads.snapshot(self.state.collections)
        self.state.load(snapshot)
        self.hub = EventHub(
            log=self.store.reads, clock=clock, head=snapshot.head.cursor, ring_events=ring_events
        )
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
        events = ModuleEvents(hub=self.hub, ledger=self.ledger, clock=clock)
        self._table = OperationTable(events.operations())

    def _fold(self, commit: Commit) -> None:
        self.state.apply(commit)
        self.hub.publish(commit)

    async def tell(self, *subjects: str, type: EventType = EventType.GROUP_CREATED) -> list[Event]:
        """Events of the cluster, one commit each."""
        told: list[Event] = []
        for subject in subjects:
            data = {"min": 7, "max": None} if type is EventType.GROUP_CREATED else {}
            commit = await self.ledger.commit(Draft(type=type, subject=subject, data=data))
            told += commit.events
        return told

    async def subscribe(self, scope: Scope, *types: str, number: int = 1, **more: Any) -> None:
        await self._call(scope, SUBSCRIBE, Subscribe(subscription=number, types=types, **more))

    async def unsubscribe(self, scope: Scope, number: int = 1) -> None:
        await self._call(scope, UNSUBSCRIBE, Unsubscribe(subscription=number))

    async def publish(self, scope: Scope, type: str, data: Any = None, *, subject: str = "") -> str:
        answer = await self._call(scope, PUBLISH, Publish(type=type, subject=subject, data=data or {}))
        assert isinstance(answer, Published)
        return answer.cursor

    async def publish_nested(self, scope: Scope, type: str, levels: int) -> object:
        """With so many lists inside each other; more than any encoder of ours would make."""
        raw = msgspec.msgpack.encode(Publish(type=type, data={"a": "deep"}))
        deep = b"\x91" * (levels - 1) + b"\x90"
        return await self._table.serve(
            scope, PUBLISH, msgspec.Raw(raw.replace(msgspec.msgpack.encode("deep"), deep))
        )

    async def _call(self, scope: Scope, method: str, body: object) -> object:
        return await self._table.serve(scope, method, msgspec.Raw(msgspec.msgpack.encode(body)))


@contextlib.asynccontextmanager
async def term_on(store: Store, *, ring_events: int = RING_EVENTS) -> AsyncIterator[EventBench]:
    """A term of leading, from its election to its end."""
    term = await Leadership(store.leases, clock=SystemClock(), holder="bench", uncontested=True).acquire()
    bench = EventBench(store, term.epoch)
    await bench.begin(ring_events=ring_events)
    async with bench.writer:
        try:
            yield bench
        finally:
            await bench.hub.close()


@contextlib.asynccontextmanager
async def event_bench(directory: pathlib.Path, **options: Any) -> AsyncIterator[EventBench]:
    store = await open_store("sqlite", data=directory)
    try:
        async with term_on(store, **options) as bench:
            yield bench
    finally:
        await store.close()


def delivered(calls: list[tuple[str, Any]]) -> list[EventBody]:
    return [event for method, body in calls if method == DELIVER for event in body.events]


def subjects(calls: list[tuple[str, Any]]) -> list[str]:
    return [event.subject for event in delivered(calls)]
