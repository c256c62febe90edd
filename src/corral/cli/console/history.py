"""History of the console: a file for its owner alone, bounded, without lines that may hold a secret."""

from __future__ import annotations

import contextlib
import os
import readline
from collections.abc import Mapping
from typing import Final

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


class History:
    """The lines of this and of former consoles. What cannot be read or written is left out: a console works without."""

    def __init__(self, path: str) -> None:
        self._path = path
        readline.set_auto_history(False)
        readline.set_history_length(LINES_MAX)

    def load(self) -> None:
        readline.clear_history()
        with contextlib.suppress(OSError):
            if os.path.getsize(self._path) <= _LARGEST:  # noqa: PTH202 - as there
                readline.read_history_file(self._path)
        self.save()

    def add(self, line: str) -> None:
        """Keep a line, on disk at once: a console may be killed."""
        last = readline.get_current_history_length()
        if not may_be_kept(line) or (last and readline.get_history_item(last) == line):
            return
        readline.add_history(line)
        with contextlib.suppress(OSError):
            self._make()
            readline.append_history_file(1, self._path)

    def save(self) -> None:
        """Cut the file to its bound."""
        with contextlib.suppress(OSError):
            self._make()
            readline.write_history_file(self._path)
            os.chmod(self._path, 0o600)  # noqa: PTH101 - readline made it anew

    def _make(self) -> None:
        """The file, for its owner alone from its first moment."""
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.fchmod(descriptor, 0o600)
        finally:
            os.close(descriptor)
