"""The minder of a companion: the process that supervises one program that stays beside a workload.

It starts the program in the groups of the run, writes its record first, keeps the last part of its output,
and records how it ended, once no process that it started is left. When the run's main process ends the
companion gets a SIGTERM, and a SIGKILL two seconds later. The end of the daemon or the keeper does not affect
it; the companion dies with its minder.

Forked from the keeper, it imports nothing by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
from typing import Any, NoReturn

from corral.runtimes.keeper import companion_files, exit_file, forked_process, keeper_protocol, linux_calls
from corral.runtimes.keeper.companion_files import CompanionRecord
from corral.runtimes.keeper.companion_sweep import MARK, clear_up
from corral.runtimes.keeper.proc_facts import boot_id, open_process, start_time
from corral.runtimes.keeper.run_files import ExecFailure
from corral.runtimes.keeper.side_program import STAGE_CGROUP, SideProgram, end_descendants

GRACE_SECONDS = 2.0
"""Seconds between SIGTERM and SIGKILL, when the run has ended."""
HELD = "held"
RUN_ENDED = "run_ended"
STAGE_RECORD = "record"
_KILL_SECONDS = 5.0
_OUTPUT_EVERY = 0.2


def run_companion(request: dict[str, Any], connection: socket.socket) -> NoReturn:
    """The main function of a minder. The lock is taken before the run is checked: a process that finds the
    run ended and the lock free knows that no companion can start any more."""
    forked_process.begin(b"corral-beside", {connection.fileno()})
    linux_calls.become_subreaper()
    wake = forked_process.child_signals()
    place = request["place"]
    try:
        lock = companion_files.try_lock(place)
    except FileNotFoundError:
        _refuse(connection, {"how": RUN_ENDED})
    if lock is None:
        _refuse(connection, {"how": HELD})
    main = open_process(request["pid"], request["start"])
    if main is None:
        _refuse(connection, {"how": RUN_ENDED})
    if not keeper_protocol.send(
        connection, {"minder": os.getpid()}
    ):  # from here on it may have been executed
        os._exit(0)
    program, failure = _launch(request, place)
    if failure is not None:
        companion_files.forget(place)
        _refuse(connection, _failure_answer(failure))
    assert program is not None
    keeper_protocol.send(connection, {"started": program.pid})
    connection.close()
    Minder(program, place, wake, main).run()
    os._exit(0)


def _refuse(connection: socket.socket, answer: dict[str, Any]) -> NoReturn:
    keeper_protocol.send(connection, answer)
    os._exit(0)


def _failure_answer(failure: ExecFailure) -> dict[str, Any]:
    if failure.stage == STAGE_CGROUP and failure.errno in (errno.ENOENT, errno.ENODEV):
        return {"how": RUN_ENDED}  # its group is gone
    return {"error": failure.stage, "errno": failure.errno, "path": failure.path}


def _launch(request: dict[str, Any], place: str) -> tuple[SideProgram | None, ExecFailure | None]:
    """Fork the program, write its record, release it. It is not executed before it is in its groups and
    recorded."""
    try:
        if not clear_up(place):
            return None, ExecFailure(STAGE_RECORD, errno.EBUSY, place)
        companion_files.prepare(place)
    except OSError as error:
        return None, ExecFailure(STAGE_RECORD, error.errno or 0, place)
    program = SideProgram({**request, "environment": {**request["environment"], MARK: request["mark"]}})
    failure = program.join_groups(request["cgroup_files"]) or _put_on_record(request, place, program)
    if failure is None:
        program.let_go()
        program.await_execution()
        failure = program.failure()
    else:
        program.give_up()
    if failure is not None:
        os.waitpid(program.pid, 0)
    return program, failure


def _put_on_record(request: dict[str, Any], place: str, program: SideProgram) -> ExecFailure | None:
    own = os.getpid()
    record = CompanionRecord(
        command=tuple(request["command"]),
        pid=program.pid,
        start=start_time(program.pid) or 0,
        minder=own,
        minder_start=start_time(own) or 0,
        boot=boot_id(),
        started_ns=time.time_ns(),
        mark=request["mark"],
    )
    try:
        companion_files.write_record(place, record)
    except OSError as error:
        return ExecFailure(STAGE_RECORD, error.errno or 0, place)
    return None


class Minder:
    """Supervises a program until no process of it is left."""

    def __init__(self, program: SideProgram, place: str, wake: int, main: int) -> None:
        self._program = program
        self._place = place
        self._wake = wake
        self._main = main
        """-1 once its exit was seen."""
        self._ends: float | None = None
        """When it is killed; None while no stop was requested, and after the kill."""
        self._killed = False
        self._unwritten: float | None = None
        """When its latest output has to be in the file."""

    def run(self) -> None:
        while not self._program.reap():
            if self._ends is not None and time.monotonic() >= self._ends:
                self._program.kill()
                self._killed, self._ends = True, None
            self._serve(self._wait())
        while not end_descendants(_KILL_SECONDS):
            pass
        self._program.read_rest()
        self._write_output()
        exit_file.write_exit(self._place, self._program.status, at_ns=time.time_ns(), who="minder")

    def _wait(self) -> set[int]:
        poller = select.poll()
        for descriptor in (self._wake, self._main, self._program.reader):
            if descriptor >= 0:
                poller.register(descriptor, select.POLLIN)
        moments = [moment for moment in (self._ends, self._unwritten) if moment is not None]
        pause = max(min(moments) - time.monotonic(), 0.0) * 1000 + 0.5 if moments else None
        return {descriptor for descriptor, _ in poller.poll(pause)}

    def _serve(self, ready: set[int]) -> None:
        if self._wake in ready:
            forked_process.empty_pipe(self._wake)
            grace = companion_files.asked_to_stop(self._place)
            if grace is not None:
                self._ask_to_end(grace)
        if self._main in ready:
            self._main = -1
            self._ask_to_end(GRACE_SECONDS)
        if self._program.reader in ready and self._program.read() and self._unwritten is None:
            self._unwritten = time.monotonic() + _OUTPUT_EVERY
        if self._unwritten is not None and time.monotonic() >= self._unwritten:
            self._write_output()

    def _ask_to_end(self, grace: float) -> None:
        """Send SIGTERM to its whole process group, once; the program is not reaped yet, so the number is
        still its own. A second request counts when its deadline is earlier."""
        if self._killed:
            return
        ends = time.monotonic() + grace
        if self._ends is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program.pid, signal.SIGTERM)
                os.killpg(self._program.pid, signal.SIGCONT)  # a stopped one receives SIGTERM, too
        self._ends = ends if self._ends is None else min(self._ends, ends)

    def _write_output(self) -> None:
        self._unwritten = None
        with contextlib.suppress(OSError):
            companion_files.write_output(self._place, self._program.kept)
