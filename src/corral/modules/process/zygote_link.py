"""Host's connection to one zygote: starts it, sends fork and end orders, receives its reports."""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from corral.errors import Code, Retryable
from corral.modules.process.call_failures import ZygoteGone
from corral.modules.process.zygote_leftovers import MARK
from corral.sdk.runner.zygote_messages import (
    MAX_PACKET,
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
from corral.system import log_context
from corral.system.threads import to_end

START_SECONDS: Final = 30.0
_FORK_SECONDS: Final = 20.0
_END_SECONDS: Final = 25.0
"""Longer than the zygote itself waits for processes that do not end."""
_REPORTS_AT_ONCE: Final = 64
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from corral.sdk.runner.zygote import main; main()"
)
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Report).decode


class ZygoteLink:
    """Made by `open_zygote`. `on_gone` is called once, when the zygote ended by itself."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        *,
        on_ended: Callable[[Ended], None],
        on_gone: Callable[[], None],
        on_used: Callable[[Used], None] = lambda _: None,
    ) -> None:
        self._process = process
        self._control = control
        self._on_ended = on_ended
        self._on_used = on_used
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._births: dict[int, asyncio.Future[tuple[int, int]]] = {}
        self._unsent: deque[bytes] = deque()
        self._open = True
        with log_context.apart():  # the reader outlives the task that made it
            self._loop.add_reader(control, self._readable)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ready(self) -> None:
        async with asyncio.timeout(START_SECONDS):
            await self._ready
        if not self._open:
            raise _not_started("the process that modules are forked from ended at once")

    async def spawn(self, order: Spawn, descriptors: Sequence[int]) -> tuple[int, int]:
        """The pid of a new module process and a pidfd, which is the caller's to close. SPAWN_FAILED when
        it could not be forked. A cancelled caller leaves no process behind."""
        birth: asyncio.Future[tuple[int, int]] = self._loop.create_future()
        self._births[order.number] = birth
        try:
            self._send_with(order, descriptors)
            async with asyncio.timeout(_FORK_SECONDS):
                return await birth
        except TimeoutError:
            self._give_up(order.number, birth)
            self._process.kill()  # a zygote that does not fork is useless
            raise ZygoteGone(f"no answer for {_FORK_SECONDS:g} s") from None
        except asyncio.CancelledError:
            self._give_up(order.number, birth)
            raise
        finally:
            del self._births[order.number]

    def _give_up(self, number: int, birth: asyncio.Future[tuple[int, int]]) -> None:
        """End a process that was forked in this very moment; one forked later is ended when it is reported."""
        if birth.done() and not birth.cancelled() and birth.exception() is None:
            os.close(birth.result()[1])
            self.end(number)

    def end(self, number: int) -> None:
        """Kill a process with all its descendants. No effect when it has ended already."""
        self._send(_encode(End(number)))

    def kill(self) -> None:
        """Kill a zygote that does not respond; `on_gone` follows."""
        self._process.kill()

    async def close(self) -> None:
        """Let the zygote end its processes and then itself; none is left afterwards."""
        self._shut()
        await to_end(self._reap)

    def _reap(self) -> None:
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _shut(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._control)
        self._loop.remove_writer(self._control)
        self._control.close()
        failure = ZygoteGone("the process that modules are forked from has ended")
        if not self._ready.done():
            self._ready.set_exception(failure)
        for birth in self._births.values():
            if not birth.done():
                birth.set_exception(failure)
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # retrieved, in case no caller awaits it any more

    def _send_with(self, order: Order, descriptors: Sequence[int]) -> None:
        """Send with descriptors, which cannot wait in a queue: their owner closes them."""
        if not self._open or self._unsent:
            raise ZygoteGone("the process that modules are forked from does not answer")
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        try:
            self._control.sendmsg([_encode(order)], rights)
        except OSError as error:
            raise ZygoteGone(str(error)) from error

    def _send(self, packet: bytes) -> None:
        if not self._open:
            return
        self._unsent.append(packet)
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._control.send(self._unsent[0])
                self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._control, self._flush)
            return
        except OSError:
            self._unsent.clear()  # it is gone; the reader notices
        self._loop.remove_writer(self._control)

    def _readable(self) -> None:
        for _ in range(_REPORTS_AT_ONCE):
            if not self._open:
                return
            try:
                packet, descriptors = receive(self._control)
            except BlockingIOError:
                return
            except OSError:
                packet, descriptors = b"", []
            report = _understood(packet, descriptors)
            if report is None:
                self._process.kill()  # an unreadable report makes it useless; or it has ended
                self._shut()
                self._on_gone()
                return
            self._take(report, descriptors)

    def _take(self, report: Report, descriptors: list[int]) -> None:
        if isinstance(report, Ready):
            if not self._ready.done():
                self._ready.set_result(None)
        elif isinstance(report, Ended):
            self._on_ended(report)
        elif isinstance(report, Used):
            self._on_used(report)
        elif isinstance(report, Born):
            self._take_born(report, descriptors)
        else:
            self._refuse(report)

    def _take_born(self, report: Born, descriptors: list[int]) -> None:
        birth = self._births.get(report.number)
        if birth is not None and not birth.done() and descriptors:
            birth.set_result((report.pid, descriptors[0]))
            return
        for descriptor in descriptors:
            os.close(descriptor)
        self.end(report.number)  # no caller waits for it any more, or its descriptor found no room here
        self._refuse(NotBorn(report.number, "this host has as many open files as it may have"))

    def _refuse(self, report: NotBorn) -> None:
        birth = self._births.get(report.number)
        if birth is not None and not birth.done():
            birth.set_exception(_not_started(report.why))


def _understood(packet: bytes, descriptors: list[int]) -> Report | None:
    """A packet as a report; None for an empty or oversized packet, and for one that is no report."""
    try:
        return _decode(packet) if len(packet) < MAX_PACKET else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        for descriptor in descriptors:
            os.close(descriptor)
        return None


async def open_zygote(
    view: pathlib.Path,
    *,
    mark: str,
    log: pathlib.Path,
    on_ended: Callable[[Ended], None],
    on_gone: Callable[[], None],
    on_used: Callable[[Used], None] = lambda _: None,
) -> ZygoteLink:
    """SPAWN_FAILED when it does not come up; nothing of it is left then."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    started: list[subprocess.Popen[bytes]] = []
    try:
        await to_end(_start, view, theirs.fileno(), mark, log, started)
    except OSError as error:
        ours.close()
        raise _not_started(str(error)) from error
    except BaseException:
        ours.close()
        await to_end(_put_down, started)
        raise
    finally:
        theirs.close()
    process = started[0]
    link = ZygoteLink(process, ours, on_ended=on_ended, on_gone=on_gone, on_used=on_used)
    try:
        await link.ready()
    except BaseException as error:
        process.kill()
        await link.close()
        if isinstance(error, (Retryable, TimeoutError)):
            raise _not_started(await asyncio.to_thread(_tail, log)) from error
        raise
    return link


def _start(
    view: pathlib.Path, control: int, mark: str, log: pathlib.Path, started: list[subprocess.Popen[bytes]]
) -> None:
    """Append the process to `started`, so that a cancelled caller knows what to end."""
    with log.open("wb") as output:
        os.fchmod(output.fileno(), 0o600)  # modules may run as a user who can reach this directory
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(view), str(control)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(control,),
            cwd="/",
            env={"PATH": _PATH, "LANG": "C.UTF-8", MARK: mark},
            start_new_session=True,  # an interrupt on the terminal is for the host
        )
    started.append(process)


def _put_down(started: list[subprocess.Popen[bytes]]) -> None:
    for process in started:
        process.kill()
        process.wait()


def _tail(log: pathlib.Path) -> str:
    with contextlib.suppress(OSError):
        text = log.read_text(errors="replace").strip()
        if text:
            return text[-1000:]
    return "the process that modules are forked from did not come up"


def _not_started(why: str) -> Retryable:
    return Retryable(
        Code.SPAWN_FAILED,
        f"a module process could not be started: {why}",
        hint="see the host's log; it is tried again",
    )
