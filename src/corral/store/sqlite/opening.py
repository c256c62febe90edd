"""Putting the embedded store together, and taking it apart again."""

from __future__ import annotations

import contextlib
import functools
import pathlib
from typing import Final

from corral.store.port import Store
from corral.store.sqlite.blobs import FileBlobs
from corral.store.sqlite.committing import SqliteCommits
from corral.store.sqlite.leases import SqliteLeases
from corral.store.sqlite.reading import SqliteReads
from corral.store.sqlite.schema import open_reader, open_writer
from corral.store.sqlite.threads import DatabaseThread
from corral.system.files import DirectoryLock

DATABASE: Final = "corral.db"
WRITE_AHEAD_LOG: Final = f"{DATABASE}-wal"
ARTIFACTS: Final = "artifacts"
ROLE: Final = "controller-store"


async def open_sqlite(data: pathlib.Path) -> Store:
    """Open the store in this directory, alone: a second opener is refused (DATA_DIRECTORY_LOCKED).

    Raises FORMAT_INVALID for a damaged or foreign file, FORMAT_TOO_NEW for a newer schema.
    """
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = data / DATABASE
    async with contextlib.AsyncExitStack() as undo:
        lock = DirectoryLock(data, ROLE)
        lock.acquire()
        undo.callback(lock.release)
        writer = DatabaseThread(functools.partial(open_writer, path), name="corral/store/write")
        await writer.open()
        undo.push_async_callback(writer.close)
        reader = DatabaseThread(functools.partial(open_reader, path), name="corral/store/read")
        await reader.open()
        undo.push_async_callback(reader.close)
        blobs = FileBlobs(data / ARTIFACTS)
        undo.callback(blobs.close)
        await blobs.open()
        return Store(
            name="sqlite",
            exclusive=True,  # by the lock on the directory
            commits=SqliteCommits(writer),
            reads=SqliteReads(reader),
            leases=SqliteLeases(writer),
            blobs=blobs,
            close=undo.pop_all().aclose,
        )
    raise AssertionError("unreachable: the exit stack swallows nothing")
