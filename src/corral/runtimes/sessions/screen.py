"""`screen`: one server a session, its socket in a directory of ours."""

from __future__ import annotations

import asyncio
import pathlib
import shlex
from typing import Final

from corral.runtimes.sessions.multiplexer import (
    HISTORY_LINES,
    Execute,
    base_environment,
    checked,
    find_program,
)

SOCKETS: Final = "screen"
CONFIG: Final = "screen.conf"
_QUIT_SECONDS: Final = 2.0
_QUIT_PAUSE: Final = 0.02
_CONFIG: Final = f"""\
# Written by Corral at each start; changes are lost.
startup_message off
defscrollback {HISTORY_LINES}
defutf8 on
defflow off
vbell off
"""


class Screen:
    """A `Multiplexer`. A session is its process: `screen` names it by pid and name, and so do we."""

    name = "screen"

    def __init__(self, program: str | None = None) -> None:
        self.program = find_program("screen") if program is None else program
        self._directory = ""

    def prepare(self, directory: str) -> None:
        sockets = pathlib.Path(directory, SOCKETS)
        sockets.mkdir(parents=True, exist_ok=True, mode=0o700)
        config = pathlib.Path(directory, CONFIG)
        if not config.exists() or config.read_text() != _CONFIG:
            config.write_text(_CONFIG)
        self._directory = directory

    async def open(self, session: str, command: tuple[str, ...], *, execute: Execute) -> None:
        made = await execute(
            (self.program, "-c", CONFIG, "-U", "-d", "-m", "-S", session, *command), self._environment()
        )
        checked(made, f"screen did not make session {session}")

    async def close(self, session: str, *, execute: Execute) -> None:
        """By pid and name, so that nothing else is meant. The socket of a session that was killed stays
        behind: it goes, too."""
        for exact in self._called(session):
            await execute((self.program, "-S", exact, "-X", "quit"), self._environment())
            ends = asyncio.get_running_loop().time() + _QUIT_SECONDS
            while exact in self._called(session) and asyncio.get_running_loop().time() < ends:
                await execute((self.program, "-wipe", exact), self._environment())  # nothing, while it lives
                await asyncio.sleep(_QUIT_PAUSE)

    def _called(self, session: str) -> list[str]:
        """Sockets are named `PID.NAME`."""
        sockets = pathlib.Path(self._directory, SOCKETS)
        return [place.name for place in sockets.iterdir() if place.name.partition(".")[2] == session]

    def attach_command(self, session: str, directory: str) -> str:
        return f"cd {shlex.quote(directory)} && SCREENDIR={SOCKETS} screen -x {session}"

    def _environment(self) -> dict[str, str]:
        return {**base_environment(), "SCREENDIR": SOCKETS, "SYSSCREENRC": "/dev/null"}
