"""Instances outlive everything of ours: whole processes, killed at bad moments."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import random
import signal
import sys

import pytest

from corral.runtimes.keeper.run_files import read_record
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually
from tests.system.estate import Estate

pytestmark = pytest.mark.system

COUNT = 100
WRITER = """
import signal, sys, time
code = None
def leave(number, frame):
    global code
    code = 7
signal.signal(signal.SIGUSR1, leave)
pause, n = float(sys.argv[1]), 0
while code is None:
    print("line %d" % n, flush=True)
    n += 1
    time.sleep(pause)
print("last %d" % n, flush=True)
sys.exit(code)
"""


def writer(pause: float) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", WRITER, str(pause)]


class Fleet:
    """What these tests ask of a controller about its instances."""

    def __init__(self, estate: Estate) -> None:
        self.estate = estate

    async def group(self, name: str, command: list[str], **more: object) -> None:
        body = {"name": name, "command": command, "restart": {"attempts": 0}, **more}
        await self.estate.call("POST", "/api/v1/groups", body)

    async def instances(self) -> dict[str, dict]:
        page = await self.estate.call("GET", "/api/v1/instances?limit=500")
        return {item["id"]: item for item in page["items"]}

    async def in_state(self, state: str, count: int, *, ids: set[str] | None = None) -> dict[str, dict]:
        seen: dict[str, dict] = {}

        async def there():
            seen.clear()
            seen.update(await self.instances())
            found = {id: i for id, i in seen.items() if i["state"] == state and (ids is None or id in ids)}
            return found if len(found) >= count else None

        def told() -> list[tuple[str, str, str]]:
            return [(id, i["state"], i["reason"]) for id, i in seen.items()]

        return await eventually(there, deadline=60, state=told)

    async def console(self, id: str) -> list[str]:
        """Every line, from the first."""
        lines: list[str] = []
        after = 0
        while True:
            path = f"/api/v1/instances/{id}/console?after={after}&limit=500"
            page = await self.estate.call("GET", path)
            assert not page["gap"], page
            lines += [item["line"] for item in page["items"]]
            if page["next_offset"] == after:
                return lines
            after = page["next_offset"]


def numbered(lines: list[str]) -> list[int]:
    """The numbers, after checking that nothing is missing, doubled or out of order."""
    numbers = [int(line.split()[1]) for line in lines]
    assert numbers == list(range(len(numbers))), [
        (index, number) for index, number in enumerate(numbers) if index != number
    ][:5]
    return numbers


@pytest.fixture
async def estate(tmp_path: pathlib.Path):
    async with ProcessCluster(tmp_path) as processes:
        yield Estate(processes, tmp_path)


DAEMON = {
    "CORRAL_INSTANCES_DEVELOPMENT": "true",
    "CORRAL_INSTANCES_CGROUPS": "none",
    "CORRAL_LINK_STATUS_SECONDS": "0.5",
}
CONTROLLER = {"CORRAL_RECONCILE_OBSERVE_SECONDS": "1"}


@pytest.mark.trap("T13", "T8")
@pytest.mark.timeout(240)
async def test_a_hundred_writing_instances_outlive_daemon_and_controller(estate: Estate) -> None:
    fleet = Fleet(estate)
    controller = await estate.controller(**CONTROLLER)
    daemon = await estate.daemon("n1", **DAEMON)
    await fleet.group("chatty", writer(0.1), min=COUNT, crash_loop={"failures": 1000})
    before = await fleet.in_state("RUNNING", COUNT)

    await asyncio.gather(daemon.kill(), controller.kill())
    leaving = sorted(before)[:5]
    for id in leaving:
        os.kill(before[id]["pid"], signal.SIGUSR1)
    await eventually(lambda: not any(alive(before[id]["pid"]) for id in leaving), deadline=30)

    await estate.controller(**CONTROLLER)
    await estate.daemon("n1", **DAEMON)
    ended = await fleet.in_state("CRASHED", 5, ids=set(leaving))
    after = await fleet.in_state("RUNNING", COUNT)

    assert {ended[id]["exit"]["code"] for id in leaving} == {7}
    assert {ended[id]["exit"]["signal"] for id in leaving} == {None}
    staying = sorted(set(before) - set(leaving))
    assert [after[id]["pid"] for id in staying] == [before[id]["pid"] for id in staying]
    for id in leaving:
        assert (await fleet.console(id))[-1].startswith("last ")
    for id in (*leaving, *staying):
        numbered(await fleet.console(id))


@pytest.mark.trap("T46", "T50")
@pytest.mark.timeout(240)
async def test_random_kills_of_everything_of_ours_lose_no_byte_and_no_outcome(estate: Estate) -> None:
    """Daemon, controller, keeper and shims die at random; the workloads never notice."""
    fleet = Fleet(estate)
    controller = await estate.controller(**CONTROLLER)
    daemon = await estate.daemon("n1", **DAEMON)
    await fleet.group("chatty", writer(0.002), min=10, crash_loop={"failures": 1000})
    before = await fleet.in_state("RUNNING", 10)
    data = estate.data.parent / "n1"
    dice = random.Random(13)

    for _ in range(12):
        kind = dice.choice(["shim", "shim", "keeper", "daemon", "controller"])
        if kind == "daemon":
            await daemon.kill()
            daemon = await estate.daemon("n1", **DAEMON)
        elif kind == "controller":
            await controller.kill()
            controller = await estate.controller(**CONTROLLER)
        else:
            for pid in minders(data, kind, dice):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(dice.random() * 0.1)  # not a wait for anything: the next bad moment

    after = await fleet.in_state("RUNNING", 10)
    assert {id: i["pid"] for id, i in after.items()} == {id: i["pid"] for id, i in before.items()}
    for instance in before.values():
        os.kill(instance["pid"], signal.SIGUSR1)
    ended = await fleet.in_state("CRASHED", 10, ids=set(before))
    assert {i["exit"]["code"] for i in ended.values()} == {7}
    for id in before:
        lines = await fleet.console(id)
        assert lines[-1] == f"last {len(lines) - 1}"
        numbered(lines)


async def test_what_crashes_while_no_daemon_is_there_is_restarted_by_its_node_and_goes_on(
    estate: Estate,
) -> None:
    fleet = Fleet(estate)
    await estate.controller(**CONTROLLER)
    daemon = await estate.daemon("n1", **DAEMON)
    await fleet.group("chatty", writer(0.1), min=3, restart={"attempts": 3})
    before = await fleet.in_state("RUNNING", 3)
    await daemon.kill()
    for instance in before.values():
        os.kill(instance["pid"], signal.SIGSEGV)
    await eventually(lambda: not any(alive(instance["pid"]) for instance in before.values()))
    await estate.daemon("n1", **DAEMON)
    restarted = {id: instance["incarnation"] + 1 for id, instance in before.items()}

    async def goes_on() -> bool:
        now = await fleet.instances()
        running = {id: i["incarnation"] for id, i in now.items() if i["state"] == "RUNNING"}
        return running == restarted

    await eventually(goes_on, deadline=40)
    after = await fleet.instances()
    assert set(after) == set(before), "nobody was given up, and nobody replaced"
    assert {instance["restarts"] for instance in after.values()} == {1}


def alive(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def minders(data: pathlib.Path, kind: str, dice: random.Random) -> list[int]:
    """Processes of ours on this data directory: every keeper, or one shim or rescue pump at random."""
    if kind == "keeper":
        return [
            int(lock.read_text()) for lock in (data / "keeper").glob("*lock*") if lock.read_text().strip()
        ]
    records = [read_record(str(run)) for run in (data / "runs").glob("*/*")]
    return [dice.choice([record.shim for record in records if record is not None])]
