"""Queries about the files of an instance, answered from its working directory over the control stream."""

from __future__ import annotations

import asyncio
import concurrent.futures
import pathlib
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import structlog

from corral.daemon.link.link import Order, Reply
from corral.daemon.node.disk_space import as_ours
from corral.daemon.orders.instance_files import FileWalk, WalkBounds, read_part
from corral.daemon.prepare.abort import in_thread
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.runs.run_messages import cut
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.domain.file_paths import MOST_DIGESTED
from corral.domain.ids import instance_id
from corral.errors import Bug, Code, CorralError, Rejected
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.trees.entries import is_tree
from corral.wire.frame_table import require
from corral.wire.v1.instance_pb2 import (
    InstanceFileContent,
    InstanceFileTree,
    ReadInstanceFile,
    WalkInstanceFiles,
)
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage

AT_ONCE: Final = 4
OF_INSTANCE: Final = 2
"""Questions that are looked into at a time, and of these the ones about one instance: a slow one holds up nobody else."""
WAITING: Final = 64
_log = structlog.get_logger("corral.daemon.orders")

Question = WalkInstanceFiles | ReadInstanceFile


class FileQuestion(Protocol):
    """Names the instance whose files it is about."""

    @property
    def instance_id(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def world(self) -> bool: ...


class FileOrders:
    """A few at a time, each in a thread. Every query is answered, with an `error` where needed: a code of ours, a
    colon and the reason."""

    def __init__(
        self, supervisor: InstanceSupervisor, directories: WorkingDirectories, *, clock: Clock
    ) -> None:
        self._supervisor = supervisor
        self._directories = directories
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_of = KeyedLocks[str](holders=OF_INSTANCE)
        self._threads = concurrent.futures.ThreadPoolExecutor(AT_ONCE, thread_name_prefix="corral/files")
        self._tasks = Tasks()
        self.handlers: dict[str, Order] = {
            "walk_instance_files": self._walk,
            "read_instance_file": self._read,
        }

    async def close(self) -> None:
        await self._tasks.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _walk(self, reply: Reply, message: ControllerMessage) -> None:
        asked = WalkInstanceFiles()
        asked.CopyFrom(message.walk_instance_files)

        async def answer() -> DaemonMessage:
            tree = await self.walk(asked)
            tree.request_id = asked.request_id
            return DaemonMessage(instance_file_tree=tree)

        def refusal(error: str) -> DaemonMessage:
            tree = InstanceFileTree(request_id=asked.request_id, error=error)
            return DaemonMessage(instance_file_tree=tree)

        self._take(reply, asked, answer, refusal)

    def _read(self, reply: Reply, message: ControllerMessage) -> None:
        asked = ReadInstanceFile()
        asked.CopyFrom(message.read_instance_file)

        async def answer() -> DaemonMessage:
            content = await self.read(asked)
            content.request_id = asked.request_id
            return DaemonMessage(instance_file_content=content)

        def refusal(error: str) -> DaemonMessage:
            content = InstanceFileContent(request_id=asked.request_id, error=error)
            return DaemonMessage(instance_file_content=content)

        self._take(reply, asked, answer, refusal)

    def _take(
        self,
        reply: Reply,
        asked: Question,
        answer: Callable[[], Awaitable[DaemonMessage]],
        refusal: Callable[[str], DaemonMessage],
    ) -> None:
        if len(self._tasks) >= WAITING:
            reply(refusal(f"{Code.RATE_LIMITED.name}: {WAITING} questions about files are waiting already"))
            return

        async def answered() -> None:
            try:
                reply(await answer())
            except Exception as error:
                ours = error_of(asked.instance_id, asked.path, error)
                reply(refusal(cut(f"{ours.code.name}: {ours}")))

        self._tasks.spawn(answered(), name=f"supervise/files/{asked.instance_id}", keeps_ids=True)

    def _directory(self, asked: Question) -> pathlib.Path:
        require(asked)
        return instance_directory(self._supervisor, self._directories, asked)

    def _is_new_world(self, asked: WalkInstanceFiles) -> bool:
        """Whether it is of a static instance that has neither a run nor a directory here."""
        known = self._supervisor.instances.find(asked.instance_id) is not None
        return asked.world and not known and not self._directories.present(instance_id(asked.instance_id))

    async def walk(self, asked: WalkInstanceFiles) -> InstanceFileTree:
        """NOT_FOUND, PATH_REFUSED, MISSING_FIELD, TIMEOUT; OSError."""
        if not asked.path and self._is_new_world(asked):
            return InstanceFileTree()
        directory = self._directory(asked)
        bounds = WalkBounds(
            entries=asked.max_entries,
            depth=asked.max_depth,
            summarize=asked.summarize_threshold,
            digests=min(asked.digest_bytes, MOST_DIGESTED),
        )
        async with self._turns_of.hold(asked.instance_id), self._turns:
            return await in_thread(
                lambda abort: _walked(FileWalk(bounds, abort=abort, clock=self._clock), directory, asked),
                threads=self._threads,
            )

    async def read(self, asked: ReadInstanceFile) -> InstanceFileContent:
        """NOT_FOUND, PATH_REFUSED, MISSING_FIELD; OSError."""
        directory = self._directory(asked)
        async with self._turns_of.hold(asked.instance_id), self._turns:
            return await in_thread(
                lambda _: read_part(
                    directory, asked.path, offset=asked.offset, length=asked.max_bytes, tail=asked.tail
                ),
                threads=self._threads,
            )


def _walked(walk: FileWalk, directory: pathlib.Path, asked: WalkInstanceFiles) -> InstanceFileTree:
    if asked.itself:
        return walk.look(directory, asked.path)
    return walk.run(directory, asked.path, asked.after)


def instance_directory(
    supervisor: InstanceSupervisor,
    directories: WorkingDirectories,
    asked: FileQuestion,
    *,
    make: bool = False,
) -> pathlib.Path:
    """The directory of the run that is meant: by the node's own record, not by the query, unless it has none and the
    query is about a static instance. `make`: such a directory is made where there is nothing. NOT_FOUND; OSError. Blocks for a
    moment."""
    if asked.world and supervisor.instances.find(asked.instance_id) is None:
        return _world(directories, instance_id(asked.instance_id), make=make)
    order = supervisor.expect(asked.instance_id, 0).order
    if asked.group != order.group:
        raise Rejected(
            Code.NOT_FOUND,
            f"instance '{order.instance_id}' is of group '{order.group}', not '{asked.group[:80]}'",
        )
    return _present(directories.path(order.instance_id, static=order.static), order.instance_id)


def _world(directories: WorkingDirectories, id: str, *, make: bool) -> pathlib.Path:
    if make and not directories.present(id):
        directories.make_world(id)
    return _present(directories.path(id, static=True), id)


def _present(directory: pathlib.Path, id: str) -> pathlib.Path:
    if not is_tree(directory):
        raise Rejected(
            Code.NOT_FOUND,
            f"instance '{id}' has no files on this node",
            hint="they go some time after its end, unless its group is static",
        )
    return directory


def error_of(instance_id: str, path: str, error: Exception) -> CorralError:
    """Whatever happened, a query is answered."""
    if isinstance(error, CorralError):
        return error
    if isinstance(error, FileNotFoundError):
        return Rejected(
            Code.NOT_FOUND,
            f"instance '{instance_id}' has no '{path}'",
            hint="look at what its directory holds",
            field="path",
        )
    if isinstance(error, PermissionError):
        return Rejected(Code.FILE_UNREADABLE, f"'{path}' is closed to the daemon of this node")
    if isinstance(error, OSError):
        return as_ours(error, doing=f"work on '{path}'", otherwise=Code.FILE_UNREADABLE)
    _log.error("instance_files.failed", instance=instance_id, exc_info=error)
    return Bug(f"the files of '{instance_id}' cannot be used: {error}")
