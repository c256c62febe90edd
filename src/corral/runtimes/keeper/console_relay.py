"""The relay of one run: moves its output into the console, and on a terminal its input, too."""

from __future__ import annotations

import errno
import os
import select
import time

from corral.runtimes.keeper.console_pump import Pump
from corral.runtimes.keeper.run_files import CONSOLE, INPUT, OUTPUT

_LOOK_AGAIN_SECONDS = 1.0
"""A FIFO without writers is always 'ready': it is polled this often, for a writer may come back."""
_CHUNK = 65536
_LAST_TURNS = 1024
"""More turns than a terminal's buffer needs, even at one page each."""
_INPUT_CHUNK = 4096


class ConsoleRelay:
    """The descriptors that shim and rescue poll. With a terminal (`master` ≥ 0) its output goes through the
    same FIFO, which the keeper holds open, so that bytes in it outlive the process that moves them."""

    def __init__(
        self,
        directory: str,
        *,
        out: int = -1,
        master: int,
        segment_bytes: int,
        quota_bytes: int,
        taking_over: bool = False,
    ) -> None:
        """`out` is the read end of the FIFO, where another process held it; the FIFO of the directory may be
        a different one. `taking_over`: from a process that died; `note_loss` comes next."""
        source = f"{directory}/{OUTPUT}" if out < 0 else f"/proc/self/fd/{out}"
        self._out = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._pump = Pump(
            f"{directory}/{CONSOLE}",
            self._out,
            segment_bytes=segment_bytes,
            quota_bytes=quota_bytes,
            taking_over=taking_over,
        )
        self._quiet_until = 0.0
        self._master = master
        self._into_out = self._input = -1
        if master >= 0:
            os.set_blocking(master, False)
            flags = os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
            self._into_out = os.open(source, flags)
            self._input = os.open(f"{directory}/{INPUT}", flags)
        self._typed = b""
        self._pollers: dict[tuple[tuple[int, ...], bool], select.poll] = {}

    def note_loss(self, *, main_ended: bool, terminal_lost: bool) -> None:
        """Record a gap on a takeover, where bytes may be lost: if no process held the console meanwhile, what
        waited in it went with the workload, and if none held the terminal, what waited there is gone."""
        if terminal_lost or (main_ended and self._pump.source_is_fresh):
            self._pump.drain()
            self._pump.note_loss()
        self._pump.size_source()  # after the gap: if we die in between, the next one still records it

    def wait(self, descriptors: tuple[int, ...], timeout: float | None = None) -> set[int]:
        """Serve the console until one of `descriptors` is ready, or an event or the timeout where there is one;
        returns those that are ready."""
        while True:
            pause, poller = self._poller(descriptors)
            if timeout is not None:
                pause = timeout if pause is None else min(pause, timeout)
            events = poller.poll(None if pause is None else pause * 1000 + 0.5)
            self._handle(events)
            ready = {descriptor for descriptor, _ in events if descriptor in descriptors}
            if ready or timeout is not None:
                return ready

    def _poller(self, descriptors: tuple[int, ...]) -> tuple[float | None, select.poll]:
        """What to poll now, and after how many seconds to come back without an event. Without a terminal only
        two sets of descriptors occur, and each is made once: a console may wake us a hundred times a second."""
        begin = max(self._quiet_until, self._pump.ready_at)
        pause = begin - time.monotonic() if begin else 0.0
        polls_out = pause <= 0
        key = (descriptors, polls_out)
        poller = self._pollers.get(key) if self._master < 0 else None
        if poller is None:
            poller = self._registered(descriptors, polls_out=polls_out)
            if self._master < 0:
                self._pollers[key] = poller
        return (None if polls_out else pause), poller

    def _registered(self, descriptors: tuple[int, ...], *, polls_out: bool) -> select.poll:
        poller = select.poll()
        for descriptor in descriptors:
            poller.register(descriptor, select.POLLIN)
        if polls_out:
            poller.register(self._out, select.POLLIN)
        if self._master >= 0:
            poller.register(self._master, select.POLLIN | (select.POLLOUT if self._typed else 0))
            if not self._typed:
                poller.register(self._input, select.POLLIN)
        return poller

    def _handle(self, events: list[tuple[int, int]]) -> None:
        for descriptor, event in events:
            if descriptor == self._out:
                if event & select.POLLIN:
                    self._pump.move()
                else:
                    self._quiet_until = time.monotonic() + _LOOK_AGAIN_SECONDS
            elif descriptor == self._input:
                self._typed = os.read(self._input, _INPUT_CHUNK)
                self._type()
            elif descriptor == self._master:
                if event & select.POLLOUT:
                    self._type()
                if event & (select.POLLIN | select.POLLHUP):
                    self._take_from_terminal()

    def finish(self) -> None:
        """Move everything that was written into the console; for when no writer is left. Closes what it
        opened, and the terminal: the relay cannot be used afterwards."""
        for _ in range(_LAST_TURNS):  # bounded: a process outside the run may have the terminal open
            self._pump.drain()  # first: with a full FIFO a terminal looks as if it had nothing to read
            if self._master < 0 or not self._take_from_terminal():
                break
        self._pump.drain()
        self._pump.close()
        for descriptor in (self._out, self._into_out, self._input, self._master):
            if descriptor >= 0:
                os.close(descriptor)

    def _take_from_terminal(self) -> bool:
        try:
            return os.splice(self._master, self._into_out, _CHUNK) > 0
        except BlockingIOError:
            # Nothing to read, or a full FIFO: then the pump has work, and we come back.
            self._pump.drain()
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            os.close(self._master)  # its last process is gone: a terminal hangs up
            self._master = -1
            return False

    def _type(self) -> None:
        try:
            self._typed = self._typed[os.write(self._master, self._typed) :]
        except BlockingIOError:
            return
        except OSError:
            self._typed = b""
