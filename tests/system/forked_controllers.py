"""Controller processes that begin at once: one process has loaded all of the code, and forks one after the other from it.

For tests that kill a controller dozens of times: most of what a start takes is to import the code. Run as a program it forks, for each
line that it reads, a process that runs `corral` with the arguments of that line.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

START_SECONDS = 30.0
ENDED = "ended"


class ForkedControllers:
    """Starts and kills one controller after the other. Use as `async with`."""

    def __init__(self, arguments: Sequence[str], *, environment: Mapping[str, str]) -> None:
        self._arguments = list(arguments)
        self._environment = {**os.environ, **environment}
        self._pid = 0
        self.printed: list[str] = []
        """What the present one has printed."""

    async def __aenter__(self) -> ForkedControllers:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, __file__, env=self._environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pid:
            await self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    async def start(self) -> None:
        """Returns when it is ready."""
        assert self._process.stdin is not None
        self.printed.clear()
        self._process.stdin.write(json.dumps(self._arguments).encode() + b"\n")
        self._pid = int(await self._line())
        while not (line := await self._line()).startswith("ready: "):
            if line == ENDED:
                self._pid = 0
                raise AssertionError(f"ended before it was ready: {self.printed}")
            self.printed.append(line)

    async def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        os.kill(self._pid, signal.SIGKILL)
        self._pid = 0
        while await self._line() != ENDED:
            pass

    async def _line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = await self._process.stdout.readline()
        assert line, "the process that forks has ended"
        return line.decode().rstrip("\n")


def serve() -> list[str] | None:
    """The arguments of a command, in the process that has to run it; None: nobody is there to ask."""
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            print(os.getpid(), flush=True)
            return list(json.loads(line))
        os.waitpid(pid, 0)
        print(ENDED, flush=True)
    return None


if __name__ == "__main__":
    import corral.cli.main
    import corral.controller.app  # noqa: F401

    arguments = serve()
    if arguments is not None:
        sys.argv = ["corral", *arguments]
        runpy.run_module("corral.cli", run_name="__main__", alter_sys=True)
