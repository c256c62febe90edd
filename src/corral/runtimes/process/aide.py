"""The aide: one process for each program that is run beside a workload, or for the node.

It starts the program, keeps the last part of what it writes, and tells whoever asked how it ended. When
the time is over, the run's main process ends, or nobody waits for the answer any more, everything that
the program started is killed; so it is when the program ends by itself: nothing of it may be mistaken for
the run. A program for the node (`run` is empty) may leave processes behind, which is what it is for: the
server of a terminal multiplexer.

Forked from the keeper, it imports nothing by itself.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from corral.runtimes.process import framing, linux_calls, minding, run_files
from corral.runtimes.process.descent import end_descendants
from corral.runtimes.process.proc_facts import open_process, raw_status
from corral.runtimes.process.run_files import Failure
from corral.runtimes.process.workload import become_workload

OUTPUT_BYTES = 4096
STAGE_CGROUP = "cgroup"
_KILL_SECONDS = 5.0
_NEXT_SECONDS = 0.05
_CHUNK = 65536
_LAST_CHUNKS = 64
"""What is read after the end: more than a pipe holds; a stranger who writes on does not keep us."""

DONE = "done"
TIMED_OUT = "timed_out"
RUN_ENDED = "run_ended"
HUNG_UP = "hung_up"


def run_aide(request: dict[str, Any], connection: socket.socket) -> NoReturn:
    """The whole life of an aide."""
    minding.begin(b"corral-aide", {connection.fileno()})
    beside = bool(request["run"])
    if beside:
        linux_calls.become_subreaper()
    wake = minding.child_signals()
    main = open_process(request["pid"], request["start"]) if beside else None
    if beside and main is None:
        framing.send(connection, {"how": RUN_ENDED})
        os._exit(0)
    if not framing.send(connection, {"aide": os.getpid()}):  # from here on it may have been executed
        os._exit(0)
    ends = time.monotonic() + request["timeout"]
    program = _Program(request)
    failure = program.join_groups(request["cgroup_files"])
    how = _mind(program, connection, wake, main, ends) if failure is None else DONE
    if not beside:
        program.kill()
    gone = end_descendants(_KILL_SECONDS) if beside else True
    program.read_rest()
    failure = failure or program.failure()
    if failure is not None and how == DONE:
        framing.send(connection, _refusal(failure))
    else:
        framing.send(connection, {"how": how, "status": program.status, "output": program.tail()})
    connection.close()
    while not gone:
        gone = end_descendants(_KILL_SECONDS)
    os._exit(0)


def _refusal(failure: Failure) -> dict[str, Any]:
    if failure.stage == STAGE_CGROUP and failure.errno in (errno.ENOENT, errno.ENODEV):
        return {"how": RUN_ENDED}  # its group went
    return {"error": failure.stage, "errno": failure.errno, "path": failure.path}


class _Program:
    """A child of ours, and what it writes. It waits at a barrier until it has joined its groups."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.status: int | None = None
        self._kept = b""
        self._failed = os.memfd_create("failed")
        nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self.reader, writer = os.pipe2(os.O_CLOEXEC)
        if request["uid"] is not None:
            os.fchown(writer, request["uid"], request["gid"])  # it must be able to open /dev/stderr again
        barrier, self._gate = os.pipe2(os.O_CLOEXEC)
        plan = {**request, "tty": False}
        if request["run"]:
            plan["parent"] = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._gate)
            become_workload(plan, barrier=barrier, failed=self._failed, input_fd=nothing, output_fd=writer)
        for descriptor in (barrier, writer, nothing):
            os.close(descriptor)
        os.set_blocking(self.reader, False)

    def join_groups(self, files: list[str]) -> Failure | None:
        """Put it into the groups of its run, and let it go; if that fails it ends unexecuted."""
        failure = None
        for path in files:
            try:
                descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(descriptor, b"%d" % self._pid)
                finally:
                    os.close(descriptor)
            except OSError as error:
                failure = Failure(STAGE_CGROUP, error.errno or 0, path)
                break
        if failure is None:
            os.write(self._gate, b"1")
        os.close(self._gate)
        return failure

    def failure(self) -> Failure | None:
        """Why it was not executed; None when it was."""
        return run_files.parse_failure(os.pread(self._failed, run_files.FAILED_BYTES, 0))

    def read(self) -> bool:
        """One piece; False when there is none now, or never again."""
        try:
            piece = os.read(self.reader, _CHUNK)
        except BlockingIOError:
            return False
        if not piece:
            os.close(self.reader)
            self.reader = -1
            return False
        self._kept = (self._kept + piece)[-OUTPUT_BYTES:]
        return True

    def read_rest(self) -> None:
        for _ in range(_LAST_CHUNKS):
            if self.reader < 0 or not self.read():
                return

    def reap(self) -> bool:
        """Take leave of what ended; True when the program itself has."""
        while self.status is None:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                break
            if ended is None:
                break
            if ended.si_pid == self._pid:
                self.status = raw_status(ended.si_code, ended.si_status)
        return self.status is not None

    def kill(self) -> None:
        """Itself alone; nothing when it has ended."""
        if self.status is None:
            os.kill(self._pid, signal.SIGKILL)

    def tail(self) -> str:
        return self._kept.decode("utf-8", "replace")


def _mind(program: _Program, connection: socket.socket, wake: int, main: int | None, ends: float) -> str:
    """Until there is nothing to wait for any more; says why."""
    while not program.reap():
        left = ends - time.monotonic()
        if left <= 0:
            return TIMED_OUT
        poller = select.poll()
        for descriptor in (connection.fileno(), wake, main, program.reader):
            if descriptor is not None and descriptor >= 0:
                poller.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll(left * 1000 + 0.5)}
        if wake in ready:
            minding.empty_pipe(wake)
        if program.reader in ready:
            program.read()
        if main is not None and main in ready:
            return RUN_ENDED
        if connection.fileno() in ready:  # nothing else is ever said to us
            return HUNG_UP
    return RUN_ENDED if _killed_with_run(program.status, main) else DONE


def _killed_with_run(status: int | None, main: int | None) -> bool:
    """Who kills a run kills all of its group, in any order: the end of the main process may come next."""
    if main is None or status is None or not os.WIFSIGNALED(status):
        return False
    poller = select.poll()
    poller.register(main, select.POLLIN)
    return bool(poller.poll(_NEXT_SECONDS * 1000 if os.WTERMSIG(status) == signal.SIGKILL else 0))
