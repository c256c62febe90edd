"""The runs that a provider watches now, and the context of those that it started itself."""

from __future__ import annotations

import asyncio

from corral.runtimes.cgroups.port import Cgroups
from corral.runtimes.process.keeper_watch import KeeperWatch
from corral.runtimes.process.live_run import LiveRun
from corral.runtimes.process.run_lookup import RecordedRun
from corral.runtimes.process.workload_context import WorkloadContext, context_of


class WatchedRuns:
    """Runs by directory: one object per run. `close` detaches from all."""

    def __init__(self, cgroups: Cgroups, keeper: KeeperWatch) -> None:
        self._cgroups = cgroups
        self._keeper = keeper
        self._runs: dict[str, LiveRun] = {}
        self._surroundings: dict[str, WorkloadContext] = {}
        """Of the runs that were started here."""

    def get(self, directory: str) -> LiveRun | None:
        return self._runs.get(directory)

    def require(self, directory: str) -> LiveRun:
        """A run that is known to be watched."""
        return self._runs[directory]

    def watch(self, directory: str, found: RecordedRun, *, keeper: int | None = None) -> LiveRun:
        """Watch a run, if it is not watched already. `keeper` is the generation of the keeper that started it."""
        run = self._runs.get(directory)
        if run is None:
            run = self._runs[directory] = LiveRun(directory, found.record, self._keeper.client, new=found.new)
            self._make_known(run)
            self._keeper.hold(run, started_by=keeper if found.new else None)
        return run

    def _make_known(self, run: LiveRun) -> None:
        """Register pids with the control groups: only processes that lived before and after they were
        checked."""
        pids: tuple[int, int] | None = None
        while pids != (living := run.own_pids()):
            pids = living
            self._cgroups.know(run.record.run, shim_pid=pids[0], pid=pids[1])

    def remember(self, directory: str, around: WorkloadContext) -> None:
        """Keep the context of a run that was started here."""
        self._surroundings[directory] = around

    def around(self, run: LiveRun) -> WorkloadContext | None:
        """The context as it was started here, or by mark and kernel; None when they have none: the run has
        ended."""
        return self._surroundings.get(run.directory) or context_of(run.directory, run.record.pid)

    async def let_go_of(self, run: LiveRun) -> bool:
        """Close the run, then drop it: if this is cancelled in between, `close` finishes it. False when
        another caller has dropped it meanwhile."""
        self._keeper.release(run)
        await run.close()
        if self._runs.get(run.directory) is not run:
            return False
        del self._runs[run.directory]
        self._surroundings.pop(run.directory, None)
        return True

    async def close(self) -> None:
        """Idempotent."""
        runs, self._runs = list(self._runs.values()), {}
        for run in runs:
            self._keeper.release(run)
        await asyncio.gather(*(run.close() for run in runs))
