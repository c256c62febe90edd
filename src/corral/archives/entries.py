"""What the readers of tar and zip have in common: entries, and how much may be read for them."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import msgspec

from corral.archives.refusals import entry_refused, too_large, unpacks_too_far

BLOCK: Final = 256 * 1024
"""Contents are read in blocks of this size."""
_PER_ENTRY: Final = 4096
"""So much of an archive may be its headers, for each entry that it may have."""
_SPARE: Final = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a tree may be, unpacked. Directories may be as many again as files."""

    max_bytes: int
    max_files: int

    @property
    def entries(self) -> int:
        """What an archive of such a tree has at most: files, directories and the root, each named once."""
        return 2 * self.max_files + 1

    @property
    def stream_bytes(self) -> int:
        """What an archive of such a tree has at most, headers included, packed or unpacked."""
        return self.max_bytes + _PER_ENTRY * self.max_files + _SPARE


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A file or a directory as the archive names it: nothing of this was checked."""

    name: str
    directory: bool = False
    mode: int = 0o644
    size: int = 0
    """As the archive says."""


Entries = Iterator[tuple[Entry, Iterator[bytes]]]
"""Each entry with the blocks of its content, which are read before the next entry."""


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class Metered:
    """A stream that is refused when more comes out of it than a tree within the limits can need, or than `most`,
    which is what an archive of its size may unpack to."""

    def __init__(self, source: Readable, limits: Limits, *, most: int | None = None) -> None:
        self._source = source
        self._limits = limits
        self._most = most
        self._read = 0

    def read(self, size: int, /) -> bytes:
        block = self._source.read(size)
        self._read += len(block)
        if self._read > self._limits.stream_bytes:
            raise too_large(
                "the archive unpacks to more than a template may have", f"{self._limits.max_bytes} bytes"
            )
        if self._most is not None and self._read > self._most:
            raise unpacks_too_far()
        return block


def blocks_of(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while block := read(BLOCK):
        yield block


def refuse_kind(name: str, mode: int) -> None:
    """Refuse what a Unix mode marks as neither file nor directory."""
    kinds = {
        stat.S_IFLNK: "it is a symbolic link",
        stat.S_IFCHR: "it is a device",
        stat.S_IFBLK: "it is a device",
        stat.S_IFIFO: "it is a pipe",
        stat.S_IFSOCK: "it is a socket",
    }
    why = kinds.get(stat.S_IFMT(mode))
    if why is not None:
        raise entry_refused(name, why)
