"""A console on a pseudo-terminal: keys in, what appears out."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping

from stand_in_controller import PROGRAM

DEADLINE = 30.0
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x07")


class ShellTerminal:
    """`corral console` on a terminal of its own. Use as `with`; it is killed when it does not end."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self.process = subprocess.Popen(
            [*PROGRAM, "console"],
            env={**env, "TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )
        os.close(theirs)
        self._seen = ""

    def __enter__(self) -> ShellTerminal:
        self.shows("corral> ")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(timeout=DEADLINE)
        os.close(self._ours)

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def type(self, line: str) -> str:
        """A whole line; what appears until the next prompt."""
        self.press(f"{line}\n")
        return self.shows("corral> ")

    def shows(self, text: str) -> str:
        """Wait for the text; all that appeared since the last one, up to its end."""
        deadline = time.monotonic() + DEADLINE
        while text not in self._seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._ours], [], [], left)[0]:
                raise AssertionError(f"{text!r} did not appear; there is {self._seen[-2000:]!r}")
            try:
                self._seen += _CODES.sub("", os.read(self._ours, 65_536).decode("utf-8", "replace"))
            except OSError:
                raise AssertionError(f"it ended without {text!r}: {self._seen[-2000:]!r}") from None
        found, _, self._seen = self._seen.partition(text)
        return found.replace("\r\n", "\n")

    def ends(self) -> int:
        return self.process.wait(timeout=DEADLINE)
