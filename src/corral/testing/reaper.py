"""The end of all processes of a test: keepers, shims and workloads are killed with the directories they live
in.

Processes that Corral starts are made to survive; so tests need something that ends them. A `Reaper` ends the
processes of its directories. The `Guardian`, a process beside the tests, does the same for tests that were
killed: it holds a pipe of ours, and when that closes it ends the processes of the directories that were still
in use.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from typing import Final

from corral.testing.survivors import SurvivingProcess, end_all, now_in_ticks, survivors

_GUARD: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from corral.testing.reaper import guard; guard()"
)


class Guardian:
    """The process that ends what a killed test run left. Close it last."""

    def __init__(self) -> None:
        source = str(pathlib.Path(__file__).resolve().parents[2])
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, source],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # not reached by what is meant for our group
        )

    def watch(self, directory: pathlib.Path, *, since: int) -> None:
        self._send(f"+{since} {directory}")

    def release(self, directory: pathlib.Path) -> None:
        self._send(f"-0 {directory}")

    def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed; the test goes on without
            self._process.stdin.write(line.encode(errors="surrogateescape") + b"\n")
            self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)


def guard() -> None:
    """The guardian's own program: until our end of the pipe ends, then once more."""
    watched: dict[pathlib.Path, int] = {}
    for line in sys.stdin.buffer:
        mark, since, place = line[:1], *os.fsdecode(line[1:].rstrip(b"\n")).split(" ", 1)
        if mark == b"+":
            watched[pathlib.Path(place)] = int(since)
        else:
            watched.pop(pathlib.Path(place), None)
    if watched:
        end_all(watched, since=min(watched.values()))


def reap(directory: pathlib.Path, *, since: int = 0) -> list[SurvivingProcess]:
    """End the processes of a directory; returns them."""
    return end_all([directory], since=since)


class Reaper:
    """Ends the processes of the directories of one test, and none from before the test."""

    def __init__(self, guardian: Guardian | None = None) -> None:
        self._guardian = guardian
        self._since = now_in_ticks()
        self._directories: list[pathlib.Path] = []
        self.quiet = False
        """The test leaves processes behind on purpose: they are ended without a failure."""

    def watch(self, directory: pathlib.Path) -> None:
        """From now on, processes in this directory are ended with the test."""
        if directory not in self._directories:
            self._directories.append(directory)
            if self._guardian is not None:
                self._guardian.watch(directory, since=self._since)

    def survivors(self) -> list[SurvivingProcess]:
        return survivors(self._directories, since=self._since) if self._directories else []

    def lingering(self, *, seconds: float) -> list[SurvivingProcess]:
        """Processes that are still there after a grace period."""
        deadline = time.monotonic() + seconds
        while (found := self.survivors()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def reap(self) -> list[SurvivingProcess]:
        """End all now; returns them."""
        return end_all(self._directories, since=self._since) if self._directories else []

    def close(self) -> None:
        """End all, and release the directories."""
        try:
            self.reap()
        finally:
            self.release()

    def release(self) -> None:
        """Release the directories, in which no process lives any more."""
        for directory in self._directories:
            if self._guardian is not None:
                self._guardian.release(directory)
        self._directories.clear()
