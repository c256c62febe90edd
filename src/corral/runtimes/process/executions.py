"""Executions of programs beside a workload or for the node: the daemon's side of the keeper's aides."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from corral.errors import Code, Rejected, Retryable
from corral.runtimes.keeper.aide import RUN_ENDED, TIMED_OUT
from corral.runtimes.keeper.keeper_protocol import MAX_FRAME, pack
from corral.runtimes.keeper.run_files import ExecFailure, RunRecord
from corral.runtimes.process.keeper_client import KeeperClient, KeeperDialogue
from corral.runtimes.process.start_failures import start_failure
from corral.runtimes.process.workload_context import WorkloadContext
from corral.sdk.runtime import Execution

_GRACE_SECONDS: Final = 20.0
"""How long after the timeout an aide may take to kill what it started."""


class Executions:
    """Runs programs through the keeper, and tracks those in progress beside a run."""

    def __init__(self, keeper: KeeperClient) -> None:
        self._keeper = keeper
        self._under_way: dict[str, set[asyncio.Future[None]]] = {}
        """By run directory."""
        self._lost: set[str] = set()
        """Run directories in which an aide was killed: processes of its program may be left."""

    async def beside(
        self,
        run_directory: str,
        record: RunRecord,
        around: WorkloadContext,
        command: tuple[str, ...],
        timeout: float,
    ) -> Execution:
        """As `RuntimeProvider.execute`, for a run whose main process lives."""
        request = _request(
            command, around, timeout, run=record.run, pid=record.pid, start=record.start, files=record.procs
        )
        with self._counted(run_directory):
            try:
                answer = await self._ask(request, timeout, subject=f"'{command[0]}' beside run {record.run}")
            except Retryable:
                self._lost.add(run_directory)
                raise
        if answer.get("how") == RUN_ENDED:
            raise Rejected(
                Code.NOT_RUNNING, f"run {record.run} has ended; '{command[0]}' was not run, or killed"
            )
        return _execution(answer, around, command, timeout, subject=f"beside run {record.run}")

    async def for_node(
        self, command: tuple[str, ...], around: WorkloadContext, *, timeout: float
    ) -> Execution:
        """Run a program of our own; processes that it leaves behind stay, as children of the keeper."""
        request = _request(command, around, timeout, run="", pid=0, start=0, files=())
        answer = await self._ask(request, timeout, subject=f"'{command[0]}'")
        return _execution(answer, around, command, timeout, subject="for this node")

    async def settled(self, run_directory: str) -> bool:
        """Wait until no program is in progress beside a run; they end with its main process. False when a
        process of them may be left, because its aide was killed."""
        while under_way := self._under_way.get(run_directory):
            await asyncio.wait(under_way)
        return run_directory not in self._lost

    def forget(self, run_directory: str) -> None:
        """Drop the state of a run that is over."""
        self._lost.discard(run_directory)

    @contextlib.contextmanager
    def _counted(self, run_directory: str) -> Iterator[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        under_way = self._under_way.setdefault(run_directory, set())
        under_way.add(done)
        try:
            yield
        finally:
            done.set_result(None)
            under_way.discard(done)
            if not under_way and self._under_way.get(run_directory) is under_way:
                del self._under_way[run_directory]

    async def _ask(self, request: dict[str, Any], timeout: float, *, subject: str) -> dict[str, Any]:
        dialogue, answer = await self._keeper.ask(request)
        async with dialogue:
            if "aide" in answer:
                answer = await _last_word(dialogue, timeout + _GRACE_SECONDS) or {}
        if not answer:
            raise Retryable(Code.SPAWN_FAILED, f"{subject}: the process that ran it was killed")
        return answer


async def _last_word(dialogue: KeeperDialogue, seconds: float) -> dict[str, Any] | None:
    """The aide's result; None when the aide was killed, or does not finish."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await dialogue.receive()
    return None


def _request(
    command: tuple[str, ...],
    around: WorkloadContext,
    timeout: float,
    *,
    run: str,
    pid: int,
    start: int,
    files: Sequence[str],
) -> dict[str, Any]:
    check_command(command, around.environment)
    request = {
        "do": "execute",
        "run": run,
        "pid": pid,
        "start": start,
        "cgroup_files": list(files),
        "command": list(command),
        "directory": around.directory,
        "environment": around.environment,
        "uid": around.user.uid,
        "gid": around.user.gid,
        "groups": list(around.user.groups),
        "timeout": timeout,
    }
    check_size(request, command)
    return request


def check_size(request: dict[str, Any], command: tuple[str, ...]) -> None:
    """ARGUMENTS_TOO_LONG for more than any kernel takes."""
    if len(pack(request)) > MAX_FRAME:
        raise Rejected(
            Code.ARGUMENTS_TOO_LONG, f"the arguments of '{command[0]}' are too long for any kernel"
        )


def check_command(command: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """INVALID_FIELD for a command that cannot be passed to a process."""
    if not command or not command[0]:
        raise Rejected(Code.INVALID_FIELD, "there is no command to execute", field="command")
    for text in (*command, *environment, *environment.values()):
        if "\0" in text:
            raise Rejected(Code.INVALID_FIELD, f"{text[:40]!r} contains a zero byte", field="command")


def _execution(
    answer: dict[str, Any], around: WorkloadContext, command: tuple[str, ...], timeout: float, *, subject: str
) -> Execution:
    if "error" in answer:
        failure = ExecFailure(answer["error"], answer["errno"], answer["path"])
        raise start_failure(failure, user=around.user.name, directory=around.directory, command=command[0])
    if answer.get("how") == TIMED_OUT:
        raise Retryable(
            Code.TIMEOUT,
            f"'{command[0]}' {subject} took longer than {timeout:g} s and was killed",
            hint=_last_words(answer["output"]),
        )
    status = answer["status"]
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    return Execution(code=code, output=answer["output"])


def _last_words(output: str) -> str | None:
    last = output.strip().rpartition("\n")[2][-200:]
    return f"its last words: {last}" if last else None
