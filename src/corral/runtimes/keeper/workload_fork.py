"""The process that becomes a workload, as its shim sees it: forked ahead, given its plan, released.

It is forked before its run is known where a spare shim waits for one (see `spare_shims`), and waits for two
messages on a socket: the plan with its descriptors, and the byte that releases it. When the shim ends before
that byte, it ends, too, without having executed anything. The socket is closed by the execution, so the shim
notices when the program has taken over.
"""

from __future__ import annotations

import os
import signal
import socket
from typing import Any, NoReturn

from corral.runtimes.keeper import forked_process, keeper_protocol
from corral.runtimes.keeper.forked_process import Fatal
from corral.runtimes.keeper.workload import become_workload


class WorkloadFork:
    """A waiting fork of this process. Raises `OSError` when the kernel refuses it."""

    __slots__ = ("_socket", "pid")

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self.pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if self.pid == 0:
            with Fatal():
                signal.set_wakeup_fd(-1)  # the shim's: its number will be a descriptor of the run
                forked_process.close_all_but({0, 1, 2, theirs.fileno()})
                ours.detach()
                _wait_for_plan(theirs)
        theirs.close()
        self._socket = ours

    def has_ended(self) -> bool:
        """Whether it was killed while it waited. It is not reaped by this."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def give(self, plan: dict[str, Any], *, failed: int, input_fd: int, output_fd: int, lock: int) -> bool:
        """Hand over the plan; False when the fork was killed. It holds the run's lock from now on until it executes
        or ends."""
        return keeper_protocol.send(self._socket, plan, failed, input_fd, output_fd, lock)

    def execute(self) -> None:
        """Release it; returns when its program was executed, or when it has ended."""
        try:
            self._socket.send(b"1")
            self._socket.recv(1)
        except OSError:
            pass  # it was killed
        self._socket.close()

    def cancel(self) -> None:
        """End it before it executes anything, and reap it."""
        self._socket.close()
        os.kill(self.pid, signal.SIGKILL)  # it may have been stopped
        os.waitpid(self.pid, 0)


def _wait_for_plan(connection: socket.socket) -> NoReturn:
    plan, descriptors = keeper_protocol.receive_with_descriptors(connection)
    if plan is None or len(descriptors) < 3:
        os._exit(0)  # the shim has ended, or needs no workload
    failed, input_fd, output_fd = descriptors[:3]
    become_workload(plan, barrier=connection.fileno(), failed=failed, input_fd=input_fd, output_fd=output_fd)
