"""The windows of all watched runs: opened when there is none, opened again when one ends.

A window is found by the run's `window` file, also when another daemon opened it. Failures of a window are
logged, and never affect the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import sys
from typing import Final

import structlog

import corral
from corral.errors import CorralError
from corral.runtimes.keeper import run_files
from corral.runtimes.keeper.proc_facts import open_process
from corral.runtimes.process.descriptors import readable
from corral.runtimes.sessions.multiplexer import Execute, Multiplexer, session_name
from corral.runtimes.sessions.window_file import WindowRecord, forget_window, read_window
from corral.system.aio.backoff import Backoff
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.aio.tasks import Tasks

_log = structlog.get_logger("corral.runtimes.sessions")

_OPENERS: Final = 4
_APPEAR_SECONDS: Final = 15.0
_FIRST_PAUSE: Final = 0.005
_LAST_PAUSE: Final = 0.1
_FIRST_RETRY: Final = 0.05
_LAST_RETRY: Final = 10.0
_SHORT_LIFE: Final = 5.0
_LEAVE_SECONDS: Final = 1.0
_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); "
    "from corral.runtimes.sessions.window_main import main; main()"
)


class Windows:
    """Owns one task per run. Closing it detaches: windows and sessions stay."""

    def __init__(self, multiplexer: Multiplexer, *, directory: pathlib.Path, execute: Execute) -> None:
        """`directory` is the keeper's."""
        self._multiplexer = multiplexer
        self._directory = directory
        self._execute = execute
        self._openers = asyncio.Semaphore(_OPENERS)
        self._tasks = Tasks()
        self._kept: dict[str, asyncio.Task[None]] = {}
        """By run directory."""
        self._busy = KeyedLocks[str]()
        """Held while a session is being made: it is not closed before it exists."""

    def keep(self, run_directory: str, run_name: str, *, terminal: bool) -> None:
        """Keep a window open for this run. Idempotent; no-op when the multiplexer is not installed."""
        task = self._kept.get(run_directory)
        if not self._multiplexer.program or (task is not None and not task.done()):
            return
        self._kept[run_directory] = self._tasks.spawn(
            self._keep(run_directory, session_name(run_name), terminal), name=f"runtime/window/{run_name}"
        )

    async def leave(self, run_directory: str, run_name: str) -> None:
        """Close the session of a run that is over. A window notices by itself; other programs in the session
        are ended with it. Idempotent."""
        task = self._kept.get(run_directory)
        if task is not None:
            async with self._busy.hold(run_directory):
                task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            if self._kept.get(run_directory) is task:
                del self._kept[run_directory]
        window = read_window(run_directory)
        if window is None:
            return
        try:
            await self._end(session_name(run_name), window)
        except (CorralError, OSError) as error:
            _log.warning("session_close.failed", run=run_name, error=str(error))
            return
        forget_window(run_directory)

    async def close(self) -> None:
        """Detach from every window. Idempotent."""
        self._kept.clear()
        await self._tasks.close()

    async def _keep(self, run_directory: str, session: str, terminal: bool) -> None:
        loop = asyncio.get_running_loop()
        backoff, logged = Backoff(first=_FIRST_RETRY, longest=_LAST_RETRY), ""
        while not run_files.is_empty(run_directory):
            since = loop.time()
            try:
                process = self._process(run_directory)
                if process is None:
                    async with self._busy.hold(run_directory), self._openers:
                        process = await self._open(run_directory, session, terminal)
                if process is not None:
                    await _ended(process)
            except (CorralError, OSError) as error:
                # Logged once for each reason: its program may be gone for good, and the run lives for months.
                log = _log.debug if str(error) == logged else _log.warning
                log("session_open.retried", session=session, error=str(error))
                logged = str(error)
            if run_files.is_empty(run_directory):
                return
            if loop.time() - since > _SHORT_LIFE:
                backoff.reset()
            await asyncio.sleep(backoff.delay())

    async def _open(self, run_directory: str, session: str, terminal: bool) -> int | None:
        """Open a session with a window; a pidfd of the window. Leftovers of a dead one are removed first."""
        if run_files.is_empty(run_directory):
            return None
        if read_window(run_directory) is not None:
            await self._multiplexer.close(session, execute=self._execute)
            forget_window(run_directory)
        try:
            await self._multiplexer.open(session, _command(run_directory, terminal), execute=self._execute)
        except CorralError:  # perhaps one of that name exists without a window: the next try finds none
            await self._multiplexer.close(session, execute=self._execute)
            raise
        process = await self._appeared(run_directory)
        if process is None and read_window(run_directory) is None and run_files.is_empty(run_directory):
            await self._multiplexer.close(session, execute=self._execute)
        if process is not None:
            attach = self._multiplexer.attach_command(session, str(self._directory))
            _log.info("session.opened", session=session, attach=attach)
        return process

    async def _appeared(self, run_directory: str) -> int | None:
        """The new window; None: it ended at once, or has not appeared; the caller checks again. Waits even
        when the run has ended meanwhile, so that no unknown session is left behind; but then not for long:
        the end of the run is reported after that, and the window may have died before it wrote its file."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + _APPEAR_SECONDS
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LAST_PAUSE)
        while read_window(run_directory) is None and pathlib.Path(run_directory).exists():
            if run_files.is_empty(run_directory):
                ends = min(ends, loop.time() + _LEAVE_SECONDS)
            if loop.time() > ends:
                _log.warning("session_window.lost", directory=run_directory)
                return None
            await asyncio.sleep(backoff.delay())
        return self._process(run_directory)

    def _process(self, run_directory: str) -> int | None:
        window = read_window(run_directory)
        return None if window is None else open_process(window.pid, window.start)

    async def _end(self, session: str, window: WindowRecord) -> None:
        """End the window after the run; one that has not noticed (it was stopped, for example) is killed."""
        process = open_process(window.pid, window.start)
        if process is not None:
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LEAVE_SECONDS):
                        await readable(process)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                os.close(process)
        if self._multiplexer.program:
            await self._multiplexer.close(session, execute=self._execute)


def _command(run_directory: str, terminal: bool) -> tuple[str, ...]:
    root = str(pathlib.Path(corral.__file__).parents[1])
    kind = "terminal" if terminal else "lines"
    return (sys.executable, "-I", "-S", "-X", "utf8", "-c", _PROGRAM, root, run_directory, kind)


async def _ended(process: int) -> None:
    try:
        await readable(process)
    finally:
        os.close(process)
