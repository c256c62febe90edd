"""`tmux`: one server with a private socket, one session a run."""

from __future__ import annotations

import pathlib
import shlex
from typing import Final

from corral.runtimes.sessions.multiplexer import (
    COLUMNS,
    HISTORY_LINES,
    LINES,
    Execute,
    base_environment,
    checked,
    find_program,
)

SOCKET: Final = "tmux.sock"
CONFIG: Final = "tmux.conf"
_CONFIG: Final = f"""\
# Written by Corral at each start; changes are lost.
set -s exit-empty on
set -s set-clipboard off
set -g history-limit {HISTORY_LINES}
set -g remain-on-exit off
set -g destroy-unattached off
set -g allow-rename off
set -g mouse off
"""


class Tmux:
    """A `Multiplexer`. The server ends with its last session."""

    name = "tmux"

    def __init__(self, program: str | None = None) -> None:
        self.program = find_program("tmux") if program is None else program

    def prepare(self, directory: str) -> None:
        config = pathlib.Path(directory, CONFIG)
        config.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not config.exists() or config.read_text() != _CONFIG:
            config.write_text(_CONFIG)

    async def open(self, session: str, command: tuple[str, ...], *, execute: Execute) -> None:
        made = await execute(
            self._command(
                "new-session",
                "-d",
                "-s",
                session,
                "-n",
                "console",
                "-x",
                COLUMNS,
                "-y",
                LINES,
                "--",
                *command,
            ),
            base_environment(),
        )
        checked(made, f"tmux did not make session {session}")

    async def close(self, session: str, *, execute: Execute) -> None:
        """`=` matches this very name; without it tmux would take any session that begins with it."""
        await execute(self._command("kill-session", "-t", f"={session}"), base_environment())

    def attach_command(self, session: str, directory: str) -> str:
        return f"cd {shlex.quote(directory)} && tmux -S {SOCKET} attach -t '={session}'"

    def _command(self, *arguments: str) -> tuple[str, ...]:
        return (self.program, "-S", SOCKET, "-f", CONFIG, *arguments)
