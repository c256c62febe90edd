"""One run as the daemon watches it: the end of its main process, and of the shim or rescue that supervises
it.

Both are noticed by pidfds. A shim or rescue that ended without having written `empty` was killed, and is
replaced at once. The daemon also holds the read end of the console FIFO and a copy of the run's terminal:
whichever process is killed, the bytes in it stay, and no terminal hangs up.

The master of a terminal cannot be opened again by its name: the descriptor itself is copied out of the other
process. The kernel allows that to a process that may trace the other: root always may, others where the
system does not restrict tracing to descendants.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from typing import Final

import structlog

from corral.errors import CorralError
from corral.runtimes.keeper import exit_file, run_files
from corral.runtimes.keeper.exit_file import StoredExit
from corral.runtimes.keeper.keeper_protocol import CONSOLE, MINDER, PROCESS, TERMINAL
from corral.runtimes.keeper.linux_calls import pidfd_getfd
from corral.runtimes.keeper.oom_kills import oom_kill_counted
from corral.runtimes.keeper.proc_facts import exit_witness, has_ended, open_process
from corral.runtimes.keeper.run_files import RunRecord, try_lock
from corral.runtimes.process.descriptors import readable
from corral.runtimes.process.keeper_client import KeeperClient
from corral.runtimes.process.run_lookup import console_source, open_fifo
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import Tasks

_log = structlog.get_logger("corral.runtimes.process")

_FIRST_PAUSE: Final = 0.0005
_LAST_PAUSE: Final = 0.25
_FIRST_RETRY: Final = 0.005
_LAST_RETRY: Final = 5.0
_SHORT_LIFE: Final = 1.0
_LAST_DELAY: Final = 0.25
"""Pause between supervisors that live shorter than that, so that they are not forked as fast as they die."""


class LiveRun:
    """Owns two tasks and its descriptors until it is closed. Closing detaches: the run goes on."""

    def __init__(self, directory: str, record: RunRecord, keeper: KeeperClient, *, new: bool = False) -> None:
        """`new`: the files are those that its shim has just made."""
        loop = asyncio.get_running_loop()
        self.directory = directory
        self.record = record
        self.notice = ""
        """Irregularities of the run, as text for people."""
        self._keeper = keeper
        self.ended: asyncio.Future[StoredExit] = loop.create_future()
        """How the main process ended."""
        self.emptied: asyncio.Future[None] = loop.create_future()
        """Done when no process is left, and the console is complete."""
        if not new:
            run_files.repair_record(directory, record)
        self.process = open_process(record.pid, record.start)
        self._minder = open_process(record.shim, record.shim_start)
        self._console = self._hold_console(new=new)
        self._terminal = self._copy_terminal()
        self._tasks = Tasks()
        self._tasks.spawn(self._watch_process(), name=f"runtime/exit/{record.run}")
        self._tasks.spawn(self._watch_minder(), name=f"runtime/mind/{record.run}")

    async def close(self) -> None:
        """Detach from the run. Idempotent."""
        if not self.emptied.done():
            run_files.repair_record(self.directory, self.record)  # the next daemon finds it by this
        await self._tasks.close()
        for waiting in (self.ended, self.emptied):
            waiting.cancel()
        for descriptor in (self.process, self._minder, self._console, self._terminal):
            if descriptor is not None:
                os.close(descriptor)
        self.process = self._minder = self._console = self._terminal = None

    def own_pids(self) -> tuple[int, int]:
        """The pids of the shim and of the main process; 0 for one that has ended (its pid may be reused by
        now) and for a shim from which the workload does not descend."""
        shim = 0 if self.record.rescued or _gone(self._minder) else self.record.shim
        return shim, 0 if _gone(self.process) else self.record.pid

    def held(self) -> dict[str, int]:
        """The descriptors that a supervisor of the run needs, by the names of the keeper's protocol."""
        named = {
            CONSOLE: self._console,
            PROCESS: self.process,
            MINDER: self._minder,
            TERMINAL: self._terminal,
        }
        return {name: descriptor for name, descriptor in named.items() if descriptor is not None}

    def keep_terminal(self, descriptor: int) -> None:
        """Keep this copy of its terminal; -1 is none."""
        if descriptor >= 0 and self._terminal is None and not self.ended.done():
            self._terminal = descriptor
        elif descriptor >= 0:
            os.close(descriptor)

    def _copy_terminal(self) -> int | None:
        """Copy the terminal from the shim or rescue, before anything can happen to that. The kernel of a node
        may allow it to root only: then the keeper sends its own when it is handed the run."""
        if not self.record.tty or self._minder is None:
            return None
        return copy_of_terminal(self._minder, self.record.shim)

    @property
    def lacks_terminal(self) -> bool:
        """It has a terminal, of which only its shim and its keeper hold the master."""
        return self.record.tty and self._terminal is None

    def _hold_console(self, *, new: bool) -> int | None:
        with contextlib.suppress(OSError):
            return open_fifo(self.directory) if new else console_source(self.directory, self.record)
        return None

    async def _watch_process(self) -> None:
        if self.process is not None:
            await readable(self.process)
        backoff = Backoff(first=_FIRST_PAUSE, longest=_LAST_PAUSE)
        while (ending := self._ending()) is None:
            # Only between the exit and its file, which the supervisor is writing now.
            await asyncio.sleep(backoff.delay())
        self.ended.set_result(ending)

    def _ending(self) -> StoredExit | None:
        """The content of `exit`. While the run has no supervisor the kernel is queried; a status that it
        still has counts more than "unknown". Once no process is left to write the file, the status is
        unknown."""
        over = self.emptied.done()
        try:
            ending = exit_file.read_exit(self.directory)
            if (ending is None or ending.status is None) and self._witness():
                ending = exit_file.read_exit(self.directory)
        except (OSError, ValueError) as error:
            if not over:
                return None
            _log.warning("exit_read.failed", run=self.record.run, error=str(error))
            ending = None
        if ending is None and over:
            return StoredExit(None, time.time_ns(), "daemon", False, seen=False)
        return ending

    def _witness(self) -> bool:
        """Write `exit` in the place of a supervisor that is dead; a living one knows more than the daemon."""
        main = self.record
        if self.process is None or not _gone(self._minder):
            return False
        status = exit_witness(self.process, main.pid, main.start)
        if status is None:
            return False
        oom = oom_kill_counted(main.oom_file)
        exit_file.write_exit(self.directory, status, at_ns=time.time_ns(), who="daemon", oom=oom, sync=False)
        return True

    async def _watch_minder(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = Backoff(first=_FIRST_RETRY, longest=_LAST_DELAY)
        delay = 0.0
        while True:
            since = loop.time()
            if self._minder is not None:
                await readable(self._minder)
                os.close(self._minder)
                self._minder = None
            if run_files.is_empty(self.directory):
                break
            await asyncio.sleep(delay)
            if loop.time() - since < _SHORT_LIFE:
                delay = backoff.delay()
            else:
                delay = 0.0
                backoff.reset()
            await self._replace_minder()
        self.emptied.set_result(None)

    async def _replace_minder(self) -> None:
        """Find or make a successor. The process that holds the lock supervises the run: the keeper may be
        quicker."""
        backoff = Backoff(first=_FIRST_RETRY, longest=_LAST_RETRY)
        while not run_files.is_empty(self.directory):
            try:
                lock = try_lock(self.directory)
                if lock is not None:
                    await self._rescue(lock)
                record = run_files.read_record(self.directory) or self.record
                self._minder = open_process(record.shim, record.shim_start)
                if self._minder is not None:
                    self.record = record
                    return
            except (CorralError, OSError, ValueError) as error:
                _log.warning("rescue.failed", run=self.record.run, error=str(error))
            await asyncio.sleep(backoff.delay())

    async def _rescue(self, lock: int) -> None:
        try:
            if run_files.is_empty(self.directory):
                return
            _log.warning("shim.lost", run=self.record.run, shim=self.record.shim)
            run_files.repair_record(self.directory, self.record)
            await self._keeper.rescue(self.directory, lock=lock, held=self.held)
        finally:
            os.close(lock)


def _gone(pidfd: int | None) -> bool:
    return pidfd is None or has_ended(pidfd)


_MASTERS: Final = ("/dev/ptmx", "/dev/pts/ptmx")


def copy_of_terminal(minder: int, pid: int) -> int | None:
    """`minder` is a pidfd of `pid`, which holds one terminal at most; None when it has none, or the kernel
    refuses."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names alone
            if os.readlink(f"/proc/{pid}/fd/{name}") in _MASTERS:  # noqa: PTH115
                descriptor = pidfd_getfd(minder, int(name))
                if not has_ended(minder):  # otherwise the pid may be another process by now
                    return descriptor
                os.close(descriptor)
    return None
