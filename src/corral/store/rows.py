"""Rows of the store, as far as both adapters agree: columns of documents and events, valid cursors, and the
outcome of the last batch.

`SELECT`s name their columns in the order that is unpacked here. An event's row that cannot be read is served
with a stand-in: one damaged row must not keep every reader from all that follows it.

The outcome of the last batch is stored in the head row, as the same text in both adapters. It is written in
the batch's own transaction, so that after a crash or a lost answer the question "was it stored, and what was
refused?" has exactly one answer.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from corral.domain.audit_chain import ChainedEntry, ChainPoint, ChainState
from corral.domain.events import DATA_DEPTH, OMITTED, START, Cursor, Event, EventType, event_type
from corral.domain.ids import Epoch
from corral.domain.json_limits import deeper_than
from corral.errors import Code, Rejected
from corral.store.port import BatchOutcome, Change, Document, EventBounds, Head, IndexRow, Refusal

UNREADABLE: Final = "the data of this event cannot be read"
_NO_TIME: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODER: Final = msgspec.json.Encoder()


def encode_data(data: dict[str, Any]) -> bytes:
    """Event data as it is stored. INVALID_FIELD for what is no JSON, or nested too deeply for some encoder."""
    try:
        body = None if deeper_than(data, DATA_DEPTH) else _ENCODER.encode(data)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Rejected(Code.INVALID_FIELD, f"the data of an event must be JSON: {error}") from None
    if body is None:
        raise Rejected(Code.INVALID_FIELD, f"the data of an event is nested deeper than {DATA_DEPTH} levels")
    return body


def head_of(row: Iterable[Any]) -> Head:
    commit, sequence, event_epoch, entry, batch, epoch = row
    return Head(
        commit=commit,
        sequence=sequence,
        event_epoch=Epoch(event_epoch),
        entry=entry,
        batch=batch,
        epoch=Epoch(epoch),
    )


def document_of(row: Iterable[Any]) -> Document:
    collection, id, revision, body = row
    return Document(collection=collection, id=id, revision=revision, body=body)


def index_row_of(row: Iterable[Any]) -> IndexRow:
    """The columns of an entry, then those of the document that it names, all null when there is none."""
    values = tuple(row)
    return IndexRow(
        entry=document_of(values[:4]), document=None if values[4] is None else document_of(values[4:])
    )


def change_of(row: Iterable[Any]) -> Change:
    collection, id, revision, body = row
    return Change(collection=collection, id=id, revision=revision, body=body)


def chained_entry_of(row: Iterable[Any], *, time: Callable[[Any], dt.datetime]) -> ChainedEntry:
    number, at, body, previous, hash = row
    if isinstance(body, str):  # SQLite keeps what others write there as they wrote it
        body = body.encode()
    return ChainedEntry(number=number, at=time(at), body=body, previous=previous or b"", hash=hash or b"")


def chain_of(row: Iterable[Any]) -> ChainState:
    first, number, hash, removed, removed_hash = row
    return ChainState(
        first=first,
        head=ChainPoint(number=number, hash=hash or b""),
        removed=ChainPoint(number=removed, hash=removed_hash or b""),
    )


def bounds_of(row: Iterable[int | None]) -> EventBounds:
    through, by_count, by_bytes = row
    return EventBounds(through=through or 0, module_events_through=max(by_count or 0, by_bytes or 0))


def event_of(row: Iterable[Any], *, time: Callable[[Any], dt.datetime]) -> Event:
    """Never raises. Data that cannot be read, or could not be written today, is left off, a type that only
    another version of Corral knows becomes EVENT_UNREADABLE, and an invalid time is 1970."""
    sequence, epoch, type, subject, at, data = row
    cursor, read = Cursor(epoch, sequence), _read_data(data)
    try:
        when = time(at)
    except (TypeError, ValueError, OverflowError):
        when = _NO_TIME
    known = event_type(type)
    if known is None:
        unreadable = {OMITTED: "this version of Corral does not know the event's type", "type": type[:100]}
        return Event(
            cursor=cursor, type=EventType.EVENT_UNREADABLE, subject=subject, at=when, data=unreadable
        )
    return Event(cursor=cursor, type=known, subject=subject, at=when, data=read)


def _read_data(data: bytes | str) -> dict[str, Any]:
    try:
        read = _DECODER.decode(data)
    except (ValueError, RecursionError):
        return {OMITTED: UNREADABLE}
    return {OMITTED: UNREADABLE} if deeper_than(read, DATA_DEPTH) else read


def check_cursor(
    after: Cursor, *, trimmed: Cursor, last: int, epoch_before: int | None, epoch_behind: int | None
) -> None:
    """Refuse a cursor from which the log cannot be continued without a gap.

    `trimmed` is the last event that was dropped (START for none), `last` the newest sequence, `epoch_before`
    and `epoch_behind` the epochs of the nearest events up to the cursor's sequence and from it on, None where
    there is none: both are that of the event itself, unless it was dropped from among others. A cursor
    exactly at the trimmed event is fine: everything after it is still there.
    """
    if after == trimmed:
        return
    if after.sequence > last:
        raise _resync(f"event {after} is ahead of this log, which ends at {last}")
    if after == START or after.sequence <= trimmed.sequence:
        raise _resync(f"events after {after} were dropped, up to {trimmed}")
    oldest = trimmed.epoch if epoch_before is None else epoch_before
    newest = after.epoch if epoch_behind is None else epoch_behind
    if not oldest <= after.epoch <= newest:
        raise _resync(f"event {after} is of another history of this log")


def check_commit(after: int, *, trimmed: int, last: int) -> None:
    """Refuse a commit number after which deletions may have been dropped."""
    if after > last:
        raise _resync(f"commit {after} is ahead of this store, which is at {last}")
    if after < trimmed:
        raise _resync(f"deletions after commit {after} were dropped, up to {trimmed}")


def _resync(what: str) -> Rejected:
    return Rejected(Code.RESYNC_REQUIRED, what, hint="read the current state, then follow from its position")


class _StoredOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Refusals are rare: only they are listed, by the transaction's place in the batch."""

    before: Head
    transactions: int
    refused: tuple[tuple[int, Refusal], ...]


_OUTCOME_ENCODER: Final = msgspec.json.Encoder()
_OUTCOME_DECODER: Final = msgspec.json.Decoder(_StoredOutcome)


def encode_outcome(outcome: BatchOutcome) -> bytes:
    refused = tuple((place, refusal) for place, refusal in enumerate(outcome.refusals) if refusal is not None)
    return _OUTCOME_ENCODER.encode(
        _StoredOutcome(before=outcome.before, transactions=len(outcome.refusals), refused=refused)
    )


def decode_outcome(stored: bytes | str) -> BatchOutcome:
    found = _OUTCOME_DECODER.decode(stored)
    return outcome_of(before=found.before, transactions=found.transactions, refused=found.refused)


def outcome_of(*, before: Head, transactions: int, refused: Sequence[tuple[int, Refusal]]) -> BatchOutcome:
    """The outcome of so many transactions of which these were refused."""
    refusals: list[Refusal | None] = [None] * transactions
    for place, refusal in refused:
        refusals[place] = refusal
    return BatchOutcome(before=before, refusals=tuple(refusals))
