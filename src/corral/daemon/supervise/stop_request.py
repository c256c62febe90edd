"""The wish that a run shall end: kept on disk, so that whoever finds the run goes on with it."""

from __future__ import annotations

import asyncio

import structlog

from corral.daemon.supervise.run_files import RunFiles, StopOrder
from corral.errors import CorralError

_log = structlog.get_logger("corral.daemon.supervise")


class StopRequest:
    """At most one a run; a kill may still overtake a stop."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self.order: StopOrder | None = None
        self.wanted = asyncio.Event()
        """Set once the order is on disk."""
        self.killing = asyncio.Event()
        """Set at once: who waits for anything else of this run stops waiting."""
        self.writing = asyncio.Lock()
        """Held while files of the run are written."""

    async def make(self, order: StopOrder) -> None:
        """On return it is on disk; or the disk refused, and that is logged: a full disk must not keep
        anything running."""
        if order.force:
            self.killing.set()
        async with self.writing:
            if self.order is None or (order.force and not self.order.force):
                self.order = order
                try:
                    await asyncio.to_thread(self._files.write_order, order)
                except CorralError as error:
                    _log.error("instance.order_not_stored", run=str(self._files.directory), reason=str(error))
        self.wanted.set()

    def restore(self) -> None:
        """Take up what a daemon before us was told."""
        found = self._files.stop_order()
        if found is None:
            return
        self.order = found
        self.wanted.set()
        if found.force:
            self.killing.set()

    @property
    def stays_stopped(self) -> bool:
        """Asked to end, and not to begin again."""
        return self.order is not None and not self.order.then_restart
