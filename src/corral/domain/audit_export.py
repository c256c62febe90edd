"""Export of the audit: lines of JSON that can be verified without the controller they came from.

    {"kind":"corral.audit","format":1,…,"first":N,"after":{"number":N,"hash":"…"}}   what the first entry follows
    {"number":N,"at":"…","previous":"…","hash":"…","entry":{…}}                      one line an entry, the oldest first
    {"end":true,"entries":N,"head":{"number":N,"hash":"…"},"sha256":"…"}             over all bytes before this line

`entry` holds the stored bytes: the hash is over them. The last line tells a whole export from a cut one. Hashes are no
signatures: whoever can rewrite all of an export can make it consistent again. An expected hash, of a head that was
written down before, shows that and every cut.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from corral.domain.audit_chain import ChainCheck, ChainedEntry, ChainFault, ChainPoint, ChainState

MEDIA_TYPE: Final = "application/x-ndjson"
LINE_MAX: Final = 64 * 1024 * 1024
"""The longest line that a reader takes; entries are bounded by the store."""
REMOVAL_ACTION: Final = "audit.remove"
"""Of entries with which the controller records, before it does so, that retention removes the oldest ones."""
MOST_FAULTS: Final = 100
"""So many faults are kept; the others are counted."""

_ENCODE: Final = msgspec.json.Encoder().encode


class PointLine(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    hash: str

    @classmethod
    def of(cls, point: ChainPoint) -> PointLine:
        return cls(number=point.number, hash=point.hash.hex())


class HeaderLine(msgspec.Struct, frozen=True, kw_only=True):
    kind: Literal["corral.audit"] = "corral.audit"
    format: Literal[1] = 1
    cluster: str
    exported_at: dt.datetime
    since: dt.datetime | None
    until: dt.datetime | None
    first: int
    """The entry that began the chain; 0: none is chained."""
    after: PointLine
    """The entry before the first of this export."""


class EntryLine(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    at: dt.datetime
    previous: str
    hash: str
    entry: msgspec.Raw


class EndLine(msgspec.Struct, frozen=True, kw_only=True):
    end: Literal[True] = True
    entries: int
    head: PointLine
    sha256: str


class ExportWriter:
    """The lines of an export, as bytes. First `begin`, then an `add` for each entry, then `finish`."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._entries = 0
        self._last = ChainPoint()

    def begin(
        self,
        *,
        cluster: str,
        at: dt.datetime,
        since: dt.datetime | None,
        until: dt.datetime | None,
        chain: ChainState,
        after: ChainPoint,
    ) -> bytes:
        self._last = after
        header = HeaderLine(
            cluster=cluster,
            exported_at=at,
            since=since,
            until=until,
            first=chain.first,
            after=PointLine.of(after),
        )
        return self._line(_ENCODE(header))

    def add(self, entry: ChainedEntry) -> bytes:
        self._entries += 1
        self._last = ChainPoint(number=entry.number, hash=entry.hash)
        line = EntryLine(
            number=entry.number,
            at=entry.at,
            previous=entry.previous.hex(),
            hash=entry.hash.hex(),
            entry=msgspec.Raw(entry.body),
        )
        return self._line(_ENCODE(line))

    def finish(self) -> bytes:
        end = EndLine(entries=self._entries, head=PointLine.of(self._last), sha256=self._digest.hexdigest())
        return _ENCODE(end) + b"\n"

    def _line(self, encoded: bytes) -> bytes:
        line = encoded + b"\n"
        self._digest.update(line)
        return line


class ExportVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of an export found; without `faults` it is whole and unchanged."""

    cluster: str
    entries: int
    unchained: int
    first_number: int
    removed: int
    """Entries up to this one are not there any more; 0: none is missing, or it is an export of a range of time."""
    removal: int
    """The entry that records it."""
    removal_is_proved: bool
    """Whether the expected hash is of this entry or a later one: behind it an entry may be forged."""
    head: ChainPoint
    faults: tuple[ChainFault, ...]
    more_faults: int

    @property
    def intact(self) -> bool:
        return not self.faults


_HEADER: Final = msgspec.json.Decoder(HeaderLine)
_ENTRY: Final = msgspec.json.Decoder(EntryLine)
_END: Final = msgspec.json.Decoder(EndLine)
_BAD: Final = (msgspec.DecodeError, msgspec.ValidationError, ValueError, OverflowError)


class ExportCheck:
    """Checks the lines of an export one by one; memory does not grow with them. `expect`: a hash that an entry of the
    export, or the one that it follows, has to have."""

    def __init__(self, *, expect: bytes | None = None) -> None:
        self._expect = expect
        self._met = expect is None
        self._missing = self._removal = 0
        self._removal_is_proved = False
        self._digest = hashlib.sha256()
        self._header: HeaderLine | None = None
        self._chain = ChainCheck(after=ChainPoint())
        self._first_number = 0
        self._ended = False
        self._lines = 0
        self._faults: list[ChainFault] = []
        self._more = 0

    def add(self, line: bytes) -> None:
        """Check the next line, its line feed included."""
        self._lines += 1
        if self._header is None:
            self._begin(line)
        elif self._ended:
            self._report(0, f"line {self._lines} comes after the end of the export")
        elif line.startswith(b'{"end":'):
            self._finish(line)
        else:
            self._entry(line)

    def verdict(self) -> ExportVerdict:
        """Call it after the last line."""
        if self._header is None and not self._lines:
            self._report(0, "this is empty: no export of the audit")
        elif not self._ended:
            self._report(0, f"the export has no end: it was cut after entry {self._chain.last.number}")
        if self._missing and not self._removal:
            self._report(
                self._missing,
                "it and all before it are gone, and no entry records that retention removed them: they were cut off, "
                "or removed by a version of Corral that recorded none",
            )
        if not self._met and self._expect is not None:
            self._report(
                0,
                f"no entry has the expected hash {self._expect.hex()}: entries from it on were cut or changed, "
                "or it is older than this export",
            )
        return ExportVerdict(
            cluster=self._header.cluster if self._header else "",
            entries=self._chain.entries,
            unchained=self._chain.unchained,
            first_number=self._first_number,
            removed=self._missing,
            removal=self._removal,
            removal_is_proved=self._removal_is_proved,
            head=self._chain.last,
            faults=tuple(self._faults),
            more_faults=self._more,
        )

    def _begin(self, line: bytes) -> None:
        self._digest.update(line)
        try:
            self._header = header = _HEADER.decode(line)
            after = ChainPoint(number=header.after.number, hash=bytes.fromhex(header.after.hash))
        except _BAD:
            self._header = HeaderLine(
                cluster="",
                exported_at=dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
                since=None,
                until=None,
                first=0,
                after=PointLine(number=0, hash=""),
            )
            self._report(0, "the first line is not the head of an export of the audit")
            return
        self._chain = ChainCheck(after=after, first=header.first)
        self._missing = after.number if header.since is None and header.until is None else 0
        self._meet(after.hash)

    def _entry(self, line: bytes) -> None:
        self._digest.update(line)
        try:
            read = _ENTRY.decode(line)
            entry = ChainedEntry(
                number=read.number,
                at=read.at,
                body=bytes(read.entry),
                previous=bytes.fromhex(read.previous),
                hash=bytes.fromhex(read.hash),
            )
            fault = self._chain.add(entry)
            if fault is None and entry.hash and self._header and REMOVAL_ACTION.encode() in entry.body:
                self._explain(entry, self._header.after)
        except (*_BAD, TypeError, RecursionError):
            self._report(
                0,
                f"line {self._lines}, after entry {self._chain.last.number}, is not an entry that can be read",
            )
            return
        self._first_number = self._first_number or entry.number
        if fault is not None:
            self._report(fault.number, fault.what)
        else:
            self._meet(entry.hash)

    def _explain(self, entry: ChainedEntry, gone: PointLine) -> None:
        """Note an entry that records the removal of what is missing in front. A crash may have left some of that."""
        match msgspec.json.decode(entry.body):
            case {"actor": "system", "action": action, "after": {"through": int(last), "hash": hash}}:
                if action != REMOVAL_ACTION:
                    return
                if last > gone.number or (last, hash) == (gone.number, gone.hash):
                    self._removal = self._removal or entry.number

    def _finish(self, line: bytes) -> None:
        self._ended = True
        try:
            end = _END.decode(line)
        except _BAD:
            self._report(0, "the last line cannot be read")
            return
        if end.head != PointLine.of(self._chain.last) or end.entries != self._chain.entries:
            self._report(
                end.head.number,
                f"the export ends with {end.entries} entries up to this one, but {self._chain.entries} up to entry "
                f"{self._chain.last.number} are there",
            )
        elif end.sha256 != self._digest.hexdigest() and not self._faults:
            self._report(
                0, "its lines do not have the digest of the last line: it was changed outside of its entries"
            )
        if _ENCODE(end) + b"\n" != line:
            self._report(0, "the last line is not written as Corral writes it")

    def _meet(self, hash: bytes) -> None:
        if hash and hash == self._expect:
            self._met = True
            self._removal_is_proved = bool(self._removal)

    def _report(self, number: int, what: str) -> None:
        if len(self._faults) < MOST_FAULTS:
            self._faults.append(ChainFault(number=number, what=what))
        else:
            self._more += 1


def check_export(lines: Iterable[bytes], *, expect: bytes | None = None) -> ExportVerdict:
    """Check all lines of an export."""
    check = ExportCheck(expect=expect)
    for line in lines:
        check.add(line)
    return check.verdict()
