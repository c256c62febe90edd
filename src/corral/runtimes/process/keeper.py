"""The keeper: forks a shim for every run, and another pump for a run whose shim was killed.

Single-threaded and small, for each shim is a copy of it. It holds the read end of every console FIFO
(and the master of every terminal) of its runs, so that no byte is lost between a shim's death and its
successor, and it inherits what a dead shim leaves behind, so that no exit status is lost either.
Its own death harms nothing: shims live on, and the daemon starts another keeper.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import termios
import time
from typing import Any, NoReturn

from corral.runtimes.process import framing, minding, run_files
from corral.runtimes.process.proc_facts import raw_status, start_time
from corral.runtimes.process.rescue import run_rescue
from corral.runtimes.process.shim import STAGE_PREPARE, make_fifo, run_shim
from corral.runtimes.process.work_left import oom_seen

_REMEMBERED = 1024
_FAILED = 70
_ROWS_AND_COLUMNS = struct.pack("HHHH", 24, 80, 0, 0)


class MindedRun:
    """What the keeper holds for a run, in case its shim is killed."""

    __slots__ = ("directory", "master", "out")

    def __init__(self, directory: str, out: int, master: int) -> None:
        self.directory = directory
        self.out = out
        self.master = master

    def shared(self) -> MindedRun:
        return MindedRun(self.directory, os.dup(self.out), -1 if self.master < 0 else os.dup(self.master))

    def release(self) -> None:
        for descriptor in (self.out, self.master):
            if descriptor >= 0:
                os.close(descriptor)


class Caller:
    """A connection whose request is still coming in."""

    __slots__ = ("connection", "frames", "lock")

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = framing.Frames()
        self.lock = -1

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
            return
        connection.setblocking(False)
        self._callers[connection.fileno()] = Caller(connection)
        self._poller.register(connection, select.POLLIN)

    def _read(self, caller: Caller) -> None:
        try:
            piece, control, _, _ = caller.connection.recvmsg(
                1 << 18, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            piece, control = b"", []
        for _, _, data in control:
            caller.lock = struct.unpack("i", data[:4])[0]
        try:
            request = caller.frames.feed(piece) if piece else None
        except ValueError as error:
            log(f"request: {error}")
            piece, request = b"", None
        if piece and request is None:
            return
        descriptor = caller.connection.fileno()
        self._poller.unregister(descriptor)
        del self._callers[descriptor]
        if request is not None:
            caller.connection.setblocking(True)
            self._answer(caller, request)
        caller.close()

    def _answer(self, caller: Caller, request: dict[str, Any]) -> None:
        kind = request.get("do")
        if kind == "spawn":
            self._spawn(caller, request)
        elif kind == "rescue":
            self._rescue_on_request(caller, request["run_directory"])
        elif kind == "quit":
            self._reap()
            busy = len(self._minded) + len(self._unminded)
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
            run, slave = _open_run(plan)
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

    def _rescue_on_request(self, caller: Caller, directory: str) -> None:
        run = self._unminded.pop(directory, None)
        if run is None:
            known = [run for run in self._minded.values() if run.directory == directory]
            try:
                run = known[0].shared() if known else _reopen_run(directory)
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
            if run is None:
                self._inherited(ended.si_pid, status)
            os.waitpid(ended.si_pid, 0)
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

    def _minder_ended(self, run: MindedRun, status: int) -> None:
        try:
            record = run_files.read_record(run.directory)
            over = record is None or run_files.is_empty(run.directory)
            over = over or run_files.read_failure(run.directory) is not None
        except (OSError, ValueError) as error:
            log(f"{run.directory}: {error}")
            record, over = None, True
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


class Fatal:
    """Ends a forked process, whatever happens in it: it must never return into the keeper's loop."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> NoReturn:
        try:
            log(f"{type(error).__name__}: {error}{_place(error)}")
        finally:
            os._exit(_FAILED)


def log(text: str) -> None:
    """One line into the keeper's log; a full disk is no reason to fail."""
    try:
        os.write(2, f"{time.time():.3f} {os.getpid()} {text}\n".encode(errors="replace"))
    except OSError:
        return


def _place(error: BaseException | None) -> str:
    """Where it happened, without importing `traceback` in a forked process."""
    places = []
    step = error.__traceback__ if error is not None else None
    while step is not None:
        places.append(f"{step.tb_frame.f_code.co_name}:{step.tb_lineno}")
        step = step.tb_next
    return f" at {' > '.join(places)}" if places else ""


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
        run_files.write_exit(directory, status, at_ns=time.time_ns(), who="keeper", oom=oom)
    except (OSError, ValueError) as error:
        log(f"exit of {directory}: {error}")


def _open_run(plan: dict[str, Any]) -> tuple[MindedRun, int]:
    """Fresh FIFOs and, if asked for, a terminal; the lock says that nobody uses older ones."""
    directory = plan["run_directory"]
    run_files.remove(
        directory,
        run_files.RECORD,
        run_files.EXIT,
        run_files.FAILED,
        run_files.EMPTY,
        run_files.NOT_EMPTY,
        run_files.INPUT,
        run_files.OUTPUT,
    )
    with contextlib.suppress(FileExistsError):  # what was printed before stays
        os.mkdir(f"{directory}/{run_files.CONSOLE}", 0o700)  # noqa: PTH102
    if not plan["tty"]:
        make_fifo(directory, run_files.OUTPUT, plan)
        return MindedRun(directory, _open_output(directory), -1), -1
    ours = {**plan, "uid": None}
    make_fifo(directory, run_files.OUTPUT, ours)
    make_fifo(directory, run_files.INPUT, ours)
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, _ROWS_AND_COLUMNS)
    if plan["uid"] is not None:
        os.fchown(slave, plan["uid"], -1)
    return MindedRun(directory, _open_output(directory), master), slave


def _reopen_run(directory: str) -> MindedRun:
    """A run that another keeper started. What somebody removed of it is made again: better a console
    without bytes than a run that nobody can mind."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(f"{directory}/{run_files.CONSOLE}", 0o700)  # noqa: PTH102
    with contextlib.suppress(FileExistsError):
        os.mkfifo(f"{directory}/{run_files.OUTPUT}", 0o600)
    return MindedRun(directory, _open_output(directory), -1)


def _open_output(directory: str) -> int:
    return os.open(f"{directory}/{run_files.OUTPUT}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
