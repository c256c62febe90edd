"""A console on a pseudo-terminal: keys in, what appears out."""

from __future__ import annotations

import codecs
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
from typing import Any

from stand_in_controller import PROGRAM

DEADLINE = 30.0
PASTED = "\x1b[200~{}\x1b[201~"
"""How a terminal sends a text that is pasted."""
_BEGUN = re.compile(r"\x1b(?:\[[0-9;?]*)?\Z")
_PARTS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b\][^\x07]*\x07|\x1b|[\x00-\x1f]|[^\x00-\x1f]+", re.DOTALL)


class Transcript:
    """All lines that a terminal showed, as far as consoles use one: they move the cursor in their last lines only."""

    def __init__(self) -> None:
        self._lines = [""]
        self._row = self._column = 0
        self._cut = ""
        """A sequence whose end comes with the next piece."""
        self.codes = 0
        self._taken = (0, "")
        """Up to where it was taken: a line, and what that began with. A line that was written anew as it was is not new."""

    def feed(self, text: str) -> None:
        text = self._cut + text
        begun = _BEGUN.search(text)
        self._cut = begun[0] if begun else ""
        for part in _PARTS.findall(text.removesuffix(self._cut)):
            if part[0] == "\x1b":
                self.codes += 1
                self._obey(part[-1], int(re.sub(r"\D", "", part) or 1))
            elif part == "\r":
                self._column = 0
            elif part == "\b":
                self._obey("D", 1)
            elif part == "\n":
                self._obey("B", 1)
            elif part.isprintable():
                line = self._lines[self._row]
                self._lines[self._row] = line[: self._column] + part + line[self._column + len(part) :]
                self._column += len(part)

    def _obey(self, code: str, number: int) -> None:
        if code in "CD":
            self._column = max(0, self._column + (number if code == "C" else -number))
        elif code in "AB":
            self._row += number if code == "B" else -number
        elif code in "JK":
            self._lines[self._row] = self._lines[self._row][: self._column]
            if code == "J":
                del self._lines[self._row + 1 :]
                if self._row < self._taken[0]:
                    self._taken = (self._row, "")
        self._lines += [""] * (self._row + 1 - len(self._lines))
        self._lines[self._row] = self._lines[self._row].ljust(self._column)

    def new(self) -> str:
        row, begun = self._taken
        lines = self._lines[row:]
        return "\n".join([lines[0].removeprefix(begun), *lines[1:]]) if lines else ""

    def take(self, text: str) -> str:
        """What is new before the text; what comes behind it stays new."""
        before = self.new().partition(text)[0]
        *passed, last = (before + text).split("\n")
        row, begun = self._taken
        begun = begun if not passed and self._lines[row].startswith(begun) else ""
        self._taken = (row + len(passed), begun + last)
        return before


class ShellTerminal:
    """A console on a terminal of its own. Use as `with`; it is killed when it does not end."""

    def __init__(
        self, env: Mapping[str, str], *words: str, prompt: str = "corral> ", term: str = "xterm"
    ) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        self._prompt = prompt
        self._before = self.mode()
        self.process = subprocess.Popen(
            # A session with the terminal as its own, so that Ctrl-C is a signal. Nothing runs between a fork and the
            # program: in a process with threads of gRPC that would go wrong now and then.
            ["setsid", "--ctty", *PROGRAM, *(words or ("console",))],
            env={**env, "TERM": term},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        self._theirs = theirs  # kept open: the terminal outlives the console, as a person's does
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._seen = Transcript()

    def __enter__(self) -> ShellTerminal:
        try:
            self.shows(self._prompt)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(timeout=DEADLINE)
        os.close(self._ours)
        os.close(self._theirs)

    def mode(self) -> list[Any]:
        return termios.tcgetattr(self._ours)

    def is_as_before(self) -> bool:
        """Whether keys are echoed and make signals again."""
        return self.mode() == self._before

    @property
    def codes(self) -> int:
        """How many escape sequences it was sent."""
        return self._seen.codes

    def press(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def type(self, line: str) -> str:
        """A whole line; what appears until the next prompt."""
        self.press(f"{line}\n")
        return self.shows(self._prompt)

    def shows(self, text: str) -> str:
        """Wait for the text; all that appeared since the last one, up to it."""
        deadline = time.monotonic() + DEADLINE
        while text not in self._seen.new():
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._ours], [], [], min(left, 1.0))[0]:
                if left <= 0 or self.process.poll() is not None:
                    raise AssertionError(f"{text!r} did not appear; there is {self._seen.new()[-2000:]!r}")
                continue
            self._seen.feed(self._decoder.decode(os.read(self._ours, 65_536)))
        return self._seen.take(text)

    def ends(self) -> int:
        return self.process.wait(timeout=DEADLINE)
