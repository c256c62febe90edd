"""The aide: the process that runs one program beside a workload, or for the node.

It starts the program, keeps the last part of its output, and sends the requester how it ended. When the
timeout is reached, the run's main process ends, or the requester is gone, everything that the program started
is killed; likewise when the program ends by itself: no process of it may be mistaken for one of the run. A
program for the node (`run` is empty) may leave processes behind, which is its purpose: the server of a
terminal multiplexer.

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

from corral.runtimes.keeper import forked_process, keeper_protocol, linux_calls
from corral.runtimes.keeper.proc_facts import open_process
from corral.runtimes.keeper.run_files import ExecFailure
from corral.runtimes.keeper.side_program import STAGE_CGROUP, SideProgram, end_descendants

_KILL_SECONDS = 5.0
_NEXT_SECONDS = 0.05

DONE = "done"
TIMED_OUT = "timed_out"
RUN_ENDED = "run_ended"
HUNG_UP = "hung_up"


def run_aide(request: dict[str, Any], connection: socket.socket) -> NoReturn:
    """The main function of an aide."""
    forked_process.begin(b"corral-aide", {connection.fileno()})
    beside = bool(request["run"])
    if beside:
        linux_calls.become_subreaper()
    wake = forked_process.child_signals()
    main = open_process(request["pid"], request["start"]) if beside else None
    if beside and main is None:
        keeper_protocol.send(connection, {"how": RUN_ENDED})
        os._exit(0)
    if not keeper_protocol.send(connection, {"aide": os.getpid()}):  # from here on it may have been executed
        os._exit(0)
    ends = time.monotonic() + request["timeout"]
    program = SideProgram(request)
    failure = program.join_groups(request["cgroup_files"])
    if failure is None:
        program.let_go()
    else:
        program.give_up()
    how = _supervise(program, connection, wake, main, ends) if failure is None else DONE
    if not beside:
        program.kill()
    gone = end_descendants(_KILL_SECONDS) if beside else True
    program.read_rest()
    failure = failure or program.failure()
    if failure is not None and how == DONE:
        keeper_protocol.send(connection, _refusal(failure))
    else:
        keeper_protocol.send(connection, {"how": how, "status": program.status, "output": program.tail()})
    connection.close()
    while not gone:
        gone = end_descendants(_KILL_SECONDS)
    os._exit(0)


def _refusal(failure: ExecFailure) -> dict[str, Any]:
    if failure.stage == STAGE_CGROUP and failure.errno in (errno.ENOENT, errno.ENODEV):
        return {"how": RUN_ENDED}  # its group is gone
    return {"error": failure.stage, "errno": failure.errno, "path": failure.path}


def _supervise(
    program: SideProgram, connection: socket.socket, wake: int, main: int | None, ends: float
) -> str:
    """Wait until nothing is left to wait for; returns the reason."""
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
            forked_process.empty_pipe(wake)
        if program.reader in ready:
            program.read()
        if main is not None and main in ready:
            return RUN_ENDED
        if connection.fileno() in ready:  # the requester hung up: it never sends anything else
            return HUNG_UP
    return RUN_ENDED if _killed_with_run(program.status, main) else DONE


def _killed_with_run(status: int | None, main: int | None) -> bool:
    """Whether the program was killed with its run: a kill of the run kills its group in any order, so the end
    of the main process may be seen a moment later."""
    if main is None or status is None or not os.WIFSIGNALED(status):
        return False
    poller = select.poll()
    poller.register(main, select.POLLIN)
    return bool(poller.poll(_NEXT_SECONDS * 1000 if os.WTERMSIG(status) == signal.SIGKILL else 0))
