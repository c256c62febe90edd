"""A command of the command line as a child process: its words, its rights and its bounds come over its input, what it
printed and how it ended go back.

The child gets nothing of this process but two pipes: no environment, an empty working directory, no terminal. Its words
never meet a shell. Its rights are a credential that it shows at `socket_path`, which is void when it ends. It dies with
this process, and with its time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from typing import IO, Final

import msgspec
import structlog

from corral.domain.control_characters import spelled
from corral.system.aio.tasks import Tasks, first_of
from corral.system.threads import to_end

OUTPUT_MAX: Final = 256 * 1024
"""Bytes of its output that are kept; the rest is read and thrown away."""
LINES_MAX: Final = 5000
KILLED: Final = 128 + signal.SIGKILL
"""The exit code of a command that was ended, as shells tell it."""

_RESULT_MAX: Final = 64 * 1024
_TEXT_MAX: Final = 4000
_BLOCK: Final = 64 * 1024
_ENVIRONMENT: Final = {"LC_ALL": "C.UTF-8"}
_DIRECTORY: Final = "commands"
_SOCKET: Final = "api.sock"
_WORK: Final = "work-"
_log = structlog.get_logger("corral.controller.commands")


class CommandProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The program that runs commands, and the first words that it knows. Given by whoever starts the controller, which
    knows nothing of the command line."""

    argv: tuple[str, ...]
    words: frozenset[str]

    def knows(self, words: Sequence[str]) -> bool:
        """Whether a line with these words is one of its commands."""
        return words[0] in self.words or words[0].startswith("-")


class CommandOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What the child reads from its input."""

    words: tuple[str, ...]
    credential: str
    socket: str
    request: str
    seconds: float
    parent: int


class CommandFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command failed."""

    code: str
    message: str
    hint: str = ""
    field: str = ""


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What the child writes last."""

    exit_code: int
    error: CommandFailure | None = None


class CommandEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What a command printed, and how it ended. `ended`: why it was ended before it was done; empty: it was done."""

    output: tuple[str, ...]
    exit_code: int
    error: CommandFailure | None = None
    ended: str = ""


class CommandRunner:
    """Runs commands. A directory in the data directory is its own: it holds the socket of the API, for commands alone,
    and their working directories."""

    def __init__(self, program: CommandProgram, *, data: pathlib.Path) -> None:
        self.program = program
        self.directory = data / _DIRECTORY

    @property
    def socket_path(self) -> pathlib.Path:
        return self.directory / _SOCKET

    def clear(self) -> None:
        """Make the directory, without what a killed process left there. Blocking."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        for left in self.directory.glob(f"{_WORK}*"):
            shutil.rmtree(left, ignore_errors=True)

    async def run(
        self,
        words: Sequence[str],
        *,
        credential: str,
        request: str,
        seconds: float,
        closing: asyncio.Future[str],
    ) -> CommandEnd:
        """Run a command to its end, for at most so many seconds, and until `closing` is set to a reason. When this returns,
        or raises, the child is gone."""
        async with self._work_directory() as work:
            order = CommandOrder(
                words=tuple(words),
                credential=credential,
                socket=f"../{_SOCKET}",  # short, however long the path to our directory is
                request=request,
                seconds=seconds,
                parent=os.getpid(),
            )
            # On this thread, with which the child dies; not by the loop, whose fork would run gRPC's handlers.
            process = subprocess.Popen(  # noqa: ASYNC220 - it returns as soon as the program is loaded
                self.program.argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_ENVIRONMENT,
                cwd=work,
                start_new_session=True,
            )
            try:
                return await _run_to_its_end(process, order, closing)
            finally:
                if process.returncode is None:  # else its number may be another's
                    os.killpg(process.pid, signal.SIGKILL)
                await to_end(process.wait)

    @contextlib.asynccontextmanager
    async def _work_directory(self) -> AsyncIterator[str]:
        work = await to_end(tempfile.mkdtemp, prefix=_WORK, dir=self.directory)
        try:
            yield work
        finally:
            await to_end(shutil.rmtree, work, ignore_errors=True)


async def _run_to_its_end(
    process: subprocess.Popen[bytes], order: CommandOrder, closing: asyncio.Future[str]
) -> CommandEnd:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with (
        contextlib.suppress(BrokenPipeError),
        process.stdin as given,
    ):  # it may end at once: then there is no result
        given.write(msgspec.json.encode(order))  # less than a pipe holds
    output, result = _Kept(OUTPUT_MAX), _Kept(_RESULT_MAX)
    async with contextlib.AsyncExitStack() as stack:
        streams = [
            await stack.enter_async_context(_reader(pipe)) for pipe in (process.stdout, process.stderr)
        ]
        tasks = await stack.enter_async_context(Tasks())
        reading = [
            tasks.spawn(kept.read(stream), name="commands/read", awaited=True)
            for stream, kept in zip(streams, (output, result), strict=True)
        ]
        done = tasks.spawn(_all(reading), name="commands/await", awaited=True)
        await first_of(done, closing, timeout=order.seconds)
        ended = "" if done.done() else _why(order, closing)
    if ended:
        hint = "what it asked for may have been done: look before you repeat it"
        error = CommandFailure(code="TIMEOUT", message=ended, hint=hint)
        return CommandEnd(output=output.lines(), exit_code=KILLED, error=error, ended=ended)
    code = await to_end(process.wait)
    return _end(output, result.text(), code)


@contextlib.asynccontextmanager
async def _reader(pipe: IO[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        yield reader
    finally:
        transport.close()
        await asyncio.sleep(0)  # the loop closes the pipe in its next step


async def _all(reading: Sequence[asyncio.Task[None]]) -> None:
    for each in reading:
        await each


def _why(order: CommandOrder, closing: asyncio.Future[str]) -> str:
    if closing.done():
        return f"the command was ended: {closing.result()}"
    return f"the command was ended: it took longer than {order.seconds:g} s"


def _end(output: _Kept, result: str, code: int) -> CommandEnd:
    """`result` is by our own program, and still not trusted to be one: it may have been killed."""
    try:
        found = msgspec.json.decode(result, type=CommandResult)
    except msgspec.DecodeError:
        _log.warning("command_process.failed", code=code, reason=result[-_TEXT_MAX:])
        error = CommandFailure(
            code="INTERNAL",
            message="the command ended without a result: it needed too much memory or processor time, or failed",
            hint="run it with the command line at home; the controller's log has more",
        )
        return CommandEnd(output=output.lines(), exit_code=abs(code) or 1, error=error)
    return CommandEnd(output=output.lines(), exit_code=found.exit_code, error=found.error)


class _Kept:
    """The first bytes of a stream, and how many followed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept = bytearray()
        self._dropped = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        while block := await stream.read(_BLOCK):
            room = self._most - len(self._kept)
            self._kept += block[:room]
            self._dropped += max(0, len(block) - room)

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")

    def lines(self) -> tuple[str, ...]:
        """Lines without what would steer a terminal: programs print them."""
        found = [printable(line) for line in self.text().split("\n")]
        if found and not found[-1]:
            found.pop()
        more = len(found) - LINES_MAX
        if more > 0 or self._dropped:
            left = f"{self._dropped} bytes" if self._dropped else f"{more} lines"
            return (*found[:LINES_MAX], f"({left} more are left out)")
        return tuple(found)


def printable(line: str) -> str:
    """A line in which control characters are spelled out, but for tabs."""
    return line if line.isprintable() else "\t".join(map(spelled, line.split("\t")))
