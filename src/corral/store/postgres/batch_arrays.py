"""The rows of a batch as the arguments of `corral_commit`.

The driver encodes an array element by element, which costs more than the server needs to store
it. Numbers and names therefore travel as PostgreSQL's own array text (`{1,2,NULL}`), built here
in one go; bodies stay binary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from corral.store.port import Put, Transaction

_ENCODE: Final = msgspec.json.Encoder().encode

COMMIT: Final = """select corral_commit($1, $2, $3, $4,
    $5::text::int[], $6::text::text[], $7::text::text[], $8::bytea[], $9::text::bigint[],
    $10::text::int[], $11::text::text[], $12::text::text[], $13::bytea[],
    $14::text::int[], $15::text::text[], $16::bytea[])"""
"""Epoch, batch, time and number of transactions, then what `batch_arrays` gives."""


def batch_arrays(transactions: Sequence[Transaction]) -> tuple[str | list[Any], ...]:
    """Writes, events and entries, column by column; places count the transactions from 1."""
    writes = [(place, write) for place, each in enumerate(transactions, 1) for write in each.writes]
    events = [(place, draft) for place, each in enumerate(transactions, 1) for draft in each.events]
    entries = [(place, entry) for place, each in enumerate(transactions, 1) for entry in each.entries]
    return (
        number_array(place for place, _ in writes),
        text_array([write.collection for _, write in writes]),
        text_array([write.id for _, write in writes]),
        [write.body if isinstance(write, Put) else None for _, write in writes],
        number_array(write.expect for _, write in writes),
        number_array(place for place, _ in events),
        text_array([draft.type.value for _, draft in events]),
        text_array([draft.subject for _, draft in events]),
        [_ENCODE(draft.data) for _, draft in events],
        number_array(place for place, _ in entries),
        text_array([entry.journal for _, entry in entries]),
        [entry.body for _, entry in entries],
    )


def number_array(numbers: Iterable[int | None]) -> str:
    return "{" + ",".join(["NULL" if number is None else str(number) for number in numbers]) + "}"


def text_array(texts: Sequence[str]) -> str:
    """Every element in quotes; inside them only the quote and the backslash are special."""
    joined = '","'.join(texts)
    if "\\" in joined or joined.count('"') != 2 * (len(texts) - 1):
        joined = '","'.join([text.replace("\\", "\\\\").replace('"', '\\"') for text in texts])
    return '{"' + joined + '"}' if texts else "{}"
