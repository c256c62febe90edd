"""Batches of transactions for the writer: which waiting transactions are committed together, and what each of
them did by the outcome of its batch. Pure: no I/O."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from corral.domain.events import Cursor, Event
from corral.domain.ids import Epoch
from corral.errors import Bug, Code, Rejected
from corral.store.port import BatchOutcome, Change, Commit, Entry, Put, Refusal, Transaction
from corral.store.rows import encode_data

DocumentKey = tuple[str, str]

_OVERHEAD: Final = 64
"""Rough cost in bytes of a name besides a body, so that many tiny rows count too."""


class BatchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a batch may grow, and how many transactions may wait for one."""

    transactions: int = 512
    bytes: int = 4 * 1024 * 1024
    body: int = 16 * 1024 * 1024
    waiting: int = 10_000


class Waiting(msgspec.Struct, eq=False):
    """A transaction, checked, and the caller who waits for its commit."""

    transaction: Transaction
    keys: tuple[DocumentKey, ...]
    weight: int
    answer: asyncio.Future[Commit]


class WaitingLine:
    """First come, first served for each document; no batch touches a document twice."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._line: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def join(self, waiting: Waiting) -> None:
        self._line.append(waiting)

    def cut(self) -> list[Waiting]:
        """Take the next batch off the line; empty when none waits.

        A transaction that touches a document of the batch stays behind, and so does every later one that
        touches one of *its* documents: the order for each document is kept. The number of transactions
        examined is bounded, so that a line for one busy document does not cost its square.
        """
        batch: list[Waiting] = []
        stay: list[Waiting] = []
        taken: set[DocumentKey] = set()
        room = self._limits.bytes
        looks = 2 * self._limits.transactions
        line = self._line
        while line and looks and len(batch) < self._limits.transactions:
            looks -= 1
            waiting = line.popleft()
            if not taken.isdisjoint(waiting.keys):
                stay.append(waiting)
            elif batch and waiting.weight > room:
                line.appendleft(waiting)
                break
            else:
                batch.append(waiting)
                room -= waiting.weight
            taken.update(waiting.keys)
        line.extendleft(reversed(stay))
        return batch

    def leave(self) -> Iterator[Waiting]:
        """Take every transaction off the line."""
        while self._line:
            yield self._line.popleft()


def examine(transaction: Transaction, limits: BatchLimits) -> tuple[tuple[DocumentKey, ...], int]:
    """The documents a transaction touches, and its weight in bytes.

    Everything that a database could refuse is refused here, where it fails its caller: inside a batch it
    would fail the other transactions.
    """
    keys: list[DocumentKey] = []
    names: list[str] = []
    bodies: list[bytes] = []
    for write in transaction.writes:
        key = (write.collection, write.id)
        keys.append(key)
        names += key
        if isinstance(write, Put):
            bodies.append(write.body)
    for draft in transaction.events:
        names.append(draft.subject)
        bodies.append(encode_data(draft.data))
    for entry in transaction.entries:
        names.append(entry.journal)
        bodies.append(entry.body)
    if len(keys) > 1 and len(set(keys)) != len(keys):
        raise Bug(f"a transaction names a document twice: {keys}")
    _check_names(names)
    return tuple(keys), _OVERHEAD * len(names) + _weigh(bodies, limits)


def _check_names(names: list[str]) -> None:
    """Refuse what is not Unicode text, or contains the one character PostgreSQL cannot hold."""
    together = "".join(names)
    if together.isascii() and "\0" not in together:
        return
    for name in names:
        try:
            storable = b"\0" not in name.encode()
        except UnicodeEncodeError:
            storable = False
        if not storable:
            raise Rejected(Code.INVALID_FIELD, f"{name!r} cannot be stored", hint="use plain Unicode text")


def _weigh(bodies: list[bytes], limits: BatchLimits) -> int:
    weight = 0
    for body in bodies:
        if not isinstance(body, bytes):
            raise Bug(f"a body must be bytes, not {type(body).__name__}")
        size = len(body)
        if size > limits.body:
            raise Rejected(
                Code.BODY_TOO_LARGE,
                f"a document of {size} bytes is larger than the store takes ({limits.body})",
                hint="store large content as an artifact",
            )
        weight += size
    return weight


def commits_of(
    outcome: BatchOutcome, transactions: Sequence[Transaction], *, epoch: Epoch, at: dt.datetime
) -> Iterator[Commit | Refusal]:
    """One result for each transaction, in their order.

    The adapters number in exactly this way: commits, events and entries each count on from the
    head before the batch, over the accepted transactions in order, without a hole.
    """
    number = outcome.before.commit
    sequence = outcome.before.sequence
    entry = outcome.before.entry
    for transaction, refusal in zip(transactions, outcome.refusals, strict=True):
        if refusal is not None:
            yield refusal
            continue
        number += 1
        changes: list[Change] = []
        for write in transaction.writes:
            body = write.body if isinstance(write, Put) else None
            changes.append(Change(collection=write.collection, id=write.id, revision=number, body=body))
        events: list[Event] = []
        for draft in transaction.events:
            sequence += 1
            cursor = Cursor(epoch, sequence)
            events.append(
                Event(cursor=cursor, type=draft.type, subject=draft.subject, at=at, data=draft.data)
            )
        entries: list[Entry] = []
        for append in transaction.entries:
            entry += 1
            entries.append(Entry(journal=append.journal, number=entry, at=at, body=append.body))
        yield Commit(
            number=number,
            epoch=epoch,
            at=at,
            changes=tuple(changes),
            events=tuple(events),
            entries=tuple(entries),
        )
