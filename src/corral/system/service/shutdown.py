"""An orderly end: stages in order, each with its share of the budget, stragglers named."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog

from corral.system.clock import Clock

_log = structlog.get_logger("corral.shutdown")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an end. `share` is its part of what is left of the whole budget."""

    name: str
    share: float
    action: Callable[[], Awaitable[object]]


async def run_stages(stages: Sequence[Stage], *, budget: float, clock: Clock) -> list[str]:
    """Run every stage, come what may; returns the names of those that failed or ran out of time."""
    ends = clock.monotonic() + budget
    stragglers: list[str] = []
    for stage in stages:
        left = max(0.1, ends - clock.monotonic()) * stage.share
        try:
            async with asyncio.timeout(left):
                await stage.action()
        except TimeoutError:
            stragglers.append(stage.name)
            _log.error("shutdown.overrun", stage=stage.name, seconds=round(left, 1))
        except Exception:
            stragglers.append(stage.name)
            _log.exception("shutdown.failed", stage=stage.name)
    return stragglers
