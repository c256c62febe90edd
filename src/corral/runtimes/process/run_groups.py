"""The end of a run's control group."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from corral.errors import CorralError, Retryable
from corral.runtimes.cgroups.port import Cgroups
from corral.system.aio.backoff import doubled

_TRIES: Final = 8
_PAUSE: Final = 0.005
_log = structlog.get_logger("corral.runtimes.process")


async def remove_group(cgroups: Cgroups, run: str) -> None:
    """The kernel may count a process that has just ended for a moment more. Idempotent."""
    for attempt in range(_TRIES):
        try:
            await cgroups.remove(run)
        except Retryable:
            if attempt == _TRIES - 1:
                raise
            await asyncio.sleep(doubled(_PAUSE, attempt))
        else:
            return


async def remove_group_if_empty(cgroups: Cgroups, run: str) -> None:
    """What is not empty stays, and is said."""
    try:
        await remove_group(cgroups, run)
    except CorralError as error:
        _log.warning("run.group_left", run=run, error=str(error))
