"""The window: the program in a session that shows one run. Started as `python -I -S` by the multiplexer.

Arguments: the run's directory, and `terminal` when the run has one. It shows the console as it grows, and
writes typed input into the run's input: line by line, or key by key to a terminal. It ends when no process of
the run is left, or when its session is closed. It reads the console from the disk: neither a client that does
not read nor its own end can block the workload.

Changes in the run's directories are watched by `F_NOTIFY`, not by inotify: of that the kernel gives a user
128 instances, and a node full of windows would leave none for its daemon. A directory notifies of one change
and is then armed again, so a flooded console wakes its window no more often than the window arms it. Standard
library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import sys
import termios
import time

from corral.runtimes.keeper import run_files
from corral.runtimes.keeper.proc_facts import start_time
from corral.runtimes.sessions.console_tail import ConsoleTail, Tamed
from corral.runtimes.sessions.window_file import WindowRecord, take_window

_ENTRIES = fcntl.DN_CREATE | fcntl.DN_DELETE | fcntl.DN_RENAME
_PIPE_BYTES = 4096


class DirectoryChanges:
    """A descriptor to poll for changes. Directories that cannot be watched have to be polled. One per
    process: notifications come as SIGIO."""

    def __init__(self, directory: str, console: str) -> None:
        self.descriptor, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGIO, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._watched: list[tuple[int, int]] = []
        for path, mask in ((directory, _ENTRIES), (console, _ENTRIES | fcntl.DN_MODIFY)):
            with contextlib.suppress(OSError):
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                self._watched.append((os.open(path, flags), mask))

    def ask(self) -> None:
        """Arm the notification of the next change. A read of the directory afterwards misses nothing."""
        for descriptor, mask in self._watched:
            with contextlib.suppress(OSError):  # a kernel or a file system without it
                fcntl.fcntl(descriptor, fcntl.F_NOTIFY, mask)

    def forget(self) -> None:
        """Drain the notifications: a wake-up leads to a check of everything."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, _PIPE_BYTES):
                pass


_FLOOR_SECONDS = 1.0
_HOLD_SECONDS = 0.03
_LINE_BYTES = 4096
_TYPED_BYTES = 4096
_LAST_SECONDS = 0.2
_KEYS = bytes(range(9)) + bytes(range(10, 32)) + b"\x7f"
"""Bytes that a line of a command cannot hold: keys with a meaning for terminals."""
_IGNORED = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGPIPE, signal.SIGTTOU, signal.SIGTTIN)


def main() -> None:
    directory, terminal = sys.argv[1], "terminal" in sys.argv[2:]
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _set_name()
    own = os.getpid()
    if not take_window(directory, WindowRecord(own, start_time(own) or 0, os.getppid())):
        sys.exit(0)
    _set_mode(raw=terminal)
    window = RunWindow(directory, terminal=terminal)
    if terminal:
        signal.signal(signal.SIGWINCH, lambda *_: window.resize())
        window.resize()
    while window.turn():
        pass


def _set_name() -> None:
    descriptor = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    os.write(descriptor, b"corral-window")
    os.close(descriptor)


def _set_mode(*, raw: bool) -> None:
    """Set the terminal's mode, without flow control in either. Raw: the run's own terminal does the rest."""
    mode = termios.tcgetattr(0)
    mode[0] &= ~(termios.IXON | termios.IXOFF)
    if raw:
        mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.ISTRIP | termios.BRKINT)
        mode[1] &= ~termios.OPOST
        mode[3] &= ~(termios.ECHO | termios.ICANON | termios.ISIG | termios.IEXTEN)
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
    termios.tcsetattr(0, termios.TCSANOW, mode)


class RunWindow:
    """The output that is shown and the input that is typed."""

    def __init__(self, directory: str, *, terminal: bool) -> None:
        self._directory = directory
        self._terminal = terminal
        self._tail = ConsoleTail(f"{directory}/{run_files.CONSOLE}")
        self._tamed = None if terminal else Tamed()
        self._pending = b""
        self._typed = b""
        self._look_at = 0.0
        self._changes = DirectoryChanges(directory, f"{directory}/{run_files.CONSOLE}")
        self._asked = False
        os.set_blocking(1, False)

    def turn(self) -> bool:
        """Wait for events and handle them; False when it is time to end."""
        if not self._asked and self._look_at <= time.monotonic():
            self._changes.ask()
            self._asked = True
        over = self._over()
        more = not self._pending and self._read_console(over)
        if over and not more and not self._pending:
            return False
        poller = select.poll()
        poller.register(0, select.POLLIN)
        if self._pending:
            poller.register(1, select.POLLOUT)
        hold = self._look_at - time.monotonic()
        if hold <= 0 and not self._pending:
            poller.register(self._changes.descriptor, select.POLLIN)
        pause = _LAST_SECONDS if over else hold if hold > 0 else _FLOOR_SECONDS
        events = dict(poller.poll(0 if more and not self._pending else pause * 1000 + 0.5))
        if over and not more and not events:
            return False  # the terminal does not take the last lines
        if self._changes.descriptor in events:
            self._changes.forget()
            self._asked = False
            self._look_at = time.monotonic() + _HOLD_SECONDS
        if 1 in events:
            self._show()
        return 0 not in events or self._take(events[0])

    def resize(self) -> None:
        """Give the run's terminal the size of ours."""
        record = run_files.read_record(self._directory)
        if record is None:
            return
        try:
            size = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
            flags = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            path = os.readlink(f"/proc/{record.pid}/fd/0")  # noqa: PTH115 - few imports
            if not path.startswith("/dev/pts/"):
                return
            terminal = os.open(path, flags)
        except OSError:
            return
        try:
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
        finally:
            os.close(terminal)

    def _over(self) -> bool:
        return run_files.is_empty(self._directory) or not os.path.exists(self._directory)  # noqa: PTH110

    def _read_console(self, at_once: bool) -> bool:
        """Whether bytes were read, so that there may be more."""
        if self._look_at > time.monotonic() and not at_once:
            return False
        piece, left_out = self._tail.read()
        if left_out:
            self._print_notice(f"{left_out} bytes of the console are left out here")
        if piece:
            self._pending += self._tamed.text(piece) if self._tamed else piece
            self._show()
        return bool(piece)

    def _print_notice(self, text: str) -> None:
        self._pending += f"\r\n[corral: {text}]\r\n".encode()

    def _show(self) -> None:
        try:
            self._pending = self._pending[os.write(1, self._pending) :]
        except BlockingIOError:
            return

    def _take(self, event: int) -> bool:
        """Take the typed input; False when the terminal is gone."""
        try:
            data = os.read(0, _TYPED_BYTES)
        except OSError:
            return False
        if not data:
            return not event & select.POLLHUP  # otherwise a typed end of file
        if self._terminal:
            self._pass_on(data)
            return True
        self._typed += data
        while b"\n" in self._typed:
            line, _, self._typed = self._typed.partition(b"\n")
            self._pass_on(line.translate(None, _KEYS) + b"\n")
        if len(self._typed) > _LINE_BYTES:
            self._typed = b""
            self._print_notice("this line is too long and was not sent")
        return True

    def _pass_on(self, data: bytes) -> None:
        """Write the input, whole or not at all, as a command."""
        if len(data) > _LINE_BYTES:
            self._print_notice("this line is too long and was not sent")
            return
        path = f"{self._directory}/{run_files.INPUT}"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._print_notice("this run has no input: it closed it, or was started with `stdin: none`")
            return
        try:
            os.write(descriptor, data)
        except OSError as error:
            full = error.errno == errno.EAGAIN
            self._print_notice(
                "the run does not read its input; not sent" if full else "the run closed its input"
            )
        finally:
            os.close(descriptor)


if __name__ == "__main__":
    main()
