"""The way down: each rung says or signals something and waits for the end, not for its timer.

After the last rung everything of the run is killed. An order to kill leaves the ladder at once,
wherever it stands.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from typing import Any, Final

import structlog

from corral.daemon.workload.start_order import Rung
from corral.errors import CorralError
from corral.sdk.runtime import RunHandle, RuntimeProvider
from corral.system.aio.tasks import first_of

KILL: Final = "kill"
_log = structlog.get_logger("corral.daemon.supervise")


async def descend(
    rungs: Sequence[Rung],
    *,
    runtime: RuntimeProvider,
    handle: RunHandle,
    ended: asyncio.Future[Any],
    kill: asyncio.Event,
) -> str:
    """Step down until `ended` is done; the label of the rung that worked. `kill`: none did, or it was
    asked for; the caller then kills. A frozen workload is thawed first: it could hear nothing."""
    await _thaw(runtime, handle)
    for rung in rungs:
        if ended.done():
            return ""
        if kill.is_set() or rung.signal == signal.SIGKILL.name:
            return KILL
        if not await _act(rung, runtime, handle):
            continue  # it cannot hear this; the next rung may reach it
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
        _log.warning("instance.not_thawed", run=handle.run_name, reason=str(error))


async def _act(rung: Rung, runtime: RuntimeProvider, handle: RunHandle) -> bool:
    try:
        if rung.command:
            await runtime.send_command(handle, rung.command)
        else:
            await runtime.signal(handle, signal.Signals[rung.signal])
    except (CorralError, OSError) as error:
        _log.info("instance.rung_skipped", run=handle.run_name, rung=rung.label, reason=str(error))
        return False
    _log.debug("instance.rung_tried", run=handle.run_name, rung=rung.label, wait_seconds=rung.wait_seconds)
    return True
