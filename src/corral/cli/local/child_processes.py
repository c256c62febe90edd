"""Child processes and signals in one loop, without threads and without asyncio.

Children run in sessions of their own, so that Ctrl-C reaches us alone and they end in order.
Each holds the read end of a pipe whose write end only we have: if we are killed, they notice.
"""

from __future__ import annotations

import collections
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType, TracebackType
from typing import IO, Any, Final, Self

from corral.system.signals import signal_name

TAIL_LINES: Final = 30
FIRST_ADMIN: Final = "first-admin: "
"""The beginning of that line."""
_MAX_LINE: Final = 16_384
_KILL_SECONDS: Final = 10.0
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Echo = Callable[[str, str], None]
"""Receives every line that a child writes, with the child's name."""


class Child:
    """One run of one process: its output, and how it ended."""

    def __init__(self, *, name: str, process: subprocess.Popen[bytes], pidfd: int, started: float) -> None:
        self.name = name
        self.process = process
        self.pidfd = pidfd
        self.started = started
        self.ready: str | None = None
        """The text after `ready:`, once it was printed."""
        self.tail: collections.deque[str] = collections.deque(maxlen=TAIL_LINES)
        self.ended: float | None = None

    @property
    def running(self) -> bool:
        return self.ended is None

    @property
    def lived(self) -> float:
        return (self.ended if self.ended is not None else time.monotonic()) - self.started

    def how_it_ended(self) -> str:
        code = self.process.returncode
        if code is None:
            return "it runs"
        if code < 0:
            return f"killed by {signal_name(-code)}"
        return f"exit code {code}"

    def send(self, number: signal.Signals) -> None:
        if self.running:
            signal.pidfd_send_signal(self.pidfd, number)


class ChildSupervisor:
    """Owns the children and the signals of this process while it is entered."""

    def __init__(self, *, echo: Echo | None = None, announce: Callable[[str], None] = print) -> None:
        self.signals = 0
        """How many signals to end have come."""
        self._echo = echo
        self._announce = announce
        """Receives the line by which a controller says how to become the first administrator."""
        self._children: list[Child] = []
        self._selector = selectors.DefaultSelector()
        self._leash: tuple[int, int] = (-1, -1)
        self._wakeup: tuple[int, int] = (-1, -1)
        self._former: dict[int, Any] = {}
        self._former_wakeup = -1

    def __enter__(self) -> Self:
        self._leash = os.pipe()
        self._wakeup = os.pipe()
        for end in self._wakeup:
            os.set_blocking(end, False)
        self._former_wakeup = signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        self._former = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        # Ignored rather than handled: children inherit that, and survive the signal until they handle it themselves.
        self._former[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, self._drain_wakeup)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Children that still run are killed."""
        for child in self._children:
            child.send(signal.SIGKILL)
        self.wait(
            lambda: not any(child.running for child in self._children), timeout=_KILL_SECONDS, patience=None
        )
        for number, former in self._former.items():
            signal.signal(number, former)
        signal.set_wakeup_fd(self._former_wakeup)
        self._selector.close()
        for end in (*self._leash, *self._wakeup):
            os.close(end)

    def start(self, name: str, arguments: Sequence[str], *, env: Mapping[str, str]) -> Child:
        """Start a program; it gets `--parent-fd N` behind its arguments."""
        process = subprocess.Popen(
            [*arguments, "--parent-fd", str(self._leash[0])],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(self._leash[0],),
            start_new_session=True,
            bufsize=0,
        )
        child = Child(name=name, process=process, pidfd=os.pidfd_open(process.pid), started=time.monotonic())
        self._children.append(child)
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._reap(child))
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            self._listen(child, stream)
        return child

    def wait(self, condition: Callable[[], bool], *, timeout: float | None, patience: int | None = 0) -> bool:
        """Turn the loop until the condition holds; False when time ran out or we were asked to end.

        `patience` is how many requests to end are borne; None bears them all.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not condition():
            if patience is not None and self.signals > patience:
                return False
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            for key, _ in self._selector.select(left):
                key.data()
        return True

    def end(self, child: Child, *, timeout: float, patience: int) -> bool:
        """Ask a child to end and wait for it; killed, and False, when time or patience is over."""
        child.send(signal.SIGTERM)
        if self.wait(lambda: not child.running, timeout=timeout, patience=patience):
            return True
        child.send(signal.SIGKILL)
        self.wait(lambda: not child.running, timeout=_KILL_SECONDS, patience=None)
        return False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.signals += 1

    def _drain_wakeup(self) -> None:
        os.read(self._wakeup[0], 512)

    def _reap(self, child: Child) -> None:
        self._selector.unregister(child.pidfd)
        child.process.wait()
        child.ended = time.monotonic()
        os.close(child.pidfd)
        for stream in (child.process.stdout, child.process.stderr):
            if stream is not None and not stream.closed:  # its last output matters most
                self._selector.get_key(stream).data()
                self._forget(stream)

    def _forget(self, stream: IO[bytes]) -> None:
        if not stream.closed:
            self._selector.unregister(stream)
            stream.close()

    def _listen(self, child: Child, stream: IO[bytes]) -> None:
        """Read a child's output without ever waiting for it."""
        os.set_blocking(stream.fileno(), False)
        pending = bytearray()

        def readable() -> None:
            while not stream.closed:  # the same turn may have reaped the child and closed it
                try:
                    chunk = os.read(stream.fileno(), 65_536)
                except BlockingIOError:
                    return
                if not chunk:
                    self._forget(stream)
                    break
                pending.extend(chunk)
                *lines, rest = bytes(pending).split(b"\n")
                pending[:] = rest[:_MAX_LINE]
                for line in lines:
                    self._receive_line(child, line)
            if pending:
                self._receive_line(child, bytes(pending))
                pending.clear()

        self._selector.register(stream, selectors.EVENT_READ, readable)

    def _receive_line(self, child: Child, line: bytes) -> None:
        text = line[:_MAX_LINE].decode("utf-8", "replace").rstrip("\r")
        if text.startswith(FIRST_ADMIN):
            self._announce(text)
            return  # its code is for the terminal alone
        if child.ready is None and text.startswith("ready:"):
            child.ready = text.removeprefix("ready:").strip()
        child.tail.append(text)
        if self._echo is not None:
            self._echo(child.name, text)
