"""A console that is written by the test itself, through a real pipe and a real pump."""

from __future__ import annotations

import os
import pathlib

import pytest

from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.keeper.console_pump import Pump


class WrittenConsole:
    """`write` puts bytes through the pump; `kill` leaves everything as a SIGKILL would."""

    def __init__(self, directory: pathlib.Path, *, segment_bytes: int = 4096, quota_bytes: int = 0) -> None:
        self.directory = directory
        self.directory.mkdir(exist_ok=True)
        self._sizes = {"segment_bytes": segment_bytes, "quota_bytes": quota_bytes}
        self.source, self.sink = os.pipe()
        self.pump = self._new_pump()
        self.log = ConsoleLog(directory)

    def _new_pump(self) -> Pump:
        return Pump(str(self.directory), self.source, **self._sizes)

    def write(self, data: bytes, *, drain: bool = True) -> None:
        for start in range(0, len(data), 32768):
            os.write(self.sink, data[start : start + 32768])
            if drain:
                self.pump.drain()

    def kill(self) -> None:
        """Descriptors are closed and nothing else is done, as the kernel does for a dead process."""
        pump = self.pump
        for holder, name in ((pump, "_directory"), (pump, "_null"), (pump._gaps, "_fd")):
            os.close(getattr(holder, name))
        pump._segments.close()
        self.pump = self._new_pump()

    def everything(self) -> bytes:
        with ConsoleLog(self.directory) as log:
            return b"".join(block.data for block in log.blocks(0, log.end_offset))

    def close(self) -> None:
        self.pump.close()
        self.log.release()
        os.close(self.source)
        os.close(self.sink)


@pytest.fixture
def consoles(scratch):
    made = []

    def make(**sizes: int) -> WrittenConsole:
        made.append(WrittenConsole(scratch / f"console-{len(made)}", **sizes))
        return made[-1]

    yield make
    for console in made:
        console.close()
