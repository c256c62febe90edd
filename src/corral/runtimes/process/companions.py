"""Programs that stay beside a workload: the daemon's side of their minders. All there is to know of them is
in the run's directory, so that the next daemon knows no less."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import re
import shutil
import signal
from collections.abc import Iterator
from typing import Any, Final

import structlog

from corral.errors import Code, Rejected, Retryable
from corral.runtimes.process import companion_files, exit_file
from corral.runtimes.process.companion import HELD, RUN_ENDED
from corral.runtimes.process.companion_files import CompanionRecord, names_in, place_of
from corral.runtimes.process.companion_sweep import clear_up
from corral.runtimes.process.descriptors import readable
from corral.runtimes.process.endings import exit_of
from corral.runtimes.process.executing import check_command, check_size
from corral.runtimes.process.keeper_client import KeeperClient
from corral.runtimes.process.proc_facts import boot_id, open_process
from corral.runtimes.process.run_files import Failure, Record
from corral.runtimes.process.start_failures import start_failure
from corral.runtimes.process.surroundings import Surroundings
from corral.sdk.runtime import RunExit, SideRun

MOST_AT_ONCE: Final = 8
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")
_KILL_SECONDS: Final = 10.0
_ANSWER_SECONDS: Final = 30.0
_FIRST_PAUSE: Final = 0.002
_LAST_PAUSE: Final = 0.05
_HELD_SECONDS: Final = 10.0
_log = structlog.get_logger("corral.runtimes.process")


class Companions:
    """Of all runs of one provider. Spawns of one run come one after another."""

    def __init__(self, keeper: KeeperClient) -> None:
        self._keeper = keeper
        self._turns: dict[str, asyncio.Lock] = {}
        """By run directory."""

    async def spawn(
        self,
        run_directory: str,
        record: Record,
        around: Surroundings,
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
        async with self._turns.setdefault(run_directory, asyncio.Lock()):
            return await self._spawn(run_directory, record, around, name, command)

    async def _spawn(
        self, run_directory: str, record: Record, around: Surroundings, name: str, command: tuple[str, ...]
    ) -> SideRun:
        place = place_of(run_directory, name)
        request = _request(place, record, around, name, command)
        ends = asyncio.get_running_loop().time() + _HELD_SECONDS
        while True:
            known = _look(run_directory, name)
            if known is not None and known.running:
                return known
            self._make_room(run_directory, name, record.run)
            answer = await self._ask(request, name, record.run)
            if answer.get("how") != HELD:
                break
            if asyncio.get_running_loop().time() > ends:
                raise Retryable(Code.SPAWN_FAILED, f"'{name}' beside run {record.run} neither runs nor ends")
            await asyncio.sleep(_LAST_PAUSE)  # it is being started, or is about to be gone
        if answer.get("how") == RUN_ENDED:
            raise Rejected(Code.NOT_RUNNING, f"run {record.run} has ended; '{command[0]}' was not run")
        if "error" in answer:
            failure = Failure(answer["error"], answer["errno"], answer["path"])
            raise start_failure(
                failure, user=around.user.name, directory=around.directory, command=command[0]
            )
        started = _look(run_directory, name)
        if started is None:
            raise Rejected(Code.NOT_RUNNING, f"run {record.run} has ended, and '{name}' with it")
        return started

    def _make_room(self, run_directory: str, name: str, run: str) -> None:
        """A place for this name; the oldest that have ended go for it."""
        others = [side for side in self.listed(run_directory) if side.name != name]
        if sum(side.running for side in others) >= MOST_AT_ONCE:
            raise Rejected(
                Code.CONFLICT,
                f"{MOST_AT_ONCE} processes run beside run {run} already",
                hint="stop one of them first",
            )
        ended = sorted((side for side in others if not side.running), key=lambda side: side.started_at_ms)
        for side in ended[: max(len(others) - MOST_AT_ONCE + 1, 0)]:
            shutil.rmtree(place_of(run_directory, side.name), ignore_errors=True)
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
            raise Retryable(Code.SPAWN_FAILED, f"'{name}' beside run {run}: whoever started it was killed")
        return answer

    def listed(self, run_directory: str) -> tuple[SideRun, ...]:
        """As `RuntimeProvider.list_beside`."""
        looks = (_look(run_directory, name) for name in names_in(run_directory))
        return tuple(side for side in looks if side is not None)

    async def stop(self, run_directory: str, name: str, *, grace: float) -> SideRun | None:
        """As `RuntimeProvider.stop_beside`. The minder does it, also when this is cancelled."""
        if _NAME.fullmatch(name) is None:
            return None
        place = place_of(run_directory, name)
        with _minder_of(place) as minder:
            if minder is not None and _exit(place) is None:
                companion_files.ask_to_stop(place, grace)
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(minder, signal.SIGCHLD)  # which wakes it
                await self._ended(minder, name, grace)
        if pathlib.Path(place).exists():
            await self._cleared(place)
        return _look(run_directory, name)

    async def _ended(self, minder: int, name: str, grace: float) -> None:
        try:
            async with asyncio.timeout(grace + _KILL_SECONDS):
                await readable(minder)
        except TimeoutError:
            raise Retryable(
                Code.TIMEOUT,
                f"'{name}' was killed and does not end",
                hint="a frozen instance has to be thawed first",
            ) from None

    async def settled(self, run_directory: str) -> bool:
        """Of a run whose main process has ended: until nothing of its companions is left. False when
        something may be, for a minder was killed."""
        whole = True
        for name in names_in(run_directory):
            whole &= await self._cleared(place_of(run_directory, name))
        return whole

    async def _cleared(self, place: str) -> bool:
        """Until its lock is free, so that nothing of it comes any more; then what lost its minder goes.
        False when there was such a thing."""
        pause = _FIRST_PAUSE
        while (lock := companion_files.try_lock(place)) is None:
            with _minder_of(place) as minder:
                if minder is not None:
                    await readable(minder)
                else:  # not on record yet, or nearly gone
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LAST_PAUSE)
        try:
            if _record(place) is None or _exit(place) is not None:
                return True
            _log.warning("run.companion_lost", place=place)
            await asyncio.to_thread(clear_up, place)
            return False
        finally:
            os.close(lock)

    def forget(self, run_directory: str) -> None:
        """The run is over."""
        self._turns.pop(run_directory, None)


def _request(
    place: str, record: Record, around: Surroundings, name: str, command: tuple[str, ...]
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


def _look(run_directory: str, name: str) -> SideRun | None:
    """What its files and the kernel say; None when there is none."""
    place = place_of(run_directory, name)
    record = _record(place)
    if record is None:
        return None
    ending = _exit(place)
    running = ending is None and _lives(record)
    if not running and ending is None:
        ending = _exit(place) or RunExit(known=False, reason="whoever minded it was killed")
    return SideRun(
        name=name,
        command=record.command,
        pid=record.pid,
        started_at_ms=record.started_ns // 1_000_000,
        running=running,
        exit=ending,
        output=companion_files.read_output(place),
    )


def _record(place: str) -> CompanionRecord | None:
    try:
        return companion_files.read_record(place)
    except (OSError, ValueError) as error:
        _log.warning("run.companion_unreadable", place=place, error=str(error))
        return None


def _exit(place: str) -> RunExit | None:
    ending = exit_file.read_exit(place)
    if ending is None:
        return None
    if ending.status is None:
        return RunExit(
            known=False, ended_at_ms=ending.at_ns // 1_000_000, reason="whoever minded it was killed"
        )
    return exit_of(ending)


def _lives(record: CompanionRecord) -> bool:
    """While its minder does: it dies with it."""
    minder = open_process(record.minder, record.minder_start) if record.boot == boot_id() else None
    if minder is not None:
        os.close(minder)
    return minder is not None


@contextlib.contextmanager
def _minder_of(place: str) -> Iterator[int | None]:
    """A pidfd of the very process that minds it; None when there is none."""
    record = _record(place)
    minder = None
    if record is not None and record.boot == boot_id():
        minder = open_process(record.minder, record.minder_start)
    try:
        yield minder
    finally:
        if minder is not None:
            os.close(minder)
