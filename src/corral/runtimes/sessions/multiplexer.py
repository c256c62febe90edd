"""Terminal multiplexers for runtimes with windows: the interface, `screen` and `tmux`.

`screen` has one server for each session, its socket in a directory of ours; `tmux` has one server with a
private socket, and one session for each run. Every name is relative to the keeper's directory, in which the
programs run: an address of a socket holds 108 bytes, and the path of a data directory may be longer.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import shlex
import shutil
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from corral.errors import Code, Retryable
from corral.sdk.runtime import Execution

Execute = Callable[[tuple[str, ...], dict[str, str]], Awaitable[Execution]]
"""Runs a program of the multiplexer through the keeper."""

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
        SPAWN_FAILED (Retryable) when that fails."""

    async def close(self, session: str, *, execute: Execute) -> None:
        """End the session of exactly this name, with everything in it, and remove what a killed one left.
        Idempotent."""

    def attach_command(self, session: str, directory: str) -> str:
        """The command by which people attach to the session."""


def session_name(run_name: str) -> str:
    """The session of a run. `tmux` takes no dots in a name, and writes an underscore instead, so that two
    could become one. A plus sign is in no run's name."""
    return run_name.replace(".", "+")


def base_environment() -> dict[str, str]:
    """The whole environment of servers and windows: nothing of the daemon's, nothing of a run's."""
    return {"PATH": _PATH, "HOME": "/", "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh", "TERM": "screen"}


def find_program(name: str) -> str:
    """The program's path; empty when it is not installed."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_PATH}")
    return os.path.abspath(found) if found else ""  # noqa: PTH100 - not resolved: alternatives are links


def checked(execution: Execution, what: str) -> None:
    if execution.code != 0:
        text = execution.output.strip() or f"exit code {execution.code}"
        raise Retryable(Code.SPAWN_FAILED, f"{what}: {text}")


SOCKETS: Final = "screen"
SCREEN_CONFIG: Final = "screen.conf"
_QUIT_SECONDS: Final = 2.0
_QUIT_PAUSE: Final = 0.02
_SCREEN_SETTINGS: Final = f"""\
# Written by Corral at each start; changes are lost.
startup_message off
defscrollback {HISTORY_LINES}
defutf8 on
defflow off
vbell off
"""


class ScreenMultiplexer:
    """A `Multiplexer`. A session is its process: `screen` names it by pid and name, and so does this class."""

    name = "screen"

    def __init__(self, program: str | None = None) -> None:
        self.program = find_program("screen") if program is None else program
        self._directory = ""

    def prepare(self, directory: str) -> None:
        sockets = pathlib.Path(directory, SOCKETS)
        sockets.mkdir(parents=True, exist_ok=True, mode=0o700)
        config = pathlib.Path(directory, SCREEN_CONFIG)
        if not config.exists() or config.read_text() != _SCREEN_SETTINGS:
            config.write_text(_SCREEN_SETTINGS)
        self._directory = directory

    async def open(self, session: str, command: tuple[str, ...], *, execute: Execute) -> None:
        made = await execute(
            (self.program, "-c", SCREEN_CONFIG, "-U", "-d", "-m", "-S", session, *command),
            self._environment(),
        )
        checked(made, f"screen did not make session {session}")

    async def close(self, session: str, *, execute: Execute) -> None:
        """End a session by pid and name, so that no other is hit. The socket of a session that was killed
        stays behind: it is removed, too."""
        for exact in self._called(session):
            await execute((self.program, "-S", exact, "-X", "quit"), self._environment())
            ends = asyncio.get_running_loop().time() + _QUIT_SECONDS
            while exact in self._called(session) and asyncio.get_running_loop().time() < ends:
                await execute((self.program, "-wipe", exact), self._environment())  # no-op while it lives
                await asyncio.sleep(_QUIT_PAUSE)

    def _called(self, session: str) -> list[str]:
        """The sessions of this name; sockets are named `PID.NAME`."""
        sockets = pathlib.Path(self._directory, SOCKETS)
        return [place.name for place in sockets.iterdir() if place.name.partition(".")[2] == session]

    def attach_command(self, session: str, directory: str) -> str:
        return f"cd {shlex.quote(directory)} && SCREENDIR={SOCKETS} screen -x {session}"

    def _environment(self) -> dict[str, str]:
        return {**base_environment(), "SCREENDIR": SOCKETS, "SYSSCREENRC": "/dev/null"}


TMUX_SOCKET: Final = "tmux.sock"
TMUX_CONFIG: Final = "tmux.conf"
_TMUX_SETTINGS: Final = f"""\
# Written by Corral at each start; changes are lost.
set -s exit-empty on
set -s set-clipboard off
set -g history-limit {HISTORY_LINES}
set -g remain-on-exit off
set -g destroy-unattached off
set -g allow-rename off
set -g mouse off
"""


class TmuxMultiplexer:
    """A `Multiplexer`. The server ends with its last session."""

    name = "tmux"

    def __init__(self, program: str | None = None) -> None:
        self.program = find_program("tmux") if program is None else program

    def prepare(self, directory: str) -> None:
        config = pathlib.Path(directory, TMUX_CONFIG)
        config.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not config.exists() or config.read_text() != _TMUX_SETTINGS:
            config.write_text(_TMUX_SETTINGS)

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
        """End a session. `=` matches the exact name; without it tmux would take any session with that prefix."""
        await execute(self._command("kill-session", "-t", f"={session}"), base_environment())

    def attach_command(self, session: str, directory: str) -> str:
        return f"cd {shlex.quote(directory)} && tmux -S {TMUX_SOCKET} attach -t '={session}'"

    def _command(self, *arguments: str) -> tuple[str, ...]:
        return (self.program, "-S", TMUX_SOCKET, "-f", TMUX_CONFIG, *arguments)
