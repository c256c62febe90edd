"""Modules that leave things running, do not read, or are slow while they serve."""

from __future__ import annotations

import asyncio
import itertools
import pathlib
from typing import Any, Final

import pytest
from hostile_rig import Pen, code_of, pen
from hostile_zoo import beast_archive

from corral.testing.api_calls import create_group
from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system

SOON: Final = {"modules__leak_grace_seconds": 1, "modules__deaths_before_failed": 0}
DEAF_CHILDREN: Final = """
for _ in range(3):
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)
        time.sleep(3600)
"""
DAEMONS: Final = """
for _ in range(3):
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        os.setsid()
        time.sleep(3600)
    os.waitpid(first, 0)
"""
DEAF: Final = (
    "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):\n"
    "    ctypes.CDLL(None).signal(int(number), 1)\n"
    "threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()"
)
STUBBORN: Final = (
    "async def stay():\n"
    "    while True:\n"
    "        try: await asyncio.sleep(3600)\n"
    "        except asyncio.CancelledError: pass\n"
    "ctx.kept = asyncio.create_task(stay(), name='stay')"
)


async def leaks(pen: Pen) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await pen.ask("GET", "/leaked")).json()["items"]
    return found


@pytest.mark.parametrize(
    ("code", "on_loop", "kept"),
    [
        pytest.param(DEAF_CHILDREN, False, "children", id="children that ignore SIGTERM"),
        pytest.param(DAEMONS, False, "children", id="children in sessions of their own"),
        pytest.param(DEAF, False, "threads", id="a thread, ignoring SIGTERM"),
        pytest.param(STUBBORN, True, "tasks", id="a task that does not end"),
        pytest.param("import atexit\natexit.register(time.sleep, 3600)", False, "", id="at exit"),
    ],
)
async def test_what_it_left_running_is_told_and_killed_when_it_is_removed(
    cluster: LocalCluster, scratch: pathlib.Path, code: str, on_loop: bool, kept: str
) -> None:
    async with pen(cluster, scratch, **SOON) as made:
        told = await made.install(beast_archive(made.scratch, "on_load", code, id="beast", on_loop=on_loop))
        assert told["phase"] == "ACTIVE", told["failure"]
        assert (await made.ask("GET", "/beast/ping")).is_success
        await made.uninstall("beast")
        (leak,) = await leaks(made)
        assert (leak["module"], leak["killed"]) == ("beast", True)
        assert all(bool(leak[kind]) == (kind == kept) for kind in ("threads", "tasks", "children")), leak
        answer = await made.ask("POST", "/force-cleanup")
        assert answer.is_success
        assert await leaks(made) == []


@pytest.mark.parametrize("code", [DEAF_CHILDREN, DAEMONS], ids=["deaf", "daemons"])
async def test_children_of_a_module_that_failed_are_gone_with_it(
    cluster: LocalCluster, scratch: pathlib.Path, code: str
) -> None:
    async with pen(cluster, scratch) as made:
        told = await made.install(
            beast_archive(made.scratch, "on_start", f"{code}\nraise ValueError('no')", id="beast")
        )
        assert (told["phase"], told["reason"]) == ("FAILED", "hook_failed:on_start")
        assert await made.held("beast") == []
        assert made.strays() == []
        await made.uninstall("beast")


async def test_modules_that_do_not_read_are_cut_off_and_others_are_served_meanwhile(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    """One is stopped, one blocks its loop; the host has megabytes for both."""
    acts = {"frozen": "os.kill(os.getpid(), signal.SIGSTOP)", "blocked": "time.sleep(3600)"}
    async with pen(cluster, scratch, **SOON) as made:
        for id, act in acts.items():
            archive = beast_archive(made.scratch, "route", act, id=id, on_loop=True)
            assert (await made.install(archive))["phase"] == "ACTIVE"
        await asyncio.gather(*(made.ask("GET", f"/{id}/evil") for id in acts))
        answers = await asyncio.gather(
            *(made.put_bytes(f"/{id}/take", b"x" * 900_000) for id in acts for _ in range(12))
        )
        assert {code_of(answer) for answer in answers} == {"MODULE_NOT_ACTIVE"}
        for id in acts:
            await made.stands(id, "FAILED", "cut_off:not_reading")
            assert await made.held(id) == []
        await made.uninstall(*acts)


async def test_a_module_that_was_busy_for_a_moment_gets_all_that_waited_for_it(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    """Far more than is held for it at once."""
    async with pen(cluster, scratch, **SOON) as made:
        archive = beast_archive(
            made.scratch, "route", "time.sleep(1)", id="beast", on_loop=True, route_ms=60_000
        )
        assert (await made.install(archive))["phase"] == "ACTIVE"
        busy, *answers = await asyncio.gather(
            made.ask("GET", "/beast/evil"),
            *(made.put_bytes("/beast/take", b"x" * 900_000) for _ in range(30)),
        )
        assert busy.is_success
        assert [answer.status_code for answer in answers] == [200] * 30
        assert await made.standing("beast") == ("ACTIVE", "")
        await made.uninstall("beast")


async def test_a_module_that_stops_itself_in_a_hook_ends_by_its_deadline(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    async with pen(cluster, scratch) as made:
        stops = beast_archive(
            made.scratch, "on_load", "os.kill(os.getpid(), signal.SIGSTOP)", id="beast", hook_ms=1000
        )
        assert (await made.install(stops))["reason"] == "hook_overrun:on_load"
        await made.uninstall("beast")


async def test_a_flood_of_notices_slows_the_module_down_and_nobody_else(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    flood = (
        "def pour(sock):\n"
        "    frame = encode_frame(Notice('log', encode_body({'level': 'INFO', 'message': 'x', 'logger': 'x'})))\n"
        "    while True: sock.sendall(frame * 1000)\n"
        "threading.Thread(target=pour, args=(line(),), daemon=True).start()"
    )
    async with pen(cluster, scratch, **SOON) as made:
        other = beast_archive(made.scratch, "on_load", "", id="lamb", on_loop=True)
        assert (await made.install(other))["phase"] == "ACTIVE"
        await made.install(beast_archive(made.scratch, "on_start", flood, id="beast"))
        for _ in range(50):
            assert (await made.ask("GET", "/lamb/ping")).is_success
        await made.uninstall("beast", "lamb")


@pytest.mark.parametrize("on_loop", [False, True], ids=["in a thread", "on its loop"])
async def test_three_slow_answers_in_a_row_end_a_module(
    cluster: LocalCluster, scratch: pathlib.Path, on_loop: bool
) -> None:
    code = "await asyncio.sleep(3600)" if on_loop else "time.sleep(3600)"
    async with pen(cluster, scratch) as made:
        slow = beast_archive(made.scratch, "route", code, id="beast", on_loop=on_loop, route_ms=200)
        assert (await made.install(slow))["phase"] == "ACTIVE"
        for _ in range(3):
            answer = await made.ask("GET", "/beast/evil")
            assert (answer.status_code, code_of(answer)) == (504, "MODULE_TIMEOUT")
        await made.stands("beast", "FAILED", "hook_overrun:route:GET /evil")
        assert await made.held("beast") == []
        assert code_of(await made.ask("GET", "/beast/ping")) == "MODULE_NOT_ACTIVE"
        assert await made.act("beast", "recover") == ("ACTIVE", "")
        assert (await made.ask("GET", "/beast/ping")).is_success
        await made.uninstall("beast")


EVENTFUL: Final = {
    "raises": ("raise SystemExit", ("ACTIVE", "")),
    "hangs": ("await asyncio.sleep(3600)", ("FAILED", "hook_overrun:event:GROUP_CREATED")),
    "spins": ("while True: pass", ("FAILED", "hook_overrun:event:GROUP_CREATED")),
    "exits": ("os._exit(4)", ("FAILED", "process_exited:4")),
}


async def test_evil_at_an_event_reaches_nobody_else(cluster: LocalCluster, scratch: pathlib.Path) -> None:
    async with pen(cluster, scratch, **SOON) as made:
        for id, (code, _) in EVENTFUL.items():
            archive = beast_archive(made.scratch, "event", code, id=id, on_loop=True, hook_ms=2000)
            assert (await made.install(archive))["phase"] == "ACTIVE"
        overruns = {"hangs": -1, "spins": -1}
        groups = itertools.count()

        async def given_up() -> bool:
            """An event at a time, once those before were too much for somebody."""
            found = [await made.info(id) for id in overruns]
            for each in found:
                if each["live"] is not None and each["live"]["overruns"] > overruns[each["id"]]:
                    overruns[each["id"]] = each["live"]["overruns"]
                    await create_group(made.controller, f"g{next(groups)}", ["true"], min=0)
            return all(each["phase"] == "FAILED" for each in found)

        await eventually(given_up, deadline=60)
        for id, (_, standing) in EVENTFUL.items():
            await made.stands(id, *standing)
        assert (await made.info("raises"))["live"]["failures"] > 0
        await made.uninstall(*EVENTFUL)
