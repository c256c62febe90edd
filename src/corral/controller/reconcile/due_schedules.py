"""Schedules that are computed before a pass, some at a time: a pass looks at all its groups in one turn of the loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from corral.controller.state.cluster_state import ClusterState
from corral.domain.planning.schedules import scheduled
from corral.system.clock import Clock

AT_ONCE: Final = 500
"""Schedules between two turns of the loop: some milliseconds."""


async def compute_schedules(state: ClusterState, due: Callable[[], Iterable[str]], clock: Clock) -> None:
    """Compute which schedules of these groups are active, and of those that become due meanwhile; it is kept until the
    next of them begins or ends."""
    seen: set[str] = set()
    computed = 0
    while names := [name for name in due() if name not in seen]:
        seen.update(names)
        for name in names:
            computed += _compute(state, name, clock)
            if computed >= AT_ONCE:
                computed = 0
                await asyncio.sleep(0)


def _compute(state: ClusterState, name: str, clock: Clock) -> int:
    """How many schedules the group has."""
    stored = state.groups.find(name)
    if stored is None or not stored.record.spec.schedules:
        return 0
    with contextlib.suppress(Exception):  # the pass tells which group fails, and why
        scheduled(stored.record.spec, clock.now())
    return len(stored.record.spec.schedules)
