"""`ctx.files` on a node: modules read and write files in the directories of the instances here."""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib
from collections.abc import Callable
from typing import Final, TypeVar

from corral.daemon.node.disk_space import as_ours
from corral.daemon.orders.instance_file_writes import remove_file, write_file
from corral.daemon.orders.instance_files import FileWalk, WalkBounds, read_part
from corral.daemon.prepare.abort import Abort, in_thread
from corral.errors import Code, CorralError, Rejected
from corral.modules.scope import Scope
from corral.modules.services.host_operations import Operation
from corral.sdk.instance_files import FileEntry
from corral.sdk.protocol import messages as m
from corral.sdk.protocol.instance_messages import (
    MOST_WRITTEN,
    FileBytes,
    FileList,
    FileRemoved,
    ReadFile,
    RemoveFile,
    WalkFiles,
    WriteFile,
)
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock
from corral.system.trees.entries import is_tree
from corral.wire.v1.instance_pb2 import FileEntry as WireEntry

AT_ONCE: Final = 4
T = TypeVar("T")
FindDirectory = Callable[[str], pathlib.Path | None]


class ModuleFiles:
    """File operations: a few at a time, each in a thread."""

    def __init__(self, *, directory_of: FindDirectory, writers: KeyedLocks[str], clock: Clock) -> None:
        """`writers`: shared with others that write to instances."""
        self._directory_of = directory_of
        self._writers = writers
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)

    def operations(self) -> list[Operation]:
        return [
            Operation(method=m.READ_FILE, body=ReadFile, handler=self._read),
            Operation(method=m.WRITE_FILE, body=WriteFile, handler=self._write),
            Operation(method=m.WALK_FILES, body=WalkFiles, handler=self._walk),
            Operation(method=m.REMOVE_FILE, body=RemoveFile, handler=self._remove),
        ]

    async def _read(self, _scope: Scope, asked: ReadFile) -> FileBytes:
        root = self._root(asked.instance_id)
        part = await self._done(
            asked.instance_id,
            asked.path,
            lambda _: read_part(root, asked.path, offset=asked.offset, length=asked.length),
        )
        return FileBytes(content=part.content)

    async def _write(self, _scope: Scope, asked: WriteFile) -> m.Nothing:
        if len(asked.content) > MOST_WRITTEN:
            raise Rejected(
                Code.BODY_TOO_LARGE,
                f"'{asked.path[:80]}' would get {len(asked.content):,} bytes at once",
                hint=f"{MOST_WRITTEN:,} are taken; append it in parts",
            )
        root = self._root(asked.instance_id)
        async with self._writers.hold(asked.instance_id):
            await self._done(
                asked.instance_id,
                asked.path,
                lambda _: write_file(root, asked.path, asked.content, append=asked.append),
            )
        return m.Nothing()

    async def _walk(self, _scope: Scope, asked: WalkFiles) -> FileList:
        root = self._root(asked.instance_id)
        bounds = WalkBounds(entries=asked.limit)
        tree = await self._done(
            asked.instance_id,
            asked.path,
            lambda abort: FileWalk(bounds, abort=abort, clock=self._clock).run(root, asked.path),
        )
        return FileList(entries=tuple(_file_entry(entry) for entry in tree.entries))

    async def _remove(self, _scope: Scope, asked: RemoveFile) -> FileRemoved:
        root = self._root(asked.instance_id)
        async with self._writers.hold(asked.instance_id):
            removed = await self._done(asked.instance_id, asked.path, lambda _: remove_file(root, asked.path))
        return FileRemoved(removed=removed)

    def _root(self, instance_id: str) -> pathlib.Path:
        root = self._directory_of(instance_id)
        if root is None:
            raise Rejected(
                Code.NOT_FOUND,
                f"there is no instance '{instance_id[:80]}' on this node",
                field="instance_id",
            )
        if not is_tree(root):
            raise Rejected(
                Code.NOT_FOUND,
                f"instance '{instance_id}' has no files on this node",
                hint="they are there from on_instance_starting until some time after its end",
            )
        return root

    async def _done(self, instance_id: str, path: str, work: Callable[[Abort], T]) -> T:
        try:
            async with self._turns:
                return await in_thread(work)
        except OSError as error:
            raise _as_ours(instance_id, path, error) from error


def _file_entry(entry: WireEntry) -> FileEntry:
    return FileEntry(
        path=entry.path,
        kind=entry.kind,
        size=entry.size_bytes,
        modified_at=dt.datetime.fromtimestamp(entry.modified_at_ms / 1000, dt.UTC),
    )


def _as_ours(instance_id: str, path: str, error: OSError) -> CorralError:
    if isinstance(error, FileNotFoundError):
        return Rejected(
            Code.NOT_FOUND,
            f"instance '{instance_id}' has no '{path}'",
            hint="look at what its directory holds with `walk`",
            field="path",
        )
    if isinstance(error, PermissionError):
        return Rejected(Code.FILE_UNREADABLE, f"'{path}' is closed to the daemon of this node")
    return as_ours(error, doing=f"work on '{path}' of '{instance_id}'", otherwise=Code.FILE_UNREADABLE)
