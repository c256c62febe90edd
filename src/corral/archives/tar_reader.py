"""The strict reader of tar: files and directories by ustar, GNU and pax headers, everything else refused.

A reader of our own, for two reasons: headers of any announced size are bounded before they are read, and
nothing is guessed. An archive without its end mark was truncated, whatever came before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from corral.archives.entries import BLOCK, ArchiveEntry, Entries, Readable
from corral.archives.refusals import ArchiveRefusals

_UNIT: Final = 512
_HEADER_MAX: Final = 64 * 1024
"""Bytes of a long name or a pax header."""
_HEADERS_MAX: Final = 8
"""Headers of that kind before one entry."""
_DIGITS_MAX: Final = 10
"""The length of a pax record has fewer digits."""
_BEHIND_MAX: Final = 16 * 1024 * 1024
"""Bytes after the end mark: tools fill their last record, and no more."""
_FILES: Final = b"0\x007"
_REFUSED: Final = {
    b"1": "it is a hard link",
    b"2": "it is a symbolic link",
    b"3": "it is a device",
    b"4": "it is a device",
    b"6": "it is a pipe",
    b"S": "it is a sparse file",
}


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    name: bytes
    mode: int
    size: int
    kind: bytes


class _Override(msgspec.Struct, kw_only=True):
    """Values for the next entry from its extended headers."""

    name: bytes | None = None
    size: int | None = None
    sparse: bool = False


def read_tar(stream: Readable, refusals: ArchiveRefusals) -> Entries:
    """Entries in their order. Reads the stream to its very end, so that its own checksum is checked."""
    return _TarReader(stream, refusals).entries()


class _TarReader:
    def __init__(self, stream: Readable, refusals: ArchiveRefusals) -> None:
        self._stream = stream
        self._refusals = refusals

    def entries(self) -> Entries:
        override = _Override()
        headers = 0
        while (header := self._next_header()) is not None:
            headers += 1
            if headers > _HEADERS_MAX:
                raise self._refusals.damaged("it has headers without end")
            match header.kind:
                case b"x":
                    self._apply_pax(self._long(header), override)
                case b"L":
                    override.name = self._long(header).rstrip(b"\0")
                case b"g" | b"K":  # a comment for all, or the target of a link that is refused anyway
                    self._long(header)
                case _:
                    entry = self._entry(header, override)
                    override = _Override()
                    headers = 0
                    content = self._content(entry)
                    yield entry, content
                    for _ in content:  # what the caller did not read
                        pass
        self._read_rest()

    def _read_rest(self) -> None:
        left = _BEHIND_MAX
        while block := self._stream.read(BLOCK):
            left -= len(block)
            if left < 0:
                raise self._refusals.damaged("something follows its end mark")

    def _next_header(self) -> _Header | None:
        raw = self._exactly(_UNIT, "it ends without its end mark")
        if not any(raw):
            return None
        name = raw[:100].split(b"\0", 1)[0]
        spaced = raw[:148] + b" " * 8 + raw[156:]
        if self._number(raw[148:156]) != sum(spaced):
            raise self._refusals.damaged("it is not a tar archive, or damaged")
        if raw[257:263] == b"ustar\0" and raw[345]:
            name = raw[345:500].split(b"\0", 1)[0] + b"/" + name
        return _Header(
            name=name, mode=self._number(raw[100:108]), size=self._number(raw[124:136]), kind=raw[156:157]
        )

    def _number(self, field: bytes) -> int:
        """Octal digits, or a large number in base 256."""
        if field[0] == 0x80:
            return int.from_bytes(field[1:])
        digits = field.split(b"\0", 1)[0].strip() or b"0"
        if not digits.isdigit() or b"8" in digits or b"9" in digits:
            raise self._refusals.damaged("it is not a tar archive, or damaged: a number in a header is none")
        return int(digits, 8)

    def _entry(self, header: _Header, override: _Override) -> ArchiveEntry:
        raw = header.name if override.name is None else override.name
        name = raw.decode(errors="backslashreplace")
        if name != raw.decode(errors="replace"):
            raise self._refusals.entry_refused(name, "its name is not UTF-8")
        kind = b"S" if override.sparse else header.kind
        if why := _REFUSED.get(kind):
            hint = self._refusals.hard_link_hint if kind == b"1" else ""
            raise self._refusals.entry_refused(name, why, hint=hint)
        if kind == b"5" or (kind in (b"0", b"\0") and name.endswith("/")):
            return ArchiveEntry(name=name, directory=True)
        if kind not in _FILES:
            raise self._refusals.entry_refused(name, f"it is of an unknown kind {kind!r}")
        size = header.size if override.size is None else override.size
        return ArchiveEntry(name=name, mode=header.mode, size=size)

    def _content(self, entry: ArchiveEntry) -> Iterator[bytes]:
        left = entry.size
        while left:
            block = self._stream.read(min(left, BLOCK))
            if not block:
                raise self._refusals.entry_damaged(entry.name, f"it was cut, {left} bytes are missing")
            left -= len(block)
            yield block
        self._exactly(-entry.size % _UNIT, "it was cut")

    def _long(self, header: _Header) -> bytes:
        if header.size > _HEADER_MAX:
            raise self._refusals.damaged(f"a header of {header.size} bytes is too long")
        data = self._exactly(header.size, "it was cut")
        self._exactly(-header.size % _UNIT, "it was cut")
        return data

    def _apply_pax(self, data: bytes, override: _Override) -> None:
        """Apply records `LENGTH KEY=VALUE\\n`; the length counts the whole record."""
        at = 0
        while at < len(data):
            digits, _, _ = data[at : at + _DIGITS_MAX].partition(b" ")
            length = int(digits) if digits.isdigit() else 0
            record = data[at + len(digits) + 1 : at + length]
            key, equals, value = record.partition(b"=")
            if at + length > len(data) or not equals or not value.endswith(b"\n"):
                raise self._refusals.damaged("a pax header is malformed")
            at += length
            if key == b"path":
                override.name = value[:-1]
            elif key == b"size":
                if not value[:-1].isdigit() or len(value) > 20:
                    raise self._refusals.damaged("a pax header is malformed")
                override.size = int(value)
            elif key.startswith(b"GNU.sparse."):
                override.sparse = True

    def _exactly(self, size: int, why: str) -> bytes:
        data = bytearray()
        while len(data) < size:
            block = self._stream.read(size - len(data))
            if not block:
                raise self._refusals.damaged(why)
            data += block
        return bytes(data)
