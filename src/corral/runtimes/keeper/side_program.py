"""A program that runs beside a workload: a child of a fork of the keeper, the last part of its output, and
the end of all its descendants.

The fork is a subreaper, so that no descendant escapes. Standard library only: forks of the keeper share this,
and import nothing by themselves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

from corral.runtimes.keeper import run_files
from corral.runtimes.keeper.proc_facts import open_process, parents, raw_status
from corral.runtimes.keeper.run_files import ExecFailure
from corral.runtimes.keeper.workload import become_workload

OUTPUT_BYTES = 4096
STAGE_CGROUP = "cgroup"
_CHUNK = 65536
_LAST_CHUNKS = 64
"""Most bytes read after the end: more than a pipe holds; a process outside that writes on does not delay us.
"""


class SideProgram:
    """A child of ours, and its output. It waits at a barrier until it has joined its groups and is released.
    With `run` in its request it dies with us."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.status: int | None = None
        self.kept = b""
        self._failed = os.memfd_create("failed")
        nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.reader, writer = os.pipe2(os.O_CLOEXEC)
        if request["uid"] is not None:
            os.fchown(writer, request["uid"], request["gid"])  # it must be able to open /dev/stderr again
        barrier, self._gate = os.pipe2(os.O_CLOEXEC)
        self._executed, executing = os.pipe2(os.O_CLOEXEC)
        plan = {**request, "tty": False}
        if request["run"]:
            plan["parent"] = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._gate)
            become_workload(plan, barrier=barrier, failed=self._failed, input_fd=nothing, output_fd=writer)
        for descriptor in (barrier, writer, nothing, executing):
            os.close(descriptor)
        os.set_blocking(self.reader, False)

    def join_groups(self, files: list[str]) -> ExecFailure | None:
        """Move it into the groups of its run."""
        for path in files:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(descriptor, b"%d" % self.pid)
                finally:
                    os.close(descriptor)
            except OSError as error:
                return ExecFailure(STAGE_CGROUP, error.errno or 0, path)
        return None

    def let_go(self) -> None:
        """Release it: it executes."""
        os.write(self._gate, b"1")
        os.close(self._gate)

    def give_up(self) -> None:
        """End it unexecuted."""
        os.close(self._gate)

    def await_execution(self) -> None:
        """Wait until it executes, or has failed to."""
        os.read(self._executed, 1)
        os.close(self._executed)

    def failure(self) -> ExecFailure | None:
        """Why it was not executed; None when it was."""
        return run_files.parse_failure(os.pread(self._failed, run_files.FAILED_BYTES, 0))

    def read(self) -> bool:
        """Read one piece; False when there is none now, or never again."""
        try:
            piece = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return False
        if not piece:
            os.close(self.reader)
            self.reader = -1
            return False
        self.kept = (self.kept + piece)[-OUTPUT_BYTES:]
        return True

    def read_rest(self) -> None:
        for _ in range(_LAST_CHUNKS):
            if self.reader < 0 or not self.read():
                return

    def reap(self) -> bool:
        """Reap every process that ended; True when the program itself has."""
        while self.status is None:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                break
            if ended is None:
                break
            if ended.si_pid == self.pid:
                self.status = raw_status(ended.si_code, ended.si_status)
        return self.status is not None

    def kill(self) -> None:
        """Kill the program alone; no-op when it has ended."""
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)

    def tail(self) -> str:
        return self.kept.decode("utf-8", "replace")


_LOOKS = 200
_PAUSE = 0.002


def end_descendants(seconds: float) -> bool:
    """Kill and reap all descendants; False when some are left after this time (frozen ones die when they are
    thawed). All are stopped before any is killed: a stopped process does not fork."""
    if not _reap_all():
        return True  # without children a subreaper has no descendants: no scan needed
    ends = time.monotonic() + seconds
    while True:
        found = _stop_all()
        for pid, start in found:
            _send(pid, start, signal.SIGKILL)
        if not _reap_all():
            return True
        if time.monotonic() > ends:
            return False
        time.sleep(_PAUSE)


def _stop_all() -> set[tuple[int, int]]:
    """Stop all descendants, until a scan finds no new one: a stop is no barrier by itself (a fork under way
    still completes)."""
    known: set[tuple[int, int]] = set()
    for _ in range(_LOOKS):
        fresh = _descendants(os.getpid()) - known
        if not fresh:
            break
        for pid, start in fresh:
            _send(pid, start, signal.SIGSTOP)
        known |= fresh
    return known


def _descendants(root: int) -> set[tuple[int, int]]:
    """Descendants by pid and start time; zombies included, for they may have children."""
    below: dict[int, list[tuple[int, int]]] = {}
    for pid, parent, start in parents():
        below.setdefault(parent, []).append((pid, start))
    found: set[tuple[int, int]] = set()
    waiting = [root]
    while waiting:
        for pid, start in below.get(waiting.pop(), ()):
            if (pid, start) not in found:
                found.add((pid, start))
                waiting.append(pid)
    return found


def _send(pid: int, start: int, number: int) -> None:
    process = open_process(pid, start)
    if process is None:
        return
    try:
        with contextlib.suppress(OSError):  # it ended, or we may not signal it any more
            signal.pidfd_send_signal(process, number)
    finally:
        os.close(process)


def _reap_all() -> bool:
    """Whether children are left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
