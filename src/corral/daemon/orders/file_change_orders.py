"""Orders to change the files of an instance, and to send them whole: contents come and go over the data channel.

A content is fetched beside the working directory, whole and checked, before its instance's turn is taken: so a slow
transfer holds up nobody, and comparison and rename follow each other at once. Changes and files that are sent have turns of
their own, of which one instance never has all; and what takes longer than the controller waits for it is broken off.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import msgspec
import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.data_channel import DataChannel
from corral.daemon.link.link import Order, Reply
from corral.daemon.node.disk_space import check_room
from corral.daemon.orders.answered_changes import AnsweredChanges, refusal_of
from corral.daemon.orders.file_conditions import FileCondition, digest_of
from corral.daemon.orders.file_orders import instance_directory
from corral.daemon.orders.file_turns import Turns, limited
from corral.daemon.orders.instance_file_changes import make_directory, move_entry, remove_entry
from corral.daemon.orders.instance_file_placing import place_file
from corral.daemon.orders.instance_file_unpacking import UnpackBounds, unpack
from corral.daemon.orders.instance_file_writes import staged_bytes
from corral.daemon.orders.room_check import LOOK_EVERY, RoomCheck
from corral.daemon.orders.save_orders import MAX_FILES, pack_directory
from corral.daemon.prepare.abort import Abort, in_thread
from corral.daemon.prepare.file_exchange import LeftAside
from corral.daemon.prepare.working_directories import WorkingDirectories, staging_beside
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.domain.file_paths import MOST_DIGESTED, check_named
from corral.errors import Code, Rejected, Retryable
from corral.system.aio.tasks import Tasks
from corral.system.entropy import Entropy, new_id
from corral.system.trees.entries import open_beneath, open_tree
from corral.system.trees.removal import remove
from corral.wire.frame_table import require
from corral.wire.v1.instance_pb2 import ChangeInstanceFiles, InstanceFilesAnswer, SendInstanceFile
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage

CHANGES_AT_ONCE: Final = 6
SENT_AT_ONCE: Final = 4
"""Together fewer than the transfers that a node may have in progress."""
CHANGES_SHARE: Final = 4
SENT_SHARE: Final = 3
"""Of these for one instance."""
_REMOVED_AT_ONCE: Final = 2
WAITING: Final = 64
CHANGE_SECONDS: Final = 180.0
"""How long a change may take once its content is here; the controller waits as long."""
OPEN_SECONDS: Final = 300.0
"""How long a file may be digested, or a directory packed, before it is sent; the controller waits as long."""
_MAKING: Final = frozenset({"write", "mkdir"})
"""Verbs that make the directory of a static instance that has none."""
_log = structlog.get_logger("corral.daemon.orders")

T = TypeVar("T")
Question = ChangeInstanceFiles | SendInstanceFile


class _OpenedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an open file, to be sent."""

    descriptor: int
    offset: int
    size: int
    digest: str
    left_out: int = 0
    """Entries of a directory that its archive lacks."""


class FileChangeOrders:
    """A few at a time. Every order is answered or, when files are sent, by a transfer; or its connection ends."""

    def __init__(
        self,
        supervisor: InstanceSupervisor,
        directories: WorkingDirectories,
        *,
        reserve_mb: int,
        entropy: Entropy,
        change_seconds: float = CHANGE_SECONDS,
        open_seconds: float = OPEN_SECONDS,
    ) -> None:
        self._supervisor = supervisor
        self._directories = directories
        self._reserve_mb = reserve_mb
        self._entropy = entropy
        self._connection: LinkConnection | None = None
        self._change_seconds = change_seconds
        self._open_seconds = open_seconds
        self._changes = Turns(CHANGES_AT_ONCE, CHANGES_SHARE)
        self._sends = Turns(SENT_AT_ONCE, SENT_SHARE)
        self._threads = concurrent.futures.ThreadPoolExecutor(
            CHANGES_AT_ONCE + SENT_AT_ONCE + _REMOVED_AT_ONCE, thread_name_prefix="corral/files"
        )
        self._removing = asyncio.Semaphore(_REMOVED_AT_ONCE)
        self._answered = AnsweredChanges()
        self._tasks = Tasks()
        self._removals = Tasks()
        self.handlers: dict[str, Order] = {
            "change_instance_files": self._change,
            "send_instance_file": self._send,
        }

    def on_connected(self, connection: LinkConnection) -> None:
        self._connection = connection

    def on_disconnected(self) -> None:
        """The orders of the lost connection are dropped, each before or after its effect."""
        self._connection = None
        self._tasks.cancel()

    async def close(self) -> None:
        await self._tasks.close()
        await self._removals.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _done(self, work: Callable[[Abort], T]) -> T:
        """In a thread of these orders; there are as many as turns."""
        return await in_thread(work, threads=self._threads)

    # orders

    def _change(self, reply: Reply, message: ControllerMessage) -> None:
        asked = ChangeInstanceFiles()
        asked.CopyFrom(message.change_instance_files)
        self._take(reply, asked, self._changes, lambda: self._answered.once(asked, self.change))

    def _send(self, reply: Reply, message: ControllerMessage) -> None:
        asked = SendInstanceFile()
        asked.CopyFrom(message.send_instance_file)

        async def sent() -> InstanceFilesAnswer:
            await self._sent(asked)
            return InstanceFilesAnswer()

        self._take(reply, asked, self._sends, sent)

    def _take(
        self,
        reply: Reply,
        asked: Question,
        turns: Turns,
        work: Callable[[], Awaitable[InstanceFilesAnswer]],
    ) -> None:
        def say(answer: InstanceFilesAnswer) -> None:
            answer.request_id = asked.request_id
            reply(DaemonMessage(instance_files_answer=answer))

        if len(self._tasks) >= WAITING:
            say(
                InstanceFilesAnswer(
                    error=f"{Code.RATE_LIMITED.name}: {WAITING} orders about files are waiting"
                )
            )
            return

        async def answered() -> None:
            try:
                async with turns.hold(asked.instance_id):
                    answer = await work()
            except Exception as error:
                answer = refusal_of(asked, error)
            say(answer)

        self._tasks.spawn(answered(), name=f"supervise/files/{asked.instance_id}", keeps_ids=True)

    # changes

    async def change(self, asked: ChangeInstanceFiles) -> InstanceFilesAnswer:
        """PATH_REFUSED, FileChanged, NOT_FOUND, ALREADY_EXISTS, DISK_FULL, …; OSError. Then nothing is changed; after
        an archive that could be unpacked in part only, the refusal says so."""
        require(asked)
        make = asked.verb in _MAKING
        root = await asyncio.to_thread(
            instance_directory, self._supervisor, self._directories, asked, make=make
        )
        verbs = {
            "write": self._write,
            "rename": self._rename,
            "mkdir": self._mkdir,
            "delete": self._delete,
            "unpack": self._unpack,
        }
        verb = verbs.get(asked.verb)
        if verb is None:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"files cannot be changed by '{asked.verb[:40]}' here",
                hint="update the daemon of this node",
                field="verb",
            )
        check_named(asked.path, field="path")
        return await verb(root, asked)

    async def _write(self, root: pathlib.Path, asked: ChangeInstanceFiles) -> InstanceFilesAnswer:
        condition = _condition(asked)
        async with self._staged(root, asked) as staged, self._turn(asked):
            written = await self._done(
                lambda abort: place_file(
                    root,
                    asked.path,
                    staged,
                    asked.sha256,
                    condition=condition,
                    abort=abort,
                    mode=asked.mode & 0o777,
                )
            )
        return InstanceFilesAnswer(
            sha256=asked.sha256,
            former_sha256=written.former,
            size_bytes=asked.size_bytes,
            entries=1,
            unchanged=written.unchanged,
        )

    @contextlib.asynccontextmanager
    async def _staged(self, root: pathlib.Path, asked: ChangeInstanceFiles) -> AsyncIterator[pathlib.Path]:
        """The content, whole, beside the working directory."""
        room = RoomCheck(root, reserve_mb=self._reserve_mb, size=asked.size_bytes)
        await room.look(0)
        if asked.size_bytes == len(asked.content):
            with staged_bytes(root, asked.content) as staged:
                yield staged
            return
        staged = await asyncio.to_thread(staging_beside, root) / new_id("file", self._entropy)
        try:
            async with DataChannel(self._live()) as channel:
                await channel.fetch(asked.sha256, staged, expect=room.look, transfer_id=asked.request_id)
            yield staged
        except LeftAside:
            raise
        except BaseException:
            await asyncio.to_thread(_discard, staged)
            raise
        await asyncio.to_thread(_discard, staged)

    async def _rename(self, root: pathlib.Path, asked: ChangeInstanceFiles) -> InstanceFilesAnswer:
        condition = _condition(asked)
        async with self._turn(asked):
            digest = await self._done(
                lambda abort: move_entry(
                    root, asked.path, asked.target, replace=asked.replace, condition=condition, abort=abort
                )
            )
        return InstanceFilesAnswer(sha256=digest, entries=1)

    async def _mkdir(self, root: pathlib.Path, asked: ChangeInstanceFiles) -> InstanceFilesAnswer:
        await RoomCheck(root, reserve_mb=self._reserve_mb, size=0).look(0)
        async with self._turn(asked):
            made = await self._done(lambda _: make_directory(root, asked.path))
        return InstanceFilesAnswer(entries=int(made), unchanged=not made)

    async def _delete(self, root: pathlib.Path, asked: ChangeInstanceFiles) -> InstanceFilesAnswer:
        condition = _condition(asked)
        async with self._turn(asked):
            gone = await self._done(
                lambda abort: remove_entry(
                    root, asked.path, recursive=asked.recursive, condition=condition, abort=abort
                )
            )
        self._removals.spawn(self._removed(gone), name=f"supervise/remove/{asked.instance_id}")
        return InstanceFilesAnswer(entries=1)

    async def _removed(self, gone: pathlib.Path) -> None:
        """What cannot be removed now goes with the directory that a starting daemon empties."""
        async with self._removing:
            loop = asyncio.get_running_loop()
            if reason := await loop.run_in_executor(self._threads, remove, gone):
                _log.warning("directory_removal.failed", path=str(gone), reason=reason)

    async def _unpack(self, root: pathlib.Path, asked: ChangeInstanceFiles) -> InstanceFilesAnswer:
        reserve = self._reserve_mb

        def work(abort: Abort) -> int:
            unlooked = LOOK_EVERY

            def room(size: int) -> None:
                nonlocal unlooked
                unlooked += size
                if unlooked >= LOOK_EVERY:
                    check_room(root.parent, reserve_mb=reserve, copied_bytes=LOOK_EVERY)
                    unlooked = 0

            bounds = UnpackBounds(
                size=max(asked.max_bytes, 0), entries=min(max(asked.max_entries, 0), MAX_FILES), room=room
            )
            return unpack(root, asked.path, asked.target, replace=asked.replace, bounds=bounds, abort=abort)

        async with self._turn(asked):
            return InstanceFilesAnswer(entries=await self._done(work))

    @contextlib.asynccontextmanager
    async def _turn(self, asked: ChangeInstanceFiles) -> AsyncIterator[None]:
        """Held from the comparison to the change: writers of ours to one instance take turns. TIMEOUT."""
        async with (
            limited(asked.path, self._change_seconds),
            self._directories.writers.hold(asked.instance_id),
        ):
            yield

    # transfers to the controller

    async def _sent(self, asked: SendInstanceFile) -> None:
        require(asked)
        root = await asyncio.to_thread(instance_directory, self._supervisor, self._directories, asked)
        opening = self._packed(root, asked) if asked.archive else self._opened(root, asked)
        async with contextlib.AsyncExitStack() as stack:
            async with limited(asked.path, self._open_seconds):
                file = await stack.enter_async_context(opening)
            channel = await stack.enter_async_context(DataChannel(self._live()))
            await channel.push_part(
                asked.request_id,
                file.descriptor,
                digest=file.digest,
                offset=file.offset,
                size=file.size,
                left_out=file.left_out,
            )

    @contextlib.asynccontextmanager
    async def _opened(self, root: pathlib.Path, asked: SendInstanceFile) -> AsyncIterator[_OpenedFile]:
        """The very file that is sent is digested first: what is written to it meanwhile breaks the transfer off. A part of
        it has no digest that anybody could compare it with, and is sent as it is."""
        check_named(asked.path, field="path")
        with open_tree(root) as top, open_beneath(top, asked.path) as file:
            whole = os.fstat(file).st_size
            begin = min(max(asked.offset, 0), whole)
            size = whole - begin if asked.length <= 0 else min(asked.length, whole - begin)
            if size > asked.max_bytes:
                raise Rejected(
                    Code.BODY_TOO_LARGE,
                    f"'{asked.path}' has {size} bytes; at most {asked.max_bytes} are sent",
                    hint="read it in parts, or raise files.max_bytes",
                )
            digest = ""
            if size == whole:
                digest = await self._done(lambda abort: digest_of(file, abort, length=size))
            yield _OpenedFile(descriptor=file, offset=begin, size=size, digest=digest)

    @contextlib.asynccontextmanager
    async def _packed(self, root: pathlib.Path, asked: SendInstanceFile) -> AsyncIterator[_OpenedFile]:
        if asked.path:
            check_named(asked.path, field="path")
        archive = self._directories.staging(new_id("pack", self._entropy), static=False)
        room = RoomCheck(archive, reserve_mb=self._reserve_mb, size=0)
        try:
            packed = await self._done(
                lambda abort: pack_directory(
                    root,
                    asked.path,
                    archive,
                    max_bytes=asked.max_bytes,
                    max_files=asked.max_files,
                    room=room.check,
                    abort=abort,
                )
            )
            with archive.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                digest = await self._done(lambda abort: digest_of(file.fileno(), abort, length=size))
                yield _OpenedFile(
                    descriptor=file.fileno(), offset=0, size=size, digest=digest, left_out=packed.left_out
                )
        finally:
            await asyncio.to_thread(archive.unlink, missing_ok=True)

    def _live(self) -> LinkConnection:
        connection = self._connection
        if connection is None or not connection.supports.bulk:
            raise Retryable(
                Code.UNREACHABLE, "there is no controller to exchange files with", retry_after=1.0
            )
        return connection


def _condition(asked: ChangeInstanceFiles) -> FileCondition:
    return FileCondition(
        digests=frozenset(asked.if_digests),
        present=asked.must_exist,
        absent=asked.must_be_absent,
        max_bytes=asked.max_bytes if asked.max_bytes > 0 else MOST_DIGESTED,
    )


def _discard(staged: pathlib.Path) -> None:
    for left in (staged, *staged.parent.glob(f"{staged.name}.*.part")):
        left.unlink(missing_ok=True)
