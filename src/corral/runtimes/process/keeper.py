"""The keeper: forks a shim for every run, another pump for a run whose shim was killed, an aide for each
program that is run beside one, and a minder for each that stays there.

Single-threaded and small, for each shim is a copy of it. It holds the read end of every console FIFO
(and the master of every terminal) of its runs, so that no byte is lost between a shim's death and its
successor, and it inherits what a dead shim leaves behind, so that no exit status is lost either.
Its own death harms nothing: shims live on, and the daemon starts another keeper.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import time
from typing import Any

from corral.runtimes.process import exit_file, framing, minding, run_files
from corral.runtimes.process.aide import run_aide
from corral.runtimes.process.companion import run_companion
from corral.runtimes.process.companion_sweep import run_sweep
from corral.runtimes.process.keeper_log import Fatal, log, told
from corral.runtimes.process.minded_run import MindedRun, open_run, reopen_run
from corral.runtimes.process.proc_facts import raw_status, start_time
from corral.runtimes.process.rescue import run_rescue
from corral.runtimes.process.shim import STAGE_PREPARE, run_shim
from corral.runtimes.process.work_left import oom_seen

_REMEMBERED = 1024
_REQUEST_BYTES = 1 << 18
_ACCEPT_PAUSE = 0.1


class Caller:
    """A connection whose request is still coming in."""

    __slots__ = ("connection", "frames", "lock")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = framing.Frames()
        self.lock = -1

    def read(self) -> bytes:
        """What has come, empty at the end; a descriptor that came with it is the run's lock."""
        try:
            piece, control, _, _ = self.connection.recvmsg(
                _REQUEST_BYTES, socket.CMSG_LEN(4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            raise
        except OSError:
            return b""
        descriptors = array.array("i")
        for _, _, data in control:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        for descriptor in descriptors:
            if self.lock >= 0:
                os.close(self.lock)
            self.lock = descriptor
        return piece

    def close(self) -> None:
        self.connection.close()
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


class Keeper:
    """Answers requests and minds what it inherits, until it is told to quit with nothing left to mind."""

    def __init__(self, listener: socket.socket, wake: int) -> None:
        self._listener = listener
        self._wake = wake
        self._poller = select.poll()
        self._callers: dict[int, Caller] = {}
        self._minded: dict[int, MindedRun] = {}
        """By the pid of its shim or rescue."""
        self._unminded: dict[str, MindedRun] = {}
        """By directory: the minder failed; a daemon will ask for another one."""
        self._orphans: dict[tuple[int, int], str] = {}
        """Main processes whose shim is dead, by pid and start time: their run directory."""
        self._statuses: dict[tuple[int, int], int] = {}
        self._aides: set[int] = set()
        """They tell whoever asked by themselves; nobody asks us how they ended."""
        self._companions: dict[int, str] = {}
        """Minders of companions, by pid: where their files lie."""
        self._quitting = False

    def serve(self) -> None:
        self._poller.register(self._listener, select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)
        while not self._quitting:
            for descriptor, _ in self._poller.poll():
                if descriptor == self._wake:
                    minding.empty_pipe(self._wake)
                    self._reap()
                elif descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor in self._callers:
                    self._read(self._callers[descriptor])

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            log(f"accept: {error}")
            time.sleep(_ACCEPT_PAUSE)  # out of descriptors: whoever waits will wait on
            return
        connection.setblocking(False)
        self._callers[connection.fileno()] = Caller(connection)
        self._poller.register(connection, select.POLLIN)

    def _read(self, caller: Caller) -> None:
        try:
            piece = caller.read()
            request = caller.frames.feed(piece) if piece else None
        except BlockingIOError:
            return
        except (ValueError, RecursionError) as error:
            log(f"request: {error}")
            piece, request = b"", None
        if piece and request is None:
            return
        descriptor = caller.connection.fileno()
        self._poller.unregister(descriptor)
        del self._callers[descriptor]
        if request is not None:
            caller.connection.setblocking(True)
            try:
                self._answer(caller, request)
            except Exception as error:
                log(f"request {str(request.get('do'))[:20]!r}: {told(error)}")
        caller.close()

    def _answer(self, caller: Caller, request: dict[str, Any]) -> None:
        kind = request.get("do")
        if kind == "spawn":
            self._spawn(caller, request)
        elif kind == "execute":
            self._execute(caller, request)
        elif kind == "accompany":
            self._accompany(caller, request)
        elif kind == "rescue":
            self._rescue_on_request(caller, request["run_directory"])
        elif kind == "quit":
            self._reap()
            self._drop_finished()
            busy = len(self._minded) + len(self._unminded) + len(self._companions)
            self._quitting = not busy
            framing.send(caller.connection, {"quit": self._quitting, "runs": busy})
        elif kind == "hello":
            own = os.getpid()
            answer = {"keeper": own, "start": start_time(own), "protocol": framing.PROTOCOL}
            framing.send(caller.connection, answer)
        else:
            framing.send(caller.connection, {"unknown": str(kind)})

    def _spawn(self, caller: Caller, plan: dict[str, Any]) -> None:
        try:
            if caller.lock < 0:
                raise OSError(errno.EBADF, "without its lock a run could be started twice")
            run, slave = open_run(plan)
        except OSError as error:
            answer = {"error": STAGE_PREPARE, "errno": error.errno or 0, "path": str(error.filename or "")}
            framing.send(caller.connection, answer)
            return
        pid = _fork()
        if pid == 0:
            with Fatal():
                run_shim(plan, caller.connection, lock=caller.lock, master=run.master, slave=slave)
        if slave >= 0:
            os.close(slave)
        if pid < 0:
            run.release()
            return
        self._minded[pid] = run

    def _execute(self, caller: Caller, request: dict[str, Any]) -> None:
        pid = _fork()
        if pid == 0:
            with Fatal():
                run_aide(request, caller.connection)
        if pid > 0:
            self._aides.add(pid)

    def _accompany(self, caller: Caller, request: dict[str, Any]) -> None:
        pid = _fork()
        if pid == 0:
            with Fatal():
                run_companion(request, caller.connection)
        if pid > 0:
            self._companions[pid] = request["place"]

    def _companion_ended(self, place: str, status: int) -> None:
        """A minder that was killed, or failed, has ended nothing of what its companion started."""
        if status == 0:
            return
        log(f"the minder of {place} ended with status {status}")
        pid = _fork()
        if pid == 0:
            with Fatal():
                run_sweep(place)
        if pid > 0:
            self._aides.add(pid)

    def _rescue_on_request(self, caller: Caller, directory: str) -> None:
        run = self._unminded.pop(directory, None)
        if run is None:
            known = [run for run in self._minded.values() if run.directory == directory]
            try:
                run = known[0].shared() if known else reopen_run(directory)
            except OSError as error:
                log(f"rescue of {directory}: {error}")
                return
        self._rescue(run, lock=caller.lock, connection=caller.connection.fileno())

    def _rescue(self, run: MindedRun, *, lock: int = -1, connection: int = -1) -> None:
        pid = _fork()
        if pid == 0:
            with Fatal():
                run_rescue(run.directory, lock=lock, master=run.master, connection=connection)
        if pid < 0:
            self._unminded[run.directory] = run
        else:
            self._minded[pid] = run

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            status = raw_status(ended.si_code, ended.si_status)
            run = self._minded.pop(ended.si_pid, None)
            place = self._companions.pop(ended.si_pid, None)
            if ended.si_pid in self._aides:
                self._aides.remove(ended.si_pid)
            elif run is None and place is None:
                self._inherited(ended.si_pid, status)
            os.waitpid(ended.si_pid, 0)
            if place is not None:
                self._companion_ended(place, status)
            if run is not None:
                self._minder_ended(run, status)

    def _inherited(self, pid: int, status: int) -> None:
        """Something that a dead shim left to us has ended."""
        key = (pid, start_time(pid) or 0)
        directory = self._orphans.pop(key, None)
        if directory is not None:
            _note_exit(directory, status)
            return
        self._statuses[key] = status
        while len(self._statuses) > _REMEMBERED:
            del self._statuses[next(iter(self._statuses))]

    def _drop_finished(self) -> None:
        """A run that a minder of another keeper took over has ended without a word to us."""
        for directory in list(self._unminded):
            if run_files.is_empty(directory) or not os.path.exists(directory):  # noqa: PTH110 - few imports
                self._unminded.pop(directory).release()

    def _minder_ended(self, run: MindedRun, status: int) -> None:
        try:
            record = run_files.read_record(run.directory)
            over = record is None or run_files.is_empty(run.directory)
            over = over or run_files.read_failure(run.directory) is not None
        except (OSError, ValueError) as error:
            log(f"{run.directory}: {error}")
            record, over = None, True
        if over and record is not None:
            self._orphans.pop((record.pid, record.start), None)
        if record is None or over or any(other.directory == run.directory for other in self._minded.values()):
            run.release()
            return
        key = (record.pid, record.start)
        if key in self._statuses:
            _note_exit(run.directory, self._statuses.pop(key))
        else:
            self._orphans[key] = run.directory
        if os.WIFSIGNALED(status):
            self._rescue(run)
        else:
            self._unminded[run.directory] = run


def _fork() -> int:
    """-1 when the kernel refuses; the caller's closed connection tells the other side."""
    try:
        return os.fork()
    except OSError as error:
        log(f"fork: {error}")
        return -1


def _note_exit(directory: str, status: int) -> None:
    try:
        record = run_files.read_record(directory)
        oom = record is not None and oom_seen(record.oom_file)
        exit_file.write_exit(directory, status, at_ns=time.time_ns(), who="keeper", oom=oom)
    except (OSError, ValueError) as error:
        log(f"exit of {directory}: {error}")
