"""Records of a spool, in its database. Used by one thread, inside the transactions it opens.

The counts that the bounds need are kept up to date, so the whole table is never read; a rollback restores the counts as
well.

How far records were sent is on disk before they are sent: `take` marks them. While a sender streams, the mark is
written with the record instead, and handing it out needs no write of its own. The mark never passes a record that was
added while no sender streamed: such a record counts as sent once it is taken.

Background reports are numbered no faster than a controller accepts them from one node: it refuses what is faster, and
has confirmed it all the same.
"""

from __future__ import annotations

import enum
import math
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from corral.errors import Code, Rejected
from corral.system.aio.token_bucket import TokenBucket

BACKGROUND_RECORDS: Final = 128
BACKGROUND_BYTES: Final = 65_536
"""How many bytes of background reports are numbered and unconfirmed at a time: the most that another record waits
behind."""
BACKGROUND_PER_SECOND: Final = 1000
BACKGROUND_AT_ONCE: Final = 2000
"""The burst of background reports that may become records; large ones count for more, which limits them to 2 MiB a
second. Each bound is about half of what a controller accepts from one node, or less."""
_KIB_PER_RECORD: Final = 2
BACKGROUND_PART: Final = 4
"""The background queue may use one in so many of the spool's bytes, in addition to the other records."""
MAX_NUMBER: Final = 2**63 - 1
"""The largest number SQLite gives to a record."""


class Kind(enum.IntEnum):
    STATE = 0
    LOG = 1


class Spooled(msgspec.Struct, frozen=True):
    """A stored record: `dropped` counts log records dropped right before it."""

    sequence: int
    kind: Kind
    dropped: int
    body: bytes


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a spool, known without a query."""

    spool_id: str
    state_bytes: int
    log_bytes: int
    highest: int
    """The highest number ever given to a record."""
    sent: int
    """The highest number ever handed out for sending."""
    forgotten: int = 0
    """Everything up to this number was confirmed and dropped."""
    lost: int = 0
    """Log records that were dropped and that no stored record counts yet."""
    background_bytes: int = 0
    """Size of the background reports that have no number yet."""
    numbered: tuple[tuple[int, int, int], ...] = ()
    """Numbered background reports that are not confirmed: id in the background queue, number, size."""
    background_confirmed: int = 0
    """The last id of the background queue that was confirmed since this spool was opened."""


class SpoolTable:
    """Records in order. Any thread may read `committed` and set `streaming`; everything else is for the owning
    thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        *,
        log_bytes: int,
        max_bytes: int,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = connection
        self._log_bytes = log_bytes
        self._max_bytes = max_bytes
        self.committed = _measure(connection)
        self._now = self.committed
        self._pace = TokenBucket(
            burst=BACKGROUND_AT_ONCE, per_second=BACKGROUND_PER_SECOND, monotonic=monotonic
        )
        self.streaming = False
        """A sender takes each record as soon as it is added."""
        if self.committed.background_bytes:
            self._begin_background()

    def begin(self) -> None:
        if self._db.in_transaction:  # a rollback failed when the disk did
            self._db.execute("rollback")
        self._db.execute("begin immediate")
        self._now = self.committed

    def commit(self) -> None:
        """Make everything written since `begin` durable; costs nothing when nothing was written."""
        if self._now.sent != self.committed.sent:
            self._db.execute("update sent set through = ?", (self._now.sent,))
        self._db.execute("commit")
        self.committed = self._now

    def rollback(self) -> None:
        """Undo everything since `begin`, the counts included."""
        self._now = self.committed
        if self._db.in_transaction:
            self._db.execute("rollback")

    def close(self) -> None:
        self._db.close()

    def lose(self, count: int) -> None:
        """Count log records that were lost before they were stored; the next stored one carries the count. Between
        transactions only."""
        if count:
            self.committed = msgspec.structs.replace(self.committed, lost=self.committed.lost + count)

    def add_state(self, body: bytes) -> int:
        """Store a record that must not be lost; refused when the bound is reached."""
        if self._now.state_bytes + len(body) > self._max_bytes:
            raise Rejected(
                Code.STORE_UNAVAILABLE,
                f"the node's spool is full ({self._max_bytes} bytes unconfirmed)",
                hint="reconnect the controller, or raise spool.max_bytes",
            )
        return self._insert(Kind.STATE, body, dropped=0)

    def add_background(self, body: bytes) -> int:
        """Store a report that must not be lost but may wait: it gets its number only when few of its kind are
        unconfirmed, so that no other record ever waits behind many of them. Returns its id in the background queue."""
        most = self._max_bytes // BACKGROUND_PART
        if self._now.background_bytes + len(body) > most:
            raise Rejected(
                Code.STORE_UNAVAILABLE,
                f"the node's spool holds {most} bytes of events that wait for the controller",
                hint="reconnect the controller, or raise spool.max_bytes",
            )
        added = self._db.execute("insert into background (body) values (?)", (body,))
        self._change(background_bytes=self._now.background_bytes + len(body))
        self.number_background()
        return int(added.lastrowid or 0)

    def _begin_background(self) -> None:
        """Continue with the background reports that the previous daemon left. A disk that refuses delays this until a
        write succeeds."""
        try:
            self.begin()
            self.number_background()
            self.commit()
        except sqlite3.Error:
            self.rollback()

    def background_delay(self) -> float:
        """Seconds until more background reports may become records; infinite while there are none, or while some must
        be confirmed first."""
        if not self.committed.background_bytes or not _has_room(self.committed.numbered):
            return math.inf
        return self._pace.wait()

    def number_background(self) -> None:
        """Make records of background reports, the oldest first, as far as their window and rate allow."""
        numbered = list(self._now.numbered)
        while self._now.background_bytes and _has_room(numbered) and not self._pace.wait():
            row = self._db.execute("select id, body from background order by id limit 1").fetchone()
            if row is None:
                self._change(background_bytes=0)
                break
            id, body = row
            self._db.execute("delete from background where id = ?", (id,))
            numbered.append((id, self._insert(Kind.STATE, body, dropped=0), len(body)))
            self._pace.spend(max(1.0, (1 + len(body) // 1024) / _KIB_PER_RECORD))
            self._change(background_bytes=self._now.background_bytes - len(body))
        self._change(numbered=tuple(numbered))

    def add_log(self, body: bytes) -> int:
        """Store a log record; older ones are dropped to make room."""
        lost = self._now.lost
        self._change(lost=0)
        number = self._insert(Kind.LOG, body, dropped=lost)
        if self._now.log_bytes > self._log_bytes:
            self._make_room()
        return number

    def take(self, after: int, limit: int) -> list[Spooled]:
        """The oldest records after this number, to be sent: from now on they count as sent."""
        sql = "select sequence, kind, dropped, body from record where sequence > ? order by sequence limit ?"
        rows = self._db.execute(sql, (_number(after), limit))
        found = [Spooled(sequence, Kind(kind), dropped, body) for sequence, kind, dropped, body in rows]
        if found and found[-1].sequence > self._now.sent:
            self._change(sent=found[-1].sequence)
        return found

    def forget(self, through: int) -> None:
        """Drop everything up to this number; nothing is written when there is nothing to drop."""
        last = min(_number(through), self._now.highest)
        if last <= self._now.forgotten:
            return
        sums = ", ".join(f"total(length(body)) filter (where kind = {kind:d})" for kind in Kind)
        sql = f"select {sums} from record where sequence <= ?"  # noqa: S608 - our own constants
        states, logs = self._db.execute(sql, (last,)).fetchone()
        self._db.execute("delete from record where sequence <= ?", (last,))
        self._change(
            state_bytes=self._now.state_bytes - int(states),
            log_bytes=self._now.log_bytes - int(logs),
            forgotten=last,
        )
        left = tuple(each for each in self._now.numbered if each[1] > last)
        gone = self._now.numbered[: len(self._now.numbered) - len(left)]
        if gone:
            self._change(numbered=left, background_confirmed=gone[-1][0])
        self.number_background()

    def rename(self, spool_id: str, *, confirmed: int) -> None:
        """Continue under another id after this disk was restored to an earlier state.

        Up to `confirmed` the controller has records of these numbers. Those that this spool itself had sent are among
        them; all others may be new, so they stay and are sent under the new id.
        """
        self.forget(min(_number(confirmed), self._now.sent))
        self._db.execute("update meta set spool_id = ?", (spool_id,))
        self._change(spool_id=spool_id, sent=0)

    def _insert(self, kind: Kind, body: bytes, *, dropped: int) -> int:
        sql = "insert into record (kind, dropped, body) values (?, ?, ?)"
        number = int(self._db.execute(sql, (kind, dropped, body)).lastrowid or 0)
        if self.streaming and self._now.sent == self._now.highest:
            self._change(sent=number)
        if kind is Kind.LOG:
            self._change(highest=number, log_bytes=self._now.log_bytes + len(body))
        else:
            self._change(highest=number, state_bytes=self._now.state_bytes + len(body))
        return number

    def _make_room(self) -> None:
        """Drop the oldest log records until an eighth is free; the oldest remaining record counts them."""
        goal = self._log_bytes - self._log_bytes // 8
        held, lost, last = self._now.log_bytes, 0, 0
        sql = "select sequence, dropped, length(body) from record where kind = ? order by sequence"
        for sequence, dropped, size in self._db.execute(sql, (Kind.LOG,)):
            if held <= goal:
                break
            held -= size
            lost += 1 + dropped
            last = sequence
        self._db.execute("delete from record where kind = ? and sequence <= ?", (Kind.LOG, last))
        counting = self._db.execute(
            "update record set dropped = dropped + ?1"
            " where sequence = (select min(sequence) from record where kind = ?2)",
            (lost, Kind.LOG),
        )
        self._change(log_bytes=held, lost=self._now.lost + (0 if counting.rowcount else lost))

    def _change(self, **fields: int | str | tuple[tuple[int, int, int], ...]) -> None:
        self._now = msgspec.structs.replace(self._now, **fields)


def _has_room(numbered: Sequence[tuple[int, int, int]]) -> bool:
    held = sum(size for _, _, size in numbered)
    return held < BACKGROUND_BYTES and len(numbered) < BACKGROUND_RECORDS


def _number(value: int) -> int:
    """A peer may send any number; SQLite takes those of 64 bits."""
    return min(max(value, 0), MAX_NUMBER)


def _measure(db: sqlite3.Connection) -> Tally:
    """Read the counts of a spool that was just opened."""
    held = dict.fromkeys(Kind, 0)
    for kind, size in db.execute("select kind, sum(length(body)) from record group by kind"):
        held[Kind(kind)] = size
    oldest = db.execute("select min(sequence) from record").fetchone()[0]
    highest = db.execute("select seq from sqlite_sequence where name = 'record'").fetchone()
    return Tally(
        spool_id=str(db.execute("select spool_id from meta").fetchone()[0]),
        state_bytes=held[Kind.STATE],
        log_bytes=held[Kind.LOG],
        highest=highest[0] if highest else 0,
        forgotten=oldest - 1 if oldest else (highest[0] if highest else 0),
        sent=db.execute("select through from sent").fetchone()[0],
        background_bytes=db.execute("select coalesce(sum(length(body)), 0) from background").fetchone()[0],
    )
