"""The `process` runtime: native processes, supervised by shims that outlive the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
from typing import Any, Final

import msgspec
import structlog

from corral.errors import Code, CorralError, Rejected, Retryable
from corral.runtimes.cgroups.port import CgroupFacts, Cgroups, remove_group, remove_group_if_empty
from corral.runtimes.console.log import note_loss
from corral.runtimes.keeper import exit_file, run_files
from corral.runtimes.keeper.proc_facts import boot_id, has_ended
from corral.runtimes.keeper.run_files import try_lock, was_attempted
from corral.runtimes.process.command_input import write_command
from corral.runtimes.process.companions import Companions
from corral.runtimes.process.executions import Executions
from corral.runtimes.process.keeper_client import KeeperClient, KeeperFacts
from corral.runtimes.process.keeper_watch import KeeperWatch
from corral.runtimes.process.live_run import LiveRun
from corral.runtimes.process.run_lookup import (
    RUNTIME,
    RecordedRun,
    conclude,
    executed,
    exit_of,
    find_run,
    handle_of,
    lost_with_the_host,
    refuse_living,
    stored_elsewhere,
)
from corral.runtimes.process.run_start import look_up_user, spawn, spawn_plan
from corral.runtimes.process.shim_pool import ShimPool
from corral.runtimes.process.watched_runs import WatchedRuns
from corral.runtimes.process.workload_context import RuntimeMark, WorkloadContext, read_mark, write_mark
from corral.sdk.runtime import (
    Adoption,
    AdoptionKind,
    Execution,
    RunExit,
    RunHandle,
    RunSpec,
    RunStats,
    RuntimeCapabilities,
    SideRun,
)
from corral.system.accounts import RunUser, own_user

_log = structlog.get_logger("corral.runtimes.process")

SEGMENT_BYTES: Final = 64 << 20
_ELSEWHERE: Final = (
    "its run directory was replaced by a copy while it ran: what it prints goes to another directory"
    " as long as its shim lives, its console here has a gap, and it takes no commands"
)


class ProcessRuntime:
    """A `corral.sdk.runtime.RuntimeProvider`. Call `start_keeper` first; `close` detaches: it ends neither
    keeper nor shims nor workloads. A cancelled `start` may have started: call `adopt` to find out."""

    def __init__(
        self,
        data: pathlib.Path,
        cgroups: Cgroups,
        segment_bytes: int = SEGMENT_BYTES,
        *,
        facts: CgroupFacts | None = None,
        name: str = RUNTIME,
        spare_shims: int = 0,
        shared: ProcessRuntime | None = None,
    ) -> None:
        """`facts` is the result of an earlier `cgroups.prove`, if there is one. `name` is that of a runtime
        which wraps this one. `spare_shims` are forked ahead of starts, where the control groups allow it.
        Keeper and spare shims may be those of `shared`, which closes them."""
        self.name = name
        self.directory = data / "keeper"
        """The directory of the keeper, and of the programs that run for this node."""
        self._cgroups = cgroups
        self._segment_bytes = segment_bytes
        self._facts = facts
        self._shares = shared is not None
        self.keeper: KeeperWatch = (
            shared.keeper if shared else KeeperWatch(KeeperClient(self.directory, place=self._place_keeper))
        )
        self.shims: ShimPool = (
            shared.shims if shared else ShimPool(self.keeper.client, cgroups.spares, spare_shims)
        )
        self._executions = Executions(self.keeper.client)
        self._companions = Companions(self.keeper.client)
        self._watched = WatchedRuns(cgroups, self.keeper)

    async def start_keeper(self) -> KeeperFacts:
        """Find or start the keeper, and prove the control groups unless that was done."""
        keeper = await self.keeper.start()
        if self._facts is None:
            self._facts = await self._cgroups.prove()
        self.shims.start()
        return keeper

    async def end_keeper(self) -> bool:
        """End the keeper when it holds no run; False when it does."""
        await self.shims.close()
        return await self.keeper.quit()

    async def close(self) -> None:
        """Detach from every run. Idempotent."""
        if not self._shares:
            await self.shims.close()
            await self.keeper.close()
        await self._watched.close()

    @property
    def facts(self) -> CgroupFacts | None:
        """Proven features of the control groups; None before `start_keeper`."""
        return self._facts

    def capabilities(self) -> RuntimeCapabilities:
        facts = self._facts
        return RuntimeCapabilities(
            kill_tree=facts is not None and facts.kill,
            freeze=facts is not None and facts.freeze,
            memory_limit=facts is not None and facts.memory_limit,
            cpu_limit=facts is not None and facts.cpu_limit,
            tty=pathlib.Path("/dev/ptmx").exists(),
            run_as=os.geteuid() == 0,
        )

    async def start(self, spec: RunSpec) -> RunHandle:
        user = await asyncio.to_thread(look_up_user, spec.run_as, spec.groups) if spec.run_as else own_user()
        plan = spawn_plan(
            spec,
            user=user,
            marks=self._cgroups.environment(spec.run_name),
            segment_bytes=self._segment_bytes,
        )
        keeper = self.keeper.generation
        record = await self._spawn(spec, user, plan)
        found = RecordedRun(record, True, new=True) if record else await find_run(spec.run_directory)
        if found is None:
            await remove_group_if_empty(self._cgroups, spec.run_name)
            raise Retryable(Code.SPAWN_FAILED, f"the shim of run {spec.run_name} was killed before its start")
        around = WorkloadContext(user=user, directory=spec.directory, environment=plan["environment"])
        self._watched.remember(spec.run_directory, around)
        return self._handle(self._watched.watch(spec.run_directory, found, keeper=keeper))

    async def _spawn(self, spec: RunSpec, user: RunUser, plan: dict[str, Any]) -> run_files.RunRecord | None:
        """Start under the lock of the run's directory, which its shim holds from then on."""
        attempted = was_attempted(spec.run_directory)
        lock = try_lock(spec.run_directory)
        if lock is None:
            raise _exists(spec)
        try:
            if attempted:
                await self._make_way(spec)
            mark = RuntimeMark(runtime=self.name, directory=spec.directory, user=user, run=spec.run_name)
            write_mark(spec.run_directory, mark)
            async with self.shims.shim_for(plan, lock=lock) as (dialogue, hello, spare):
                return await spawn(
                    spec, user, dialogue=dialogue, hello=hello, cgroups=self._cgroups, spare=spare
                )
        finally:
            os.close(lock)

    async def _make_way(self, spec: RunSpec) -> None:
        """With the lock held: remove what a daemon that was killed during the start left of this run. A run
        that was executed is not started again, even if it has no supervisor at this moment."""
        record = executed(spec.run_directory)
        if record is not None and record.boot == boot_id() and not run_files.is_empty(spec.run_directory):
            raise _exists(spec)
        earlier = self._watched.get(spec.run_directory)
        if earlier is not None:
            await self._let_go_of(earlier)
        if self._cgroups.exists(spec.run_name):
            await remove_group(self._cgroups, spec.run_name)

    async def adopt(self, run_directory: str) -> Adoption:
        known = self._watched.get(run_directory)
        if known is not None:
            return await self._adoption(known)
        try:
            found = await find_run(run_directory)
        except Rejected:
            if not run_files.is_empty(run_directory):
                raise
            found = None
        if found is None and run_files.is_empty(run_directory):
            return await self._ended_without_record(run_directory)
        if found is None:
            refuse_living(run_directory, self._cgroups)
            return Adoption(kind=AdoptionKind.NEVER_STARTED)
        rebooted = found.record.boot != boot_id()
        if rebooted or (run_files.is_empty(run_directory) and not found.supervised):
            return await self._ended(run_directory, found.record, rebooted=rebooted)
        elsewhere = await asyncio.to_thread(self._note_elsewhere, run_directory, found)
        run = self._watched.watch(run_directory, found)
        run.notice = elsewhere
        return await self._adoption(run)

    def _note_elsewhere(self, directory: str, found: RecordedRun) -> str:
        """Record a gap where the console continues in another directory; empty when it continues in this one.
        Blocking."""
        if found.supervised or not stored_elsewhere(directory, found.record):
            return ""
        note_loss(f"{directory}/{run_files.CONSOLE}")
        _log.warning("console.moved", run=found.record.run, shim=found.record.shim, meaning=_ELSEWHERE)
        return _ELSEWHERE

    async def _ended(self, directory: str, record: run_files.RunRecord, *, rebooted: bool) -> Adoption:
        """The result of a run of which only its files are left, and the removal of its group."""
        await self._end_companions(directory, record.run)
        if rebooted and not run_files.is_empty(directory):
            await asyncio.to_thread(note_loss, f"{directory}/{run_files.CONSOLE}")
        ending = exit_file.read_exit(directory)
        if ending is not None:
            ended = exit_of(ending, oom=self._cgroups.oom_killed(record.run))
        else:
            ended = lost_with_the_host() if rebooted else RunExit(known=False, reason="its record is gone")
        await remove_group(self._cgroups, record.run)
        handle = handle_of(record, directory, runtime=self.name)
        return Adoption(kind=AdoptionKind.ENDED, handle=handle, exit=ended)

    async def _ended_without_record(self, directory: str) -> Adoption:
        """The result of a run that was executed, has no process left, and whose record was removed or
        damaged."""
        mark = read_mark(directory)
        run = mark.run if mark is not None else ""
        if run:
            await self._end_companions(directory, run)
            await remove_group(self._cgroups, run)
        ending = exit_file.read_exit(directory)
        ended = exit_of(ending) if ending else RunExit(known=False, seen=False, reason="its record is gone")
        handle = RunHandle(runtime=self.name, run_name=run, run_directory=directory, pid=0, started_at_ms=0)
        return Adoption(kind=AdoptionKind.ENDED, handle=handle, exit=ended)

    async def _adoption(self, run: LiveRun) -> Adoption:
        handle = self._handle(run)
        if run_files.is_empty(run.directory):
            return Adoption(kind=AdoptionKind.ENDED, handle=handle, exit=await self.wait_empty(handle))
        ending = exit_file.read_exit(run.directory)
        if ending is None or ending.status is None:
            return Adoption(kind=AdoptionKind.ALIVE, handle=handle, reason=run.notice)
        exit = self._exit(run, ending)
        return Adoption(kind=AdoptionKind.ALIVE, handle=handle, exit=exit, reason=run.notice)

    def _handle(self, run: LiveRun) -> RunHandle:
        return handle_of(run.record, run.directory, runtime=self.name)

    async def send_command(self, handle: RunHandle, line: str) -> None:
        write_command(handle.run_directory, handle.run_name, line)

    async def signal(self, handle: RunHandle, number: int) -> None:
        if not self._cgroups.exists(handle.run_name):
            return
        if self._facts is not None and self._facts.freeze:
            try:
                await self._cgroups.set_frozen(handle.run_name, False)
            except CorralError:
                if self._cgroups.exists(handle.run_name):
                    raise
                return  # it ended meanwhile
        await self._cgroups.signal(handle.run_name, number)

    async def kill(self, handle: RunHandle) -> None:
        await self._cgroups.kill(handle.run_name)
        run = self._watched.get(handle.run_directory)
        if run is not None and run.process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(run.process, signal.SIGKILL)
        if run is None:
            conclude(handle, self._cgroups)

    async def wait_exit(self, handle: RunHandle) -> RunExit:
        run = await self._run(handle)
        if isinstance(run, RunExit):
            return run
        return self._exit(run, await asyncio.shield(run.ended))

    async def wait_empty(self, handle: RunHandle) -> RunExit:
        run = await self._run(handle)
        if isinstance(run, RunExit):
            return run
        await asyncio.shield(run.emptied)
        ended = self._exit(run, await asyncio.shield(run.ended))
        if not await self._executions.settled(handle.run_directory):
            await self._cgroups.kill(handle.run_name)
        await self._end_companions(handle.run_directory, handle.run_name)
        await remove_group(self._cgroups, handle.run_name)
        await self._let_go_of(run)
        return ended

    async def _end_companions(self, directory: str, run: str) -> None:
        """Wait for the companions, which end by themselves after the main process; one that lost its minder
        may have left processes."""
        if not await self._companions.settled(directory):
            await self._cgroups.kill(run)

    async def _let_go_of(self, run: LiveRun) -> None:
        if await self._watched.let_go_of(run):
            self._executions.forget(run.directory)

    async def stats(self, handle: RunHandle) -> RunStats:
        usage = self._cgroups.usage(handle.run_name)
        return RunStats(
            processes=usage.processes, memory_bytes=usage.memory_bytes, cpu_seconds=usage.cpu_seconds
        )

    async def processes(self, handle: RunHandle) -> tuple[int, ...] | None:
        return tuple(await asyncio.to_thread(self._cgroups.pids, handle.run_name))

    async def execute(self, handle: RunHandle, command: tuple[str, ...], *, timeout: float) -> Execution:
        run, around = await self._living(handle)
        return await self._executions.beside(handle.run_directory, run.record, around, command, timeout)

    async def spawn_beside(
        self, handle: RunHandle, name: str, command: tuple[str, ...], environment: dict[str, str]
    ) -> SideRun:
        run, around = await self._living(handle)
        around = msgspec.structs.replace(around, environment={**around.environment, **environment})
        return await self._companions.spawn(handle.run_directory, run.record, around, name, command)

    async def list_beside(self, handle: RunHandle) -> tuple[SideRun, ...]:
        return self._companions.listed(handle.run_directory)

    async def stop_beside(self, handle: RunHandle, name: str, *, grace: float) -> SideRun | None:
        return await self._companions.stop(handle.run_directory, name, grace=grace)

    async def _living(self, handle: RunHandle) -> tuple[LiveRun, WorkloadContext]:
        """A run whose main process lives, and its context; otherwise NOT_RUNNING."""
        run = await self._run(handle)
        if isinstance(run, LiveRun) and run.process is not None and not has_ended(run.process):
            around = self._watched.around(run)
            if around is not None:
                return run, around
        raise Rejected(Code.NOT_RUNNING, f"run {handle.run_name} has ended")

    async def execute_for_node(
        self, command: tuple[str, ...], environment: dict[str, str], *, timeout: float
    ) -> Execution:
        """Run a program of this node's own in the keeper's directory, as the daemon's user; processes that it
        leaves behind stay, outside the daemon's unit. Raises the errors of `execute`."""
        around = WorkloadContext(user=own_user(), directory=str(self.directory), environment=environment)
        return await self._executions.for_node(command, around, timeout=timeout)

    async def set_frozen(self, handle: RunHandle, frozen: bool) -> None:
        if frozen and not (self._facts is not None and self._facts.freeze):
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"run {handle.run_name} cannot be frozen: this node has no control groups that can",
                hint="see `capabilities` of the node",
            )
        await self._cgroups.set_frozen(handle.run_name, frozen)

    async def _run(self, handle: RunHandle) -> LiveRun | RunExit:
        """The run behind a handle, watched from now on; its result, when no process of it is left."""
        run = self._watched.get(handle.run_directory)
        if run is not None:
            return run
        adoption = await self.adopt(handle.run_directory)
        if adoption.kind is AdoptionKind.NEVER_STARTED:
            raise Rejected(Code.NOT_RUNNING, f"run {handle.run_name} was never started")
        if adoption.kind is AdoptionKind.ENDED and adoption.exit is not None:
            return adoption.exit
        return self._watched.require(handle.run_directory)

    def _exit(self, run: LiveRun, ending: exit_file.StoredExit) -> RunExit:
        return exit_of(ending, oom=self._cgroups.oom_killed(run.record.run))

    async def _place_keeper(self, pid: int) -> None:
        try:
            await self._cgroups.place_keeper(pid, RUNTIME)
        except CorralError as error:
            _log.warning("keeper_move.failed", pid=pid, error=str(error))


def _exists(spec: RunSpec) -> Rejected:
    return Rejected(
        Code.ALREADY_EXISTS,
        f"run {spec.run_name} exists, or is being started",
        hint="adopt it instead",
    )
