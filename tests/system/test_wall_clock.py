"""A machine whose wall clock jumps, by libfaketime: real processes, real clocks, one of them wrong."""

from __future__ import annotations

import pathlib

import pytest
from estate import Estate

from corral.testing.waiting import eventually

pytestmark = pytest.mark.system


def faketime_library() -> str:
    found = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    assert found, "libfaketime is missing: run tools/install_test_programs.sh"
    return str(found[0])


@pytest.fixture(autouse=True)
def _no_shared_memory_left():
    """libfaketime names its shared memory after a process and leaves it when that is killed."""
    memory = pathlib.Path("/dev/shm")
    before = set(memory.glob("*faketime_*"))
    yield
    for path in set(memory.glob("*faketime_*")) - before:
        pid = path.name.rpartition("_")[2]
        if not pathlib.Path("/proc", pid).exists():
            path.unlink(missing_ok=True)


@pytest.mark.trap("T28")
async def test_sessions_survive_steps_of_an_hour_and_reconnecting_takes_no_longer(processes, scratch):
    offset = scratch / "faketime"
    offset.write_text("+0")
    jumping = {
        "LD_PRELOAD": faketime_library(),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",  # as older
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # and newer releases call it
        "FAKETIME_DISABLE_SHM": "1",
    }
    estate = Estate(processes, scratch)
    controller = await estate.controller(CORRAL_LINK_HEARTBEAT_SECONDS="0.3", **jumping)
    await estate.daemon("n1", **jumping)
    session = (await estate.wait_for_node("n1", "ONLINE"))["session"]
    for step in ("+3600", "-3600"):
        seen = (await estate.call("GET", "/api/v1/nodes/n1"))["last_seen"]
        offset.write_text(step)

        async def heard_again(seen=seen):
            node = await estate.call("GET", "/api/v1/nodes/n1")
            assert node["session"] == session
            return node["last_seen"][:13] != seen[:13]

        await eventually(heard_again)
        assert (await estate.call("GET", "/ready"))["status"] == "ready"
    await controller.kill()
    offset.write_text("+0")
    await estate.controller(**jumping)
    again = await estate.wait_for_node("n1", "ONLINE")
    assert again["session"] != session
