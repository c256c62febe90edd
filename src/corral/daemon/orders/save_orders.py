"""Files of an instance for the controller, which keeps them as a template: packed here, pushed in bulk."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Final

import structlog

from corral.daemon.link.connection import Connection
from corral.daemon.link.data_channel import DataChannel
from corral.daemon.link.link import Order, Reply
from corral.daemon.node.disk_space import as_ours
from corral.daemon.orders.file_archive import pack
from corral.daemon.prepare.abort import in_thread
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.runs.run_messages import cut
from corral.daemon.supervise.supervisor import Supervisor
from corral.domain.file_paths import check_glob, globs
from corral.errors import Bug, Code, CorralError, Rejected, Retryable
from corral.system.aio.tasks import Tasks
from corral.system.entropy import Entropy, new_id
from corral.system.trees.entries import is_tree
from corral.wire.frame_table import require
from corral.wire.v1.instance_pb2 import SaveFiles, SaveFilesFailed
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage

_AT_ONCE: Final = 2
_log = structlog.get_logger("corral.daemon.supervise")


class SaveOrders:
    """A few at a time. Every order is answered by a transfer or a refusal, or its connection ends."""

    def __init__(self, supervisor: Supervisor, directories: WorkingDirectories, *, entropy: Entropy) -> None:
        self._supervisor = supervisor
        self._directories = directories
        self._entropy = entropy
        self._connection: Connection | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._tasks = Tasks()
        self.handlers: dict[str, Order] = {"save_files": self._save}

    def on_connected(self, connection: Connection) -> None:
        self._connection = connection

    def on_disconnected(self) -> None:
        """Nobody waits any more for what was ordered over it."""
        self._connection = None
        self._tasks.cancel()

    async def close(self) -> None:
        await self._tasks.close()

    def _save(self, reply: Reply, message: ControllerMessage) -> None:
        wanted = SaveFiles()
        wanted.CopyFrom(message.save_files)
        self._tasks.spawn(self._answer(reply, wanted), name=f"supervise/save/{wanted.instance_id}")

    async def _answer(self, reply: Reply, wanted: SaveFiles) -> None:
        try:
            async with self._turns:
                await self._send(wanted)
        except CorralError as error:
            self._refuse(reply, wanted, error)
        except OSError as error:
            doing = f"packing the files of '{wanted.instance_id}'"
            self._refuse(reply, wanted, as_ours(error, doing=doing, otherwise=Code.FILE_UNREADABLE))
        except Exception as error:
            _log.error("instance.save_failed", instance=wanted.instance_id, exc_info=error)
            self._refuse(reply, wanted, Bug(f"the files of '{wanted.instance_id}' cannot be read: {error}"))

    async def _send(self, wanted: SaveFiles) -> None:
        connection = self._connection
        if connection is None or not connection.supports.bulk:
            raise Retryable(Code.UNREACHABLE, "there is no controller to send files to", retry_after=1.0)
        archive = self._directories.staging(new_id("save", self._entropy), static=False)
        try:
            await self.pack(wanted, archive)
            async with DataChannel(connection) as channel:
                await channel.push(wanted.request_id, archive)
        finally:
            archive.unlink(missing_ok=True)

    async def pack(self, wanted: SaveFiles, archive: pathlib.Path) -> None:
        """The chosen files of the run that is meant, at `archive`."""
        require(wanted)
        run = self._supervisor.expect(wanted.instance_id, wanted.incarnation)
        for position, path in enumerate(wanted.paths):
            check_glob(path, field=f"paths/{position}")
        directory = self._directories.path(wanted.instance_id, static=run.order.static)
        if not is_tree(directory):
            raise Rejected(Code.NOT_FOUND, f"the files of '{wanted.instance_id}' are gone")
        chosen = globs(tuple(wanted.paths))
        guard = await asyncio.to_thread(run.mask.guard, put_names=wanted.secret_names)
        await in_thread(
            lambda abort: pack(
                directory,
                chosen,
                archive,
                max_bytes=wanted.max_bytes,
                max_files=wanted.max_files,
                abort=abort,
                guard=guard,
            )
        )

    def _refuse(self, reply: Reply, wanted: SaveFiles, error: CorralError) -> None:
        reply(
            DaemonMessage(
                save_files_failed=SaveFilesFailed(
                    request_id=wanted.request_id,
                    error_code=error.code.name,
                    error_message=cut(str(error)),
                )
            )
        )
