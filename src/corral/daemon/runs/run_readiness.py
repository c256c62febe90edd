"""Whether one run can be used, and how many players are on it."""

from __future__ import annotations

import functools
from typing import Protocol

import structlog

from corral.daemon.probes.players import PlayerCount
from corral.daemon.runs.ready_watch import ReadyWatch
from corral.daemon.runs.run_files import RunFiles
from corral.daemon.runs.run_messages import RunView, figures_update, status_update
from corral.daemon.runs.run_times import RunTimes
from corral.daemon.runs.services import Services
from corral.daemon.workload.run_mask import RunMask
from corral.daemon.workload.start_stages import PROCESS_START
from corral.domain.instance_states import InstanceState
from corral.sdk.runtime import RunHandle, RuntimeProvider

_log = structlog.get_logger("corral.daemon.supervise")


class WatchedRun(RunView, Protocol):
    """The run that becomes ready."""

    files: RunFiles
    mask: RunMask
    times: RunTimes

    @property
    def name(self) -> str: ...

    @property
    def runtime(self) -> RuntimeProvider: ...

    def tell_stage(self, stage: str) -> None:
        """To who looks at it now."""


class RunReadiness:
    """Of one run: as its probes or the built-in rule say. It listens to the watch over them."""

    def __init__(self, services: Services, run: WatchedRun) -> None:
        self._services = services
        self._run = run
        self.ready = False
        """Can it be used?"""
        self.players: PlayerCount | None = None
        """As its probe counted them last; None: nobody knows."""
        self._watch: ReadyWatch | None = None
        self._said_ready = False

    def restore(self) -> InstanceState:
        """Of a run that a daemon before us started, and that lives: the state it came to. Without probes it is taken
        for ready until a look says otherwise."""
        order, files = self._run.order, self._run.files
        if order.probes:
            self.ready = files.was_ready()
            return InstanceState.RUNNING if self.ready else InstanceState.STARTING
        alive_in = self._run.times.alive_in(order.min_alive_seconds)
        self.ready = alive_in <= 0 and not files.is_waiting()
        return InstanceState.RUNNING

    def watch(self, handle: RunHandle) -> ReadyWatch:
        """Made and not begun; whoever minds the run begins and closes it."""
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
            ready=self.ready,
        )
        if self._said_ready:
            watch.workload_said_ready()
        return watch

    def start_is_over(self) -> None:
        """Its probes have succeeded, or it has none: is it ready already?"""
        self.ready = self._watch is not None and self._watch.became_ready()

    def end(self) -> None:
        self._watch = None

    def workload_said_ready(self) -> None:
        """Its own call, handed on by the controller; it may come before anybody waits for it."""
        self._said_ready = True
        if self._watch is not None:
            self._watch.workload_said_ready()

    # what the watch tells

    def players_counted(self, players: PlayerCount | None) -> None:
        self.players = players
        self._services.send(figures_update(self._run))

    def waits_for(self, reason: str) -> None:
        """What keeps it from being ready."""
        if self._run.state in (InstanceState.STARTING, InstanceState.RUNNING):
            self._run.reason = reason
            self._run.tell_stage(PROCESS_START)

    def ready_changed(self, ready: bool, reason: str) -> None:
        run = self._run
        if run.state is not InstanceState.RUNNING:
            return
        self.ready, run.reason = ready, reason
        _log.info("instance.ready_changed", run=run.name, ready=ready, reason=run.reason)
        self._services.reporter.report(status_update(run))
