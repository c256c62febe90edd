"""The wish that a run shall end: kept on disk, so that whoever finds the run goes on with it."""

from __future__ import annotations

import asyncio

import structlog

from corral.daemon.runs.run_files import RunFiles, StopOrder
from corral.errors import CorralError

_log = structlog.get_logger("corral.daemon.supervise")


class StopRequest:
    """At most one a run. A stop overtakes a restart, and a kill overtakes both."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._stored: StopOrder | None = None
        self.order: StopOrder | None = None
        self.wanted = asyncio.Event()
        """Set once the order is on disk."""
        self.killing = asyncio.Event()
        """Set at once: who waits for anything else of this run stops waiting."""
        self.writing = asyncio.Lock()
        """Held while files of the run are written."""

    def take(self, order: StopOrder) -> None:
        """From now on an end of this run is one that was asked for, whoever is quicker."""
        if order.force:
            self.killing.set()
        if self.order is None or _rank(order) > _rank(self.order):
            self.order = order

    async def make(self, order: StopOrder) -> None:
        """On return it is on disk; or the disk refused, and that is logged: a full disk must not keep
        anything running."""
        self.take(order)
        async with self.writing:
            latest = self.order
            if latest is not None and latest is not self._stored:
                try:
                    await asyncio.to_thread(self._files.write_order, latest)
                    self._stored = latest
                except CorralError as error:
                    _log.error("instance.order_not_stored", run=str(self._files.directory), reason=str(error))
        self.wanted.set()

    def restore(self) -> None:
        """Take up what a daemon before us was told. An order that cannot be read is an order all the
        same: nobody writes one to keep a run alive."""
        try:
            found = self._files.stop_order()
        except (CorralError, OSError) as error:
            _log.error("instance.order_unreadable", run=str(self._files.directory), reason=str(error))
            found = StopOrder(reason="an order to stop it that cannot be read any more")
        if found is None:
            return
        self._stored = found
        self.take(found)
        self.wanted.set()

    @property
    def stays_stopped(self) -> bool:
        """Asked to end, and not to begin again."""
        return self.order is not None and not self.order.then_restart


def _rank(order: StopOrder) -> int:
    """What overtakes what: stop a restart, kill a stop."""
    return 2 if order.force else 0 if order.then_restart else 1
