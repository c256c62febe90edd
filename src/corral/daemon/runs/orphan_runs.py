"""Orphan runs: they live on this node and have no run directory, because the node was restored to an earlier state,
the directory was deleted, or the disk is another one. A directory that says that nothing was executed is older than its
living run: it is removed.

Only their name and their processes are known. They may be healthy and in use: so they are reported to the controller,
left alone, and ended only by an order. Until then nothing else is started under their id: no id runs twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Collection
from typing import Final

import msgspec
import structlog

from corral.daemon.runs.reporter import Reporter
from corral.daemon.runs.run_files import FoundRun, RunDirectories, RunFiles
from corral.domain.ids import Incarnation, instance_id
from corral.errors import Code, CorralError, Retryable
from corral.runtimes.cgroups.port import Cgroups
from corral.runtimes.keeper.run_files import was_executed
from corral.runtimes.process.descriptors import readable
from corral.runtimes.process.workload_context import is_marked
from corral.sdk.runtime import run_name
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import Tasks
from corral.system.trees.removal import remove
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import DaemonMessage

_FIRST_PAUSE: Final = 0.01
_LAST_PAUSE: Final = 1.0
_log = structlog.get_logger("corral.daemon.runs")


class OrphanRun(msgspec.Struct, frozen=True, kw_only=True):
    instance_id: str
    incarnation: Incarnation
    pid: int
    """One of its processes."""

    @property
    def name(self) -> str:
        return run_name(self.instance_id, self.incarnation)

    @property
    def group(self) -> str:
        """Instances are named after their group; where that guess is wrong the controller knows better."""
        return self.instance_id.rpartition("-")[0].rstrip("._-") or self.instance_id

    @property
    def reason(self) -> str:
        return (
            f"run {self.incarnation} of it lives here without its run directory (process {self.pid}): "
            "it is left alone, and nothing else is started under this id until it has ended"
        )

    def refusal(self) -> Retryable:
        """The error for a start that would be a second copy."""
        return Retryable(
            Code.CONFLICT,
            f"instance '{self.instance_id}' is not started: {self.reason}",
            hint=f"end it with 'corral local stop {self.instance_id}' on the node, or wait for its end",
            retry_after=30.0,
        )


class OrphanRuns:
    """The orphan runs of this node. `close` stops watching them."""

    def __init__(self, *, cgroups: Cgroups | None, runs: RunDirectories, reporter: Reporter) -> None:
        self._cgroups = cgroups
        self._runs = runs
        self._reporter = reporter
        self._found: dict[str, OrphanRun] = {}
        self._ordered: set[str] = set()
        self._looking = asyncio.Lock()
        self._watches = Tasks()

    async def close(self) -> None:
        """Idempotent."""
        await self._watches.close()

    def of(self, instance_id: str) -> OrphanRun | None:
        """Thread-safe."""
        return next((run for run in self.all() if run.instance_id == instance_id), None)

    def all(self) -> list[OrphanRun]:
        return list(self._found.values())

    async def look(self, supervised: Callable[[], Collection[str]], *, ended_too: bool = False) -> None:
        """Find new orphan runs, and report the exit of those that are gone. `supervised`: names of supervised runs;
        `ended_too`: processes of a run with an outcome, or whose start was never ordered, are orphans as well. Only
        before anything is started."""
        if self._cgroups is None:
            return
        async with self._looking:
            await self._look(self._cgroups, supervised, ended_too)

    async def _look(
        self, cgroups: Cgroups, supervised: Callable[[], Collection[str]], ended_too: bool
    ) -> None:
        groups = await asyncio.to_thread(cgroups.leftovers)
        # Only afterwards: a run's directory is made before its group.
        known = await asyncio.to_thread(self._named, ended_too)
        known |= set(supervised())
        for name in groups:
            if name not in known or name in self._found:
                await self._look_at(cgroups, name)
        for name in self._found.keys() - set(groups):
            self._gone(name)
        if ended_too:
            await asyncio.to_thread(self._remove_intents)

    def _named(self, ended_too: bool) -> set[str]:
        """Names of runs with a directory; with `ended_too` without those that have an outcome, or are a mere intent."""
        return {
            run_name(run.instance_id, run.incarnation)
            for run in self._runs.all()
            if not (ended_too and (RunFiles(run.path).has_outcome() or _is_intent(run)))
        }

    def _remove_intents(self) -> None:
        for run in self._runs.all():
            name = run_name(run.instance_id, run.incarnation)
            if name in self._found and not RunFiles(run.path).has_outcome() and _is_intent(run):
                _log.warning("run_intent.removed", run=name, reason="it is older than the living run")
                remove(run.path)

    async def _look_at(self, cgroups: Cgroups, name: str) -> None:
        pids = await asyncio.to_thread(cgroups.pids, name)
        if pids:
            self._note(cgroups, name, min(pids))
            return
        with contextlib.suppress(CorralError):  # something of ours is in it still
            await cgroups.remove(name)
            self._gone(name)

    async def _watch(self, cgroups: Cgroups, name: str) -> None:
        """Look at the run whenever its known process has exited, until it is gone."""
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LAST_PAUSE)
        while (run := self._found.get(name)) is not None:
            with contextlib.suppress(CorralError, OSError):  # `look` meets the same, and its caller logs it
                if await self._process_ended(cgroups, run):
                    backoff.reset()
                async with self._looking:
                    if name in self._found:
                        await self._look_at(cgroups, name)
            await asyncio.sleep(backoff.delay())  # its shim, which is in its group, ends after it

    async def _process_ended(self, cgroups: Cgroups, run: OrphanRun) -> bool:
        """Wait for the exit of the known process; False when it had exited before."""
        try:
            process = os.pidfd_open(run.pid)
        except ProcessLookupError:
            return False
        try:
            # Only now: whatever takes the pid later, this descriptor means a process of the run.
            if run.pid not in await asyncio.to_thread(cgroups.pids, run.name):
                return False
            await readable(process)
            return True
        finally:
            os.close(process)

    def _note(self, cgroups: Cgroups, name: str, pid: int) -> None:
        id, _, number = name.rpartition(".")
        try:
            run = OrphanRun(instance_id=instance_id(id), incarnation=Incarnation(int(number)), pid=pid)
        except (CorralError, ValueError):
            _log.warning("control_group.skipped", group=name)
            return
        known = name in self._found
        self._found[name] = run
        if not known:
            _log.warning("orphan_run.found", run=name, pid=pid, meaning=run.reason)
            self._watches.spawn(self._watch(cgroups, name), name=f"supervise/lost/{name}")

    def _gone(self, name: str) -> None:
        run = self._found.pop(name, None)
        if run is None:
            return
        asked = name in self._ordered
        self._ordered.discard(name)
        summary = "ended, nobody knows how (its run directory is gone)"
        _log.info("orphan_run.stopped", run=name)
        state = wire.INSTANCE_STATE_STOPPED if asked else wire.INSTANCE_STATE_CRASHED
        exit = wire.ExitStatus(known=False, outcome="unknown", summary=summary)
        status = wire.InstanceStatusUpdate(
            instance_id=run.instance_id, state=state, incarnation=run.incarnation, exit=exit, reason=summary
        )
        self._reporter.report(DaemonMessage(instance_status=status))

    async def end(self, run: OrphanRun, *, look: Callable[[], Awaitable[None]]) -> None:
        """Kill an orphan run by order, and report its exit as soon as it is gone."""
        assert self._cgroups is not None, "found in a control group"
        _log.warning("orphan_run.killed", run=run.name)
        self._ordered.add(run.name)
        await self._cgroups.kill(run.name)
        await look()


def _is_intent(run: FoundRun) -> bool:
    """By its files, no process of it was ever ordered."""
    return not is_marked(str(run.path)) and not was_executed(str(run.path))


def listed(run: OrphanRun) -> wire.RunningInstance:
    """The run as the handshake lists it: without a ticket, which is lost with the directory."""
    return wire.RunningInstance(
        instance_id=run.instance_id,
        group=run.group,
        state=wire.INSTANCE_STATE_RUNNING,
        incarnation=run.incarnation,
        pid=run.pid,
        reason=run.reason,
    )
