"""What a runtime with windows needs of a terminal multiplexer.

Every name is relative to the keeper's directory, in which its programs run: an address of a socket holds
108 bytes, and the path of a data directory may be longer.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from corral.errors import Code, Retryable
from corral.sdk.runtime import Execution

Execute = Callable[[tuple[str, ...], dict[str, str]], Awaitable[Execution]]
"""Runs a program of the multiplexer's through the keeper."""

COLUMNS: Final = "80"
LINES: Final = "24"
HISTORY_LINES: Final = 10_000
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Multiplexer(Protocol):
    """Sessions by exact name (`session_name`). No method touches another session than the one named."""

    name: str
    program: str
    """The path of its program; empty: it is not installed."""

    def prepare(self, directory: str) -> None:
        """Make what its programs need in the keeper's directory. Blocking; idempotent."""

    async def open(self, session: str, command: tuple[str, ...], *, execute: Execute) -> None:
        """Make a session with one window that runs `command`; a server is started when there is none.
        SPAWN_FAILED (Retryable) when that does not work."""

    async def close(self, session: str, *, execute: Execute) -> None:
        """End the session of this very name, with everything in it, and remove what a killed one left.
        Idempotent."""

    def attach_command(self, session: str, directory: str) -> str:
        """For people: how to see the session."""


def session_name(run_name: str) -> str:
    """`tmux` takes no dots in a name, and writes an underscore instead, so that two could become one. A
    plus sign is in no run's name."""
    return run_name.replace(".", "+")


def base_environment() -> dict[str, str]:
    """All that servers and windows see: nothing of the daemon's, nothing of a run's."""
    return {"PATH": _PATH, "HOME": "/", "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh", "TERM": "screen"}


def find_program(name: str) -> str:
    """Empty when it is not installed."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_PATH}")
    return os.path.abspath(found) if found else ""  # noqa: PTH100 - not resolved: alternatives are links


def checked(execution: Execution, what: str) -> None:
    if execution.code != 0:
        said = execution.output.strip() or f"exit code {execution.code}"
        raise Retryable(Code.SPAWN_FAILED, f"{what}: {said}")
