"""The daemon is killed while it starts a run: the next one finds one process, or none and never one."""

from __future__ import annotations

import asyncio
import pathlib
import random
import subprocess
import sys

import msgspec
import pytest
from spawning_client import STEPS

from corral.sdk.runtime import Adoption, AdoptionKind, RunSpec
from corral.testing.runtime_contract import console_bytes, console_match, is_running
from corral.testing.runtime_nodes import ProcessHarness
from corral.testing.workloads import shell

CLIENT = pathlib.Path(__file__).with_name("spawning_client.py")
UP = shell("echo up $$; exec sleep 3600")


def client(house: ProcessHarness, spec: RunSpec, step: str) -> subprocess.Popen[bytes]:
    arguments = [str(house.data), msgspec.json.encode(spec).decode(), step]
    return subprocess.Popen(
        [sys.executable, str(CLIENT), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


async def gone(process: subprocess.Popen[bytes]) -> int:
    with process:
        return await asyncio.to_thread(process.wait)


async def settle(house: ProcessHarness, spec: RunSpec) -> Adoption:
    """What a new daemon does: adopt, and start what was never started. One process is there then."""
    provider = await house.next_provider()
    adoption = await provider.adopt(spec.run_directory)
    assert adoption.kind is not AdoptionKind.ENDED
    handle = adoption.handle
    if adoption.kind is AdoptionKind.NEVER_STARTED:
        handle = await provider.start(spec)
    assert handle is not None
    await console_match(handle, b"up \\d+\n")
    assert console_bytes(spec.run_directory) == f"up {handle.pid}\n".encode()
    assert is_running(handle.pid)
    await provider.kill(handle)
    ended = await provider.wait_empty(handle)
    assert (ended.known, ended.signal) == (True, 9)
    return adoption


@pytest.mark.trap("T50")
@pytest.mark.parametrize("step", STEPS)
async def test_killed_after_each_step(house: ProcessHarness, step: str) -> None:
    spec = house.spec(*UP)
    assert await gone(client(house, spec, step)) == -9
    adoption = await settle(house, spec)
    started = STEPS.index(step) >= STEPS.index("go-sent")
    assert adoption.kind is (AdoptionKind.ALIVE if started else AdoptionKind.NEVER_STARTED)


@pytest.mark.system
@pytest.mark.trap("T50")
async def test_killed_at_any_moment(house: ProcessHarness) -> None:
    chance = random.Random(50)
    kinds = []
    for _ in range(12):
        spec = house.spec(*UP)
        process = client(house, spec, "start")
        assert process.stdout is not None
        assert process.stdin is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"ready\n"
        process.stdin.write(b"go\n")
        process.stdin.flush()
        await asyncio.sleep(chance.random() * 0.015)
        process.kill()
        await gone(process)
        kinds.append((await settle(house, spec)).kind)
    assert set(kinds) <= {AdoptionKind.ALIVE, AdoptionKind.NEVER_STARTED}
