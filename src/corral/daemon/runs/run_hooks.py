"""Module hooks of one run: changes to its start, and notifications about its start, stop and exit, also those of an
earlier daemon that are still pending.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final, Protocol

import msgspec
import structlog

from corral.daemon.hooks.instance_hooks import InstanceHooks
from corral.daemon.hooks.start_changes import Provenance, provenance
from corral.daemon.hooks.stop_notifications import MOST_PENDING
from corral.daemon.prepare.prepared_start import Proposal, StartValues, values_of
from corral.daemon.prepare.working_directories import WorkingDirectories
from corral.daemon.runs.run_files import FoundRun, RunFiles, RunIntent, RunOutcome
from corral.daemon.workload.start_order import StartOrder
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError
from corral.sdk.instances import ExitInfo, InstanceHandle
from corral.sdk.runtime import run_name
from corral.system.aio.tasks import first_of
from corral.system.signals import signal_name


class UnsentExit(msgspec.Struct, frozen=True, kw_only=True):
    """Exit of a run whose modules were never notified."""

    files: RunFiles
    intent: RunIntent
    outcome: RunOutcome


class PendingExit(msgspec.Struct, frozen=True, kw_only=True):
    """An exited run with pending notifications."""

    run: FoundRun
    modules: tuple[str, ...]

    @property
    def name(self) -> str:
        return run_name(self.run.instance_id, self.run.incarnation)


class RunEnd:
    """The exit of a run as modules receive it, read from its files when it is sent."""

    def __init__(self, instance_id: str, files: RunFiles, directories: WorkingDirectories) -> None:
        self.instance_id: Final = instance_id
        self._files = files
        self._directories = directories

    def read(self) -> tuple[InstanceHandle, ExitInfo] | None:
        try:
            outcome, intent = self._files.outcome(), self._files.intent()
        except (CorralError, OSError) as error:
            _log.warning("exit_notification.failed", directory=str(self._files.directory), reason=str(error))
            return None
        if outcome is None or intent is None:  # cleaned up
            return None
        return ended_handle(intent, outcome, self._directories), exit_info(outcome)

    def write_pending(self, modules: Collection[str]) -> None:
        self._files.write_pending_modules(modules)


def ended_handle(intent: RunIntent, outcome: RunOutcome, directories: WorkingDirectories) -> InstanceHandle:
    order = intent.order
    return handle_of(
        order,
        pid=outcome.pid,
        started_at_ms=outcome.started_at_ms,
        state=outcome.state,
        work_dir=str(directories.path(order.instance_id, static=order.static)),
    )


def handle_of(
    order: StartOrder, *, pid: int, started_at_ms: int, state: InstanceState, work_dir: str
) -> InstanceHandle:
    began = dt.datetime.fromtimestamp(started_at_ms / 1000, dt.UTC) if started_at_ms > 0 else None
    return InstanceHandle(
        instance_id=order.instance_id,
        group=order.group,
        port=order.primary_port,
        pid=pid,
        started_at=began,
        state=state.value,
        work_dir=work_dir,
    )


def exit_info(outcome: RunOutcome) -> ExitInfo:
    """A code only where it exited by itself; the summary of an unknown exit has that."""
    exit = outcome.exit
    known = exit is not None and exit.known and not exit.host_rebooted
    crashed = outcome.state is InstanceState.CRASHED
    return ExitInfo(
        exit_code=exit.code if exit is not None and known and not exit.signal else None,
        signal=signal_name(exit.signal) if exit is not None and known and exit.signal else "",
        duration_ms=outcome.uptime_ms,
        crashed=crashed,
        crash_summary=outcome.summary if crashed or not known else "",
    )


def find_unsent(runs: Iterable[FoundRun]) -> list[UnsentExit]:
    """Exits without a notification, by instance in the order of runs. Blocks; unreadable ones are skipped."""
    found = []
    for run in runs:
        files = RunFiles(run.path)
        if files.pending_modules() is not None or not files.has_outcome():
            continue
        try:
            outcome, intent = files.outcome(), files.intent()
        except (CorralError, OSError) as error:
            _log.warning("exit_notification.failed", directory=str(run.path), reason=str(error))
            continue
        if outcome is not None and intent is not None and outcome.exit is not None and outcome.modules_hear:
            found.append(UnsentExit(files=files, intent=intent, outcome=outcome))
    return found


def find_pending(runs: Iterable[FoundRun], *, most: int = MOST_PENDING) -> list[PendingExit]:
    """Exits with pending notifications, by instance in the order of runs; of too many the last written. Blocks."""
    found = []
    for run in runs:
        if modules := RunFiles(run.path).pending_modules():
            found.append(PendingExit(run=run, modules=modules))
    if len(found) <= most:
        return found
    latest = sorted(found, key=_written_at)[-most:]
    return sorted(latest, key=lambda pending: (pending.run.instance_id, pending.run.incarnation))


def _written_at(pending: PendingExit) -> float:
    try:
        return (pending.run.path / "told").stat().st_mtime
    except OSError:
        return 0.0


_log = structlog.get_logger("corral.daemon.runs")


class TunedRun(Protocol):
    """The part of a run that modules may know, and that takes their changes."""

    order: StartOrder
    files: RunFiles
    pid: int
    started_at_ms: int

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> InstanceState: ...

    def wait_for_modules(self, what: str) -> None:
        """Its start waits for these modules, and that takes long; empty: it goes on."""


class RunHooks:
    """Hooks of one run. Without `hooks`, where no daemon runs, no module is called."""

    def __init__(
        self, run: TunedRun, *, hooks: InstanceHooks | None, directories: WorkingDirectories
    ) -> None:
        self.made = Provenance()
        """Changes that modules made to its start."""
        self._hooks = hooks
        self._run = run
        self._name = run.name
        self._files = run.files
        self._directories = directories
        self._stopping: asyncio.Future[Any] | None = None
        self._stopping_sent = False

    def restore(self) -> None:
        """Read what an earlier daemon stored; unreadable parts are missing, nothing else."""
        try:
            self.made = self._files.provenance() or Provenance()
        except (CorralError, OSError) as error:
            _log.warning("provenance_read.failed", run=self._name, reason=str(error))

    async def ask(self, proposal: Proposal, *, seconds: float) -> StartValues:
        """Changes of the modules to its start, within the seconds that are left. Nothing they do raises."""
        planned = values_of(proposal.spec)
        if self._hooks is None:
            return planned
        try:
            tuning = await self._hooks.starting(
                proposal, patience=max(0.0, seconds), waits=self._run.wait_for_modules
            )
            await self._keep(provenance(tuning.changes, tuning.missing, proposal.secrets))
        except Exception:  # a fault of ours is no reason not to start it as it was planned
            _log.exception("start_hooks.failed", run=self._name)
            return planned
        return tuning.values

    async def _keep(self, made: Provenance) -> None:
        self.made = made
        for change in made.changes:
            if change.dropped:
                _log.warning(
                    "hook_change.refused", run=self._name, module=change.module, reason=change.dropped
                )
        if made:
            await asyncio.to_thread(self._files.write_provenance, made)

    def started(self, *, adopted: bool = False) -> None:
        """Notify modules: it has its process."""
        if self._hooks is not None:
            with self._unharmed():
                self._hooks.started(self._name, self._present, adopted=adopted)

    def notify_stopping(self) -> None:
        """Notify modules that it is about to be stopped. Once; does not wait."""
        if self._hooks is not None and not self._stopping_sent:
            self._stopping_sent = True
            with self._unharmed():
                handle = msgspec.structs.replace(self._present(), state=InstanceState.STOPPING.value)
                self._stopping = self._hooks.stopping(handle)

    async def before_stop(self, ended: asyncio.Future[Any], kill: asyncio.Event) -> None:
        """Wait until modules have handled that it is about to stop, unless it has exited or is to be killed; for a
        bounded time."""
        self.notify_stopping()
        if self._hooks is None or self._stopping is None or ended.done():
            return
        if not any(await first_of(self._stopping, ended, kill, timeout=self._hooks.budget_seconds)):
            _log.warning("stop_hooks.expired", run=self._name, seconds=self._hooks.budget_seconds)

    def stopped(self, outcome: RunOutcome) -> None:
        """Notify modules of its stored outcome. A run that never had a process never started for them."""
        if self._hooks is not None and outcome.exit is not None:
            with self._unharmed():
                end = RunEnd(self._run.order.instance_id, self._files, self._directories)
                self._hooks.stopped(self._name, self._present(), exit_info(outcome), end)

    def _present(self) -> InstanceHandle:
        """The run as modules see it now."""
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
        """A fault of ours in notifying modules changes nothing for the run."""
        try:
            yield
        except Exception:
            _log.exception("hook_notification.failed", run=self._name)
