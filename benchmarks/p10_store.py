"""P10: durable state transitions, next to the raw database on the same disk in the same run.

A transition is what the controller does all day: one document under compare-and-set, and the
event that describes it. 64 callers commit them one by one. The claim is measured against a bare
group commit: the same 64 callers, each waiting for its own plain row to be durable, behind one
thread (SQLite) or one connection (PostgreSQL), with no event, no comparison, no fence and no
memory. Two more floors decide nothing and tell where the distance comes from: 64 plain rows a
commit with nobody waiting for an answer, and the same with the event rows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import os
import pathlib
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import uvloop

from corral.domain.events import Draft, EventType
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.port import ABSENT, Commit, Put, Transaction
from corral.store.writer import Writer
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.postgres_server import PostgresServer

WRITERS = 64
DOCUMENTS_EACH = 16
BODY = b'{"phase":"RUNNING","node":"n-17","ports":[25565],"note":"' + b"x" * 240 + b'"}'
TYPE = "NODE_ONLINE"
DATA = b'{"phase":"RUNNING"}'
ROUNDS = 5
SECONDS = float(os.environ.get("CORRAL_BENCH_SECONDS", "1.5"))
TARGET_RATIO = 0.5
TARGET_LONE_MS = 1.0


class Bench:
    """A writer over one store, and memory that only follows its commits."""

    def __init__(self, writer: Writer, revisions: dict[str, int]) -> None:
        self._writer = writer
        self._revisions = revisions

    async def transition(self, name: str) -> None:
        await self._writer.commit(
            Transaction(
                writes=(
                    Put(
                        collection="instances",
                        id=name,
                        body=BODY,
                        expect=self._revisions.get(name, ABSENT),
                    ),
                ),
                events=(Draft(type=EventType.NODE_ONLINE, subject=name, data={"phase": "RUNNING"}),),
            )
        )

    async def together(self) -> float:
        """Transitions a second by 64 callers, each with documents of its own."""
        done = 0
        ends = time.perf_counter() + SECONDS

        async def caller(number: int) -> None:
            nonlocal done
            turn = 0
            while time.perf_counter() < ends:
                await self.transition(f"lobby-{number}-{turn % DOCUMENTS_EACH}")
                turn += 1
                done += 1

        begun = time.perf_counter()
        await asyncio.gather(*(caller(number) for number in range(WRITERS)))
        return done / (time.perf_counter() - begun)

    async def alone(self) -> float:
        """The median time of one durable transition when nothing else is under way, in ms."""
        times = []
        for turn in range(300):
            begun = time.perf_counter()
            await self.transition(f"alone-{turn % DOCUMENTS_EACH}")
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1000


@contextlib.asynccontextmanager
async def bench(url: str, data: pathlib.Path) -> AsyncIterator[Bench]:
    store = await open_store(url, data=data)
    clock = SystemClock()
    term = await Leadership(store.leases, clock=clock, holder="bench", uncontested=True).acquire()
    revisions: dict[str, int] = {}

    def follow(commit: Commit) -> None:
        for change in commit.changes:
            revisions[change.id] = change.revision

    def fail(error: BaseException) -> None:
        sys.exit(f"the benchmark lost its store: {error}")

    writer = Writer(
        store.commits,
        epoch=term.epoch,
        clock=clock,
        entropy=SystemEntropy(),
        on_commit=follow,
        on_fenced=fail,
        on_fatal=fail,
    )
    async with writer:
        yield Bench(writer, revisions)
    await store.close()


class GroupCommit:
    """The least that lets many callers share a commit: a list, one commit at a time, an answer each."""

    def __init__(self, commit: Callable[[list[str], int], Awaitable[None]]) -> None:
        self._commit = commit
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()

    async def together(self) -> float:
        done = 0
        ends = time.perf_counter() + SECONDS

        async def caller(number: int) -> None:
            nonlocal done
            turn = 0
            while time.perf_counter() < ends:
                answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.append((f"lobby-{number}-{turn % DOCUMENTS_EACH}", answer))
                self._wake.set()
                await answer
                turn += 1
                done += 1

        begun = time.perf_counter()
        writer = asyncio.create_task(self._write())
        await asyncio.gather(*(caller(number) for number in range(WRITERS)))
        taken = time.perf_counter() - begun
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        return done / taken

    async def _write(self) -> None:
        commits = 0
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch, self._waiting = self._waiting, []
            await self._commit([name for name, _ in batch], commits)
            commits += 1
            for _, answer in batch:
                answer.set_result(None)
            await asyncio.sleep(0)


def names_of(commit: int) -> list[str]:
    """The documents of one floor commit: the same ones, in the same turns, as the callers use."""
    return [f"lobby-{number}-{commit % DOCUMENTS_EACH}" for number in range(WRITERS)]


class SqliteFloor:
    """One thread, `executemany` of 64 rows a commit, the same durability."""

    def __init__(self, data: pathlib.Path) -> None:
        self._db = sqlite3.connect(data / "floor.db", isolation_level=None, check_same_thread=False)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.execute("create table plain (id text primary key, revision integer, body blob)")
        self._db.execute(
            "create table log (n integer primary key, type text, subject text, at int, data blob)"
        )
        self._at = 0

    async def together(self, *, events: bool = False) -> float:
        begun = time.perf_counter()
        commits = 0
        while time.perf_counter() < begun + SECONDS:
            self._commit(names_of(commits), commits, events=events)
            commits += 1
        return commits * WRITERS / (time.perf_counter() - begun)

    async def alone(self) -> float:
        times = []
        for turn in range(300):
            begun = time.perf_counter()
            self._commit([f"alone-{turn % DOCUMENTS_EACH}"], turn, events=False)
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1000

    def _commit(self, names: list[str], turn: int, *, events: bool) -> None:
        self._db.execute("begin immediate")
        self._db.executemany(
            """insert into plain values (?, ?, ?)
            on conflict (id) do update set revision = excluded.revision, body = excluded.body""",
            [(name, turn, BODY) for name in names],
        )
        if events:
            self._db.executemany(
                "insert into log values (?, ?, ?, ?, ?)",
                [(self._at + n, TYPE, name, turn, DATA) for n, name in enumerate(names)],
            )
            self._at += len(names)
        self._db.execute("commit")

    async def grouped(self) -> float:
        loop = asyncio.get_running_loop()
        commit = functools.partial(self._commit, events=False)
        return await GroupCommit(
            lambda names, turn: loop.run_in_executor(self._thread, commit, names, turn)
        ).together()

    async def close(self) -> None:
        self._thread.shutdown()
        self._db.close()


_PLAIN = """insert into plain select * from unnest($1::text[], $2::bigint[], $3::bytea[])
    on conflict (id) do update set revision = excluded.revision, body = excluded.body"""
_BOTH = f"""with documents as ({_PLAIN})
    insert into log select * from unnest($4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::bytea[])"""


class PostgresFloor:
    """One connection, `unnest` of 64 rows a commit."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._at = 0

    @classmethod
    async def open(cls, url: str) -> PostgresFloor:
        connection = await asyncpg.connect(url)
        await connection.execute(
            """create table plain (id text primary key, revision bigint, body bytea);
            create table log (n bigint primary key, type text, subject text, at bigint, data bytea)"""
        )
        return cls(connection)

    async def together(self, *, events: bool = False) -> float:
        begun = time.perf_counter()
        commits = 0
        while time.perf_counter() < begun + SECONDS:
            await self._commit(names_of(commits), commits, events=events)
            commits += 1
        return commits * WRITERS / (time.perf_counter() - begun)

    async def alone(self) -> float:
        times = []
        for turn in range(300):
            begun = time.perf_counter()
            await self._commit([f"alone-{turn % DOCUMENTS_EACH}"], turn, events=False)
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1000

    async def _commit(self, names: list[str], turn: int, *, events: bool) -> None:
        documents = (names, [turn] * len(names), [BODY] * len(names))
        if not events:
            await self._connection.execute(_PLAIN, *documents)
            return
        numbers = [self._at + n for n in range(len(names))]
        self._at += len(names)
        log = (numbers, [TYPE] * len(names), names, [turn] * len(names), [DATA] * len(names))
        await self._connection.execute(_BOTH, *documents, *log)

    async def grouped(self) -> float:
        return await GroupCommit(functools.partial(self._commit, events=False)).together()

    async def close(self) -> None:
        await self._connection.close()


async def compare(
    name: str, ours: Bench, floor: SqliteFloor | PostgresFloor, *, lone_target: float | None
) -> list[dict[str, object]]:
    """Rounds of both floors and ours in turn, so that a noisy neighbour hits all three."""
    both = functools.partial(floor.together, events=True)
    values, grouped, plain, same_rows = await _rounds(ours.together, floor.grouped, floor.together, both)
    lone, lone_floor = await _rounds(ours.alone, floor.alone)
    ratio = _ratio(values, grouped)
    lone_ms = statistics.median(lone)
    return [
        _entry(
            f"P10 {name}: durable transitions, {WRITERS} callers",
            (values, grouped),
            unit="1/s",
            target=f"≥ {TARGET_RATIO} of a bare group commit",
            ok=ratio >= TARGET_RATIO,
        ),
        _entry(
            f"P10 {name}: the same, floor 64 plain rows a commit",
            (values, plain),
            unit="1/s",
            target="none, for information",
            ok=None,
        ),
        _entry(
            f"P10 {name}: the same, floor with event rows",
            (values, same_rows),
            unit="1/s",
            target="none, for information",
            ok=None,
        ),
        _entry(
            f"P10 {name}: a lone durable transition, p50",
            (lone, lone_floor),
            unit="ms",
            target="none" if lone_target is None else f"≤ {lone_target} ms",
            ok=None if lone_target is None else lone_ms <= lone_target,
        ),
    ]


def _entry(
    name: str, measured: tuple[list[float], list[float]], *, unit: str, target: str, ok: bool | None
) -> dict[str, object]:
    """`ok` is None where there is nothing to be held to: never a pass."""
    values, floors = measured
    digits = 3 if unit == "ms" else None
    return {
        "name": name,
        "value": round(statistics.median(values), digits),
        "unit": unit,
        "floor": round(statistics.median(floors), digits),
        "ratio": round(_ratio(values, floors), 2),
        "target": target,
        "ok": ok,
    }


def _ratio(values: list[float], floors: list[float]) -> float:
    return statistics.median(value / base for value, base in zip(values, floors, strict=True))


async def _rounds(*measures: Callable[[], Awaitable[float]]) -> list[list[float]]:
    for measure in measures:
        await measure()  # the first round fills caches and creates the documents
    rounds = [[await measure() for measure in measures] for _ in range(ROUNDS)]
    return [list(column) for column in zip(*rounds, strict=True)]


async def _run(data: pathlib.Path, server: PostgresServer) -> list[dict[str, object]]:
    found = []
    async with bench("sqlite", data) as ours:
        sqlite_floor = SqliteFloor(data)
        found += await compare("SQLite", ours, sqlite_floor, lone_target=TARGET_LONE_MS)
        await sqlite_floor.close()
    async with bench(server.url(), data) as ours:
        postgres_floor = await PostgresFloor.open(server.url())
        found += await compare("PostgreSQL", ours, postgres_floor, lone_target=None)
        await postgres_floor.close()
    return found


def run() -> list[dict[str, object]]:
    """Both stores on a real disk (`CORRAL_BENCH_DIR`, else /var/tmp): a RAM disk has no flush."""
    disk = pathlib.Path(os.environ.get("CORRAL_BENCH_DIR", "/var/tmp"))
    with tempfile.TemporaryDirectory(dir=disk) as data, PostgresServer(parent=disk, durable=True) as server:
        return uvloop.run(_run(pathlib.Path(data), server))
