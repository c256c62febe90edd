"""Leaked processes: those that did not end when sent `finish`, still running or killed since."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec
import structlog

from corral.modules.process.module_process import ModuleProcess
from corral.modules.process.process_values import FinishResult, Leak
from corral.sdk.protocol.messages import Lingering
from corral.system.clock import Clock

_log = structlog.get_logger("corral.modules.process")

_KEPT: Final = 100


class LeakedProcesses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lingering: dict[int, Leak] = {}
        self._killed: deque[Leak] = deque(maxlen=_KEPT)

    def all(self) -> list[Leak]:
        """All leaks, the newest last; of those that were killed, the last hundred."""
        return [*self._killed, *self._lingering.values()]

    def lingers_still(self, process: ModuleProcess) -> bool:
        return process.number in self._lingering

    def lingers(self, process: ModuleProcess, lingering: Lingering | None) -> None:
        self._lingering[process.number] = self._leak(process, lingering, killed=False)

    def finished(self, process: ModuleProcess, ending: FinishResult) -> None:
        self._lingering.pop(process.number, None)
        if not ending.killed:
            return
        self._killed.append(self._leak(process, ending.lingering, killed=True))
        _log.warning(
            "module_process.leaked",
            module=process.module_id,
            pid=process.pid,
            strays=ending.death.strays,
            lingering=msgspec.to_builtins(ending.lingering),
        )

    def forget_killed(self) -> None:
        self._killed.clear()

    def _leak(self, process: ModuleProcess, lingering: Lingering | None, *, killed: bool) -> Leak:
        return Leak(
            module_id=process.module_id,
            pid=process.pid,
            since=self._clock.now(),
            lingering=lingering,
            killed=killed,
        )
