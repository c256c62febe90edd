"""Spare shims: forked ahead, each with the process that will become its workload, so that a start has to wait
neither for two forks nor for the kernel to move processes into control groups.

A spare belongs to the daemon that requested it and has no run. It ends, with its fork, when that daemon closes the
connection of its request, when the keeper ends, or when its fork is killed. With its first run it becomes an
ordinary shim; a spare is used once.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from typing import Any, NoReturn

from corral.runtimes.keeper import forked_process, keeper_protocol, linux_calls
from corral.runtimes.keeper.forked_process import Fatal, fork, log
from corral.runtimes.keeper.keeper_protocol import LOCK, RequestConnection
from corral.runtimes.keeper.proc_facts import start_time
from corral.runtimes.keeper.shim import supervise_run
from corral.runtimes.keeper.workload_fork import WorkloadFork

_HAND_OVER_SECONDS = 2.0
"""How long the keeper waits for a spare that does not read: one that was stopped must not stop the keeper."""
SPARE = "spare"
"""In a plan: the pid of the spare to use; in its answer: its own."""
_REQUEST = "request"
_MASTER = "master"
_SLAVE = "slave"


class SpareShims:
    """The keeper's spares, by pid, with the socket on which each waits for its run."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def __contains__(self, pid: int) -> bool:
        return pid in self._sockets

    def prepare(self, caller: RequestConnection) -> None:
        """Fork a spare, which answers the request by itself."""
        ours, theirs = socket.socketpair()
        pid = fork()
        if pid == 0:
            with Fatal():
                _run_spare(caller.connection, theirs)
        theirs.close()
        if pid < 0:
            ours.close()
            return
        ours.settimeout(_HAND_OVER_SECONDS)
        self._sockets[pid] = ours

    def bind(
        self, pid: int, plan: dict[str, Any], caller: RequestConnection, *, lock: int, master: int, slave: int
    ) -> bool:
        """Hand a run to a spare, which answers the request from now on; False when there is no such spare."""
        waiting = self._sockets.pop(pid, None)
        if waiting is None:
            return False
        with waiting:
            named = {_REQUEST: caller.connection.fileno(), LOCK: lock, _MASTER: master, _SLAVE: slave}
            names = [name for name, descriptor in named.items() if descriptor >= 0]
            if keeper_protocol.send(waiting, {"plan": plan, "descriptors": names}, *named.values()):
                return True
        log(f"spare shim {pid} does not take its run")
        os.kill(pid, signal.SIGKILL)  # our child, and not reaped yet: no other process has this number
        return False

    def ended(self, pid: int) -> None:
        self._sockets.pop(pid).close()


def _run_spare(connection: socket.socket, orders: socket.socket) -> NoReturn:
    """The main function of a spare."""
    forked_process.begin(b"corral-shim", {connection.fileno(), orders.fileno()})
    linux_calls.become_subreaper()
    wake = forked_process.child_signals()
    child = WorkloadFork()
    own = os.getpid()
    hello = {SPARE: own, "start": start_time(own), "child": child.pid, "child_start": start_time(child.pid)}
    if not keeper_protocol.send(connection, hello) or not _ordered(connection, orders, wake):
        os._exit(0)
    order, descriptors = keeper_protocol.receive_with_descriptors(orders)
    if order is None:
        os._exit(0)
    named = dict(zip(order["descriptors"], descriptors, strict=True))
    connection.close()
    orders.close()
    supervise_run(
        order["plan"],
        socket.socket(fileno=named[_REQUEST]),
        lock=named[LOCK],
        master=named.get(_MASTER, -1),
        slave=named.get(_SLAVE, -1),
        wake=wake,
        spare=child,
    )


def _ordered(connection: socket.socket, orders: socket.socket, wake: int) -> bool:
    """Wait for a run; False when there will be none: the daemon or the keeper is gone, or the fork was killed."""
    poller = select.poll()
    for descriptor in (connection.fileno(), orders.fileno(), wake):
        poller.register(descriptor, select.POLLIN)
    ready = {descriptor for descriptor, _ in poller.poll()}
    return ready == {orders.fileno()}
