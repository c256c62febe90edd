"""The keeper: forks a shim for every run, spare shims ahead of them, a rescue for a run whose shim was killed, an
aide for each program that is run beside one, and a minder for each companion.

Single-threaded and small, for each shim is a copy of it. It holds the read end of every console FIFO (and the
master of every terminal) of its runs, so that no byte is lost between a shim's death and its successor, and
it inherits what a dead shim leaves behind, so that no exit status is lost either. Its own death harms no run:
shims live on, and the daemon starts another keeper and hands it every run.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from typing import Any

from corral.runtimes.keeper import forked_process, keeper_protocol
from corral.runtimes.keeper.aide import run_aide
from corral.runtimes.keeper.companion import run_companion
from corral.runtimes.keeper.companion_sweep import run_sweep
from corral.runtimes.keeper.forked_process import Fatal, error_text, fork, log
from corral.runtimes.keeper.held_runs import HeldRuns
from corral.runtimes.keeper.keeper_protocol import LOCK, RequestConnection
from corral.runtimes.keeper.proc_facts import raw_status, start_time
from corral.runtimes.keeper.shim import STAGE_PREPARE

_ACCEPT_PAUSE = 0.1


class Keeper:
    """Serves requests and supervises what it inherits, until it has received `quit` and holds no run."""

    def __init__(self, listener: socket.socket, wake: int) -> None:
        self._listener = listener
        self._wake = wake
        self._poller = select.poll()
        self._callers: dict[int, RequestConnection] = {}
        self._runs = HeldRuns(self._poller)
        self._aides: set[int] = set()
        """Aides. They report to their requester by themselves; the keeper only reaps them."""
        self._companions: dict[int, str] = {}
        """Minders of companions, by pid: the directory of their files."""
        self._quitting = False

    def serve(self) -> None:
        self._poller.register(self._listener, select.POLLIN)
        self._poller.register(self._wake, select.POLLIN)
        while not self._quitting:
            for descriptor, _ in self._poller.poll(self._runs.look_in()):
                if descriptor == self._wake:
                    forked_process.empty_pipe(self._wake)
                    self._reap()
                elif descriptor == self._listener.fileno():
                    self._accept()
                elif descriptor in self._callers:
                    self._read(self._callers[descriptor])
                else:
                    self._runs.handed_minder_ready(descriptor)
            self._runs.check_unsupervised()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            log(f"accept: {error}")
            time.sleep(_ACCEPT_PAUSE)  # out of descriptors: the requesters wait
            return
        connection.setblocking(False)
        self._callers[connection.fileno()] = RequestConnection(connection)
        self._poller.register(connection, select.POLLIN)

    def _read(self, caller: RequestConnection) -> None:
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
                caller.name_descriptors(request)
                self._answer(caller, request)
            except Exception as error:
                log(f"request {str(request.get('do'))[:20]!r}: {error_text(error)}")
        caller.close()

    def _answer(self, caller: RequestConnection, request: dict[str, Any]) -> None:
        kind = request.get("do")
        if kind == "spawn":
            self._spawn(caller, request)
        elif kind == "prepare":
            self._runs.spares.prepare(caller)
        elif kind == "execute":
            self._execute(caller, request)
        elif kind == "accompany":
            self._accompany(caller, request)
        elif kind == "rescue":
            self._runs.rescue(caller, request["run_directory"])
        elif kind == "hold":
            self._runs.hold(caller, request["run_directory"])
        elif kind == "quit":
            self._reap()
            self._runs.drop_finished()
            busy = len(self._runs) + len(self._companions)
            self._quitting = not busy
            keeper_protocol.send(caller.connection, {"quit": self._quitting, "runs": busy})
        elif kind == "hello":
            own = os.getpid()
            answer = {"keeper": own, "start": start_time(own), "protocol": keeper_protocol.PROTOCOL}
            keeper_protocol.send(caller.connection, answer)
        else:
            keeper_protocol.send(caller.connection, {"unknown": str(kind)})

    def _spawn(self, caller: RequestConnection, plan: dict[str, Any]) -> None:
        try:
            if caller.peek(LOCK) < 0:
                raise OSError(errno.EBADF, "without its lock a run could be started twice")
            self._runs.spawn(caller, plan)
        except OSError as error:
            answer = {"error": STAGE_PREPARE, "errno": error.errno or 0, "path": str(error.filename or "")}
            keeper_protocol.send(caller.connection, answer)

    def _execute(self, caller: RequestConnection, request: dict[str, Any]) -> None:
        pid = fork()
        if pid == 0:
            with Fatal():
                run_aide(request, caller.connection)
        if pid > 0:
            self._aides.add(pid)

    def _accompany(self, caller: RequestConnection, request: dict[str, Any]) -> None:
        pid = fork()
        if pid == 0:
            with Fatal():
                run_companion(request, caller.connection)
        if pid > 0:
            self._companions[pid] = request["place"]

    def _companion_ended(self, place: str, status: int) -> None:
        """Clean up after a minder: one that was killed, or failed, has not killed what its companion started."""
        if status == 0:
            return
        log(f"the minder of {place} ended with status {status}")
        pid = fork()
        if pid == 0:
            with Fatal():
                run_sweep(place)
        if pid > 0:
            self._aides.add(pid)

    def _reap(self) -> None:
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            status = raw_status(ended.si_code, ended.si_status)
            minder = self._runs.is_minder(ended.si_pid)
            place = self._companions.pop(ended.si_pid, None)
            if ended.si_pid in self._runs.spares:
                self._runs.spares.ended(ended.si_pid)
            elif ended.si_pid in self._aides:
                self._aides.remove(ended.si_pid)
            elif not minder and place is None:
                self._runs.orphan_ended(ended.si_pid, status)
            os.waitpid(ended.si_pid, 0)
            if place is not None:
                self._companion_ended(place, status)
            if minder:
                self._runs.minder_reaped(ended.si_pid, status)
