"""The end of one run, on its way to the modules of the node."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol

from corral.daemon.hooks.run_notifications import Lane
from corral.sdk.instances import ExitInfo, InstanceHandle


class EndFile(Protocol):
    """The end of a run as it lies on the disk, until the run's directory is swept. Both methods block, and
    raise nothing that the disk does."""

    @property
    def instance_id(self) -> str: ...

    def read(self) -> tuple[InstanceHandle, ExitInfo] | None:
        """None: it is not there any more."""

    def keep_owed(self, modules: Collection[str]) -> None:
        """Write down whom it has yet to be told; nobody: it is told. Losing this costs telling it again."""


class End:
    """Who was told, and who should be: `hearers` were ACTIVE in its life, and may be away now."""

    def __init__(
        self, run: str, handle: InstanceHandle, exit: ExitInfo, *, file: EndFile, hearers: set[str]
    ) -> None:
        self.run = run
        self.file = file
        self.hearers = hearers
        self._handle = handle
        self._exit = exit
        self._telling: dict[Lane, asyncio.Future[bool] | None] = {}

    def tell(self, lane: Lane) -> None:
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
