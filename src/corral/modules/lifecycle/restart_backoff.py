"""Restart pauses of module processes: how long the engine waits, and how often it tries."""

from __future__ import annotations

from typing import Final

import msgspec

SPAWN_ATTEMPTS: Final = 10
"""Failed spawns in a row, each followed by a pause, after which a module is FAILED. A module that kills the zygote
each time is found sooner (`corral.modules.process.zygote_deaths`)."""


class RestartBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses in seconds. `corral.domain.modules.lifecycle_decisions.restart_delay` chooses among `restarts`."""

    restarts: tuple[float, ...] = (1.0, 2.0, 4.0)
    """After the first, second, third death of a process; then as the last."""
    retry: float = 1.0
    """After the store refused a step."""
