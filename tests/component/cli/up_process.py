"""A running `corral up`, as tests see it: what it prints, and the processes below it."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess


class Up:
    """Waits for `ready:`; fails with what was said when it ends instead."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.printed: dict[str, str] = {}
        """What was printed so far, by the word before the colon."""
        self.next_printed("ready")

    def next_printed(self, expected: str) -> str:
        """What the next line with this word before the colon says."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, rest = line.rstrip("\n").partition(": ")
            self.printed[word] = rest
            if word == expected:
                return rest
        raise AssertionError(f"'up' ended with {self.process.wait()}: {self.process.communicate()[1]}")

    @property
    def url(self) -> str:
        return self.printed["ready"]

    def expect(self, text: str) -> str:
        """The next line on stderr that holds a text."""
        assert self.process.stderr is not None
        passed: list[str] = []
        for line in self.process.stderr:
            if text in line:
                return line.rstrip("\n")
            passed.append(line)
        raise AssertionError(f"'up' ended without saying {text!r}, but: {''.join(passed)}")

    def children(self) -> dict[str, int]:
        """Process id by role, of those that have a command line: one has none while it is in `exec`,
        and none any more once it is dead."""
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        found: dict[str, int] = {}
        for pid in tasks.read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
                command = pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
                found[command[command.index("corral.cli") + 1]] = int(pid)
        return found
