"""Real programs write to a console, in the ways that have broken consoles before."""

from __future__ import annotations

import asyncio
import os
import pathlib
import select
import sys

import pytest

from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.keeper.console_pump import Pump


class Fifo:
    """What a shim does: a FIFO that the workload holds open read-write, and a pump beside it."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.console = directory / "console"
        self.console.mkdir()
        os.mkfifo(directory / "out")
        self.source = os.open(directory / "out", os.O_RDONLY | os.O_NONBLOCK)
        self._out = os.open(directory / "out", os.O_RDWR)
        self._pump = Pump(str(self.console), self.source, segment_bytes=1 << 20, quota_bytes=0)

    async def run(self, *command: str) -> int:
        """Run to its end with the pump beside it; what it returned."""
        process = await asyncio.create_subprocess_exec(*command, stdout=self._out, stderr=self._out)
        ended = asyncio.create_task(process.wait(), name="test/wait")
        while not ended.done():
            if select.select([self.source], [], [], 0)[0]:
                self._pump.move()
            await asyncio.sleep(0)
        self._pump.drain()
        return ended.result()

    async def run_alone(self, *command: str) -> int:
        """The same, but nobody looks before it has ended, as when a shim is slower than its workload."""
        process = await asyncio.create_subprocess_exec(*command, stdout=self._out, stderr=self._out)
        code = await process.wait()
        self._pump.drain()
        return code

    def content(self) -> bytes:
        with ConsoleLog(self.console) as log:
            return b"".join(block.data for block in log.blocks(0, log.end_offset))

    def close(self) -> None:
        self._pump.close()
        os.close(self.source)
        os.close(self._out)


@pytest.fixture
def fifo(scratch):
    made = Fifo(scratch)
    yield made
    made.close()


@pytest.mark.trap("T43")
async def test_opening_dev_stderr_again_truncates_nothing(fifo):
    script = "i=0; while [ $i -lt 1000 ]; do echo line $i; i=$((i+1)); done; echo x > /dev/stderr"
    assert await fifo.run("/bin/sh", "-c", script) == 0
    lines = fifo.content().decode().splitlines()
    assert lines == [f"line {number}" for number in range(1000)] + ["x"]


@pytest.mark.trap("T16")
async def test_a_child_that_prints_a_megabyte_and_exits_at_once_is_kept_to_the_last_byte(fifo):
    script = "import os, sys; sys.stdout.write('x' * 99 + '\\n' + ('y' * 99 + '\\n') * 9999 + 'fatal: no more'); sys.stdout.flush(); os._exit(1)"
    assert await fifo.run(sys.executable, "-I", "-S", "-c", script) == 1
    content = fifo.content()
    assert len(content) == 10_000 * 100 + len("fatal: no more")
    with ConsoleLog(fifo.console) as log:
        assert [line.text for line in log.tail(2)] == ["y" * 99, "fatal: no more"]


@pytest.mark.trap("T16")
async def test_what_lies_in_the_pipe_when_the_workload_is_gone_is_stored(fifo):
    script = "import os; os.write(1, b'z' * 60000 + b'\\nfatal\\n'); os._exit(1)"
    assert await fifo.run_alone(sys.executable, "-I", "-S", "-c", script) == 1
    assert fifo.content() == b"z" * 60_000 + b"\nfatal\n"
