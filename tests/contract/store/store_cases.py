"""What the store's tests share: a leader at work, short names for transactions, conditions."""

from __future__ import annotations

import contextlib
import datetime as dt
import pathlib
from collections.abc import AsyncIterator

from corral.domain.events import Draft, EventType
from corral.domain.ids import Epoch
from corral.store.commit_batches import BatchLimits
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership, LeaseTiming
from corral.store.port import Append, Commit, CommitEngine, Delete, Document, Put, Store, Transaction
from corral.store.store_errors import Fenced
from corral.store.writer import Writer, WriterTiming
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.failing_store import FailingStore

SHORT = LeaseTiming(ttl=1.0, renew=0.1, margin=0.2, poll=0.02)
QUICK = WriterTiming(patience=30.0, first_probe=0.01, slowest_probe=0.05)

Key = tuple[str, str]


def put(id: str, body: bytes = b"{}", *, expect: int | None = None, collection: str = "things") -> Put:
    return Put(collection=collection, id=id, body=body, expect=expect)


def drop(id: str, *, expect: int | None = None, collection: str = "things") -> Delete:
    return Delete(collection=collection, id=id, expect=expect)


def happened(subject: str, **data: object) -> Draft:
    return Draft(type=EventType.NODE_ONLINE, subject=subject, data=dict(data))


def transaction(*steps: Put | Delete | Draft | Append) -> Transaction:
    return Transaction(
        writes=tuple(step for step in steps if isinstance(step, Put | Delete)),
        events=tuple(step for step in steps if isinstance(step, Draft)),
        entries=tuple(step for step in steps if isinstance(step, Append)),
    )


class Desk:
    """A leader at work: its writer, and memory as nothing but the fold of its commits."""

    def __init__(self, store: Store, epoch: Epoch, documents: tuple[Document, ...] = ()) -> None:
        self.store = store
        self.epoch = epoch
        self.memory: dict[Key, Document] = {(d.collection, d.id): d for d in documents}
        self.commits: list[Commit] = []
        self.fenced: list[Fenced] = []
        self.fatal: list[BaseException] = []
        self.writer: Writer

    async def commit(self, *steps: Put | Delete | Draft | Append) -> Commit:
        return await self.writer.commit(transaction(*steps))

    def apply(self, commit: Commit) -> None:
        self.commits.append(commit)
        for change in commit.changes:
            if change.body is None:
                self.memory.pop((change.collection, change.id), None)
            else:
                self.memory[change.collection, change.id] = Document(
                    collection=change.collection, id=change.id, revision=change.revision, body=change.body
                )

    async def stored(self) -> dict[Key, Document]:
        snapshot = await self.store.reads.snapshot()
        return {(d.collection, d.id): d for d in snapshot.documents}


@contextlib.asynccontextmanager
async def at_work(
    store: Store,
    *,
    epoch: Epoch | None = None,
    limits: BatchLimits | None = None,
    timing: WriterTiming = QUICK,
) -> AsyncIterator[Desk]:
    """Lead (uncontested, unless an epoch is given) and write."""
    if epoch is None:
        term = await Leadership(store.leases, clock=SystemClock(), holder="desk", uncontested=True).acquire()
        epoch = term.epoch
    desk = Desk(store, epoch, (await store.reads.snapshot()).documents)
    desk.writer = Writer(
        store.commits,
        epoch=epoch,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        on_commit=desk.apply,
        on_fenced=desk.fenced.append,
        on_fatal=desk.fatal.append,
        limits=limits,
        timing=timing,
    )
    async with desk.writer:
        yield desk


def with_commits(store: Store, commits: CommitEngine) -> Store:
    return Store(
        name=store.name,
        exclusive=store.exclusive,
        commits=commits,
        reads=store.reads,
        leases=store.leases,
        blobs=store.blobs,
        close=store.close,
    )


class ManualClock:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.wall = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
        self.running = 1000.0

    def now(self) -> dt.datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.running

    def boottime(self) -> float:
        return self.running


class House:
    """A place where one store lives. Everything opened here is closed when the test ends."""

    def __init__(self, kind: str, url: str, data: pathlib.Path) -> None:
        self.kind = kind
        self.url = url
        self.data = data
        self._opened: list[Store] = []

    async def open(self) -> Store:
        store = await open_store(self.url, data=self.data)
        if self.kind == "failing":
            store = FailingStore(store)
        self._opened.append(store)
        return store

    async def another(self, store: Store) -> Store:
        """The store as a second controller sees it: itself, where only one may open it."""
        return await self.open() if self.kind == "postgres" else store

    async def close(self) -> None:
        while self._opened:
            await self._opened.pop().close()
