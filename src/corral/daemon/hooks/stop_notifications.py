"""Stop notifications of runs to the modules of the node, pending ones included.

A notification is pending for a module that was ACTIVE while the run lived and was not when it ended. It is stored
in the run's directory with the ids of those modules; it is removed with the directory, and a later daemon finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final, Protocol

import structlog

from corral.daemon.hooks.run_notifications import NotificationQueue, Spawn
from corral.sdk.instances import ExitInfo, InstanceHandle


class StoppedRunFile(Protocol):
    """The exit of a run on disk, until the run's directory is swept. Both methods block, and raise no errors of
    the disk."""

    @property
    def instance_id(self) -> str: ...

    def read(self) -> tuple[InstanceHandle, ExitInfo] | None:
        """None: the file is gone."""

    def write_pending(self, modules: Collection[str]) -> None:
        """Write the modules whose notification is pending; empty: none is. Losing this costs a repeated
        notification."""


class StopNotification:
    """The exit of one run: which modules were notified, and which should be. `modules` were ACTIVE while the run
    lived, and may not be running now."""

    def __init__(
        self, run: str, handle: InstanceHandle, exit: ExitInfo, *, file: StoppedRunFile, modules: set[str]
    ) -> None:
        self.run = run
        self.file = file
        self.modules = modules
        self._handle = handle
        self._exit = exit
        self._futures: dict[NotificationQueue, asyncio.Future[bool] | None] = {}

    def notify(self, queue: NotificationQueue) -> None:
        """Notify once for each module: again only when its process was gone before the call, or an older version
        has not answered yet."""
        id = queue.scope.module_id
        self.modules.add(id)
        if queue not in self._futures and not self._was_notified(id):
            self._futures[queue] = queue.notify_stopped(self.run, self._handle, self._exit)

    def _was_notified(self, module_id: str) -> bool:
        return any(
            future is not None and future.done() and not future.cancelled() and future.result()
            for queue, future in self._futures.items()
            if queue.scope.module_id == module_id
        )

    async def settled(self) -> None:
        """Returns when every queued module was called or is gone; also those that were added meanwhile."""
        while waiting := [each for each in self._futures.values() if each is not None and not each.done()]:
            await asyncio.wait(waiting)

    def not_notified(self) -> set[str]:
        """Modules that should have been notified and were not running."""
        return {id for id in self.modules if not self._was_notified(id)}


MOST_PENDING: Final = 4096
"""Of the whole node; beyond that the oldest is dropped."""
_WRITES: Final = 2
"""At once: the threads for it are those that runs start and end with."""
_log = structlog.get_logger("corral.daemon.hooks")


class _PendingStop:
    def __init__(self, run: str, file: StoppedRunFile, modules: set[str]) -> None:
        self.run = run
        self.file = file
        self.modules = modules
        self.writing = asyncio.Lock()


class PendingStopNotifications:
    """Belongs to the loop's thread. Every change is written to disk by tasks of `spawn`."""

    def __init__(self, spawn: Spawn, *, most: int = MOST_PENDING) -> None:
        self._spawn = spawn
        self._most = most
        self._exits: dict[str, _PendingStop] = {}
        """By run; those that ended earlier come first."""
        self._writes = asyncio.Semaphore(_WRITES)
        self._full = False

    def __len__(self) -> int:
        return len(self._exits)

    def add(self, run: str, file: StoppedRunFile, modules: Iterable[str], *, kept: bool = False) -> None:
        """Add pending notifications of a run for these modules; none: it is done. `kept`: on the disk already."""
        end = _PendingStop(run, file, set(modules))
        if not kept:
            self._write_later(end)
        if end.modules:
            self._exits[run] = end
        while len(self._exits) > self._most:
            self._give_up(next(iter(self._exits.values())))

    def notify(self, queue: NotificationQueue) -> None:
        """Queue all pending notifications of the module, oldest exit first. Each is removed when it was called."""
        for run in list(self._exits):
            self.notify_one(queue, run)

    def notify_one(self, queue: NotificationQueue, run: str) -> None:
        """Queue this notification, if it is pending for the module."""
        end = self._exits.get(run)
        if end is not None and queue.scope.module_id in end.modules:
            self._notify(queue, end)

    def dismiss(self, module_id: str) -> None:
        """Drop every pending notification of this module."""
        for end in list(self._exits.values()):
            self._settle(end, module_id)

    def _notify(self, queue: NotificationQueue, end: _PendingStop) -> None:
        id = queue.scope.module_id

        async def fetch() -> dict[str, Any] | None:
            if id not in end.modules:
                return None
            found = await asyncio.to_thread(end.file.read)
            return None if found is None else {"handle": found[0], "exit": found[1]}

        def over(notified: asyncio.Future[bool]) -> None:
            if not notified.cancelled() and notified.result():
                self._settle(end, id)

        notified = queue.notify_pending(end.file.instance_id, fetch)
        if notified is not None:
            notified.add_done_callback(over)

    def _settle(self, end: _PendingStop, module_id: str) -> None:
        if module_id not in end.modules:
            return
        end.modules.discard(module_id)
        if not end.modules:
            self._exits.pop(end.run, None)
            self._full = False
        self._write_later(end)

    def _give_up(self, end: _PendingStop) -> None:
        if not self._full:  # logged once: from here on it may happen with every exit
            self._full = True
            _log.warning("stop_notification.lost", run=end.run, modules=sorted(end.modules), most=self._most)
        del self._exits[end.run]
        end.modules.clear()
        self._write_later(end)

    def _write_later(self, end: _PendingStop) -> None:
        self._spawn(self._write(end), f"hooks/pending/{end.run}")

    async def _write(self, end: _PendingStop) -> None:
        """Writes of one run are serial: the last one has the latest state."""
        async with end.writing, self._writes:
            await asyncio.to_thread(end.file.write_pending, sorted(end.modules))
