"""Shutdown of all modules at once: in stages, within one budget, with the stragglers named."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from corral.domain.modules.capability_graph import stages_of_end
from corral.modules.lifecycle.module_failure import ModuleFailure
from corral.modules.lifecycle.module_lifecycle import ModuleLifecycle
from corral.system.clock import Clock

_log = structlog.get_logger("corral.modules.lifecycle")


async def close_modules(lives: Sequence[ModuleLifecycle], *, budget: float, clock: Clock) -> list[str]:
    """`on_stop`, `on_unload` and the end of every process; nothing is stored. Each stage has its share of the
    remaining time, so that one hung consumer does not use up that of all others."""
    ends = clock.monotonic() + budget
    running = {life.id: life for life in lives if life.run.scope is not None}
    manifests = {id: life.run.scope.manifest for id, life in running.items() if life.run.scope is not None}
    stages = stages_of_end(manifests)
    stragglers: list[str] = []
    for number, stage in enumerate(stages):
        share = max(ends - clock.monotonic(), 0.1) / (len(stages) - number)
        done = await asyncio.gather(*(_close(running[id], within=share) for id in stage))
        stragglers += [id for id, ended in zip(stage, done, strict=True) if not ended]
    return stragglers


async def _close(life: ModuleLifecycle, *, within: float) -> bool:
    run = life.run
    ended = True
    try:
        async with asyncio.timeout(within):
            try:
                await run.stop()
            except ModuleFailure as failure:
                _log.warning("module_stop.failed", module=life.id, reason=failure.reason)
            await run.clear_start()
            await run.unload()
    except TimeoutError:
        ended = False
        _log.error("module_stop.failed", module=life.id, reason="stop_timeout", seconds=round(within, 1))
    finally:
        await run.discard()
    return ended
