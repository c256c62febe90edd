"""Orders of a controller that drains this node: no new runs, stop what runs, end the daemon, or go on as before.

Only such an order, or one to stop a single run, ends instances: a daemon that is killed or upgraded detaches. An order
holds for its session; the controller sends it again in the next one. Every order is answered, however often it comes,
and an order to end the daemon is carried out once for each drain.
"""

from __future__ import annotations

import asyncio
import math
import pathlib
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import structlog

from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import Order, Reply
from corral.daemon.node.durable_files import store
from corral.daemon.runs.reporter import Reporter
from corral.daemon.runs.run_files import StopOrder
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.domain.causes import request_of
from corral.domain.groups.instance_records import live
from corral.errors import CorralError
from corral.system.aio.tasks import Tasks
from corral.system.files import read_versioned
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import (
    SHUTDOWN_MODE_EXIT,
    SHUTDOWN_MODE_RESUME,
    SHUTDOWN_MODE_STOP,
    ShutdownMode,
    ShutdownNode,
    ShutdownNodeAck,
)

EXIT_FILE: Final = "exited.json"
_FORMAT: Final = "corral-exited"
_VERSION: Final = 1
_KILL_SECONDS: Final = 60.0
"""Beyond the longest stop ladder: what is left then cannot be killed, and the daemon ends without it."""
_REPORT_SECONDS: Final = 5.0
_FLUSH_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.02
_LONGEST_ID: Final = 128
_LONGEST_REASON: Final = 500
_log = structlog.get_logger("corral.daemon.orders")


class ConfirmedSpool(Protocol):
    @property
    def head(self) -> int: ...

    def confirmed(self, number: int) -> bool: ...


class _Exited(msgspec.Struct, frozen=True, kw_only=True):
    drain_id: str


class ShutdownOrders:
    """Give `handlers` to the link, and this as a listener. `exit_ordered` is set when the daemon has to end."""

    def __init__(
        self,
        supervisor: InstanceSupervisor,
        *,
        reporter: Reporter,
        spool: ConfirmedSpool,
        data: pathlib.Path,
    ) -> None:
        self._supervisor = supervisor
        self._reporter = reporter
        self._spool = spool
        self._path = data / EXIT_FILE
        self._tasks = Tasks()
        self._exited_for = self._found()
        self._exiting = False
        self._stopping: asyncio.Task[None] | None = None
        self._connection: LinkConnection | None = None
        self.exit_ordered: Final = asyncio.Event()
        self.handlers: Final[dict[str, Order]] = {"shutdown_node": self._ordered}

    async def close(self) -> None:
        await self._tasks.close()

    def on_connected(self, connection: LinkConnection) -> None:
        """A new session begins without an order: one that still holds is its first frame."""
        self._connection = connection
        if not self._exiting:
            self._supervisor.drained_for = None

    def on_disconnected(self) -> None:
        self._connection = None

    def _found(self) -> str:
        """The drain for which a former daemon of this directory ended."""
        try:
            stored = read_versioned(self._path, _Exited, name=_FORMAT, version=_VERSION)
        except (CorralError, OSError) as error:
            _log.warning("exit_file_read.failed", reason=str(error))
            return ""
        return stored.drain_id if stored is not None else ""

    def _ordered(self, reply: Reply, message: ControllerMessage) -> None:
        order = message.shutdown_node
        mode = order.mode or SHUTDOWN_MODE_STOP  # as published: without modes
        reason = order.reason[:_LONGEST_REASON] or "no reason was given"
        again = bool(order.drain_id) and order.drain_id == self._exited_for
        reply(self._answer(order, done=again and mode == SHUTDOWN_MODE_EXIT))
        if self._exiting:
            return
        resumed = mode == SHUTDOWN_MODE_RESUME
        self._supervisor.drained_for = None if resumed else reason
        _log.info("drain_order.received", mode=_mode_name(mode), drain=order.drain_id, reason=reason)
        if mode == SHUTDOWN_MODE_EXIT and not again:
            self._exiting = True
            self._tasks.spawn(self._exit(reply, message), name="orders/exit", keeps_ids=True)
        elif mode == SHUTDOWN_MODE_STOP and (self._stopping is None or self._stopping.done()):
            self._stopping = self._tasks.spawn(
                self._stop(reply, message), name="orders/stop-all", keeps_ids=True
            )

    def _answer(self, order: ShutdownNode, *, done: bool = False) -> DaemonMessage:
        return DaemonMessage(
            shutdown_node_ack=ShutdownNodeAck(
                running_instances=self._supervisor.live_count() + len(self._supervisor.lost()),
                estimated_drain_seconds=math.ceil(self._longest_ladder()),
                mode=order.mode or SHUTDOWN_MODE_STOP,
                drain_id=order.drain_id[:_LONGEST_ID],
                done=done,
            )
        )

    def _longest_ladder(self) -> float:
        """How long the stop of everything takes at most, but for the kill at its end."""
        alive = (run.order.ladder for run in self._supervisor.instances.runs() if live(run.state))
        return max((sum(rung.wait_seconds for rung in ladder) for ladder in alive), default=0.0)

    async def _stop(self, reply: Reply, message: ControllerMessage) -> None:
        if await self._stopped(message) and message.shutdown_node.mode:  # a published order has one answer
            reply(self._answer(message.shutdown_node, done=True))

    async def _stopped(self, message: ControllerMessage) -> bool:
        """Stop what runs, by its ladder; False when something is left after all that was tried."""
        order = StopOrder(
            reason=f"its node is drained: {message.shutdown_node.reason[:_LONGEST_REASON]}",
            request=request_of(message.cause),
        )
        try:
            async with asyncio.timeout(self._longest_ladder() + _KILL_SECONDS):
                await self._supervisor.stop_all(order)
        except TimeoutError:
            left = [run.name for run in self._supervisor.instances.runs() if live(run.state)]
            _log.error("drain_stop.expired", left=left[:20], count=len(left))
            return False
        except CorralError as error:
            _log.error("drain_stop.failed", reason=str(error))
            return False
        return True

    async def _exit(self, reply: Reply, message: ControllerMessage) -> None:
        """Stop what runs, report the exits, and let the daemon end. What could not be killed is left to the next
        daemon, which finds the orders to stop it."""
        try:
            await self._stopped(message)
            await self._reported()
            await self._remember(message.shutdown_node.drain_id)
            reply(self._answer(message.shutdown_node, done=True))
            await self._until(self._flushed, _FLUSH_SECONDS)
        finally:
            self.exit_ordered.set()

    async def _reported(self) -> None:
        """Until the controller has the exits, if it answers; otherwise the next daemon sends them."""
        try:
            async with asyncio.timeout(_REPORT_SECONDS):
                await self._reporter.settled()
        except TimeoutError:
            _log.warning("reports.kept", waiting=self._reporter.waiting)
            return
        head = self._spool.head
        await self._until(lambda: self._connection is None or self._spool.confirmed(head), _REPORT_SECONDS)

    async def _remember(self, drain_id: str) -> None:
        """Write for which drain this daemon ends: the next one does not end for the same."""
        if not drain_id or len(drain_id) > _LONGEST_ID:
            return
        try:
            await asyncio.to_thread(
                store, self._path, _Exited(drain_id=drain_id), name=_FORMAT, version=_VERSION
            )
        except CorralError as error:
            _log.warning("exit_file_write.failed", reason=str(error))

    def _flushed(self) -> bool:
        return self._connection is None or not len(self._connection.outbox)

    async def _until(self, holds: Callable[[], bool], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            return


def _mode_name(mode: int) -> str:
    """The name of a mode; its number, if only a newer controller knows it: that is handled as an announcement."""
    known = ShutdownMode.values()
    return ShutdownMode.Name(mode).removeprefix("SHUTDOWN_MODE_").lower() if mode in known else str(mode)
