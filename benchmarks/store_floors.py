"""What a durable row costs without Corral: SQLite and PostgreSQL with the statements that are needed, and no more.

A floor stores plain rows, or the same rows as ours: the documents, the event of each, and perhaps an entry of a
journal each, in tables with the same columns and indexes. It compares nothing, checks no fence and has no
memory that follows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime as dt
import enum
import functools
import os
import pathlib
import sqlite3
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import asyncpg

from benchmarks.sizes import sized
from corral.store.postgres.commit_engine import number_array, text_array

WRITERS = 64
DOCUMENTS_EACH = 16
LONE = sized(300, 10)
COLLECTION = "instances"
BODY = b'{"phase":"RUNNING","node":"n-17","ports":[25565],"note":"' + b"x" * 240 + b'"}'
TYPE = "NODE_ONLINE"
DATA = b'{"phase":"RUNNING"}'
JOURNAL = "log:node:n-17"
ENTRY = b'{"level":"info","event":"instance.started","instance":"lobby-1","note":"' + b"x" * 60 + b'"}'
SECONDS = float(os.environ.get("CORRAL_BENCH_SECONDS", sized(1.0, 0.1)))


class Rows(enum.Enum):
    """What one transition stores."""

    DOCUMENT = 1
    EVENT = 2
    """The document and its event: what a transition of ours is."""
    ENTRY = 3
    """The document, its event and an entry of a journal."""


def names_of(commit: int) -> list[str]:
    """The documents of one floor commit: the same ones, in the same turns, as the callers use."""
    return [f"lobby-{number}-{commit % DOCUMENTS_EACH}" for number in range(WRITERS)]


async def by_callers(transition: Callable[[str], Awaitable[None]]) -> float:
    """Transitions a second by 64 callers, each with documents of its own, one after another."""
    done = 0
    ends = time.perf_counter() + SECONDS

    async def caller(number: int) -> None:
        nonlocal done
        turn = 0
        while time.perf_counter() < ends:
            await transition(f"lobby-{number}-{turn % DOCUMENTS_EACH}")
            turn += 1
            done += 1

    begun = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(WRITERS)))
    return done / (time.perf_counter() - begun)


async def lone(transition: Callable[[str], Awaitable[None]]) -> float:
    """The median time of one durable transition when nothing else is under way, in ms."""
    times = []
    for turn in range(LONE):
        begun = time.perf_counter()
        await transition(f"alone-{turn % DOCUMENTS_EACH}")
        times.append(time.perf_counter() - begun)
    return statistics.median(times) * 1000


class GroupCommit:
    """The least that lets many callers share a commit: a list, one commit at a time, an answer each."""

    def __init__(self, commit: Callable[[list[str]], Awaitable[None]]) -> None:
        self._commit = commit
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._wake = asyncio.Event()

    async def together(self) -> float:
        writer = asyncio.create_task(self._write(), name="bench/group-commit")
        rate = await by_callers(self._transition)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        return rate

    async def _transition(self, name: str) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, answer))
        self._wake.set()
        await answer

    async def _write(self) -> None:
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            batch, self._waiting = self._waiting, []
            await self._commit([name for name, _ in batch])
            for _, answer in batch:
                answer.set_result(None)
            await asyncio.sleep(0)


class Floor:
    """Commits of a bare database, in four arrangements."""

    def __init__(self) -> None:
        self._number = 0

    async def commit(self, names: list[str], *, rows: Rows) -> None:
        """Store these, durably, in one commit."""
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def grouped(self, rows: Rows) -> float:
        """A second, by 64 callers, each waiting for its own rows."""
        return await GroupCommit(functools.partial(self.commit, rows=rows)).together()

    async def together(self, rows: Rows) -> float:
        """A second, 64 a commit, nobody waiting for an answer."""
        begun = time.perf_counter()
        commits = 0
        while time.perf_counter() < begun + SECONDS:
            await self.commit(names_of(commits), rows=rows)
            commits += 1
        return commits * WRITERS / (time.perf_counter() - begun)

    async def alone(self) -> float:
        return await lone(lambda name: self.commit([name], rows=Rows.DOCUMENT))

    def _take(self, count: int) -> range:
        """The next numbers of events or entries."""
        self._number += count
        return range(self._number - count + 1, self._number + 1)


class SqliteFloor(Floor):
    """One thread, `executemany`, the same durability."""

    def __init__(self, data: pathlib.Path) -> None:
        super().__init__()
        self._db = sqlite3.connect(data / "floor.db", isolation_level=None, check_same_thread=False)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = full")
        self._db.executescript(
            """create table plain (
                collection text, id text, revision integer, body blob, primary key (collection, id)
            ) without rowid;
            create table log (n integer primary key, epoch integer, type text, subject text, at integer, data blob);
            create table entry (n integer primary key, journal text, at integer, body blob);
            create index entry_journal on entry (journal, n)"""
        )

    async def commit(self, names: list[str], *, rows: Rows) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._commit, names, rows)

    def _commit(self, names: list[str], rows: Rows) -> None:
        numbers = self._take(len(names))
        self._db.execute("begin immediate")
        self._db.executemany(
            """insert into plain values (?, ?, ?, ?)
            on conflict (collection, id) do update set revision = excluded.revision, body = excluded.body""",
            [(COLLECTION, name, number, BODY) for number, name in zip(numbers, names, strict=True)],
        )
        if rows is not Rows.DOCUMENT:
            self._db.executemany(
                "insert into log values (?, 1, ?, ?, ?, ?)",
                [(number, TYPE, name, 0, DATA) for number, name in zip(numbers, names, strict=True)],
            )
        if rows is Rows.ENTRY:
            self._db.executemany(
                "insert into entry values (?, ?, ?, ?)", [(number, JOURNAL, 0, ENTRY) for number in numbers]
            )
        self._db.execute("commit")

    async def close(self) -> None:
        self._thread.shutdown()
        self._db.close()


_PLAIN: Final = """insert into plain select * from unnest($1::text::text[], $2::text::text[], $3::text::bigint[], $4::bytea[])
    on conflict (collection, id) do update set revision = excluded.revision, body = excluded.body"""
_LOG: Final = """insert into log
    select n, 1, type, subject, $5, data
    from unnest($3::text::bigint[], $6::text::text[], $2::text::text[], $7::bytea[]) as e (n, type, subject, data)"""
_ENTRY: Final = """insert into plain_entry
    select n, journal, $5, body from unnest($3::text::bigint[], $8::text::text[], $9::bytea[]) as e (n, journal, body)"""
_STATEMENTS: Final = {
    Rows.DOCUMENT: _PLAIN,
    Rows.EVENT: f"with documents as ({_PLAIN}) {_LOG}",
    Rows.ENTRY: f"with documents as ({_PLAIN}), events as ({_LOG}) {_ENTRY}",
}


class PostgresFloor(Floor):
    """One connection, one statement a commit, its arrays sent as ours are."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> PostgresFloor:
        connection = await asyncpg.connect(url)
        await connection.execute(
            """create table plain (
                collection text collate "C", id text collate "C", revision bigint, body bytea,
                primary key (collection, id)
            ) with (fillfactor = 70);
            create table log (
                n bigint primary key, epoch bigint, type text, subject text, at timestamptz, data bytea
            );
            create table plain_entry (n bigint primary key, journal text collate "C", at timestamptz, body bytea);
            create index plain_entry_journal on plain_entry (journal, n)"""
        )
        return cls(connection)

    async def commit(self, names: list[str], *, rows: Rows) -> None:
        count = len(names)
        values: list[Any] = [
            text_array([COLLECTION] * count),
            text_array(names),
            number_array(self._take(count)),
            [BODY] * count,
        ]
        if rows is not Rows.DOCUMENT:
            values += [dt.datetime.now(dt.UTC), text_array([TYPE] * count), [DATA] * count]
        if rows is Rows.ENTRY:
            values += [text_array([JOURNAL] * count), [ENTRY] * count]
        await self._connection.execute(_STATEMENTS[rows], *values)

    async def close(self) -> None:
        await self._connection.close()
