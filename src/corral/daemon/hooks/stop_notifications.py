"""Ends that modules are owed: they were ACTIVE while the run lived, and away when it ended.

Here is only who is owed what. The ends lie in the directories of their runs, with the ids of those who have
yet to hear them; they go with the directory, and a later daemon finds what is left.

The end of one run, on its way to the modules of the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Final, Protocol

import structlog

from corral.daemon.hooks.run_notifications import NotificationQueue, Spawn
from corral.sdk.instances import ExitInfo, InstanceHandle


class StoppedRunFile(Protocol):
    """The end of a run as it lies on the disk, until the run's directory is swept. Both methods block, and
    raise nothing that the disk does."""

    @property
    def instance_id(self) -> str: ...

    def read(self) -> tuple[InstanceHandle, ExitInfo] | None:
        """None: it is not there any more."""

    def keep_owed(self, modules: Collection[str]) -> None:
        """Write down whom it has yet to be told; nobody: it is told. Losing this costs telling it again."""


class StopNotification:
    """Who was told, and who should be: `hearers` were ACTIVE in its life, and may be away now."""

    def __init__(
        self, run: str, handle: InstanceHandle, exit: ExitInfo, *, file: StoppedRunFile, hearers: set[str]
    ) -> None:
        self.run = run
        self.file = file
        self.hearers = hearers
        self._handle = handle
        self._exit = exit
        self._telling: dict[NotificationQueue, asyncio.Future[bool] | None] = {}

    def tell(self, lane: NotificationQueue) -> None:
        """Once for each module: again only when its process was gone before it could be called, or an older
        version has not answered yet."""
        id = lane.scope.module_id
        self.hearers.add(id)
        if lane not in self._telling and not self._was_told(id):
            self._telling[lane] = lane.tell_stopped(self.run, self._handle, self._exit)

    def _was_told(self, module_id: str) -> bool:
        return any(
            telling is not None and telling.done() and not telling.cancelled() and telling.result()
            for lane, telling in self._telling.items()
            if lane.scope.module_id == module_id
        )

    async def heard(self) -> None:
        """Until whoever is being told was called, or is gone; also those that come meanwhile."""
        while waiting := [each for each in self._telling.values() if each is not None and not each.done()]:
            await asyncio.wait(waiting)

    def untold(self) -> set[str]:
        """Those who should have heard it and were not there."""
        return {id for id in self.hearers if not self._was_told(id)}


MOST_PENDING: Final = 4096
"""Of the whole node; then the oldest is given up."""
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
    """Belongs to the loop's thread. Whatever changes is written down beside, by tasks of `spawn`."""

    def __init__(self, spawn: Spawn, *, most: int = MOST_PENDING) -> None:
        self._spawn = spawn
        self._most = most
        self._ends: dict[str, _PendingStop] = {}
        """By run; those that ended earlier come first."""
        self._writes = asyncio.Semaphore(_WRITES)
        self._full = False

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, run: str, file: StoppedRunFile, modules: Iterable[str], *, kept: bool = False) -> None:
        """These are owed the end of a run; nobody: it is told. `kept`: that is on the disk already."""
        end = _PendingStop(run, file, set(modules))
        if not kept:
            self._write_later(end)
        if end.modules:
            self._ends[run] = end
        while len(self._ends) > self._most:
            self._give_up(next(iter(self._ends.values())))

    def tell(self, lane: NotificationQueue) -> None:
        """All that its module is owed, what ended first before the rest. Written off when it was called."""
        for run in list(self._ends):
            self.tell_one(lane, run)

    def tell_one(self, lane: NotificationQueue, run: str) -> None:
        """This end, if its module is owed it."""
        end = self._ends.get(run)
        if end is not None and lane.scope.module_id in end.modules:
            self._tell(lane, end)

    def dismiss(self, module_id: str) -> None:
        """It is owed nothing more."""
        for end in list(self._ends.values()):
            self._settle(end, module_id)

    def _tell(self, lane: NotificationQueue, end: _PendingStop) -> None:
        id = lane.scope.module_id

        async def fetch() -> dict[str, Any] | None:
            if id not in end.modules:
                return None
            found = await asyncio.to_thread(end.file.read)
            return None if found is None else {"handle": found[0], "exit": found[1]}

        def over(heard: asyncio.Future[bool]) -> None:
            if not heard.cancelled() and heard.result():
                self._settle(end, id)

        heard = lane.tell_owed(end.file.instance_id, fetch)
        if heard is not None:
            heard.add_done_callback(over)

    def _settle(self, end: _PendingStop, module_id: str) -> None:
        if module_id not in end.modules:
            return
        end.modules.discard(module_id)
        if not end.modules:
            self._ends.pop(end.run, None)
            self._full = False
        self._write_later(end)

    def _give_up(self, end: _PendingStop) -> None:
        if not self._full:  # said once: from here on it may be so with every end
            self._full = True
            _log.warning("hooks.owed_given_up", run=end.run, modules=sorted(end.modules), most=self._most)
        del self._ends[end.run]
        end.modules.clear()
        self._write_later(end)

    def _write_later(self, end: _PendingStop) -> None:
        self._spawn(self._write(end), f"hooks/owed/{end.run}")

    async def _write(self, end: _PendingStop) -> None:
        """One after the other: the last to write knows the latest."""
        async with end.writing, self._writes:
            await asyncio.to_thread(end.file.keep_owed, sorted(end.modules))
