"""History of the console: a file for its owner alone, bounded, without lines that may hold a secret."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Final

from prompt_toolkit.history import InMemoryHistory

from corral.cli.api.context_store import default_path
from corral.domain.command_secrets import may_hold_secret

LINES_MAX: Final = 1000
_LONGEST: Final = 4096
_LARGEST: Final = 2 * LINES_MAX * _LONGEST
_NAME: Final = "console_history"


def may_be_kept(line: str) -> bool:
    """Whether a line goes into the history. One that begins with a space does not, as in shells."""
    return (
        bool(line.strip())
        and not line.startswith(" ")
        and len(line) <= _LONGEST
        and not may_hold_secret(line)
    )


def history_path(environment: Mapping[str, str]) -> str:
    return os.path.join(os.path.dirname(default_path(environment)), _NAME)  # noqa: PTH118, PTH120 - as there


class History(InMemoryHistory):
    """The lines of this and of former consoles. What cannot be read or written is left out: a console works without."""

    def __init__(self, path: str) -> None:
        self._path = path
        lines: list[str] = []
        whole = True  # also when it cannot be read: then nothing is cut off
        with contextlib.suppress(OSError):
            whole = os.path.getsize(path) <= _LARGEST  # noqa: PTH202 - as there
            if whole:
                with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123
                    lines = [line for line in file.read().split("\n") if line]
                whole = len(lines) <= LINES_MAX
        kept = lines[-LINES_MAX:]
        self._write([] if whole else kept, os.O_APPEND if whole else os.O_TRUNC)
        super().__init__(kept)

    def append_string(self, string: str) -> None:
        """Keep a line, on disk at once: a console may be killed. Pasted lines that are run as one are kept in memory."""
        string = string.rstrip("\n")
        if may_be_kept(string):
            super().append_string(string)
            if "\n" not in string:
                self._write([string], os.O_APPEND)

    def _write(self, lines: Sequence[str], how: int) -> None:
        """To the file, which is for its owner alone from its first moment."""
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how
            descriptor = os.open(self._path, flags, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                os.fchmod(file.fileno(), 0o600)
                file.writelines(f"{line}\n" for line in lines)
