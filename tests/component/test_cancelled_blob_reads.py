"""Blobs of the embedded store whose reader leaves while they are being opened."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib

from corral.store.sqlite.blobs import FileBlobs
from corral.testing.leaks import take_census
from corral.testing.waiting import eventually

DIGEST = "ab" * 32


async def test_a_reader_that_leaves_while_its_blob_is_opened_leaves_no_file_open(
    scratch: pathlib.Path,
) -> None:
    blobs = FileBlobs(scratch)
    await blobs.open()
    path = scratch / DIGEST[:2] / DIGEST
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)  # opening it takes until somebody writes
    reading = asyncio.ensure_future(anext(blobs.read_blob(DIGEST)))

    def let_it_open() -> int:
        """A descriptor once the reader waits in its opening, which then succeeds."""
        with contextlib.suppress(OSError):
            writing = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            reading.cancel()
            return writing
        return 0

    writing = await eventually(let_it_open)
    await asyncio.gather(reading, return_exceptions=True)
    os.close(writing)
    await asyncio.to_thread(blobs.close)
    assert str(path) not in take_census().descriptors
