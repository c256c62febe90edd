"""Entries of archives, common to the readers of tar and zip, and the limit of bytes read for them."""

from __future__ import annotations

import stat
import zlib
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from corral.archives.limits import ArchiveLimits
from corral.archives.refusals import ArchiveRefusals

BLOCK: Final = 256 * 1024
"""Contents are read in blocks of this size."""

_SPECIAL: Final = {
    stat.S_IFLNK: "it is a symbolic link",
    stat.S_IFCHR: "it is a device",
    stat.S_IFBLK: "it is a device",
    stat.S_IFIFO: "it is a pipe",
    stat.S_IFSOCK: "it is a socket",
}


class ArchiveEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file or a directory as the archive names it: its name is not checked."""

    name: str
    directory: bool = False
    mode: int = 0o644
    size: int = 0
    """As the archive claims."""


Entries = Iterator[tuple[ArchiveEntry, Iterator[bytes]]]
"""Each entry with the blocks of its content, which must be read before the next entry."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class MeteredStream:
    """A stream that is refused when it is damaged, or when it yields more than an archive of `packed` bytes
    may have, headers included. None: it is not compressed."""

    def __init__(
        self, source: Readable, *, limits: ArchiveLimits, refusals: ArchiveRefusals, packed: int | None
    ) -> None:
        self._source = source
        self._limits = limits
        self._refusals = refusals
        self._packed = packed or 0
        self._most = None if packed is None else limits.unpacked_most(packed)
        self._read = 0

    def read(self, size: int, /) -> bytes:
        try:
            block = self._source.read(size)
        except EOFError:
            raise self._refusals.damaged("it was cut") from None
        except zlib.error as error:
            raise self._refusals.damaged(str(error).rpartition(": ")[2]) from error
        self._read += len(block)
        if self._read > self._limits.max_stream_bytes:
            raise self._refusals.too_many_bytes(self._limits)
        if self._most is not None and self._read > self._most:
            raise self._refusals.unpacks_too_far(unpacked=self._read, packed=self._packed)
        return block


def blocks_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while block := read(BLOCK):
        yield block


def special_kind(mode: int) -> str | None:
    """Why an entry with this Unix mode is refused: it marks neither a file nor a directory. None: it does."""
    return _SPECIAL.get(stat.S_IFMT(mode))
