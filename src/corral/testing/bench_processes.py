"""Processes beside the instances of a bench: nothing is executed, and they end when the test says so."""

from __future__ import annotations

import itertools
import signal as signals
from collections.abc import Callable

import msgspec

from corral.errors import Code, Rejected
from corral.sdk.runtime import RunExit, RunHandle, SideRun


class BenchSideRuns:
    """Of one instance; by the rules of a runtime: one of a name at a time, eight at once."""

    def __init__(self, now_ms: Callable[[], int], pids: itertools.count[int], missing: set[str]) -> None:
        self.sides: dict[str, SideRun] = {}
        self.environments: dict[str, dict[str, str]] = {}
        self._now_ms = now_ms
        self._pids = pids
        self._missing = missing

    async def spawn_beside(
        self, handle: RunHandle, name: str, command: tuple[str, ...], environment: dict[str, str]
    ) -> SideRun:
        known = self.sides.get(name)
        if known is not None and known.running:
            return known
        if command[0] in self._missing:
            raise Rejected(Code.COMMAND_NOT_FOUND, f"command '{command[0]}' was not found in its PATH")
        if sum(side.running for side in self.sides.values()) >= 8:
            raise Rejected(Code.CONFLICT, f"8 processes run beside run {handle.run_name} already")
        self.environments[name] = dict(environment)
        self.sides[name] = SideRun(
            name=name, command=command, pid=next(self._pids), started_at_ms=self._now_ms(), running=True
        )
        return self.sides[name]

    async def list_beside(self, handle: RunHandle) -> tuple[SideRun, ...]:  # noqa: ARG002 - as a runtime's
        return tuple(self.sides[name] for name in sorted(self.sides))

    async def stop_beside(self, handle: RunHandle, name: str, *, grace: float) -> SideRun | None:  # noqa: ARG002
        if name in self.sides:
            self.end(name, signal="SIGTERM")
        return self.sides.get(name)

    def end(self, name: str, *, code: int = 0, signal: str = "", output: str = "") -> None:
        """It ends by itself, or by a signal; nothing when it has."""
        side = self.sides[name]
        if side.running:
            number = signals.Signals[signal].value if signal else 0
            ended = RunExit(known=True, code=0 if signal else code, signal=number, ended_at_ms=self._now_ms())
            self.sides[name] = msgspec.structs.replace(side, running=False, exit=ended, output=output)

    def end_all(self) -> None:
        for name in self.sides:
            self.end(name, signal="SIGTERM")
