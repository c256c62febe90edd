"""From a batch's outcome to what each of its transactions did: pure numbering, no I/O."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from corral.domain.events import Cursor, Draft, Event
from corral.domain.ids import Epoch
from corral.store.port import (
    Append,
    BatchOutcome,
    Change,
    Commit,
    Delete,
    Entry,
    Put,
    Refusal,
    Transaction,
)


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
        yield Commit(
            number=number,
            epoch=epoch,
            at=at,
            changes=tuple([_change(write, number) for write in transaction.writes]),
            events=_events(transaction.events, sequence, epoch, at),
            entries=_entries(transaction.entries, entry, at),
        )
        sequence += len(transaction.events)
        entry += len(transaction.entries)


def _change(write: Put | Delete, number: int) -> Change:
    body = write.body if isinstance(write, Put) else None
    return Change(collection=write.collection, id=write.id, revision=number, body=body)


def _events(drafts: Sequence[Draft], last: int, epoch: Epoch, at: dt.datetime) -> tuple[Event, ...]:
    return tuple(
        [
            Event(
                cursor=Cursor(epoch, sequence),
                type=draft.type,
                subject=draft.subject,
                at=at,
                data=draft.data,
            )
            for sequence, draft in enumerate(drafts, last + 1)
        ]
    )


def _entries(appends: Sequence[Append], last: int, at: dt.datetime) -> tuple[Entry, ...]:
    return tuple(
        [
            Entry(journal=append.journal, number=number, at=at, body=append.body)
            for number, append in enumerate(appends, last + 1)
        ]
    )
