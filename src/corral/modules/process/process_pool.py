"""Process pool of a host: starts and kills module processes, and the zygote they are forked from.

The zygote is started with the first module, and again when it was killed; its modules count as killed
then. No process of a pool outlives it, however it ends: a host that is killed takes the zygote along, and
the zygote everything else.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import socket
import types
from collections.abc import Mapping, Sequence
from typing import Final, Self

import structlog

from corral.errors import Code, Retryable
from corral.modules.process.call_failures import ZygoteGone
from corral.modules.process.exit_reasons import ZYGOTE_LOST, crash_output_file
from corral.modules.process.leaked_processes import LeakedProcesses
from corral.modules.process.module_process import ModuleProcess
from corral.modules.process.process_port import Confinement, NoConfinement
from corral.modules.process.process_values import FinishResult, Leak, Limits, Notice, Sample, Serve
from corral.modules.process.run_user import AS_THE_HOST, check_readable, let_pass, look_up
from corral.modules.process.sdk_directory import make_view, sources
from corral.modules.process.zygote_deaths import HOLD_SECONDS, NO_VERDICT, DeathVerdict, ZygoteDeaths
from corral.modules.process.zygote_leftovers import end_leftovers, pool_mark
from corral.modules.process.zygote_link import ZygoteLink, open_zygote
from corral.sdk.protocol.messages import Lingering
from corral.sdk.runner.zygote_messages import Ended, Spawn, Used
from corral.system.accounts import RunUser
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock, SystemClock
from corral.system.entropy import Entropy, SystemEntropy

_log = structlog.get_logger("corral.modules.process")

_UNRESPONSIVE_SECONDS: Final = 30.0
"""A zygote that does not end a process for so long is killed itself, which ends all of them."""


class ProcessPool:
    """Use as `async with`. `directory` is its own: it holds the SDK directory and the zygote's log. Where
    modules run as another user, it and every directory up to `within` is opened for that user to pass."""

    def __init__(
        self,
        *,
        directory: pathlib.Path,
        within: pathlib.Path | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        confinement: Confinement | None = None,
        hold: float = HOLD_SECONDS,
    ) -> None:
        """`hold`: shortest time in seconds for which suspects of a lost zygote are held back."""
        self._directory = directory.absolute()
        self._within = (within or directory).absolute()
        self._confinement = confinement or NoConfinement()
        self._zygote: ZygoteLink | None = None
        self._opening = asyncio.Lock()
        self._closing = asyncio.Lock()
        self._numbers = 0
        self._by_number: dict[int, ModuleProcess] = {}
        self._by_pid: dict[int, ModuleProcess] = {}
        self._entropy = entropy or SystemEntropy()
        self._mark = ""
        """Mark of the present zygote's descendants; each zygote has another."""
        self._clock = clock or SystemClock()
        self._leaks = LeakedProcesses(self._clock)
        self._losses = ZygoteDeaths(hold=hold)
        self._started: dict[int, float] = {}
        """Time of each process's last start, by its number."""
        self._tasks = Tasks()
        self._closed = False

    @property
    def processes(self) -> Mapping[int, ModuleProcess]:
        """Living processes, by pid."""
        return types.MappingProxyType(self._by_pid)

    @property
    def zygote_pid(self) -> int | None:
        return self._zygote.pid if self._zygote is not None else None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(
        self,
        module_id: str,
        *,
        paths: Sequence[pathlib.Path],
        limits: Limits,
        serve: Serve,
        on_notice: Notice,
    ) -> ModuleProcess:
        """Start a process that takes calls; nothing of the module is loaded yet. SPAWN_FAILED, RUN_AS_REFUSED
        or SHUTTING_DOWN; nothing is left then."""
        user = await asyncio.to_thread(self._user, limits.run_as, paths) if limits.run_as else AS_THE_HOST
        zygote = await self._ready_zygote()
        self._numbers += 1
        order = _order(self._numbers, module_id, paths, limits, user)
        ours, theirs = socket.socketpair()
        words = crash_output_file()
        try:
            pid, pidfd = await zygote.spawn(order, [theirs.fileno(), words])
        except BaseException:
            ours.close()
            os.close(words)
            raise
        finally:
            theirs.close()
        process = ModuleProcess(
            module_id,
            number=order.number,
            pid=pid,
            pidfd=pidfd,
            words=words,
            connection=ours,
            limits=limits,
            serve=serve,
            on_notice=on_notice,
            pool=self,
        )
        self._by_number[order.number] = self._by_pid[pid] = process
        self.starts(process)
        await self._settle_in(process, zygote)
        return process

    def _user(self, run_as: str, paths: Sequence[pathlib.Path]) -> RunUser:
        """The user to run as; it must be able to read what it imports. Blocking."""
        user = look_up(run_as)
        if user.uid is not None:
            library, view = pathlib.Path(os.__file__).parent, make_view(self._directory / "view")
            let_pass(self._directory, within=self._within)
            check_readable(user, [library, *sources(), view, *paths])
        return user

    def leaked(self) -> list[Leak]:
        """Processes that were sent `finish` and had to be killed, or are still running; the newest last."""
        return self._leaks.all()

    async def force_cleanup(self) -> list[Leak]:
        """Kill lingering processes at once, and forget those that are gone; returns what there was."""
        found = self.leaked()
        lingering = [process for process in self._by_number.values() if self._leaks.lingers_still(process)]
        for process in lingering:
            process.end()
        for process in lingering:
            await asyncio.shield(process.death)
            await process.settled()
        self._leaks.forget_killed()
        return found

    async def close(self) -> None:
        """Kill everything; returns when nothing is left. May be called again."""
        self._closed = True
        async with self._opening:
            pass  # a zygote being opened is assigned by now, and no other is opened
        # Without that lock from here on: if the zygote is lost now, the deaths are reported under it.
        async with self._closing:
            living = list(self._by_number.values())
            for process in living:
                process.end()
            for process in living:
                await asyncio.shield(process.death)
                await process.settled()
            zygote, self._zygote = self._zygote, None
            if zygote is not None:
                await zygote.close()
            for process in list(self._by_number.values()):  # forked meanwhile, and ended with the zygote
                self._on_ended(_killed(process))
            await self._tasks.wait()

    # --- callbacks of its processes ---------------------------------------------------------------

    def end(self, process: ModuleProcess) -> None:
        """Part of `PoolCallbacks`."""
        if self._zygote is None or process.number not in self._by_number:
            return  # its death is being reported
        zygote = self._zygote
        zygote.end(process.number)
        self._tasks.spawn(self._kill_inside(process), name=f"modules/kill/{process.module_id}")
        overdue = asyncio.get_running_loop().call_later(_UNRESPONSIVE_SECONDS, zygote.kill)
        process.death.add_done_callback(lambda _: overdue.cancel())

    def starts(self, process: ModuleProcess) -> None:
        """Part of `PoolCallbacks`."""
        self._started[process.number] = self._clock.monotonic()

    def usage(self, process: ModuleProcess) -> Sample | None:
        """Part of `PoolCallbacks`."""
        return self._confinement.usage(_name(process))

    def lingers(self, process: ModuleProcess, lingering: Lingering | None) -> None:
        """Part of `PoolCallbacks`."""
        self._leaks.lingers(process, lingering)

    def finished(self, process: ModuleProcess, ending: FinishResult) -> None:
        """Part of `PoolCallbacks`."""
        self._leaks.finished(process, ending)

    # --- the zygote -------------------------------------------------------------------------------

    async def _ready_zygote(self) -> ZygoteLink:
        async with self._opening:
            if self._closed:
                raise Retryable(Code.SHUTTING_DOWN, "no module is started any more: this host is stopping")
            if self._zygote is None:
                view = await asyncio.to_thread(self._prepare)
                self._mark = f"{pool_mark(self._directory)}{self._entropy.secret(8).hex()}"
                self._zygote = await open_zygote(
                    view,
                    mark=self._mark,
                    log=self._directory / "zygote.log",
                    on_ended=self._on_ended,
                    on_used=self._on_used,
                    on_gone=self._lost_zygote,
                )
                _log.info("zygote.started", pid=self._zygote.pid)
            return self._zygote

    def _prepare(self) -> pathlib.Path:
        """Kill what an earlier host of this directory, killed with its zygote, left running. Blocking."""
        view = make_view(self._directory / "view")
        if ended := end_leftovers(pool_mark(self._directory), frozenset()):
            _log.warning("module_leftovers.removed", processes=ended)
        return view

    async def _settle_in(self, process: ModuleProcess, zygote: ZygoteLink) -> None:
        try:
            if self._zygote is not zygote or self._closed:
                raise ZygoteGone(f"that of module '{process.module_id}' ended at once")
            await self._confinement.enter(_name(process), process.pid, process.limits)
        except BaseException:
            zygote.end(process.number)
            if self._zygote is not zygote:  # the zygote is gone: nothing else reports this end
                process.signal(signal.SIGKILL)
                self._on_ended(_killed(process))
            raise

    def _on_ended(self, report: Ended, verdict: DeathVerdict = NO_VERDICT) -> None:
        process = self._by_number.pop(report.number, None)
        if process is None:
            return  # no caller waited for it
        self._started.pop(report.number, None)
        if self._by_pid.get(process.pid) is process:
            del self._by_pid[process.pid]
        process.ended(report, verdict)
        leaving = self._confinement.leave(_name(process))
        self._tasks.spawn(leaving, name=f"modules/leave/{process.module_id}")

    def _on_used(self, report: Used) -> None:
        process = self._by_number.get(report.number)
        if process is not None:
            process.memory_bytes = report.memory_bytes

    def _lost_zygote(self) -> None:
        zygote, self._zygote = self._zygote, None
        if zygote is None:
            return  # it never became ready
        _log.error("zygote.lost", pid=zygote.pid, modules=len(self._by_number))
        orphans = list(self._by_number.values())
        for process in orphans:
            process.signal(signal.SIGKILL)  # the kernel did so, unless it was just forked
        verdict = self._loss_verdict(orphans)
        self._tasks.spawn(self._reap(zygote, self._mark, orphans, verdict), name="modules/reap")

    def _loss_verdict(self, orphans: list[ModuleProcess]) -> DeathVerdict:
        started: dict[str, float] = {}
        for process in orphans:
            at = self._started.get(process.number, float("-inf"))
            started[process.module_id] = max(at, started.get(process.module_id, at))
        verdict = self._losses.lost(started, now=self._clock.monotonic())
        if verdict.suspects:
            _log.error(
                "zygote_killer.suspected",
                suspects=sorted(verdict.suspects),
                held=sorted(verdict.held),
                blamed=verdict.blamed,
            )
        return verdict

    async def _reap(
        self, zygote: ZygoteLink, mark: str, orphans: list[ModuleProcess], verdict: DeathVerdict
    ) -> None:
        """Under the lock, so that the next zygote is started when the processes of this one are gone. If another
        caller took the lock first, its zygote runs already; it has another mark, so it is not affected."""
        async with self._opening:
            try:
                await zygote.close()
                sessions = frozenset(process.pid for process in orphans)
                await asyncio.to_thread(end_leftovers, mark, sessions)
            finally:
                for process in orphans:
                    self._on_ended(_killed(process), verdict)

    async def _kill_inside(self, process: ModuleProcess) -> None:
        try:
            await self._confinement.kill(_name(process))
        except OSError as error:
            _log.warning("confinement_kill.failed", module=process.module_id, exc_info=error)


def _order(
    number: int, module_id: str, paths: Sequence[pathlib.Path], limits: Limits, user: RunUser
) -> Spawn:
    return Spawn(
        number=number,
        name=module_id,
        paths=tuple(map(str, paths)),
        memory_bytes=limits.memory_mb << 20,
        processes=limits.processes,
        nice=limits.nice,
        uid=-1 if user.uid is None else user.uid,
        gid=-1 if user.gid is None else user.gid,
        groups=user.groups,
    )


def _name(process: ModuleProcess) -> str:
    return f"{process.module_id}-{process.pid}"


def _killed(process: ModuleProcess) -> Ended:
    """The `Ended` report of a process that the kernel killed with its zygote."""
    return Ended(process.number, int(signal.SIGKILL), ZYGOTE_LOST, 0, 0.0, 0)
