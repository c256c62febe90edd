"""Nodes that are drained and shut down: real daemons, instances, players and worlds, and a controller that is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from corral.cli.failure import CommandFailure, CommandRefused
from corral.testing import workloads
from corral.testing.live_copies import LiveCopies
from corral.testing.ports import free_range
from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.runtime_nodes import keeper_pid
from corral.testing.waiting import eventually
from tests.system.estate import Estate

pytestmark = pytest.mark.system

ENDED = ("STOPPED", "CRASHED")
QUICK = {"min_healthy_seconds": 0}
WORLD = """
import pathlib, signal, sys, time
world = pathlib.Path("world.txt")
world.write_text(world.read_text() + "again\\n" if world.exists() else "new\\n")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up", flush=True)
while True:
    time.sleep(0.2)
"""


STUBBORN = """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
print("up", flush=True)
while True:
    time.sleep(3600)
"""


class DrainedFleet:
    """Daemons as processes, and one controller that may be killed."""

    def __init__(self, estate: Estate, scratch: pathlib.Path, copies: LiveCopies) -> None:
        self.estate = estate
        self.scratch = scratch
        self.copies = copies
        self.players = scratch / "players"
        self.players.mkdir()
        self.daemons: dict[str, ServiceProcess] = {}
        self.controller: ServiceProcess | None = None

    async def begin(self, *nodes: str) -> None:
        await self.lead()
        for node in nodes:
            self.daemons[node] = await self.estate.daemon(node)

    async def lead(self) -> None:
        self.controller = await self.estate.controller(
            CORRAL_RECONCILE_OFFLINE_AFTER_SECONDS="1", CORRAL_RECONCILE_OBSERVE_SECONDS="3"
        )

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await self.estate.call(method, path, body)

    async def group(self, name: str = "lobby", **fields: Any) -> None:
        document = {
            "name": name,
            "command": workloads.reporting_players(str(self.players)),
            "min_alive_ms": 0,
            "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
            "memory_mb": 10,
            "update": QUICK,
            **fields,
        }
        await self.call("POST", "/api/v1/groups", document)

    async def instances(self, group: str = "lobby") -> dict[str, dict[str, Any]]:
        page = await self.call("GET", f"/api/v1/instances?group={group}&limit=500")
        return {each["id"]: each for each in page["items"]}

    async def alive(self, group: str = "lobby") -> dict[str, dict[str, Any]]:
        found = await self.instances(group)
        return {id: each for id, each in found.items() if each["state"] not in ENDED}

    async def running(self, count: int, group: str = "lobby", *, on: str = "") -> dict[str, dict[str, Any]]:
        """Until so many run and are ready (all on one node, if that is named), and nothing else is left."""
        seen: dict[str, dict[str, Any]] = {}

        async def there() -> bool:
            with contextlib.suppress(CommandFailure):
                seen.clear()
                seen.update(await self.alive(group))
            return len(seen) == count and all(
                each["state"] == "RUNNING"
                and each["ready"]
                and each["wanted"] == "run"
                and on in ("", each["node"])
                for each in seen.values()
            )

        await eventually(
            there,
            deadline=60,
            state=lambda: [(e["id"], e["node"], e["state"], e["wanted"]) for e in seen.values()],
        )
        return dict(seen)

    async def play(self, count: int, *ids: str) -> None:
        """So many players are in each of these, and the controller knows it."""
        for id in ids:
            (self.players / id).write_text(str(count))

        async def known() -> bool:
            seen = [(await self.call("GET", f"/api/v1/instances/{id}"))["players"] for id in ids]
            return seen == [count] * len(ids)

        await eventually(known, deadline=30)

    async def node(self, id: str) -> Any:
        return await self.call("GET", f"/api/v1/nodes/{id}")

    async def drain(self, id: str, verb: str = "drain", *, confirm: bool = True, **body: Any) -> Any:
        query = f"?confirm={id}" if confirm else ""
        return await self.call("POST", f"/api/v1/nodes/{id}/{verb}{query}", body)

    async def until_node(self, id: str, holds: Any, *, deadline: float = 60) -> Any:
        seen: dict[str, Any] = {}

        async def there() -> bool:
            with contextlib.suppress(CommandFailure):
                seen.update(await self.node(id))
            return bool(seen) and bool(holds(seen))

        await eventually(
            there,
            deadline=deadline,
            state=lambda: (seen.get("state"), seen.get("admission"), seen.get("drain"), self.why(id)),
        )
        return dict(seen)

    def why(self, id: str) -> str:
        """What a person would look at, for a test that fails."""
        done = self.cli("why", f"node/{id}")
        return done.stdout + done.stderr

    async def drained(self, id: str, *, deadline: float = 60) -> Any:
        return await self.until_node(id, lambda seen: seen["admission"] == "drained", deadline=deadline)

    def cli(self, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "corral.cli", *arguments],
            env={
                "CORRAL_URL": f"http://{self.estate.http}",
                "CORRAL_TOKEN": self.estate.token,
                "HOME": str(self.scratch),
                "PATH": "/usr/bin:/bin",
                "NO_COLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


@pytest.fixture
async def fleet(processes: ProcessCluster, scratch: pathlib.Path) -> AsyncIterator[DrainedFleet]:
    with LiveCopies(scratch) as copies:
        fleet = DrainedFleet(Estate(processes, scratch), scratch, copies)
        yield fleet
        assert copies.together == {}, "of one id two lived at once"
    for daemon in fleet.daemons.values():
        await daemon.dispose()


async def test_a_drained_node_is_left_by_all_and_used_again_after_undrain(fleet: DrainedFleet) -> None:
    await fleet.begin("n1", "n2")
    await fleet.group(min=4)
    before = await fleet.running(4)
    there = {id for id, each in before.items() if each["node"] == "n1"}
    assert there
    done = await _cli(
        fleet, "node", "drain", "n1", "--reason", "kernel", "--wait", "--yes", "--timeout", "60s"
    )
    assert done.returncode == 0, done.stderr
    assert f"/{len(there)} moved" in done.stderr
    assert "node 'n1' is drained" in done.stdout
    after = await fleet.running(4, on="n2")
    assert {id: after[id]["pid"] for id in set(before) - there} == {
        id: before[id]["pid"] for id in set(before) - there
    }, "what was on the other node is left alone"
    assert fleet.copies.now().keys() == after.keys()
    node = await fleet.node("n1")
    assert (node["state"], node["instances"], node["drain"]["progress"]["moved"]) == ("ONLINE", 0, len(there))
    assert node["drain"]["ack"] == {"running_instances": 0, "estimated_seconds": 0}
    await fleet.call("POST", "/api/v1/groups/lobby/scale", {"count": 5})
    await fleet.running(5, on="n2")
    assert (await _cli(fleet, "node", "undrain", "n1")).returncode == 0
    await fleet.call("POST", "/api/v1/groups/lobby/scale", {"count": 8})
    assert "n1" in {each["node"] for each in (await fleet.running(8)).values()}


async def _cli(fleet: DrainedFleet, *arguments: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(fleet.cli, *arguments)


async def test_a_stubborn_instance_goes_at_the_deadline(fleet: DrainedFleet) -> None:
    """It ignores every signal, and nobody else could run it: so nothing but the deadline ends the drain."""
    await fleet.begin("n1", "n2")
    stubborn = [{"signal": "SIGTERM", "wait_seconds": 1}, {"signal": "SIGINT", "wait_seconds": 1}]
    await fleet.group(min=1, nodes=["n1"], command=workloads.python(STUBBORN), stop=stubborn)
    await fleet.group("busy", min=1, nodes=["n1"])
    await fleet.running(1)
    (busy,) = await fleet.running(1, "busy")
    await fleet.play(7, busy)
    answer = await fleet.drain("n1", deadline_seconds=6)
    assert answer["drain"]["progress"]["total"] == 2
    waiting = await fleet.until_node("n1", lambda seen: seen["drain"]["progress"]["waiting_players"] == 1)
    assert [each["players"] for each in waiting["drain"]["instances"] if each["id"] == busy] == [7]
    node = await fleet.drained("n1")
    ended = {**await fleet.instances(), **await fleet.instances("busy")}
    assert {each["state"] for each in ended.values()} == {"STOPPED"}
    assert fleet.copies.now() == {}
    assert node["drain"]["drained_at"] >= node["drain"]["deadline_at"], "players were waited for until then"
    for group in ("lobby", "busy"):
        assert await fleet.alive(group) == {}, "held until the node is undrained"
    await fleet.call("POST", "/api/v1/nodes/n1/undrain", {})
    await fleet.running(1, on="n1")
    await fleet.running(1, "busy", on="n1")


async def test_players_are_waited_for_and_their_instance_goes_when_they_have_left(
    fleet: DrainedFleet,
) -> None:
    await fleet.begin("n1", "n2")
    await fleet.group(min=2, max_players=20)
    before = await fleet.running(2)
    (there,) = [id for id, each in before.items() if each["node"] == "n1"]
    await fleet.play(12, there)
    with pytest.raises(CommandRefused) as refused:
        await fleet.drain("n1", confirm=False, deadline_seconds=None)
    assert refused.value.code == "CONFIRMATION_REQUIRED"
    assert f"'{there}' (12 players)" in refused.value.message
    await fleet.drain("n1", deadline_seconds=None)
    await fleet.until_node("n1", lambda seen: seen["drain"]["progress"]["waiting_players"] == 1)
    seen = await fleet.alive()
    assert (seen[there]["state"], seen[there]["pid"]) == ("DRAINING", before[there]["pid"])
    late = await _cli(
        fleet, "node", "drain", "n1", "--deadline", "none", "--wait", "--yes", "--timeout", "2s"
    )
    assert (late.returncode, "1 waits for players" in late.stderr) == (4, True), late.stderr
    assert f"({there}: 12)" in late.stderr
    assert (await fleet.alive())[there]["pid"] == before[there]["pid"], "nobody is cut off"
    (fleet.players / there).write_text("0")
    await fleet.drained("n1")
    after = await fleet.running(2, on="n2")
    assert there not in after
    assert (await fleet.instances()).get(there, {"state": "STOPPED"})["state"] == "STOPPED"


async def test_the_only_node_is_drained_and_everything_comes_back(fleet: DrainedFleet) -> None:
    await fleet.begin("n1")
    await fleet.group(min=2)
    await fleet.running(2)
    await fleet.drain("n1", reason="new disk")
    await fleet.drained("n1")
    assert fleet.copies.now() == {}
    group = await fleet.call("GET", "/api/v1/groups/lobby")
    assert "n1" in group["status"]["reason"]
    await fleet.call("POST", "/api/v1/nodes/n1/undrain", {})
    await fleet.running(2, on="n1")


async def test_a_drain_that_is_taken_back_midway_keeps_what_is_still_there(fleet: DrainedFleet) -> None:
    await fleet.begin("n1", "n2")
    await fleet.group(min=4, max_players=20)
    before = await fleet.running(4)
    there = sorted(id for id, each in before.items() if each["node"] == "n1")
    await fleet.play(3, *there)
    await fleet.drain("n1", deadline_seconds=None)
    await fleet.until_node("n1", lambda seen: seen["drain"]["progress"]["waiting_players"] >= 1)
    await fleet.call("POST", "/api/v1/nodes/n1/undrain", {})
    after = await fleet.running(4)
    assert {id: after[id]["pid"] for id in there} == {id: before[id]["pid"] for id in there}
    node = await fleet.node("n1")
    assert (node["admission"], node["drain"]) == ("open", None)


async def test_a_drain_goes_on_when_its_controller_is_killed(fleet: DrainedFleet) -> None:
    await fleet.begin("n1", "n2")
    await fleet.group(min=4, max_players=20)
    before = await fleet.running(4)
    there = sorted(id for id, each in before.items() if each["node"] == "n1")
    await fleet.play(5, *there)
    begun = await fleet.drain("n1", deadline_seconds=None, reason="kernel")
    await fleet.until_node("n1", lambda seen: seen["drain"]["progress"]["waiting_players"] >= 1)
    assert fleet.controller is not None
    await fleet.controller.kill()
    for id in there:
        (fleet.players / id).write_text("0")
    await fleet.lead()
    node = await fleet.drained("n1")
    assert (node["drain"]["id"], node["drain"]["reason"]) == (begun["drain"]["id"], "kernel")
    await fleet.running(4, on="n2")
    node = await fleet.until_node("n1", lambda seen: seen["drain"]["ack"] is not None)
    assert node["drain"]["ack"]["running_instances"] == 0, "the node was told again"


async def test_a_shutdown_ends_the_daemon_and_frees_what_it_held(fleet: DrainedFleet) -> None:
    await fleet.begin("n1", "n2")
    first, last = free_range(4)
    ports = {"primary": {"range": [first, last]}}
    await fleet.group(min=2, command=workloads.holding_ports(tcp="%PORT%"), ports=ports)
    before = await fleet.running(2)
    held = [each["port"] for each in before.values() if each["node"] == "n1"]
    keeper = keeper_pid(fleet.scratch / "n1")
    done = await _cli(fleet, "node", "shutdown", "n1", "--wait", "--yes", "--timeout", "60s", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert await fleet.daemons["n1"].wait() == 0
    shown = json.loads(done.stdout)
    assert (shown["admission"], shown["state"] != "ONLINE") == ("drained", True)
    await fleet.running(2, on="n2")
    await eventually(lambda: not pathlib.Path(f"/proc/{keeper}").exists())
    for port in held:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    await fleet.until_node("n1", lambda seen: seen["drain"]["exit_ordered_at"])

    # the host is back: the daemon stays, and takes nothing until the node is undrained
    fleet.daemons["n1"] = await fleet.estate.daemon("n1")
    await fleet.estate.wait_for_node("n1", "ONLINE")
    await fleet.until_node("n1", lambda seen: seen["drain"]["ack"] is not None)
    assert fleet.daemons["n1"].alive
    assert (await fleet.node("n1"))["admission"] == "drained"
    await fleet.call("POST", "/api/v1/nodes/n1/undrain", {})
    await fleet.call("POST", "/api/v1/groups/lobby/scale", {"count": 4})
    assert "n1" in {each["node"] for each in (await fleet.running(4)).values()}


async def test_a_daemon_that_is_killed_or_stopped_leaves_its_instances_alone_while_it_is_drained(
    fleet: DrainedFleet,
) -> None:
    await fleet.begin("n1")
    await fleet.group(min=1, max_players=20)
    (before,) = (await fleet.running(1)).values()
    await fleet.play(2, before["id"])
    await fleet.drain("n1", "shutdown", deadline_seconds=None)
    for way in ("terminate", "kill"):
        await fleet.until_node("n1", lambda seen: seen["drain"]["ack"] is not None)
        await getattr(fleet.daemons["n1"], way)()
        assert fleet.copies.now() == {before["id"]: {before["pid"]}}
        await fleet.until_node("n1", lambda seen: seen["session"] is None)
        fleet.daemons["n1"] = await fleet.estate.daemon("n1")
    await fleet.until_node("n1", lambda seen: seen["drain"]["ack"] is not None)
    (fleet.players / before["id"]).write_text("0")
    assert await fleet.daemons["n1"].wait() == 0


@pytest.mark.trap("T90")
async def test_a_world_is_told_and_confirmed_stopped_and_back_home_with_its_files(
    fleet: DrainedFleet,
) -> None:
    await fleet.begin("n1", "n2")
    await fleet.group("smp", min=1, static=True, nodes=["n1", "n2"], command=workloads.python(WORLD))
    ((id, world),) = (await fleet.running(1, "smp")).items()
    home = world["node"]
    file = fleet.scratch / home / "static" / id / "world.txt"
    await eventually(lambda: file.exists() and file.read_text() == "new\n")
    with pytest.raises(CommandRefused) as refused:
        await fleet.drain(home, confirm=False)
    assert refused.value.code == "CONFIRMATION_REQUIRED"
    assert f"'{id}'" in refused.value.message
    assert (await fleet.alive("smp"))[id]["pid"] == world["pid"], "nothing was done"
    scripted = await _cli(fleet, "node", "drain", home)
    assert (scripted.returncode, "--yes" in scripted.stderr) == (1, True), scripted.stderr
    assert (await _cli(fleet, "node", "drain", home, "--yes")).returncode == 0
    await fleet.drained(home)
    assert fleet.copies.now() == {}
    assert await fleet.alive("smp") == {}, "it is not started on the other node, where its files are not"
    group = await fleet.call("GET", "/api/v1/groups/smp")
    assert home in group["status"]["reason"]
    assert file.read_text() == "new\n"
    await fleet.call("POST", f"/api/v1/nodes/{home}/undrain", {})
    back = await fleet.running(1, "smp", on=home)
    assert list(back) == [id]
    await eventually(lambda: file.read_text() == "new\nagain\n", state=file.read_text)
