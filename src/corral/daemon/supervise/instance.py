"""An instance on this node: its current run, and the restarts that follow without an order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine
from typing import Any, Final

import msgspec
import structlog

from corral.daemon.node.disk_space import lacks_room
from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import RunIntent, RunOutcome, StopOrder
from corral.daemon.runs.run_messages import crash_report, first_status, status_update
from corral.daemon.runs.run_monitor import kill_run
from corral.daemon.runs.services import Services
from corral.daemon.supervise.faults import Faults
from corral.domain.instance_states import PLACE_SECONDS, InstanceState
from corral.errors import CorralError, counted
from corral.sdk.runtime import Adoption, AdoptionKind, RunHandle
from corral.system import log_context
from corral.system.aio.tasks import Tasks, set_within

_KILL_SECONDS: Final = 30.0
_ASK_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.1
_log = structlog.get_logger("corral.daemon.supervise")


class Instance:
    """One id. Its chain of runs is one task; between two runs there is no moment without a current one."""

    def __init__(self, services: Services, run: Run) -> None:
        self._services = services
        self.current = run
        self._tasks = Tasks()
        self.ended_at_number: int | None = None
        """The spool number of the report of the last exit."""
        self._may_live = False
        """The current run was executed, or is of an earlier daemon: only its runtime can report its exit."""
        self._reported_unknown: InstanceState | None = None
        """The state in which it was reported as unknown."""

    @property
    def id(self) -> str:
        return self.current.order.instance_id

    @property
    def active(self) -> bool:
        """Something of it exists, or is to come, or its exit is not reported yet."""
        return bool(self._tasks)

    def start(self) -> None:
        """Start a run that is new."""
        self._follow(self.current.live())

    def adopt(self, found: Adoption | None) -> None:
        """Go on with what an earlier daemon left; None: the runtime does not know, and is asked again."""
        self._may_live = True
        if found is not None and found.kind is AdoptionKind.ALIVE and found.handle is not None:
            self.current.take_over(found.handle, found.reason)
        self._follow(self._adopted(found))

    def remember(self, outcome: RunOutcome, *, reported: int | None, newest: bool) -> None:
        """The run exited before this daemon started. An unreported exit is reported now, and the restart after the
        newest one is made."""
        ended = self.current
        ended.stop.restore()
        ended.modules.restore()
        if newest and (ended.stop.stays_stopped or self._services.lost.of(self.id) is not None):
            outcome = msgspec.structs.replace(outcome, restarted_as=None)
        ended.remember(outcome)
        self.ended_at_number = reported
        follows = newest and outcome.restarted_as is not None
        if follows:
            self.current = self._successor(ended, outcome)
        if reported is None:
            ended.tail = ended.read_last_lines().lines if outcome.exit else ()
            self._report_exit(ended, outcome)
        if follows:
            self._services.reporter.report(first_status(self.current, outcome))
            self._follow(self.current.live())

    async def ask_stop(self, order: StopOrder) -> None:
        """Request the stop of the run that is current when this is called."""
        await self.current.ask_stop(order)

    async def detach(self) -> None:
        """Detach: the workload runs on."""
        await self._tasks.close()

    async def settled(self) -> None:
        """Wait until nothing of it is left and no restart follows."""
        await self._tasks.wait()

    def _follow(self, first: Coroutine[Any, Any, RunOutcome]) -> None:
        self._tasks.spawn(self._named_chain(first), name=f"supervise/run/{self.id}")

    async def _named_chain(self, work: Coroutine[Any, Any, RunOutcome]) -> None:
        """Log records of the task carry the id of the instance; a run adds those of the order that it is following."""
        with log_context.bound(instance=self.id):
            await self._chain(work)

    async def _chain(self, work: Coroutine[Any, Any, RunOutcome]) -> None:
        """Run after run, until one exits that no restart follows. A fault of ours must not leave a workload
        unsupervised: it is then adopted as after a death of the daemon. After a few such faults the start has failed;
        nothing is retried for ever that never worked. Only what may be alive, and of unknown state, is
        looked for as long as that takes."""
        faults = Faults()
        while True:
            try:
                outcome = await work
                if outcome.restarted_as is None:
                    self._report_exit(self.current, outcome)
                    await self._keep_first_run(self.current)
                    self.current.mask.forget()
                    await self._put_away(outcome)
                    return
                work = self._go_on(outcome)
            except Exception as error:
                run = self.current
                faults.add(run, error, now=self._services.clock.boottime())
                if run.outcome is not None and (run.outcome.restarted_as is None or faults.too_many):
                    run.mask.forget()
                    self._report_exit_after_fault(run, run.outcome)
                    return
                self._may_live = self._may_live or run.handle is not None
                await _pause(run, faults.pause)
                work = self._resumed(run, faults)

    async def _resumed(self, run: Run, faults: Faults) -> RunOutcome:
        """After a fault of ours: go on as a daemon does that adopts this run."""
        if run.outcome is not None:
            return await self._go_on(run.outcome)
        run = self.current = run.begun_anew()
        run.reason = faults.error.message
        try:
            found = await self._find(run)
        except Exception:
            if self._may_live:
                self._report_unknown(run, faults)
                if not run.stop.requested.is_set():
                    raise
                return await self._adopted(await self._ended_by_name(run))
            if faults.too_many or run.stop.requested.is_set():
                return await run.fail(faults.error, None, None)
            raise
        return await (self._recovered(faults, found) if faults.too_many else self._adopted(found))

    async def _ended_by_name(self, run: Run) -> Adoption:
        """Stop a run of unknown state: every process under its name gets SIGTERM, then is killed.
        Raises when the runtime cannot confirm even then that it is over."""
        directory = str(run.files.directory)
        runtime = self._services.runtimes.of(directory)
        handle = RunHandle(
            runtime=run.order.runtime, run_name=run.name, run_directory=directory, pid=0, started_at_ms=0
        )
        _log.warning("unknown_run.stopped", run=run.name)
        if not run.stop.killing.is_set():
            with contextlib.suppress(CorralError):
                await runtime.signal(handle, signal.SIGTERM)
        loop = asyncio.get_running_loop()
        asked_until = loop.time() + _ASK_SECONDS
        while True:
            try:
                gone = not (await runtime.stats(handle)).processes  # then a kill only makes sure
                if gone or run.stop.killing.is_set() or loop.time() > asked_until:
                    await kill_run(runtime, handle)
                return await self._find(run)
            except (CorralError, OSError):
                if loop.time() > asked_until + _KILL_SECONDS:
                    raise
            await asyncio.sleep(_LOOK_SECONDS)

    async def _find(self, run: Run) -> Adoption:
        directory = str(run.files.directory)
        return await self._services.runtimes.of(directory).adopt(directory)

    def _report_unknown(self, run: Run, faults: Faults) -> None:
        """Reported once, until it is found. A guessed exit would have it started a second time."""
        run.reason = f"nobody can say whether it runs, it is looked for again: {faults.error.message}"
        if self._reported_unknown is not run.state:
            self._reported_unknown = run.state
            self._services.reporter.report(status_update(run))

    async def _recovered(self, faults: Faults, found: Adoption) -> RunOutcome:
        """Supervision failed several times: a start fails with that reason. What was ready runs on, and is looked at
        again after a while."""
        run = self.current
        if found.kind is not AdoptionKind.ALIVE or found.handle is None:
            return await run.fail(faults.error, found.exit, found.handle)
        run.take_over(found.handle, found.reason)
        if run.state is InstanceState.RUNNING:
            run.reason = (
                f"it runs, but its supervision failed {counted(faults.count, 'time')}: {faults.error.message}"
            )
            self._services.reporter.report(status_update(run))
            return await run.resume()
        runtime = run.runtime
        await runtime.kill(found.handle)
        async with asyncio.timeout(_KILL_SECONDS):
            exit = await runtime.wait_empty(found.handle)
        return await run.fail(faults.error, exit, found.handle)

    def _report_exit_after_fault(self, run: Run, outcome: RunOutcome) -> None:
        """The run has exited, and something failed after that; what is not reported now the next daemon reports."""
        try:
            run.report_begun()
            self._report_exit(run, msgspec.structs.replace(outcome, restarted_as=None))
        except Exception:
            _log.exception("exit_report.failed", run=run.name)

    async def _go_on(self, outcome: RunOutcome) -> RunOutcome:
        """The restart, reported and started; from here on orders reach it and no longer the exited run. On a full
        disk the files of the exited run are removed first, and made again."""
        ended = self.current
        self.current = self._successor(ended, outcome)
        self._may_live, self._reported_unknown = False, None
        self._report_exit(ended, outcome)
        self._services.reporter.report(first_status(self.current, outcome))
        if await self._free_directory(ended):
            self.current.intent = msgspec.structs.replace(self.current.intent, anew=True)
        return await self.current.live()

    async def _adopted(self, found: Adoption | None) -> RunOutcome:
        run = self.current
        if found is None:
            found = await self._find(run)
        if found.kind is AdoptionKind.ALIVE and found.handle is not None:
            if run.handle is None:
                run.take_over(found.handle)
            if self._reported_unknown:
                self._reported_unknown = None
                self._services.reporter.report(status_update(run))
            return await run.resume()
        if found.kind is AdoptionKind.ENDED and found.exit is not None:
            return await run.conclude(found.exit, found.handle)
        # It may have been executed all the same, and ended, if its files are an older copy: then this is another run.
        intent = msgspec.structs.replace(run.intent, nonce=self._services.new_nonce())
        run = self.current = run.begun_anew(intent)
        return await run.begin_again()

    def _successor(self, ended: Run, outcome: RunOutcome) -> Run:
        assert outcome.restarted_as is not None
        order = msgspec.structs.replace(ended.order, incarnation=outcome.restarted_as)
        delay = outcome.restart_delay_seconds
        again = f"restarts in {delay:.1f} s" if delay >= 0.05 else "restarts now"
        if delay and outcome.state is InstanceState.STOPPED:
            again += f", {PLACE_SECONDS:g} s after its last start at the earliest"
        intent = RunIntent(
            order=order,
            boot_id=self._services.boot_id,
            accepted_at_ms=self._services.now_ms(),
            crashes=outcome.crashes,
            nonce=self._services.new_nonce(),
            due=self._services.clock.boottime() + delay if delay else 0.0,
            anew=outcome.outcome == "host_rebooted",
            reason=f"{again}: run {ended.order.incarnation} {outcome.summary}",
        )
        return Run(self._services, self._services.runs.files(order.instance_id, order.incarnation), intent)

    async def _keep_first_run(self, run: Run) -> None:
        """Store the results of a first run: its exit is reported, and nothing of it can change its files any more; a
        start under this id waits."""
        if run.state is not InstanceState.STOPPED or not run.was_ready:
            return
        try:
            await self._services.preparer.keep_first_run(run.order, run.mask)
        except (CorralError, OSError) as error:
            _log.warning("first_run_save.failed", run=run.name, reason=str(error))

    async def _put_away(self, outcome: RunOutcome) -> None:
        """Remove a working directory that is not needed: at once after a stop, later after a crash, unless the disk
        is full. No other run of this id can have begun: it would have to wait for the exit of this one."""
        run = self.current
        if await self._free_directory(run):
            return
        mine = self._services.lost.of(self.id) is None
        if outcome.state is InstanceState.STOPPED and not run.order.static and mine:
            self._services.directories.discard(self.id, run.order.incarnation)

    async def _free_directory(self, ended: Run) -> bool:
        """Delete the files of an exited run now if there is no disk space for any start. Never those of a static
        directory."""
        directories = self._services.directories
        if (
            ended.order.static
            or self._services.lost.of(self.id) is not None
            or not await asyncio.to_thread(lacks_room, directories.running, self._services.reserve_mb)
        ):
            return False
        if not directories.discard(self.id, ended.order.incarnation):
            return False
        _log.warning("directory.removed", run=ended.name, reason="there is less room than disk.reserve_mb")
        await directories.empty_bin()
        return True

    def _report_exit(self, run: Run, outcome: RunOutcome) -> None:
        """Report an exit: a crash with its crash report; an exit with a restart here is reported by the status of
        that restart."""
        reporter, last = self._services.reporter, outcome.restarted_as is None
        if outcome.state is InstanceState.CRASHED and outcome.exit is not None:
            reporter.report(
                crash_report(run, outcome, run.tail), spooled=None if last else run.files.mark_reported
            )
        elif not last:
            run.files.mark_reported(0)
        run.tail = ()  # it is in the report, and on disk
        if last:
            ids = run.stop.ids or (run.intent.ids if outcome.failed_start is not None else {})
            with log_context.bound(**ids):
                reporter.report(status_update(run), spooled=lambda number: self._exit_reported(run, number))

    def _exit_reported(self, run: Run, number: int) -> None:
        self.ended_at_number = number
        run.files.mark_reported(number)


async def _pause(run: Run, seconds: float) -> None:
    """A stop order ends the pause."""
    if run.stop.requested.is_set():
        await asyncio.sleep(seconds)
        return
    await set_within(run.stop.requested, seconds)
