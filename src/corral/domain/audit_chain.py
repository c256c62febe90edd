"""Hash chain of the audit: each entry carries the hash of the entry before it and its own.

The hash of an entry is SHA-256 over the previous hash, the entry's number, its time in microseconds and its body, the
bytes that are stored. Stores compute it when they number an entry, PostgreSQL in SQL; whoever reads the audit can
compute it again. Entries from before the chain have no hashes and may only come first.

Pure: values in, faults out.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from typing import Final

import msgspec

GENESIS: Final = bytes(32)
"""The previous hash of the first entry of a chain."""

_DOMAIN: Final = b"corral.audit.1\0"
_ZERO: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


class ChainedEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A journal entry with its hashes; both are empty in entries from before the chain."""

    number: int
    at: dt.datetime
    body: bytes
    previous: bytes = b""
    hash: bytes = b""


class ChainPoint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An entry of a chain: its number, and its hash, empty when it has none. Number 0: before all entries."""

    number: int = 0
    hash: bytes = b""


class ChainState(msgspec.Struct, frozen=True, kw_only=True):
    """A chain as a store keeps it beside its entries: its first number (0: nothing is chained), its newest entry,
    and the last entry that retention removed."""

    first: int
    head: ChainPoint
    removed: ChainPoint


class ChainFault(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and the number of the entry at which it shows; 0: of none."""

    number: int
    what: str

    def __str__(self) -> str:
        return f"entry {self.number}: {self.what}" if self.number else self.what


def entry_hash(previous: bytes, number: int, at: dt.datetime, body: bytes) -> bytes:
    """The hash of an entry."""
    stamp = (at - _ZERO) // _MICROSECOND
    numbers = number.to_bytes(8, "big") + stamp.to_bytes(8, "big", signed=True)
    return hashlib.sha256(_DOMAIN + previous + numbers + body).digest()


class ChainCheck:
    """Checks entries one by one, in the order of their numbers; memory does not grow with them.

    `after` is the entry before the first that is checked. With an empty hash, entries without hashes may
    come first, and the first one with a hash is trusted to begin the chain, unless `first` says which number does.
    """

    def __init__(self, *, after: ChainPoint, first: int | None = None) -> None:
        self.last = after
        self.entries = 0
        self.unchained = 0
        self._first = first

    def add(self, entry: ChainedEntry) -> ChainFault | None:
        """The fault that shows at this entry. The check goes on from the entry as it is."""
        last = self.last
        fault = self._fault(entry, last)
        self.last = ChainPoint(number=entry.number, hash=entry.hash)
        self.entries += 1
        self.unchained += not entry.hash
        return fault

    def _fault(self, entry: ChainedEntry, last: ChainPoint) -> ChainFault | None:
        number = entry.number
        if number <= last.number:
            return ChainFault(
                number=number, what=f"it comes after entry {last.number}: entries were reordered"
            )
        if not entry.hash:
            if last.hash or (self._first and number >= self._first):
                return ChainFault(number=number, what="it has no hash though the chain began before it")
            return None
        if entry.hash != entry_hash(entry.previous, number, entry.at, entry.body):
            return ChainFault(number=number, what="its content does not have its hash: it was changed")
        if last.hash and entry.previous != last.hash:
            return ChainFault(
                number=number,
                what=f"it does not follow entry {last.number}: entries between them were removed, or one was inserted",
            )
        if not last.hash and self._first is not None and (number != self._first or entry.previous != GENESIS):
            return ChainFault(
                number=number,
                what=f"the chain begins with entry {self._first}: entries before this one are missing",
            )
        return None
