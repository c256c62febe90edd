"""Listing and reading of files in a working directory while its workload may be changing them.

Every directory is opened relative to the one before and no link is followed: what a workload swaps for a link to
somewhere else is listed as a link, or refused. An answer is bounded in entries, depth, bytes and time, and so is the
memory it takes: of a directory with millions of files only the first names are held.
"""

from __future__ import annotations

import codecs
import hashlib
import heapq
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.daemon.prepare.abort import Abort
from corral.domain.file_paths import (
    DEFAULT_BYTES,
    DEFAULT_ENTRIES,
    LEVELS,
    MOST_BYTES,
    MOST_ENTRIES,
    bounded,
    check_named,
)
from corral.errors import Code, Rejected, Retryable
from corral.system.clock import Clock
from corral.system.trees.entries import (
    DIRECTORY,
    directory_beneath,
    open_beneath,
    open_regular,
    open_tree,
    parent_of,
)
from corral.wire.v1.instance_pb2 import FileEntry, InstanceFileContent, InstanceFileTree

WALK_SECONDS: Final = 3.0
_FRAMING: Final = 8
"""Bytes that a repeated field adds to an entry."""
_LOOK_EVERY: Final = 256
_BLOCK: Final = 256 * 1024
_MOST_COUNTED: Final = 2**31 - 1
_FILE, _DIRECTORY, _LINK, _OTHER = "file", "directory", "link", "other"


class WalkBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of an answer; numbers below one stand for the defaults."""

    entries: int = 0
    depth: int = 0
    summarize: int = 0
    """A directory with more entries is counted, not listed; 0: never."""
    size: int = MOST_BYTES
    seconds: float = WALK_SECONDS
    digests: int = 0
    """Files up to this size are read: their digests, and whether they are text; 0: none is."""


class _AnswerFull(Exception):
    """The answer is full, or its time is up."""


class FileWalk:
    """One walk through one directory. `run` once, in a thread."""

    def __init__(self, bounds: WalkBounds, *, abort: Abort, clock: Clock) -> None:
        self._most = bounded(bounds.entries, default=DEFAULT_ENTRIES, most=MOST_ENTRIES)
        self._deepest = bounded(bounds.depth, default=LEVELS, most=LEVELS)
        self._whole_depth = bounds.depth <= 0
        self._summarize = bounds.summarize
        self._digests = bounds.digests
        self._room = bounds.size
        self._abort = abort
        self._clock = clock
        self._until = clock.monotonic() + bounds.seconds
        self._tree = InstanceFileTree()
        self._last = b""

    def run(self, root: pathlib.Path, path: str = "", after: bytes = b"") -> InstanceFileTree:
        """The entries under `path`, after `after`. FileNotFoundError, PATH_REFUSED; TIMEOUT when the time was
        too short even for the first entry."""
        if path:
            check_named(path, field="path")
        try:
            with open_tree(root) as top, directory_beneath(top, path) as here:
                prefix = f"{path}/".encode() if path else b""
                self._descend(here, prefix, b"", _parts(after), depth=1)
        except _AnswerFull:
            self._break_off(path)
        return self._tree

    def look(self, root: pathlib.Path, path: str) -> InstanceFileTree:
        """What lies at `path` itself, without its digest if there is no time for that; errors as of `run`."""
        check_named(path, field="path")
        above, _, name = path.rpartition("/")
        raw, prefix = os.fsencode(name), f"{above}/".encode() if above else b""
        with open_tree(root) as top, parent_of(top, path) as here:
            try:
                entry = self._entry(here, raw, prefix)
            except _AnswerFull:
                entry = _entry(here, raw, prefix)
            if entry is None:
                raise FileNotFoundError(path)
        self._tree.entries.append(entry)
        return self._tree

    def _break_off(self, path: str) -> None:
        if not self._last:
            raise Retryable(
                Code.TIMEOUT,
                f"there is too much in '{path or '.'}' to be listed in time",
                hint="ask for a directory beneath it",
            ) from None
        self._tree.truncated = True
        self._tree.next = self._last

    def _descend(self, here: int, prefix: bytes, beneath: bytes, after: list[bytes], *, depth: int) -> None:
        """`prefix` leads here from the working directory, `beneath` from where the walk began."""
        room = self._most - len(self._tree.entries) + 2  # one listed before, and one to know of more by
        names = self._names(here, after[0] if after else b"", room)
        for name in names:
            self._look_up()
            listed_before = bool(after) and name == after[0]
            entry = self._entry(here, name, prefix)
            if entry is None:
                continue
            below = self._open(here, name, depth) if entry.is_dir else -1
            try:
                if below >= 0 and self._summarize > 0:
                    self._sum_up(entry, below)
                if not listed_before:
                    self._list(entry, beneath + name)
                if below >= 0 and not entry.summary:
                    rest = after[1:] if listed_before else []
                    self._descend(below, prefix + name + b"/", beneath + name + b"/", rest, depth=depth + 1)
            finally:
                if below >= 0:
                    os.close(below)
        if len(names) == room:
            raise _AnswerFull  # some were gone when we came to them, and there are more

    def _names(self, here: int, first: bytes, room: int) -> list[bytes]:
        """The first names from there on, in order."""
        return heapq.nsmallest(room, (name for name in self._scan(here) if name >= first))

    def _scan(self, here: int) -> Iterator[bytes]:
        with os.scandir(here) as found:
            for number, entry in enumerate(found):
                if number % _LOOK_EVERY == 0:
                    self._look_up()
                yield os.fsencode(entry.name)

    def _look_up(self) -> None:
        self._abort.check()
        if self._clock.monotonic() >= self._until:
            raise _AnswerFull

    def _open(self, here: int, name: bytes, depth: int) -> int:
        """The directory, or -1 when it is not gone into: it is too deep, closed to us or none any more. What is deeper than
        was asked for is not missing."""
        if depth < self._deepest:
            try:
                return os.open(name, DIRECTORY, dir_fd=here)
            except OSError:
                self._tree.truncated = True
        elif self._whole_depth:
            self._tree.truncated = True
        return -1

    def _entry(self, here: int, name: bytes, prefix: bytes) -> FileEntry | None:
        entry = _entry(here, name, prefix)
        if entry is not None and entry.kind == _FILE and 0 < self._digests >= entry.size_bytes:
            self._read(entry, here, name)
        return entry

    def _read(self, entry: FileEntry, here: int, name: bytes) -> None:
        """Its digest, and whether it is text; a file that is not ours to read has neither."""
        try:
            file = open_regular(here, os.fsdecode(name), shown=entry.path)
        except (OSError, Rejected):
            return
        hasher, decoder = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")()
        binary, at = False, 0
        try:
            while block := os.pread(file, _BLOCK, at):
                self._look_up()
                at += len(block)
                if at > self._digests:
                    return  # it has grown meanwhile
                hasher.update(block)
                binary = binary or not _is_text(decoder, block)
            entry.binary = binary or not _is_text(decoder, b"", final=True)
        except OSError:
            return
        finally:
            os.close(file)
        entry.sha256 = hasher.hexdigest()
        entry.size_bytes = at

    def _sum_up(self, entry: FileEntry, below: int) -> None:
        count = sum(1 for _ in self._scan(below))
        if count > self._summarize:
            entry.summary = True
            entry.child_count = min(count, _MOST_COUNTED)

    def _list(self, entry: FileEntry, place: bytes) -> None:
        self._room -= entry.ByteSize() + _FRAMING
        if self._room < 0 or len(self._tree.entries) >= self._most:
            raise _AnswerFull
        self._tree.entries.append(entry)
        self._last = place


def read_part(
    root: pathlib.Path, path: str, *, offset: int = 0, length: int = 0, tail: bool = False
) -> InstanceFileContent:
    """Bytes of a regular file: so many from `offset` on, or the last ones. None behind its end. Blocks.
    FileNotFoundError, PATH_REFUSED for anything else that lies there."""
    check_named(path, field="path")
    if offset < 0:
        raise Rejected(
            Code.INVALID_FIELD, f"offset {offset} is negative", hint="count from 0", field="offset"
        )
    count = bounded(length, default=DEFAULT_BYTES, most=MOST_BYTES)
    with open_tree(root) as top, open_beneath(top, path) as file:
        size = os.fstat(file).st_size
        begin = max(size - count, 0) if tail else offset
        content = _bytes(file, begin, count) if begin < size else b""
    end = begin + len(content)
    return InstanceFileContent(
        content=content,
        total_size_bytes=max(size, end if content else 0),  # it may have grown meanwhile
        truncated=bool(tail and begin) or end < size,
    )


def _bytes(file: int, begin: int, count: int) -> bytes:
    held = bytearray()
    while len(held) < count and (block := os.pread(file, count - len(held), begin + len(held))):
        held += block
    return bytes(held)


def _entry(here: int, name: bytes, prefix: bytes) -> FileEntry | None:
    """The entry of this name; None when it is gone. A name that is no UTF-8 is shown as
    well as it can be."""
    path = (prefix + name).decode("utf-8", "replace")
    try:
        found = os.stat(name, dir_fd=here, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError:  # its directory may be read and not entered
        return FileEntry(path=path, kind=_OTHER)
    kind = _kind(found.st_mode)
    return FileEntry(
        path=path,
        kind=kind,
        is_dir=kind == _DIRECTORY,
        size_bytes=found.st_size if kind in (_FILE, _LINK) else 0,
        modified_at_ms=found.st_mtime_ns // 1_000_000,
        mode=stat.S_IMODE(found.st_mode),
    )


def _is_text(decoder: codecs.IncrementalDecoder, block: bytes, *, final: bool = False) -> bool:
    try:
        return "\0" not in decoder.decode(block, final)
    except UnicodeDecodeError:
        return False


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return _FILE
    if stat.S_ISDIR(mode):
        return _DIRECTORY
    return _LINK if stat.S_ISLNK(mode) else _OTHER


def _parts(place: bytes) -> list[bytes]:
    return place.split(b"/") if place else []
