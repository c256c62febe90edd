"""A machine whose wall clock jumps, by libfaketime: real processes, real clocks, one of them wrong."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time

import pytest
from estate import Estate
from people_with_sessions import People, refusal_of, set_up_totp

from corral.testing.waiting import eventually

pytestmark = pytest.mark.system


def faketime_library() -> str:
    found = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    assert found, "libfaketime is missing: run tools/install_test_programs.sh"
    return str(found[0])


def jumping_clock(scratch: pathlib.Path) -> tuple[pathlib.Path, dict[str, str]]:
    """A file that says how far the wall clock is off, and what a process needs to believe it."""
    offset = scratch / "faketime"
    offset.write_text("+0")
    return offset, {
        "LD_PRELOAD": faketime_library(),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",  # as older
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # and newer releases call it
        "FAKETIME_DISABLE_SHM": "1",
    }


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
    offset, jumping = jumping_clock(scratch)
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


@pytest.mark.trap("T28")
async def test_logins_go_on_over_steps_of_an_hour_and_delays_are_not_moved(processes, scratch):
    offset, jumping = jumping_clock(scratch)
    estate = Estate(processes, scratch)
    controller = await estate.controller(CORRAL_LOG_LEVEL="ERROR", **jumping)
    async with contextlib.AsyncExitStack() as stack:
        people = await stack.enter_async_context(People([estate.http], admin_token=estate.token))
        for name in ("ada", "ben", "cleo"):
            await people.make_user(name)
        held, _ = await people.log_in("ada")
        assert held is not None
        totp, _, recovery_codes = await set_up_totp(people, held)
        lines = await stack.enter_async_context(people.stream(held))
        for _ in range(5):
            await people.log_in("ben", "wrong, and long enough")
        for hours in (1, 0, -1, 0):
            offset.write_text(f"{hours * 3600:+d}")
            if hours == 1:
                _, answer = await people.log_in("ben")
                assert refusal_of(answer) == "LOGIN_DELAYED", "for 30 s, whatever the clock says"
            for kind in ("BROWSER", "COMMAND_LINE"):
                assert (await people.log_in("cleo", kind=kind))[0]
            await people.check_all()
            if hours == 1:
                ahead = totp.generate_otp(int(time.time() + 3600) // 30)
                assert (await people.log_in("ada", totp=ahead))[0]
        _, answer = await people.log_in("ada", totp=totp.now())
        assert refusal_of(answer) == "LOGIN_FAILED", "a later code was used"
        assert (await people.log_in("ada", recovery_code=recovery_codes[0]))[0]
        await estate.call("POST", "/api/v1/groups", {"name": "lobby", "command": ["x"]})
        async with asyncio.timeout(30):
            while "GROUP_CREATED" not in await anext(lines):  # of the stream from before
                pass
        offset.write_text(f"{13 * 3600:+d}")
        answer = await people.ask("GET", "/api/v1/auth/me", headers=people.headers(held))
        assert "12 hours without use" in answer.json()["error"]["message"]
    await controller.kill()
