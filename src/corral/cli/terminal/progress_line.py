"""A progress line on a terminal, cleared when the work is done."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Final, Self

from corral.cli.failure import note, printable

_WIDTH: Final = 24
_STEPS_WIDTH: Final = 10
_PAUSE_SECONDS: Final = 0.1
_MIB: Final = 1_048_576


class ProgressLine:
    """Shows nothing where stderr is a pipe or a file."""

    def __init__(self) -> None:
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Take the line away, so that something else can be printed; the next text is shown again."""
        if self._shown and sys.stderr.isatty():
            self._shown = ""
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, text: str) -> None:
        if text != self._shown and sys.stderr.isatty():
            self._shown = text
            width = shutil.get_terminal_size().columns - 1  # a line that wraps could not be cleared
            sys.stderr.write(f"\r\x1b[K{printable(text)[:width]}")
            sys.stderr.flush()


class ProgressReport(ProgressLine):
    """The same, but where stderr is a pipe or a file one line a change."""

    def show(self, text: str) -> None:
        if sys.stderr.isatty():
            super().show(text)
        elif text != self._shown:
            self._shown = text
            note(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.stderr.isatty():
            super().__exit__(kind, error, trace)


def steps_bar(done: int, total: int) -> str:
    """How many of so many are done: `[#####.....] 3/6`."""
    filled = min(_STEPS_WIDTH, done * _STEPS_WIDTH // total) if total else 0
    return f"[{'#' * filled}{'.' * (_STEPS_WIDTH - filled)}] {done}/{total}"


class Bar(ProgressLine):
    """How much of so many bytes is done, and how fast; without a total only how much."""

    def __init__(self, what: str, total: int) -> None:
        super().__init__()
        self._what = what
        self._total = total
        self._began = time.monotonic()
        self._drawn = 0.0
        self.done = 0

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self._drawn >= _PAUSE_SECONDS or self.done == self._total:
            self._drawn = now
            self.show(self._text(now - self._began))

    def _text(self, seconds: float) -> str:
        speed = f"{self.done / _MIB / max(seconds, 0.001):.1f} MiB/s"
        if not self._total:
            return f"{self._what} {self.done / _MIB:.1f} MiB, {speed}"
        part = min(1.0, self.done / self._total)
        filled = round(part * _WIDTH)
        bar = "#" * filled + "." * (_WIDTH - filled)
        return f"{self._what} [{bar}] {part:4.0%} of {self._total / _MIB:.1f} MiB, {speed}"
