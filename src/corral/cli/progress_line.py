"""One line on a terminal that tells how far something is, and is gone when it is done."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from corral.cli.failure import printable


class ProgressLine:
    """Shows nothing where nobody watches: on a pipe or in a file."""

    def __init__(self) -> None:
        self._shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, text: str) -> None:
        if text != self._shown and sys.stderr.isatty():
            self._shown = text
            sys.stderr.write(f"\r\x1b[K{printable(text)}")
            sys.stderr.flush()
