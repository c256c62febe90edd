"""A version as a zip download: written as it is sent, compressed on threads."""

from __future__ import annotations

import contextlib
import functools
import io
import stat
import zipfile
from collections.abc import AsyncGenerator, Callable
from typing import IO, Final

from corral.controller.templates.tar_writer import Contents, ReadBlobs, entries_of
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.system.threads import to_end

_STEP_BYTES: Final = 512 * 1024
_STEP_JOBS: Final = 400
_LARGE: Final = 2**31
_OLDEST: Final = (1980, 1, 1, 0, 0, 0)


async def zip_stream(manifest: TemplateManifest, read: ReadBlobs) -> AsyncGenerator[bytes, None]:
    """The bytes of the zip. Raises NOT_FOUND or TEMPLATE_UNAVAILABLE when contents are missing."""
    contents = Contents(manifest, read)
    async with contextlib.aclosing(contents), contextlib.aclosing(_packed(manifest, contents)) as blocks:
        async for block in blocks:
            yield block


async def _packed(manifest: TemplateManifest, contents: Contents) -> AsyncGenerator[bytes, None]:
    with contextlib.closing(_Writing()) as writing:
        for entry in entries_of(manifest):
            writing.begin(entry)
            if isinstance(entry, TemplateFile):
                async for block in contents.take(entry.size):
                    writing.write(block)
                    if writing.due:
                        yield await to_end(writing.work)
                writing.end()
            if writing.due:
                yield await to_end(writing.work)
        writing.finish()
        yield await to_end(writing.work)


class _Sink(io.RawIOBase):
    """Receives the packer's output; it has no position, so the packer never seeks."""

    def __init__(self) -> None:
        self._gathered = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        block = bytes(data)  # type: ignore[call-overload]  # whatever has a buffer
        self._gathered += block
        return len(block)

    def take(self) -> bytes:
        data = bytes(self._gathered)
        self._gathered.clear()
        return data


class _Writing:
    """Jobs for the packer, several at a time: a switch to a thread costs more than a small file."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_DEFLATED)
        self._jobs: list[Callable[[], object]] = []
        self._size = 0
        self._entry: IO[bytes] | None = None

    @property
    def due(self) -> bool:
        return self._size >= _STEP_BYTES or len(self._jobs) >= _STEP_JOBS

    def begin(self, entry: TemplateFile | str) -> None:
        if isinstance(entry, str):
            info = zipfile.ZipInfo(entry + "/", _OLDEST)
            info.create_system = 3
            info.external_attr = (stat.S_IFDIR | 0o755) << 16 | 0x10
            self._jobs.append(functools.partial(self._zip.writestr, info, b""))
        else:
            info = zipfile.ZipInfo(entry.path, _OLDEST)
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | entry.mode) << 16
            self._jobs.append(functools.partial(self._open, info, large=entry.size >= _LARGE))

    def write(self, block: bytes) -> None:
        self._size += len(block)
        self._jobs.append(functools.partial(self._put, block))

    def end(self) -> None:
        self._jobs.append(self._close)

    def finish(self) -> None:
        self._jobs.append(self._zip.close)

    def close(self) -> None:
        """Discard the packer; an incomplete zip must not be completed by a destructor."""
        if self._entry is not None:
            self._entry.close()
        self._zip.fp = None

    def work(self) -> bytes:
        """Run the collected jobs; returns the output. Blocking."""
        for job in self._jobs:
            job()
        self._jobs.clear()
        self._size = 0
        return self._sink.take()

    def _open(self, info: zipfile.ZipInfo, *, large: bool) -> None:
        self._entry = self._zip.open(info, "w", force_zip64=large)

    def _put(self, block: bytes) -> None:
        assert self._entry is not None
        self._entry.write(block)

    def _close(self) -> None:
        assert self._entry is not None
        self._entry.close()
