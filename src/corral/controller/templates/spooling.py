"""An upload on disk, in a file without a name: when we are done or dead, it is gone."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import IO, Final, TypeVar

from corral.archives.refusals import TEMPLATE_REFUSALS
from corral.errors import Code, Retryable
from corral.system.threads import to_end

T = TypeVar("T")

_HOP: Final = 1024 * 1024


@contextlib.asynccontextmanager
async def spooled(
    source: AsyncIterator[bytes],
    *,
    directory: pathlib.Path,
    limit: int,
    check: Callable[[bytes], object] = bool,
) -> AsyncIterator[IO[bytes]]:
    """Take the stream in, a MiB in memory at most. ARCHIVE_TOO_LARGE as soon as it is; DISK_FULL. `check`
    sees its first MiB and may refuse the rest."""
    undo = contextlib.ExitStack()
    try:
        # Opened on a thread, and closed also when the caller was cancelled meanwhile.
        file = await _on_disk(directory, lambda: undo.enter_context(_open(directory)))
        gathered = bytearray()
        unseen = True
        size = 0
        async for chunk in source:
            size += len(chunk)
            if size > limit:
                raise TEMPLATE_REFUSALS.too_large(
                    "the upload is larger than any template may be", f"{limit} bytes"
                )
            gathered += chunk
            if len(gathered) >= _HOP:
                if unseen:
                    check(bytes(gathered))
                    unseen = False
                await _on_disk(directory, functools.partial(_write, file, bytes(gathered)))
                gathered.clear()
        if unseen:
            check(bytes(gathered))
        await _on_disk(directory, functools.partial(_write, file, bytes(gathered)))
        yield file
    finally:
        await to_end(undo.close)  # to free gigabytes takes its time


def _open(directory: pathlib.Path) -> IO[bytes]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.TemporaryFile(dir=directory, prefix="upload-", buffering=0)


def _write(file: IO[bytes], block: bytes) -> None:
    """All of it: a disk that is nearly full takes a part and says nothing."""
    rest = memoryview(block)
    while rest:
        rest = rest[file.write(rest) :]


async def _on_disk(directory: pathlib.Path, work: Callable[[], T]) -> T:
    try:
        return await to_end(work)
    except OSError as error:
        raise Retryable(
            Code.DISK_FULL,
            f"the upload cannot be kept in {directory}: {error.strerror or error}",
            hint="make room on the controller's disk and send it again",
            retry_after=30.0,
        ) from error
