"""Stop ladder of a run, and its stop request.

Each rung sends a command or a signal and waits for the exit, not for its timer. After the last rung everything of the
run is killed; an order to kill leaves the ladder at once. The stop request is on disk, so that a later daemon goes on
with it. The default ladder is `DEFAULT_LADDER` in
`domain/groups/group.py`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any, Final

import structlog

from corral.daemon.runs.run_files import RunFiles, StopOrder
from corral.daemon.workload.start_order import Rung
from corral.errors import CorralError
from corral.sdk.runtime import RunHandle, RuntimeProvider
from corral.system.aio.tasks import first_of

KILL: Final = "kill"
_log = structlog.get_logger("corral.daemon.runs")


async def descend(
    rungs: Sequence[Rung],
    *,
    runtime: RuntimeProvider,
    handle: RunHandle,
    ended: asyncio.Future[Any],
    kill: asyncio.Event,
) -> str:
    """Try rung after rung until `ended` is done; returns the label of the rung that worked. `kill`: none did, or it
    was requested; the caller then kills. A frozen workload is thawed first: it could not react."""
    await _thaw(runtime, handle)
    for rung in rungs:
        if ended.done():
            return ""
        if kill.is_set() or rung.signal == signal.SIGKILL.name:
            return KILL
        if not await _act(rung, runtime, handle):
            continue  # it cannot receive this; the next rung may reach it
        if any(await first_of(ended, kill, timeout=rung.wait_seconds)):
            # Both may have come by now: then it is the kill that ended it.
            return KILL if kill.is_set() else rung.label
    return "" if ended.done() else KILL


async def _thaw(runtime: RuntimeProvider, handle: RunHandle) -> None:
    if not runtime.capabilities().freeze:
        return
    try:
        await runtime.set_frozen(handle, False)
    except (CorralError, OSError) as error:
        _log.warning("thaw.failed", run=handle.run_name, reason=str(error))


async def _act(rung: Rung, runtime: RuntimeProvider, handle: RunHandle) -> bool:
    try:
        if rung.command:
            await runtime.send_command(handle, rung.command)
        else:
            await runtime.signal(handle, signal.Signals[rung.signal])
    except (CorralError, OSError) as error:
        _log.info("rung.skipped", run=handle.run_name, rung=rung.label, reason=str(error))
        return False
    _log.debug("rung.started", run=handle.run_name, rung=rung.label, wait_seconds=rung.wait_seconds)
    return True


class StopRequest:
    """At most one a run. A stop overtakes a restart, and a kill overtakes both."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._stored: StopOrder | None = None
        self.order: StopOrder | None = None
        self.requested = asyncio.Event()
        """Set once the order is on disk."""
        self.killing = asyncio.Event()
        """Set at once: every other wait of this run ends."""
        self.writing = asyncio.Lock()
        """Held while files of the run are written."""

    def take(self, order: StopOrder) -> None:
        """From now on an exit of this run counts as requested, whichever comes first."""
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
                    _log.error("stop_order_write.failed", run=str(self._files.directory), reason=str(error))
        self.requested.set()

    def restore(self) -> None:
        """Read the order that an earlier daemon stored. An unreadable order is an order all the same: none is written
        to keep a run alive."""
        try:
            found = self._files.stop_order()
        except (CorralError, OSError) as error:
            _log.error("stop_order_read.failed", run=str(self._files.directory), reason=str(error))
            found = StopOrder(reason="an order to stop it that cannot be read any more")
        if found is None:
            return
        self._stored = found
        self.take(found)
        self.requested.set()

    @property
    def ids(self) -> dict[str, str]:
        """Of the decision and the request behind it, for log records; none before it is made."""
        order = self.order
        return {"decision": order.decision, "request": order.request} if order is not None else {}

    @property
    def stays_stopped(self) -> bool:
        """Stopped, and not to be restarted."""
        return self.order is not None and not self.order.then_restart


def _rank(order: StopOrder) -> int:
    """Precedence: a stop over a restart, a kill over a stop."""
    return 2 if order.force else 0 if order.then_restart else 1
