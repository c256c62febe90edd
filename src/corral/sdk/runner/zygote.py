"""Zygote: the process that module processes are forked from.

It holds the standard library, msgspec and the SDK, so that a fork is ready within milliseconds. It has no
threads, and nothing of a module ever runs in it. Every module process is a subreaper and its child: what a
module starts stays below the module while that lives, and becomes a child of the zygote when it dies. So a
child that is no module belonged to a dead one, and is killed.

It ends, with everything below it, when the host's end of the control socket is closed. When it is killed
itself, the kernel kills the module processes, and the host kills what those had started.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import time
from typing import Final

import msgspec

from corral.sdk.runner import child
from corral.sdk.runner.limit_watch import MemoryWatch, ProcessWatch
from corral.sdk.runner.proc_table import children
from corral.sdk.runner.process_setup import become_module, become_subreaper, set_name, stand_with
from corral.sdk.runner.stray_processes import StraySweep
from corral.sdk.runner.zygote_messages import (
    MEMORY_LIMIT,
    PROCESS_LIMIT,
    Born,
    End,
    Ended,
    NotBorn,
    Order,
    Ready,
    Report,
    Spawn,
    Used,
    receive,
)

_WATCH_SECONDS: Final = 0.2
_SWEEP_SECONDS: Final = 0.002
_STRAY_SECONDS: Final = 5.0
"""Delay of a death's report by strays that cannot be killed, in a system call that does not end; they are
killed later."""
_LAST_SECONDS: Final = 20.0
_ORDERS_AT_ONCE: Final = 16
_PRELOADED: Final = (
    "base64",
    "collections.abc",
    "concurrent.futures.thread",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "hashlib",
    "importlib.resources",
    "json",
    "math",
    "pathlib",
    "random",
    "re",
    "secrets",
    "statistics",
    "subprocess",
    "tempfile",
    "urllib.parse",
    "uuid",
    "zoneinfo",
)
"""Modules of the standard library that many modules import: loaded once, shared by all."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Order).decode


class HostGone(Exception):
    """The control socket was closed."""


class _ForkedModule:
    __slots__ = ("number", "reason")

    def __init__(self, number: int) -> None:
        self.number = number
        self.reason = ""


class Zygote:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._modules: dict[int, _ForkedModule] = {}
        self._ended: list[Ended] = []
        self._ended_at = 0.0
        self._hunting = False
        """A module died, and its strays may not all be gone."""
        self._sweep = StraySweep()
        self._watch = ProcessWatch()
        self._memory = MemoryWatch()
        self._wakeup, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._wakeup, select.POLLIN)

    def run(self) -> None:
        """Run until the host is gone; then until nothing is left."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        with contextlib.suppress(HostGone, BrokenPipeError, ConnectionError):
            self._report(Ready())
            while True:
                self._turn(self._pause())
        self._end_everything()

    def _pause(self) -> float | None:
        if self._hunting:
            return _SWEEP_SECONDS
        return _WATCH_SECONDS if self._modules else None

    def _turn(self, pause: float | None) -> None:
        ready = dict(self._poll.poll(None if pause is None else pause * 1000))
        if self._wakeup in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakeup, 4096)
        if self._control.fileno() in ready:
            self._take_orders()
        self._reap()
        for pid in self._watch.over_limit():
            self._end(pid, PROCESS_LIMIT)
        for pid in self._memory.look():
            self._end(pid, MEMORY_LIMIT)
        self._report_use()
        if self._hunting:
            self._hunt()
            self._report_ended()

    def _take_orders(self) -> None:
        for _ in range(_ORDERS_AT_ONCE):
            try:
                packet, descriptors = receive(self._control)
            except BlockingIOError:
                return
            if not packet:
                raise HostGone
            self._obey(_decode(packet), descriptors)

    def _obey(self, order: Order, descriptors: list[int]) -> None:
        if isinstance(order, End):
            for pid, module in self._modules.items():
                if module.number == order.number:
                    self._end(pid, "")
                    return
            return  # it ended by itself; the report follows
        try:
            if len(descriptors) == 2:
                self._spawn(order, *descriptors)
            else:
                self._report(NotBorn(order.number, "its descriptors did not arrive"))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _spawn(self, order: Spawn, channel: int, words: int) -> None:
        own = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            self._report(NotBorn(order.number, str(error)))
            return
        if pid == 0:
            become_module(order, channel, words, own, child.run)
        self._modules[pid] = _ForkedModule(order.number)
        self._watch.add(pid, order.processes)
        self._memory.add(pid, order.memory_bytes)
        pidfd = os.pidfd_open(pid)
        try:
            socket.send_fds(self._control, [_encode(Born(order.number, pid))], [pidfd])
        finally:
            os.close(pidfd)

    def _end(self, pid: int, reason: str) -> None:
        """Kill the group at once, forks under way included; what left the group becomes our child and is
        swept. Until it is reaped, its number is not reused."""
        module = self._modules[pid]
        module.reason = module.reason or reason
        _kill_group(pid)
        os.kill(pid, signal.SIGKILL)  # it may not have made its group yet

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            module = self._modules.pop(found.si_pid, None)
            if module is not None:
                self._sweep.meet(self._strays() - {found.si_pid})
                _kill_group(found.si_pid)  # before its number is free
            _, status, usage = os.wait4(found.si_pid, 0)
            if module is None:
                continue
            self._watch.remove(found.si_pid)
            self._hunting = True
            self._ended_at = time.monotonic()
            cpu = usage.ru_utime + usage.ru_stime
            peak = max(usage.ru_maxrss * 1024, self._memory.remove(found.si_pid))
            self._ended.append(Ended(module.number, status, module.reason, 0, cpu, peak))

    def _hunt(self) -> None:
        """Kill children of ours that are no modules."""
        while strays := self._strays():
            if not self._sweep.step(strays):
                return  # killed; reaped when they are dead
        self._hunting = False

    def _strays(self) -> set[int]:
        return set(children(os.getpid())) - self._modules.keys()

    def _report_ended(self) -> None:
        if self._hunting and time.monotonic() < self._ended_at + _STRAY_SECONDS:
            return
        strays = len(self._sweep.met)
        for ended in self._ended:
            self._report(msgspec.structs.replace(ended, strays=strays))
        self._ended.clear()
        if not self._hunting:
            self._sweep.met.clear()

    def _report_use(self) -> None:
        """Send the memory use. A host that does not read now receives it later: nothing here waits for
        that."""
        for pid, used in self._memory.changed():
            try:
                self._control.send(_encode(Used(self._modules[pid].number, used)), socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            self._memory.reported(pid, used)

    def _end_everything(self) -> None:
        ends = time.monotonic() + _LAST_SECONDS
        for pid in self._modules:
            self._end(pid, "")
        while time.monotonic() < ends:
            self._reap()
            strays = set(children(os.getpid()))
            if not strays:
                return
            if not self._sweep.step(strays):
                time.sleep(_SWEEP_SECONDS)

    def _report(self, report: Report) -> None:
        self._control.send(_encode(report))


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def main() -> None:
    """`argv`: the number of the control socket's descriptor."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # it ends with the host, not before
    become_subreaper()
    set_name("corral-zygote")
    stand_with(os.getppid())
    for name in _PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that collections in the forks leave shared pages alone
    Zygote(socket.socket(fileno=int(sys.argv[1]))).run()
