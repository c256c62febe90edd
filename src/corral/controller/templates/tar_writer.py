"""The deterministic archive of a version: every byte follows from the manifest and the contents.

Entries are sorted by path, owned by uid 0 without a name, dated 1970; gzip is written with stored blocks, so
the version of a compressor has no influence. The SHA-256 of this archive is the hash by which nodes and plans
identify a version, and its size is known before its first byte.
"""

from __future__ import annotations

import contextlib
import heapq
import struct
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from typing import Final, Protocol, cast

from corral.domain.templates import TemplateFile, TemplateManifest
from corral.errors import Code, Retryable
from corral.system.threads import to_end

ReadBlobs = Callable[[Sequence[str]], AsyncIterator[bytes]]

_UNIT: Final = 512
_OCTAL_MAX: Final = 0o77777777777
_STORED_MAX: Final = 65535
_GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_END: Final = bytes(2 * _UNIT)
_STEP: Final = 1024 * 1024
"""The amount packed at a time: a switch to a thread costs more than a small file."""
_ASKED: Final = 2000
"""The number of blobs requested at a time."""


def entries_of(manifest: TemplateManifest) -> Iterator[TemplateFile | str]:
    """Files and empty directories (by their paths), sorted together."""
    files: Iterator[tuple[str, TemplateFile | str]] = ((file.path, file) for file in manifest.files)
    directories: Iterator[tuple[str, TemplateFile | str]] = ((path, path) for path in manifest.directories)
    for _, entry in heapq.merge(files, directories, key=lambda pair: pair[0]):
        yield entry


def blobs_of(manifest: TemplateManifest) -> list[str]:
    """The blobs of the contents, in the order of the archive."""
    return [digest for file in manifest.files for digest in file.blobs]


def archive_size(manifest: TemplateManifest) -> int:
    """The size of the whole tar.gz, computed."""
    tar = len(_END)
    for entry in entries_of(manifest):
        size = 0 if isinstance(entry, str) else entry.size
        tar += _header_size(entry) + size + -size % _UNIT
    blocks = -(-tar // _STORED_MAX)
    return len(_GZIP_HEADER) + tar + 5 * blocks + 8


async def archive_stream(
    manifest: TemplateManifest, read: ReadBlobs, *, digest: Digest | None = None
) -> AsyncGenerator[bytes, None]:
    """The tar.gz, packed on threads; `digest` is updated there with every block. Raises NOT_FOUND or
    TEMPLATE_UNAVAILABLE when contents are missing."""
    packing = _Packing(manifest, digest)
    async with contextlib.aclosing(_contents(manifest, read)) as contents:
        async for block in contents:
            packing.give(block)
            while not (packing.hungry or packing.done):
                yield await to_end(packing.work)
    packing.give(None)
    while not packing.done:
        yield await to_end(packing.work)


class Digest(Protocol):
    """A hash of `hashlib`."""

    def update(self, data: bytes, /) -> None: ...


class _Packing:
    """Contents in, archive out, in steps of about a MiB. One step at a time may run on a thread."""

    def __init__(self, manifest: TemplateManifest, digest: Digest | None) -> None:
        self._manifest = manifest
        self._digest = digest
        self._gzip = StoredGzip()
        self._rest = memoryview(b"")
        self._last = False
        self._pieces = self._tar()
        self.hungry = True
        """All given contents are packed."""
        self.done = False

    def give(self, contents: bytes | None) -> None:
        """Add the contents that follow; None after the last."""
        self._rest = memoryview(contents or b"")
        self._last = contents is None
        self.hungry = False

    def work(self) -> bytes:
        """Run a step; returns its output, possibly empty. Blocking."""
        gathered: list[bytes | memoryview] = []
        size = 0
        for piece in self._pieces:
            gathered.append(piece)
            size += len(piece)
            if self.hungry or size >= _STEP:
                break
        else:
            self.done = True
        out = self._gzip.feed(b"".join(gathered))
        if self.done:
            out += self._gzip.finish()
        if self._digest is not None:
            self._digest.update(out)
        return out

    def _tar(self) -> Iterator[bytes | memoryview]:
        for entry in entries_of(self._manifest):
            yield header_of(entry)
            if isinstance(entry, TemplateFile):
                yield from self._content(entry.size)
                yield bytes(-entry.size % _UNIT)
        yield _END

    def _content(self, size: int) -> Iterator[bytes | memoryview]:
        while size:
            block, self._rest = self._rest[:size], self._rest[size:]
            size -= len(block)
            yield block
            while size and not self._rest:
                if self._last:
                    raise contents_gone()
                self.hungry = True
                yield b""


class Contents:
    """The contents of a tree as one stream, returned file by file in the order of the archive."""

    def __init__(self, manifest: TemplateManifest, read: ReadBlobs) -> None:
        self._stream = _contents(manifest, read)
        self._rest = memoryview(b"")

    async def take(self, size: int) -> AsyncIterator[bytes]:
        """The next `size` bytes."""
        while size:
            if not self._rest:
                try:
                    self._rest = memoryview(await anext(self._stream))
                except StopAsyncIteration:
                    raise contents_gone() from None
            block, self._rest = self._rest[:size], self._rest[size:]
            size -= len(block)
            yield bytes(block)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _contents(manifest: TemplateManifest, read: ReadBlobs) -> AsyncGenerator[bytes, None]:
    digests = blobs_of(manifest)
    for start in range(0, len(digests), _ASKED):
        stream = cast("AsyncGenerator[bytes, None]", read(digests[start : start + _ASKED]))
        async with contextlib.aclosing(stream) as blocks:
            async for block in blocks:
                yield block


class StoredGzip:
    """A gzip stream of stored blocks, all full except the last."""

    def __init__(self) -> None:
        self._gathered = bytearray()
        self._head = _GZIP_HEADER
        self._sum = 0
        self._size = 0

    def feed(self, data: bytes) -> bytes:
        """The output so far; at least a byte is kept back, because the last block is marked as such."""
        self._sum = zlib.crc32(data, self._sum)
        self._size += len(data)
        self._gathered += data
        if len(self._gathered) <= _STORED_MAX:
            return b""
        out: list[bytes | bytearray] = [self._head]
        self._head = b""
        whole = (len(self._gathered) - 1) // _STORED_MAX * _STORED_MAX
        for start in range(0, whole, _STORED_MAX):
            out += (_stored(_STORED_MAX, last=False), self._gathered[start : start + _STORED_MAX])
        del self._gathered[:whole]
        return b"".join(out)

    def finish(self) -> bytes:
        trailer = struct.pack("<2L", self._sum, self._size & 0xFFFFFFFF)
        return self._head + _stored(len(self._gathered), last=True) + self._gathered + trailer


def _stored(size: int, *, last: bool) -> bytes:
    return struct.pack("<BHH", 1 if last else 0, size, size ^ 0xFFFF)


def header_of(entry: TemplateFile | str) -> bytes:
    """All header blocks of an entry: a pax one first where ustar's fields are too short."""
    if isinstance(entry, str):
        return _named_header(entry + "/", mode=0o755, size=0, kind=b"5")
    return _named_header(entry.path, mode=entry.mode, size=entry.size, kind=b"0")


def _header_size(entry: TemplateFile | str) -> int:
    path, size = (entry, 0) if isinstance(entry, str) else (entry.path, entry.size)
    plain = path.isascii() and len(path) < 100 and size <= _OCTAL_MAX
    return _UNIT if plain else len(header_of(entry))


def _named_header(path: str, *, mode: int, size: int, kind: bytes) -> bytes:
    name = path.encode()
    records = b""
    if len(name) > 100 or not name.isascii():
        records += _pax_record(b"path", name)
        name = name[:100].decode("ascii", "replace").replace("\ufffd", "_").encode()
    if size > _OCTAL_MAX:
        records += _pax_record(b"size", str(size).encode())
        size = 0
    header = _ustar(name, mode=mode, size=size, kind=kind)
    if not records:
        return header
    extended = _ustar(b"././@PaxHeader", mode=0o644, size=len(records), kind=b"x")
    return extended + records + bytes(-len(records) % _UNIT) + header


def _pax_record(key: bytes, value: bytes) -> bytes:
    rest = len(key) + len(value) + 3
    length = rest + len(str(rest))
    length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def _ustar(name: bytes, *, mode: int, size: int, kind: bytes) -> bytes:
    zero = b"0000000\0"
    before = name.ljust(100, b"\0") + b"%07o\0" % mode + zero * 2 + b"%011o\0" % size + b"00000000000\0"
    after = kind + bytes(100) + b"ustar\x0000" + bytes(64) + zero * 2 + bytes(155 + 12)
    checked = sum(before) + sum(after) + 8 * 0x20
    return before + b"%06o\0 " % checked + after


def contents_gone() -> Retryable:
    return Retryable(
        Code.TEMPLATE_UNAVAILABLE,
        "some of the template's contents left the store while it was being put together",
        hint="send it again",
        retry_after=1.0,
    )
