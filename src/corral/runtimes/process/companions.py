"""Companions, the programs that stay beside a workload: the daemon's side.

All state of a companion is in the run's directory and in the kernel, so that the next daemon has the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import signal
from collections.abc import Iterator
from typing import Any, Final

import structlog

from corral.errors import Code, Rejected, Retryable
from corral.runtimes.keeper import companion_files, exit_file, run_files
from corral.runtimes.keeper.companion import HELD, RUN_ENDED
from corral.runtimes.keeper.companion_files import CompanionRecord, names_in, place_of
from corral.runtimes.keeper.companion_sweep import clear_up
from corral.runtimes.keeper.proc_facts import boot_id, open_process
from corral.runtimes.keeper.run_files import ExecFailure, RunRecord
from corral.runtimes.process.descriptors import readable
from corral.runtimes.process.executions import check_command, check_size
from corral.runtimes.process.keeper_client import KeeperClient
from corral.runtimes.process.run_lookup import exit_of
from corral.runtimes.process.start_failures import start_failure
from corral.runtimes.process.workload_context import WorkloadContext
from corral.sdk.runtime import RunExit, SideRun
from corral.system.aio.backoff import Backoff
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.trees.removal import remove

MOST_AT_ONCE: Final = 8
MOST_KNOWN: Final = 32
"""Those that ended included: a caller that runs something once sees by them that it was run."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
_KILL_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 30.0
_FIRST_PAUSE: Final = 0.002
_LAST_PAUSE: Final = 0.05
_HELD_SECONDS: Final = 10.0
_log = structlog.get_logger("corral.runtimes.process")


class Companions:
    """The companions of all runs of one provider. Spawns of one run are serialised."""

    def __init__(self, keeper: KeeperClient) -> None:
        self._keeper = keeper
        self._turns = KeyedLocks[str]()
        """By run directory."""

    async def spawn(
        self,
        run_directory: str,
        record: RunRecord,
        around: WorkloadContext,
        name: str,
        command: tuple[str, ...],
    ) -> SideRun:
        """As `RuntimeProvider.spawn_beside`, for a run whose main process lives; `around` is complete."""
        if _NAME.fullmatch(name) is None:
            raise Rejected(
                Code.INVALID_FIELD,
                f"{name[:80]!r} is no name for a process beside an instance",
                hint="use lower case letters, digits and '-'",
                field="name",
            )
        check_command(command, around.environment)
        async with self._turns.hold(run_directory):
            return await self._spawn(run_directory, record, around, name, command)

    async def _spawn(
        self,
        run_directory: str,
        record: RunRecord,
        around: WorkloadContext,
        name: str,
        command: tuple[str, ...],
    ) -> SideRun:
        place = place_of(run_directory, name)
        request = _request(place, record, around, name, command)
        ends = asyncio.get_running_loop().time() + _HELD_SECONDS
        while True:
            known = look_at(run_directory, name)
            if known is not None and known.running:
                return known
            self._make_room(run_directory, name, record.run)
            answer = await self._ask(request, name, record.run)
            if answer.get("how") != HELD:
                break
            if asyncio.get_running_loop().time() > ends:
                raise Retryable(Code.SPAWN_FAILED, f"'{name}' beside run {record.run} neither runs nor ends")
            await asyncio.sleep(_LAST_PAUSE)  # it is being started, or nearly gone
        if answer.get("how") == RUN_ENDED:
            raise Rejected(Code.NOT_RUNNING, f"run {record.run} has ended; '{command[0]}' was not run")
        if "error" in answer:
            failure = ExecFailure(answer["error"], answer["errno"], answer["path"])
            raise start_failure(
                failure, user=around.user.name, directory=around.directory, command=command[0]
            )
        started = look_at(run_directory, name)
        if started is None:
            raise Rejected(Code.NOT_RUNNING, f"run {record.run} has ended, and '{name}' with it")
        return started

    def _make_room(self, run_directory: str, name: str, run: str) -> None:
        """Make room for this name: the oldest that have ended are removed, and those that never ran."""
        others = [side for side in self.listed(run_directory) if side.name != name]
        if sum(side.running for side in others) >= MOST_AT_ONCE:
            raise Rejected(
                Code.CONFLICT,
                f"{MOST_AT_ONCE} processes run beside run {run} already",
                hint="stop one of them first",
            )
        ended = sorted((side for side in others if not side.running), key=lambda side: side.started_at_ms)
        known = {name, *(side.name for side in others)}
        never_ran = [other for other in names_in(run_directory) if other not in known]
        oldest = [side.name for side in ended[: max(len(others) - MOST_KNOWN + 1, 0)]]
        for other in (*oldest, *never_ran):
            _clear_away(place_of(run_directory, other))
        pathlib.Path(place_of(run_directory, name)).mkdir(mode=0o700, parents=True, exist_ok=True)

    async def _ask(self, request: dict[str, Any], name: str, run: str) -> dict[str, Any]:
        dialogue, answer = await self._keeper.ask(request)
        async with dialogue:
            if "minder" in answer:
                try:
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        answer = await dialogue.receive() or {}
                except TimeoutError:
                    raise Retryable(
                        Code.SPAWN_FAILED, f"'{name}' beside run {run} does not come to execute"
                    ) from None
        if not answer:
            raise Retryable(
                Code.SPAWN_FAILED, f"'{name}' beside run {run}: the process that started it was killed"
            )
        return answer

    def listed(self, run_directory: str) -> tuple[SideRun, ...]:
        """As `RuntimeProvider.list_beside`."""
        looks = (look_at(run_directory, name) for name in names_in(run_directory))
        return tuple(side for side in looks if side is not None)

    async def stop(self, run_directory: str, name: str, *, grace: float) -> SideRun | None:
        """As `RuntimeProvider.stop_beside`. The minder does it, also when this call is cancelled."""
        if _NAME.fullmatch(name) is None:
            return None
        place = place_of(run_directory, name)
        if pathlib.Path(place).exists():
            try:
                async with asyncio.timeout(grace + _KILL_SECONDS):
                    lock = await _lock_when_free(place, grace=grace)
            except TimeoutError:
                raise Retryable(
                    Code.TIMEOUT,
                    f"'{name}' was killed and does not end",
                    hint="a frozen instance has to be thawed first",
                ) from None
            await _cleared(place, lock)
        return look_at(run_directory, name)

    async def settled(self, run_directory: str) -> bool:
        """Wait, for a run whose main process has ended, until no process of its companions is left. False
        when one may be, because a minder was killed."""
        whole = True
        for name in names_in(run_directory):
            place = place_of(run_directory, name)
            whole &= await _cleared(place, await _lock_when_free(place))
        return whole


def _request(
    place: str, record: RunRecord, around: WorkloadContext, name: str, command: tuple[str, ...]
) -> dict[str, Any]:
    request = {
        "do": "accompany",
        "run": record.run,
        "place": place,
        "mark": f"{record.run}/{name}/{record.pid}.{record.start}",
        "pid": record.pid,
        "start": record.start,
        "cgroup_files": list(record.procs),
        "command": list(command),
        "directory": around.directory,
        "environment": around.environment,
        "uid": around.user.uid,
        "gid": around.user.gid,
        "groups": list(around.user.groups),
    }
    check_size(request, command)
    return request


async def _lock_when_free(place: str, *, grace: float | None = None) -> int | None:
    """Take its lock, so that it cannot start any more; the present holder gets a stop request with `grace`.
    None when the directory is gone."""
    backoff = Backoff(first=_FIRST_PAUSE, longest=_LAST_PAUSE)
    with contextlib.suppress(FileNotFoundError):
        while (lock := companion_files.try_lock(place)) is None:
            with minder_of(place) as minder:
                if minder is None:  # not recorded yet, or nearly gone
                    await asyncio.sleep(backoff.delay())
                    continue
                if grace is not None:
                    companion_files.ask_to_stop(place, grace)
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(minder, signal.SIGCHLD)  # wakes it, so that it reads the request
                    signal.pidfd_send_signal(minder, signal.SIGCONT)  # it may have been stopped
                await readable(minder)
        return lock
    return None


async def _cleared(place: str, lock: int | None) -> bool:
    """Clean up with its lock, which is released: what lost its minder is killed. False when a minder was ever
    lost."""
    if lock is None:
        return True
    try:
        if record_of(place) is not None and exit_at(place) is None:
            _log.warning("companion.lost", place=place)
            await asyncio.to_thread(clear_up, place)
            return False
        return not companion_files.is_lost(place)
    finally:
        os.close(lock)


def _clear_away(place: str) -> None:
    """Remove the files of a companion that has ended, or never ran, unless a process of it may be left."""
    try:
        lock = companion_files.try_lock(place)
    except OSError:
        return
    if lock is None:
        return
    try:
        over = record_of(place) is None or exit_at(place) is not None
        if over and not companion_files.is_lost(place):
            remove(pathlib.Path(place))
    finally:
        os.close(lock)


def look_at(run_directory: str, name: str) -> SideRun | None:
    """The state by its files and the kernel; None when there is none."""
    place = place_of(run_directory, name)
    record = record_of(place)
    if record is None:
        return None
    ending = exit_at(place)
    running = ending is None and _lives(record)
    if not running and ending is None:
        ending = exit_at(place) or RunExit(known=False, reason="its minder was killed")
    return SideRun(
        name=name,
        command=record.command,
        pid=record.pid,
        started_at_ms=record.started_ns // 1_000_000,
        running=running,
        exit=ending,
        output=companion_files.read_output(place),
    )


def record_of(place: str) -> CompanionRecord | None:
    try:
        return companion_files.read_record(place)
    except (OSError, ValueError) as error:
        _log.warning("companion_read.failed", place=place, error=str(error))
        return None


def exit_at(place: str) -> RunExit | None:
    """How it ended; None while it has not."""
    try:
        ending = exit_file.read_exit(place)
    except run_files.TooNew as error:
        return RunExit(known=False, reason=str(error))
    if ending is None:
        return None
    if ending.status is None:
        return RunExit(known=False, ended_at_ms=ending.at_ns // 1_000_000, reason="its minder was killed")
    return exit_of(ending)


def _lives(record: CompanionRecord) -> bool:
    """Whether it lives: as long as its minder, with which it dies."""
    minder = open_process(record.minder, record.minder_start) if record.boot == boot_id() else None
    if minder is not None:
        os.close(minder)
    return minder is not None


@contextlib.contextmanager
def minder_of(place: str) -> Iterator[int | None]:
    """A pidfd of the process that supervises it; None when there is none."""
    record = record_of(place)
    minder = None
    if record is not None and record.boot == boot_id():
        minder = open_process(record.minder, record.minder_start)
    try:
        yield minder
    finally:
        if minder is not None:
            os.close(minder)
