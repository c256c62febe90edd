"""Saves of an instance's files as a template: chosen files packed as tar.gz here, and pushed to the controller in
bulk.

The workload may be writing meanwhile. Every directory is opened relative to the one before and no link is followed:
what a workload swaps for a link to something else is refused, not read.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import io
import os
import pathlib
import tarfile
from collections.abc import Callable
from typing import IO, Final, cast

import msgspec
import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.data_channel import DataChannel
from corral.daemon.link.link import Order, Reply
from corral.daemon.node.disk_space import as_ours
from corral.daemon.prepare.abort import Abort, in_thread
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.runs.run_messages import cut
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.daemon.workload.run_secrets import SecretGuard
from corral.domain.file_paths import Globs, check_glob, check_path, globs
from corral.errors import Bug, Code, CorralError, Rejected, Retryable
from corral.system.aio.tasks import Tasks
from corral.system.entropy import Entropy, new_id
from corral.system.trees.entries import directory_beneath, is_tree, open_regular, open_tree
from corral.system.trees.walk import TreeEntry, walk
from corral.wire.frame_table import require
from corral.wire.v1.instance_pb2 import SaveFiles, SaveFilesFailed
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage

_EXECUTABLE: Final = 0o111
_LEVEL: Final = 1
MAX_FILES: Final = 100_000


class Packed(msgspec.Struct, frozen=True):
    files: int
    size: int
    left_out: int = 0
    """Links, special files, files that may lie elsewhere as well, and names that are no UTF-8."""


def pack(
    root: pathlib.Path,
    chosen: Globs,
    target: pathlib.Path,
    *,
    max_bytes: int,
    max_files: int,
    abort: Abort,
    guard: SecretGuard,
) -> Packed:
    """Everything that `chosen` matches. PATH_REFUSED for a link or a device among it, SECRET_EXPOSED from
    `guard`, ARCHIVE_TOO_LARGE above the limits (0: ours alone), NOT_FOUND when nothing matches. Blocks."""
    files = size = 0
    most = min(max_files or MAX_FILES, MAX_FILES)
    with (
        tarfile.open(target, "w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT) as archive,
        open_tree(root) as top,
    ):
        for found in walk(top):
            abort.check()
            if found.is_directory or not chosen.matches(path := found.path):
                continue
            files += 1
            if files > most:
                raise _too_large(f"the chosen files are more than {most}")
            size += _add(archive, check_path(path, field="paths"), found, (size, max_bytes), abort, guard)
            if max_bytes and size > max_bytes:
                raise _too_large(f"the chosen files have more than {max_bytes} bytes")
    if not files:
        raise Rejected(
            Code.NOT_FOUND, "no file matches these paths", hint="look at the instance's files", field="paths"
        )
    return Packed(files, size)


def pack_directory(
    root: pathlib.Path,
    path: str,
    target: pathlib.Path,
    *,
    max_bytes: int,
    max_files: int,
    room: Callable[[int], None],
    abort: Abort,
) -> Packed:
    """A directory of the tree for somebody to take away, empty directories included: what is no regular file is left out,
    and so are files that may lie elsewhere as well, and names that are no UTF-8. `room` gets the bytes so far. ARCHIVE_TOO_LARGE, DISK_FULL,
    PATH_REFUSED, FileNotFoundError. Blocks."""
    files = size = left_out = 0
    most = min(max_files or MAX_FILES, MAX_FILES)
    with (
        open_tree(root) as top,
        directory_beneath(top, path) as start,
        tarfile.open(target, "w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT) as archive,
    ):
        for found in walk(start):
            abort.check()
            files += 1
            if files > most:
                raise _too_large(f"there are more than {most} files and directories")
            name = found.path
            if not _is_text(name):  # two of them could have one name in the archive
                left_out += 1
                continue
            if found.is_directory:
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
                continue
            try:
                size += _add(archive, name, found, (size, max_bytes), abort, None, skip=True)
            except _Skipped:
                left_out += 1
            room(size)
    return Packed(files, size, left_out)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Skipped(Exception):
    """No regular file, or one that may lie elsewhere as well."""


def _add(
    archive: tarfile.TarFile,
    path: str,
    found: TreeEntry,
    room: tuple[int, int],
    abort: Abort,
    guard: SecretGuard | None,
    *,
    skip: bool = False,
) -> int:
    """Add a file; returns its size. One that exceeds the limit is not begun: a sparse file has any size, and costs
    its workload nothing."""
    try:
        descriptor = open_regular(found.here, found.name, shown=path)
    except FileNotFoundError:
        return 0  # the workload lives on
    except CorralError as error:
        if skip:
            raise _Skipped from error
        raise _refused(path) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        taken, limit = room
        if limit and status.st_size > limit - taken:
            raise _too_large(
                f"'{path}' has {status.st_size} bytes: with it the chosen files have more than {limit} bytes"
            )
        entry = tarfile.TarInfo(path)
        content: IO[bytes] = file
        entry.size = status.st_size
        if guard is not None:
            content, entry.size = guard.content(path, file, status.st_size)
        entry.mode = 0o755 if status.st_mode & _EXECUTABLE else 0o644
        try:
            archive.addfile(entry, cast(IO[bytes], _AbortableFile(content, abort)))
        except OSError as error:
            if error.errno is not None:
                raise
            raise Retryable(  # of tarfile: the file has fewer bytes than it had a moment ago
                Code.FILE_UNREADABLE, f"'{path}' became shorter while it was read", hint="try again"
            ) from error
        return entry.size


class _AbortableFile(io.RawIOBase):
    """A file that is read only as long as its order is open."""

    def __init__(self, file: IO[bytes], abort: Abort) -> None:
        self._file = file
        self._abort = abort

    def read(self, size: int = -1) -> bytes:
        self._abort.check()
        return self._file.read(size)


def _too_large(what: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_TOO_LARGE,
        what,
        hint="choose fewer paths, or raise templates.max_bytes (of a download: files.max_unpacked_bytes)",
        field="paths",
    )


def _refused(path: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"'{path}' is a link, no regular file, or has more than one name",
        hint="templates hold regular files only; leave it out of the paths",
        field="paths",
    )


_AT_ONCE: Final = 2
_log = structlog.get_logger("corral.daemon.orders")


class SaveOrders:
    """A few at a time. Every order is answered by a transfer or a refusal, or its connection ends."""

    def __init__(
        self, supervisor: InstanceSupervisor, directories: WorkingDirectories, *, entropy: Entropy
    ) -> None:
        self._supervisor = supervisor
        self._directories = directories
        self._entropy = entropy
        self._connection: LinkConnection | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._threads = concurrent.futures.ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="corral/files")
        self._tasks = Tasks()
        self.handlers: dict[str, Order] = {"save_files": self._save}

    def on_connected(self, connection: LinkConnection) -> None:
        self._connection = connection

    def on_disconnected(self) -> None:
        """The orders of the lost connection are dropped."""
        self._connection = None
        self._tasks.cancel()

    async def close(self) -> None:
        await self._tasks.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _save(self, reply: Reply, message: ControllerMessage) -> None:
        request = SaveFiles()
        request.CopyFrom(message.save_files)
        self._tasks.spawn(
            self._answer(reply, request), name=f"supervise/save/{request.instance_id}", keeps_ids=True
        )

    async def _answer(self, reply: Reply, request: SaveFiles) -> None:
        try:
            async with self._turns:
                await self._send(request)
        except CorralError as error:
            self._refuse(reply, request, error)
        except OSError as error:
            doing = f"packing the files of '{request.instance_id}'"
            self._refuse(reply, request, as_ours(error, doing=doing, otherwise=Code.FILE_UNREADABLE))
        except Exception as error:
            _log.error("instance_save.failed", instance=request.instance_id, exc_info=error)
            self._refuse(reply, request, Bug(f"the files of '{request.instance_id}' cannot be read: {error}"))

    async def _send(self, request: SaveFiles) -> None:
        connection = self._connection
        if connection is None or not connection.supports.bulk:
            raise Retryable(Code.UNREACHABLE, "there is no controller to send files to", retry_after=1.0)
        archive = self._directories.staging(new_id("save", self._entropy), static=False)
        try:
            await self.pack(request, archive)
            async with DataChannel(connection) as channel:
                await channel.push(request.request_id, archive)
        finally:
            archive.unlink(missing_ok=True)

    async def pack(self, request: SaveFiles, archive: pathlib.Path) -> None:
        """Pack the chosen files of the ordered run into `archive`."""
        require(request)
        run = self._supervisor.expect(request.instance_id, request.incarnation)
        for position, path in enumerate(request.paths):
            check_glob(path, field=f"paths/{position}")
        directory = self._directories.path(request.instance_id, static=run.order.static)
        if not is_tree(directory):
            raise Rejected(Code.NOT_FOUND, f"the files of '{request.instance_id}' are gone")
        chosen = globs(tuple(request.paths))
        guard = await asyncio.to_thread(run.mask.guard, put_names=request.secret_names)
        await in_thread(
            lambda abort: pack(
                directory,
                chosen,
                archive,
                max_bytes=request.max_bytes,
                max_files=request.max_files,
                abort=abort,
                guard=guard,
            ),
            threads=self._threads,
        )

    def _refuse(self, reply: Reply, request: SaveFiles, error: CorralError) -> None:
        reply(
            DaemonMessage(
                save_files_failed=SaveFilesFailed(
                    request_id=request.request_id,
                    error_code=error.code.name,
                    error_message=cut(str(error)),
                )
            )
        )
