"""Runs that end while no daemon is there: their shims alone know how."""

from __future__ import annotations

import os
import signal

import pytest

from corral.runtimes.keeper import exit_file, run_files
from corral.sdk.runtime import AdoptionKind
from corral.testing import workloads
from corral.testing.runtime_contract import console_bytes, console_match
from corral.testing.runtime_nodes import ProcessHarness
from corral.testing.waiting import eventually


@pytest.mark.trap("T8")
async def test_code_and_signal_are_exact_and_the_last_words_complete(house: ProcessHarness) -> None:
    exits = await house.provider.start(house.spec(*workloads.reading_commands(code=137)))
    killed = await house.provider.start(house.spec(*workloads.silent()))
    await console_match(exits, b"up\n")
    await house.provider.close()
    await house.provider.send_command(exits, "stop")
    os.kill(killed.pid, signal.SIGABRT)
    for handle in (exits, killed):
        await eventually(lambda directory=handle.run_directory: run_files.is_empty(directory))
        written = exit_file.read_exit(handle.run_directory)
        assert written is not None
        assert written.who == "shim"
    provider = await house.next_provider()
    first, second = [await provider.adopt(handle.run_directory) for handle in (exits, killed)]
    assert first.kind is second.kind is AdoptionKind.ENDED
    assert first.exit is not None
    assert second.exit is not None
    assert (first.exit.known, first.exit.code, first.exit.signal) == (True, 137, 0)
    assert (second.exit.known, second.exit.code, second.exit.signal) == (True, 0, signal.SIGABRT)
    assert exits.started_at_ms <= first.exit.ended_at_ms
    assert console_bytes(exits.run_directory) == b"up\nbye\n"
