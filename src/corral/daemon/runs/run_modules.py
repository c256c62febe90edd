"""What the modules of the node have to do with one run: what they make of its start, and what they hear of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
import structlog

from corral.daemon.hooks.instance_hooks import InstanceHooks
from corral.daemon.hooks.provenance import Provenance, provenance
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.runs.run_files import Outcome, RunFiles
from corral.daemon.runs.run_handles import RunEnd, exit_info, handle_of
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.start_proposal import Proposal, StartValues, values_of
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError
from corral.sdk.instances import InstanceHandle
from corral.system.aio.tasks import first_of

_log = structlog.get_logger("corral.daemon.supervise")


class TunedRun(Protocol):
    """What modules may know of a run, and what it hears of them."""

    order: StartOrder
    files: RunFiles
    pid: int
    started_at_ms: int

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> InstanceState: ...

    def wait_for_modules(self, what: str) -> None:
        """Its start waits for these, and that lasts; empty: it goes on."""


class RunModules:
    """Without hooks, where no daemon runs, nobody is asked and nobody is told."""

    def __init__(
        self, run: TunedRun, *, hooks: InstanceHooks | None, directories: WorkingDirectories
    ) -> None:
        self.made = Provenance()
        """What came of its start."""
        self._hooks = hooks
        self._run = run
        self._name = run.name
        self._files = run.files
        self._directories = directories
        self._stopping: asyncio.Future[Any] | None = None
        self._said_stopping = False

    def restore(self) -> None:
        """Take up what a daemon before us wrote down; what cannot be read is missing, and nothing else."""
        try:
            self.made = self._files.provenance() or Provenance()
        except (CorralError, OSError) as error:
            _log.warning("instance.provenance_unreadable", run=self._name, reason=str(error))

    async def ask(self, proposal: Proposal, *, seconds: float) -> StartValues:
        """What the modules make of its start, which has so many seconds left in all. Raises for nothing they do."""
        planned = values_of(proposal.spec)
        if self._hooks is None:
            return planned
        try:
            tuning = await self._hooks.starting(
                proposal, patience=max(0.0, seconds), waits=self._run.wait_for_modules
            )
            await self._keep(provenance(tuning.changes, tuning.missing, proposal.secrets))
        except Exception:  # a fault of ours is no reason not to start it as it was planned
            _log.exception("instance.modules_not_asked", run=self._name)
            return planned
        return tuning.values

    async def _keep(self, made: Provenance) -> None:
        self.made = made
        for change in made.changes:
            if change.dropped:
                _log.warning(
                    "hooks.change_dropped", run=self._name, module=change.module, reason=change.dropped
                )
        if made:
            await asyncio.to_thread(self._files.write_provenance, made)

    def started(self, *, adopted: bool = False) -> None:
        """It has its process."""
        if self._hooks is not None:
            with self._unharmed():
                self._hooks.started(self._name, self._present, adopted=adopted)

    def say_stopping(self) -> None:
        """It is about to end because it shall. Once; waits for nobody."""
        if self._hooks is not None and not self._said_stopping:
            self._said_stopping = True
            with self._unharmed():
                handle = msgspec.structs.replace(self._present(), state=InstanceState.STOPPING.value)
                self._stopping = self._hooks.stopping(handle)

    async def before_stop(self, ended: asyncio.Future[Any], kill: asyncio.Event) -> None:
        """Until they have heard that it is about to end, unless it has ended or shall be killed; for a bounded
        time."""
        self.say_stopping()
        if self._hooks is None or self._stopping is None or ended.done():
            return
        if not any(await first_of(self._stopping, ended, kill, timeout=self._hooks.budget_seconds)):
            _log.warning("instance.modules_not_heard", run=self._name, seconds=self._hooks.budget_seconds)

    def stopped(self, outcome: Outcome) -> None:
        """It has ended, and that is on disk. A run that never had a process never started for them."""
        if self._hooks is not None and outcome.exit is not None:
            with self._unharmed():
                end = RunEnd(self._run.order.instance_id, self._files, self._directories)
                self._hooks.stopped(self._name, self._present(), exit_info(outcome), end)

    def _present(self) -> InstanceHandle:
        """As modules see it now."""
        run = self._run
        return handle_of(
            run.order,
            pid=run.pid,
            started_at_ms=run.started_at_ms,
            state=run.state,
            work_dir=str(self._directories.path(run.order.instance_id, static=run.order.static)),
        )

    @contextlib.contextmanager
    def _unharmed(self) -> Iterator[None]:
        """A fault of ours in telling modules changes nothing in the life of the run."""
        try:
            yield
        except Exception:
            _log.exception("instance.modules_not_told", run=self._name)
