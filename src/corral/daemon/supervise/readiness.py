"""How a run becomes ready: its probes, what the workload says itself, and the mark that it once was."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import structlog

from corral.daemon.prepare.start_order import StartOrder
from corral.daemon.probes.console_growth import ConsoleGrowth
from corral.daemon.probes.players import PlayerCount
from corral.daemon.probes.watching import Readiness
from corral.daemon.supervise.run_files import RunFiles
from corral.domain.probes import ProbeKind
from corral.sdk.runtime import Execution, RunHandle, RuntimeProvider

_log = structlog.get_logger("corral.daemon.supervise")


class ReadyUses(Protocol):
    """What the preparation knows of a run that becomes ready."""

    def probed_address(self, order: StartOrder) -> str: ...

    def hide(self, order: StartOrder, text: str) -> str: ...


class ReadyWatch:
    """Of one run that exists. `begin`, then wait for `probed`; `close` at its end."""

    def __init__(
        self,
        *,
        order: StartOrder,
        files: RunFiles,
        handle: RunHandle,
        runtime: RuntimeProvider,
        growth: ConsoleGrowth,
        preparer: ReadyUses,
        players: Callable[[PlayerCount | None], None],
        ready: bool,
    ) -> None:
        async def execute(command: tuple[str, ...], timeout: float) -> Execution:
            return await runtime.execute(handle, command, timeout=timeout)

        self._readiness = Readiness(
            probes=order.probes,
            ports={port.name: port.port for port in order.ports},
            console=files.console,
            growth=growth,
            execute=execute,
            host=preparer.probed_address(order),
            line_buffered=order.line_buffered,
            name=handle.run_name,
            mask=lambda text: preparer.hide(order, text),
        )
        self._name = handle.run_name
        self._order = order
        self._files = files
        self._players = players
        self._task: asyncio.Task[None] | None = None
        self.probed = asyncio.Event()
        """Every probe has succeeded, now or before our time."""
        if ready or not order.probes:
            self.probed.set()
        self._counts = any(probe.kind is ProbeKind.MINECRAFT for probe in order.probes)

    @property
    def last_seen(self) -> str:
        """What is still missing, for the message of a run that never became ready."""
        return self._readiness.last_seen

    def workload_said_ready(self) -> None:
        self._readiness.workload_said_ready()

    def begin(self) -> None:
        if not self.probed.is_set() or self._counts:
            self._task = asyncio.create_task(self._watch(), name=f"supervise/ready/{self._name}")

    async def _watch(self) -> None:
        if not self.probed.is_set():
            await self._readiness.until_ready()
            self.probed.set()
        if self._counts:
            await self._readiness.watch_players(self._players)

    def became_ready(self) -> None:
        """For good: no later daemon asks its probes again."""
        if self._order.probes:
            self._files.mark_ready()

    async def close(self) -> None:
        tasks = [self._task] if self._task is not None else []
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                _log.error("instance.probes_failed", run=self._name, exc_info=ended)
