"""A node whose process is killed, by itself, right before or right after a line is written to a run's input.

killed_commander.py DATA INSTANCE LINE COMMAND_ID before|after
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import sys
from typing import Any

from supervised_node import FIRST, SupervisedNode


class Killing:
    def __init__(self, given: Any, moment: str) -> None:
        self._given = given
        self._moment = moment

    def get(self, name: str) -> Any:
        return Killing(self._given.get(name), self._moment)

    def of(self, directory: str) -> Any:
        return Killing(self._given.of(directory), self._moment)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._given, name)

    async def send_command(self, handle: Any, line: str) -> None:
        if self._moment == "after":
            await self._given.send_command(handle, line)
        os.kill(os.getpid(), signal.SIGKILL)


async def main(data: str, id: str, line: str, command_id: str, moment: str) -> None:
    node = SupervisedNode(pathlib.Path(data), runtimes=lambda given: Killing(given, moment))
    await node.open()
    await node.command(id, line, incarnation=FIRST, command_id=command_id)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
