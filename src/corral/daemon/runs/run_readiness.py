"""Readiness of one run, and its player count: by its probes or the built-in rule, with the reason it still waits for,
and the marks of it on disk.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Protocol

import structlog

from corral.daemon.probes.built_in_rule import FIRST_WORD_SECONDS, WORD_SECONDS, BuiltInRule, PacedReasons
from corral.daemon.probes.listening_sockets import RunSockets, SocketTables
from corral.daemon.probes.log_probe import ConsoleGrowth
from corral.daemon.probes.minecraft_ping import PlayerCount, counted
from corral.daemon.probes.probe_runner import ReadinessProbes
from corral.daemon.runs.run_files import RunFiles
from corral.daemon.runs.run_messages import RunView, metrics_update, status_update
from corral.daemon.runs.run_times import RunTimes
from corral.daemon.runs.services import Services
from corral.daemon.workload.run_secrets import RunMask
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_stages import PROCESS_START
from corral.domain.groups.group import PRIMARY
from corral.domain.groups.probes import ProbeKind
from corral.domain.instance_states import InstanceState
from corral.sdk.runtime import Execution, RunHandle, RuntimeProvider
from corral.system.aio.tasks import Tasks


class ReadyListener(Protocol):
    """Receives the readiness of a run. Called in the loop's thread."""

    def ready_changed(self, ready: bool, reason: str) -> None:
        """By the built-in rule; `reason`: why it is not."""

    def waits_for(self, reason: str) -> None:
        """Take the reason why the run is not ready, reported now and then."""

    def players_counted(self, players: PlayerCount | None) -> None: ...


class ReadyWatch:
    """Readiness of one run that exists. `begin`, then wait for `probed`; `close` at its exit."""

    def __init__(
        self,
        *,
        order: StartOrder,
        files: RunFiles,
        handle: RunHandle,
        runtime: RuntimeProvider,
        growth: ConsoleGrowth,
        tables: SocketTables,
        host: str,
        hide: Callable[[str], str],
        listener: ReadyListener,
        alive_in: Callable[[], float],
        ready: bool,
    ) -> None:
        """`host`: where its probes reach it; `hide`: masks its secrets in a text; `ready`: an earlier daemon found it
        ready."""

        async def execute(command: tuple[str, ...], timeout: float) -> Execution:
            return await runtime.execute(handle, command, timeout=timeout)

        async def processes() -> tuple[int, ...] | None:
            return await runtime.processes(handle)

        sockets = RunSockets(tables, processes)
        self._readiness = ReadinessProbes(
            probes=order.probes,
            ports=order.ports,
            sockets=sockets,
            console=files.console,
            growth=growth,
            execute=execute,
            host=host,
            line_buffered=order.line_buffered,
            name=handle.run_name,
            mask=hide,
        )
        self._rule = BuiltInRule(
            sockets=sockets,
            port=next((port for port in order.ports if port.name == PRIMARY), None),
            alive_in=alive_in,
            ready=ready,
            changed=self._rule_changed,
            waits=listener.waits_for,
            late=files.mark_waiting,
            name=handle.run_name,
        )
        self._name = handle.run_name
        self._order = order
        self._files = files
        self._listener = listener
        self._tasks = Tasks()
        self.probed = asyncio.Event()
        """Every probe has succeeded, now or under an earlier daemon."""
        if ready or not order.probes:
            self.probed.set()
        self._counts = counts_players(order)

    @property
    def last_seen(self) -> str:
        """The missing conditions, for the message of a run that never became ready."""
        return self._readiness.last_seen

    def workload_reported_ready(self) -> None:
        self._readiness.workload_reported_ready()

    def begin(self) -> None:
        if not self._order.probes or not self.probed.is_set() or self._counts:
            self._tasks.spawn(self._watch(), name=f"supervise/ready/{self._name}")

    async def _watch(self) -> None:
        if not self._order.probes:
            await self._rule.follow()
            return
        if not self.probed.is_set():
            async with Tasks() as tasks:
                tasks.spawn(self._report_waiting(), name=f"supervise/waits/{self._name}")
                await self._readiness.until_ready()
            self.probed.set()
        if self._counts:
            await self._readiness.watch_players(self._listener.players_counted)

    async def _report_waiting(self) -> None:
        reasons = PacedReasons(self._listener.waits_for)
        await asyncio.sleep(FIRST_WORD_SECONDS)
        while True:
            reasons.offer(f"not ready yet: {self._readiness.last_seen}")
            await asyncio.sleep(WORD_SECONDS)

    def _rule_changed(self, ready: bool, reason: str) -> None:
        self._files.mark_waiting(not ready)
        self._listener.ready_changed(ready, reason)

    def became_ready(self) -> bool:
        """Its start is over: with probes it is ready for good, and no later daemon probes again. Otherwise whether it
        is ready already."""
        if self._order.probes:
            self._files.mark_ready()
        return bool(self._order.probes) or self._rule.holds_at_once()

    async def close(self) -> None:
        await self._tasks.close()


_log = structlog.get_logger("corral.daemon.runs")


def counts_players(order: StartOrder) -> bool:
    """Does a probe of the run count its players?"""
    return any(probe.kind is ProbeKind.MINECRAFT for probe in order.probes)


class WatchedRun(RunView, Protocol):
    """The run that becomes ready."""

    files: RunFiles
    mask: RunMask
    times: RunTimes

    @property
    def name(self) -> str: ...

    @property
    def runtime(self) -> RuntimeProvider: ...

    def report_stage(self, stage: str) -> None:
        """Send its stage to the connected controller."""


class RunReadiness:
    """Readiness of one run, by its probes or the built-in rule; listens to its `ReadyWatch`."""

    def __init__(self, services: Services, run: WatchedRun) -> None:
        self._services = services
        self._run = run
        self.ready = False
        """Can it be used? It was found ready, and has not reported since then that it is not."""
        self._found = False
        self._withheld = False
        self.players: PlayerCount | None = None
        """As its probe counted them last; None: unknown."""
        self.reported_players: PlayerCount | None = None
        """As it reported them itself last; None: it has not."""
        self._watch: ReadyWatch | None = None
        self._workload_ready = False

    def restore(self) -> InstanceState:
        """The state of a living run of an earlier daemon. Without probes it counts as ready until a look shows
        otherwise."""
        order, files = self._run.order, self._run.files
        if (known := files.players()) is not None:
            self.reported_players = counted(*known)
        self._withheld = files.is_withheld()
        if order.probes:
            self._set_found(files.was_ready())
            return InstanceState.RUNNING if self._found else InstanceState.STARTING
        alive_in = self._run.times.alive_in(order.min_alive_seconds)
        self._set_found(alive_in <= 0 and not files.is_waiting())
        return InstanceState.RUNNING

    def watch(self, handle: RunHandle) -> ReadyWatch:
        """A watch that is not begun; the run monitor begins and closes it."""
        run, services = self._run, self._services
        watch = self._watch = ReadyWatch(
            order=run.order,
            files=run.files,
            handle=handle,
            runtime=run.runtime,
            growth=services.growth,
            tables=services.sockets,
            host=services.preparer.probed_address(run.order),
            hide=run.mask.hide,
            listener=self,
            alive_in=functools.partial(run.times.alive_in, run.order.min_alive_seconds),
            ready=self._found,
        )
        if self._workload_ready:
            watch.workload_reported_ready()
        return watch

    def start_is_over(self) -> None:
        """Its probes have succeeded, or it has none: is it ready already?"""
        self._set_found(self._watch is not None and self._watch.became_ready())

    def end(self) -> None:
        self._watch = None

    def workload_reported_ready(self) -> None:
        """Its own call, forwarded by the controller; it may come before the watch exists."""
        self._workload_ready = True
        if self._watch is not None:
            self._watch.workload_reported_ready()
        if self._withheld:
            self._withhold(False, "")

    def workload_reported_not_ready(self) -> None:
        """Its own call: it cannot be used, whatever else was found, until it reports the contrary."""
        if not self._withheld:
            self._withhold(True, "the workload reports that it is not ready")

    def _withhold(self, withheld: bool, reason: str) -> None:
        self._withheld = withheld
        self._run.files.mark_withheld(withheld)
        if self._found and self._run.state is InstanceState.RUNNING:
            self._show(not withheld, reason)
        elif withheld:
            self.ready = False

    def _set_found(self, ready: bool) -> None:
        self._found = ready
        self.ready = ready and not self._withheld

    def workload_reported_players(self, players: PlayerCount) -> None:
        """Its own count. The controller has it, and gets it again in the next session: a workload reports changes."""
        if players != self.reported_players:
            self.reported_players = players
            self._run.files.mark_players(players.online, players.maximum)

    # calls of the watch

    def players_counted(self, players: PlayerCount | None) -> None:
        self.players = players
        self._services.send(metrics_update(self._run))

    def waits_for(self, reason: str) -> None:
        """Report the reason why the run is not ready."""
        if self._run.state in (InstanceState.STARTING, InstanceState.RUNNING):
            self._run.reason = reason
            self._run.report_stage(PROCESS_START)

    def ready_changed(self, ready: bool, reason: str) -> None:
        run = self._run
        if run.state is not InstanceState.RUNNING:
            return
        self._found = ready
        if not self._withheld:
            self._show(ready, reason)

    def _show(self, ready: bool, reason: str) -> None:
        run = self._run
        self.ready, run.reason = ready, reason
        _log.info("readiness.changed", run=run.name, ready=ready, reason=run.reason)
        self._services.reporter.report(status_update(run))
