"""What the controller has not confirmed yet, kept on this node's disk.

Records are numbered once and for ever, sent in order, and dropped when confirmed. Two bounds hold
it in: log records make room for newer ones (each survivor knows how many were given up before it);
everything else is refused when full, which its caller must handle.

The spool is a small SQLite database behind one thread that commits in groups.
"""

from __future__ import annotations

import asyncio
import enum
import pathlib
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import msgspec
import structlog

from corral.errors import Code, Rejected, Retryable
from corral.system.entropy import Entropy, new_id

FORMAT_VERSION: Final = 1
_GROUP: Final = 512
_MAX_QUEUED: Final = 20_000
_log = structlog.get_logger("corral.daemon.spool")

_SCHEMA: Final = """
create table meta (one integer primary key check (one = 1), spool_id text not null);
create table record (
    sequence integer primary key autoincrement,
    kind integer not null,
    dropped integer not null default 0,
    body blob not null
);
create index record_kind on record (kind, sequence);
"""


class Kind(enum.IntEnum):
    STATE = 0
    LOG = 1


class Spooled(msgspec.Struct, frozen=True):
    """A record as it waits: `dropped` counts log records given up right before it."""

    sequence: int
    kind: Kind
    dropped: int
    body: bytes


_Job = tuple[Callable[[sqlite3.Connection], Any], Future[Any] | None]


class Spool:
    """Durable, ordered, bounded. All methods may be called from the event loop; none blocks it."""

    def __init__(
        self, *, spool_id: str, connection: sqlite3.Connection, log_bytes: int, max_bytes: int
    ) -> None:
        self.spool_id = spool_id
        self._connection = connection
        self._log_bytes = log_bytes
        self._max_bytes = max_bytes
        self._jobs: queue.Queue[_Job | None] = queue.Queue(maxsize=_MAX_QUEUED)
        self._held = dict.fromkeys(Kind, 0)
        self._lost_in_memory = 0
        self._on_growth: Callable[[], None] | None = None
        self._thread = threading.Thread(target=self._run, name="spool", daemon=True)

    @classmethod
    def open(cls, directory: pathlib.Path, *, entropy: Entropy, log_bytes: int, max_bytes: int) -> Spool:
        """Open or make the spool. A damaged one is put aside: what it held is lost, and we say so."""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = directory / "spool.db"
        try:
            connection, spool_id = _open_database(path, entropy)
        except sqlite3.DatabaseError as error:
            aside = path.with_suffix(f".damaged-{new_id('x', entropy)}")
            path.rename(aside)
            for suffix in ("-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            _log.error("spool.damaged", reason=str(error), kept_as=str(aside))
            connection, spool_id = _open_database(path, entropy)
        spool = cls(spool_id=spool_id, connection=connection, log_bytes=log_bytes, max_bytes=max_bytes)
        spool._measure()
        spool._thread.start()
        return spool

    def on_growth(self, callback: Callable[[], None] | None) -> None:
        """Called from the spool's thread whenever records were added."""
        self._on_growth = callback

    def log(self, body: bytes) -> None:
        """Keep a log record, as well as can be: never blocks, never fails, counts what it gives up."""
        try:
            self._jobs.put_nowait((lambda db: self._add_log(db, body), None))
        except queue.Full:
            self._lost_in_memory += 1

    async def put(self, body: bytes) -> int:
        """Keep a record that must not be lost; returns its number once it is on disk."""
        number: int = await self._ask(lambda db: self._add_state(db, body))
        return number

    async def waiting(self, after: int, *, limit: int) -> list[Spooled]:
        """The oldest records after this number."""
        sql = "select sequence, kind, dropped, body from record where sequence > ? order by sequence limit ?"
        rows = await self._ask(lambda db: db.execute(sql, (after, limit)).fetchall())
        return [Spooled(sequence, Kind(kind), dropped, body) for sequence, kind, dropped, body in rows]

    async def confirm(self, through: int) -> None:
        """The controller has stored everything up to this number."""
        await self._ask(lambda db: self._forget(db, through))

    async def close(self) -> None:
        """Write what is queued, then close. Nothing may be added afterwards."""
        if self._thread.is_alive():
            await asyncio.to_thread(self._jobs.put, None)
            await asyncio.to_thread(self._thread.join)
        self._connection.close()

    async def _ask(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        answer: Future[Any] = Future()
        try:
            self._jobs.put_nowait((work, answer))
        except queue.Full:
            raise Retryable(
                Code.STORE_UNAVAILABLE, "the node's spool does not keep up", retry_after=1.0
            ) from None
        return await asyncio.wrap_future(answer)

    def _run(self) -> None:
        while (first := self._jobs.get()) is not None:
            jobs = [first]
            stop = False
            while len(jobs) < _GROUP and not self._jobs.empty():
                job = self._jobs.get()
                if job is None:
                    stop = True
                    break
                jobs.append(job)
            self._commit(jobs)
            if stop:
                return

    def _commit(self, jobs: list[_Job]) -> None:
        """One transaction for all waiting jobs. When the disk refuses, only log records are lost."""
        before = self._held.copy()
        results: list[Any] = []
        try:
            self._connection.execute("begin immediate")
            for work, _ in jobs:
                results.append(self._guarded(work))
            self._connection.execute("commit")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.execute("rollback")
            self._held = before
            self._lost_in_memory += sum(1 for _, answer in jobs if answer is None)
            failure = Retryable(Code.STORE_UNAVAILABLE, f"the node's spool cannot be written: {error}")
            results = [failure] * len(jobs)
        for (_, answer), result in zip(jobs, results, strict=True):
            if answer is None or answer.cancelled():
                continue
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(result)
        if self._on_growth is not None and any(isinstance(result, int) for result in results):
            self._on_growth()

    def _guarded(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        try:
            return work(self._connection)
        except Rejected as refusal:
            return refusal

    def _add_state(self, db: sqlite3.Connection, body: bytes) -> int:
        if self._held[Kind.STATE] + len(body) > self._max_bytes:
            raise Rejected(
                Code.STORE_UNAVAILABLE,
                f"the node's spool is full ({self._max_bytes} bytes unconfirmed)",
                hint="reconnect the controller, or raise spool.max_bytes",
            )
        return self._insert(db, Kind.STATE, body, dropped=0)

    def _add_log(self, db: sqlite3.Connection, body: bytes) -> int:
        lost, self._lost_in_memory = self._lost_in_memory, 0
        number = self._insert(db, Kind.LOG, body, dropped=lost)
        if self._held[Kind.LOG] > self._log_bytes:
            self._make_room(db)
        return number

    def _insert(self, db: sqlite3.Connection, kind: Kind, body: bytes, *, dropped: int) -> int:
        self._held[kind] += len(body)
        cursor = db.execute(
            "insert into record (kind, dropped, body) values (?, ?, ?)", (kind, dropped, body)
        )
        return int(cursor.lastrowid or 0)

    def _make_room(self, db: sqlite3.Connection) -> None:
        """Give up the oldest log records until an eighth is free; the oldest survivor counts them."""
        goal = self._log_bytes - self._log_bytes // 8
        lost, last = 0, 0
        sql = "select sequence, dropped, length(body) from record where kind = ? order by sequence"
        for sequence, dropped, size in db.execute(sql, (Kind.LOG,)):
            if self._held[Kind.LOG] <= goal:
                break
            self._held[Kind.LOG] -= size
            lost += 1 + dropped
            last = sequence
        db.execute("delete from record where kind = ? and sequence <= ?", (Kind.LOG, last))
        survivor = "select min(sequence) from record where kind = ?"
        db.execute(
            f"update record set dropped = dropped + ? where sequence = ({survivor})",  # noqa: S608
            (lost, Kind.LOG),
        )

    def _forget(self, db: sqlite3.Connection, through: int) -> None:
        db.execute("delete from record where sequence <= ?", (through,))
        self._measure()

    def _measure(self) -> None:
        self._held = dict.fromkeys(Kind, 0)
        for kind, size in self._connection.execute(
            "select kind, sum(length(body)) from record group by kind"
        ):
            self._held[Kind(kind)] = size


def _open_database(path: pathlib.Path, entropy: Entropy) -> tuple[sqlite3.Connection, str]:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        path.chmod(0o600)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        version = connection.execute("pragma user_version").fetchone()[0]
        if version > FORMAT_VERSION:
            raise Rejected(
                Code.FORMAT_TOO_NEW,
                f"{path} has format version {version}, this Corral reads up to {FORMAT_VERSION}",
                hint="run the version of Corral that wrote it, or a newer one",
            )
        if version == 0:
            connection.executescript(f"begin; {_SCHEMA} pragma user_version = {FORMAT_VERSION}; commit;")
            connection.execute("insert into meta values (1, ?)", (new_id("spool", entropy),))
        row = connection.execute("select spool_id from meta").fetchone()
        if row is None:
            raise sqlite3.DatabaseError("the spool has no identity")
    except BaseException:
        connection.close()
        raise
    return connection, str(row[0])
