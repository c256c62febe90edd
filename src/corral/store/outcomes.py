"""The outcome of the last batch as it lies in the head row, the same text in both adapters.

It is written in the batch's own transaction, so that after a crash or a lost answer the
question "was it stored, and what was refused?" has exactly one answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from corral.store.port import BatchOutcome, Head, Refusal


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    """Refusals are rare: only they are listed, by the transaction's place in the batch."""

    before: Head
    transactions: int
    refused: tuple[tuple[int, Refusal], ...]


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_Stored)


def encode_outcome(outcome: BatchOutcome) -> bytes:
    refused = tuple((place, refusal) for place, refusal in enumerate(outcome.refusals) if refusal is not None)
    return _ENCODER.encode(
        _Stored(before=outcome.before, transactions=len(outcome.refusals), refused=refused)
    )


def decode_outcome(stored: bytes | str) -> BatchOutcome:
    found = _DECODER.decode(stored)
    return outcome_of(before=found.before, transactions=found.transactions, refused=found.refused)


def outcome_of(*, before: Head, transactions: int, refused: Sequence[tuple[int, Refusal]]) -> BatchOutcome:
    """The outcome of so many transactions of which these were refused."""
    refusals: list[Refusal | None] = [None] * transactions
    for place, refusal in refused:
        refusals[place] = refusal
    return BatchOutcome(before=before, refusals=tuple(refusals))
