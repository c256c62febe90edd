"""`tty: true`: a terminal of its own, which outlives its shim."""

from __future__ import annotations

import os
import signal
import tty
from pathlib import Path

import pytest

from corral.errors import CorralError
from corral.runtimes.keeper import run_files
from corral.runtimes.keeper.console_relay import ConsoleRelay
from corral.sdk.runtime import RunHandle
from corral.testing.runtime_contract import console_bytes, console_match
from corral.testing.runtime_nodes import ProcessHarness
from corral.testing.waiting import eventually
from corral.testing.workloads import shell

TALK = shell(
    "[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo terminal; echo owned > /dev/tty; stty -echo; echo up; "
    'while read -r line; do [ "$line" = stop ] && exit 7; echo "got $line"; done; exit 3'
)


async def test_it_has_a_controlling_terminal(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*TALK, tty=True))
    await console_match(handle, b"up\r\n")
    await house.provider.send_command(handle, "hello")
    await house.provider.send_command(handle, "stop")
    assert (await house.provider.wait_empty(handle)).code == 7
    assert console_bytes(handle.run_directory) == b"terminal\r\nowned\r\nup\r\ngot hello\r\n"


async def test_a_megabyte_through_a_terminal_is_complete(house: ProcessHarness) -> None:
    flood = shell("stty -opost; head -c 1000000 /dev/zero | tr '\\0' y; exit 4")
    handle = await house.provider.start(house.spec(*flood, tty=True))
    assert (await house.provider.wait_empty(handle)).code == 4
    assert console_bytes(handle.run_directory) == b"y" * 1_000_000


@pytest.mark.trap("T46")
async def test_the_death_of_its_shim_does_not_hang_up(house: ProcessHarness) -> None:
    handle = await house.provider.start(house.spec(*TALK, tty=True))
    await console_match(handle, b"up\r\n")
    os.kill(int(handle.state["shim"]), signal.SIGKILL)

    def rescued() -> bool:
        record = run_files.read_record(handle.run_directory)
        return record is not None and record.rescued

    await eventually(rescued)
    await eventually(lambda: _sent(house, handle, "hello"))
    await console_match(handle, b"got hello\r\n")
    await house.provider.send_command(handle, "stop")
    ended = await house.provider.wait_empty(handle)
    assert (ended.known, ended.code) == (True, 7)


async def _sent(house: ProcessHarness, handle: RunHandle, line: str) -> bool:
    try:
        await house.provider.send_command(handle, line)
    except CorralError:
        return False
    return True


@pytest.mark.trap("T46")
def test_what_waits_in_a_terminal_behind_a_full_fifo_is_not_left_there(tmp_path: Path) -> None:
    (tmp_path / run_files.CONSOLE).mkdir()
    for name in (run_files.OUTPUT, run_files.INPUT):
        os.mkfifo(tmp_path / name)
    master, slave = os.openpty()
    tty.setraw(slave)
    relay = ConsoleRelay(str(tmp_path), master=master, segment_bytes=1 << 20, quota_bytes=0)
    before = _fill(tmp_path / run_files.OUTPUT)
    os.write(slave, b"the last words")
    os.close(slave)
    relay.finish()
    assert console_bytes(str(tmp_path)) == b"x" * before + b"the last words"


def _fill(fifo: Path) -> int:
    """Until nothing more fits; how many bytes did."""
    descriptor, count = os.open(fifo, os.O_RDWR | os.O_NONBLOCK), 0
    try:
        while True:
            count += os.write(descriptor, b"x" * 4096)
    except BlockingIOError:
        return count
    finally:
        os.close(descriptor)
