"""Nodes as processes that die, are cut off and come back, under a leader that may change meanwhile: nothing of an id ever
lives twice, by the word of the kernel."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import signal
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from corral.cli.failure import CommandFailure
from corral.testing import workloads
from corral.testing.api_calls import call
from corral.testing.fault_proxy import FaultProxy
from corral.testing.live_copies import LiveCopies
from corral.testing.postgres_server import PostgresServer
from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.runtime_nodes import keeper_pid
from corral.testing.waiting import eventually
from tests.system.estate import Estate

pytestmark = pytest.mark.system

NODES = ("n1", "n2", "n3")
NOWHERE = "127.0.0.1:1"
SWIFT = {
    "CORRAL_GRPC_ADVERTISE": NOWHERE,
    "CORRAL_RECONCILE_OFFLINE_AFTER_SECONDS": "1",
    "CORRAL_RECONCILE_OBSERVE_SECONDS": "2",
}
LEASE = {
    "CORRAL_LEASE_TTL_SECONDS": "3",
    "CORRAL_LEASE_RENEW_SECONDS": "0.5",
    "CORRAL_LEASE_MARGIN_SECONDS": "1",
}
ENDED = ("STOPPED", "CRASHED")
WAITING = """
import os, sys, time
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
print("Done", flush=True)
time.sleep(86400)
"""
SOON = {"replace_after_seconds": 3}


class LineFleet:
    """Three daemons, each on a line of its own to the leading controller."""

    def __init__(self, estate: Estate, scratch: pathlib.Path, copies: LiveCopies) -> None:
        self.estate = estate
        self.scratch = scratch
        self.copies = copies
        self.players = scratch / "players"
        self.players.mkdir()
        self.lines: dict[str, FaultProxy] = {}
        self.daemons: dict[str, ServiceProcess] = {}
        self.api = f"http://{estate.http}"
        self.token = ""

    async def daemon(self, node: str) -> None:
        self.daemons[node] = await self.estate.daemon(node, "--controller", self.lines[node].address)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await call(self.api, self.token, method, path, body)

    async def group(self, name: str = "lobby", **fields: Any) -> None:
        document = {
            "name": name,
            "command": workloads.reporting_players(str(self.players)),
            "min_alive_ms": 0,
            "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
            "memory_mb": 10,
            **fields,
        }
        await self.call("POST", "/api/v1/groups", document)

    async def instances(self, group: str = "lobby") -> dict[str, dict]:
        page = await self.call("GET", f"/api/v1/instances?group={group}&limit=500")
        return {each["id"]: each for each in page["items"]}

    async def running(self, count: int, group: str = "lobby") -> dict[str, dict]:
        """Until so many run, and nothing else is left."""
        seen: dict[str, dict] = {}

        async def there() -> bool:
            with contextlib.suppress(CommandFailure):
                seen.clear()
                seen.update(await self.instances(group))
            alive = [each["state"] for each in seen.values() if each["state"] not in ENDED]
            return alive == ["RUNNING"] * count

        await eventually(
            there, deadline=100, state=lambda: [(e["id"], e["node"], e["state"]) for e in seen.values()]
        )
        return {id: each for id, each in seen.items() if each["state"] not in ENDED}

    async def until(self, condition: Any) -> dict[str, dict]:
        """Until the instances are like this."""
        seen: dict[str, dict] = {}

        async def there() -> bool:
            with contextlib.suppress(CommandFailure):
                seen.update(await self.instances())
            return bool(seen) and condition(seen)

        await eventually(
            there,
            deadline=100,
            state=lambda: [(e["id"], e["node"], e["state"], e["lost"]) for e in seen.values()],
        )
        return seen


@contextlib.asynccontextmanager
async def line_fleet(
    processes: ProcessCluster, scratch: pathlib.Path, store: str = "sqlite", **environment: str
) -> AsyncIterator[LineFleet]:
    async with contextlib.AsyncExitStack() as stack:
        estate = Estate(processes, scratch, store=store)
        await estate.controller(**{**SWIFT, **environment})
        fleet = LineFleet(estate, scratch, stack.enter_context(LiveCopies(scratch)))
        fleet.token = estate.token
        for node in NODES:
            fleet.lines[node] = await stack.enter_async_context(FaultProxy(estate.grpc))
            await fleet.daemon(node)
        yield fleet
        assert fleet.copies.looks
        assert fleet.copies.together == {}, "of one id two lived at once"
        for daemon in fleet.daemons.values():
            await daemon.dispose()


@pytest.fixture
async def fleet(processes, scratch):
    async with line_fleet(processes, scratch) as fleet:
        yield fleet


async def test_a_node_that_died_for_good_is_replaced_under_new_ids_and_can_be_removed(fleet):
    await fleet.group(min=3, disconnect=SOON)
    before = await fleet.running(3)
    (lost,) = [each for each in before.values() if each["node"] == "n1"]
    daemon, keeper = fleet.daemons["n1"], keeper_pid(fleet.scratch / "n1")
    await daemon.kill()
    os.kill(keeper, signal.SIGKILL)
    seen = await fleet.until(lambda seen: len(seen) == 4 and seen[lost["id"]]["lost"])
    (new,) = set(seen) - set(before)
    assert seen[new]["node"] != "n1"
    assert seen[new]["replaces"] == lost["id"]
    assert fleet.copies.now().get(lost["id"]) == {lost["pid"]}, "whatever lives there is not of another id"
    await fleet.until(lambda seen: seen[new]["state"] == "RUNNING")
    await fleet.call("DELETE", "/api/v1/nodes/n1?confirm=n1")
    left = await fleet.running(3)
    ended = (await fleet.instances())[lost["id"]]
    assert ended["exit"]["outcome"] == "unknown"
    assert {id: each["pid"] for id, each in left.items() if id in before} == {
        id: each["pid"] for id, each in before.items() if id != lost["id"]
    }


@pytest.mark.trap("T11", "T50")
async def test_a_daemon_that_is_killed_during_a_start_finishes_it_once(fleet):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        entry = tarfile.TarInfo("data")
        body = os.urandom(4 << 20)
        entry.size = len(body)
        tar.addfile(entry, io.BytesIO(body))
    async with httpx.AsyncClient(base_url=fleet.api) as client:
        headers = {"Authorization": f"Bearer {fleet.token}", "Content-Type": "application/gzip"}
        answer = await client.put("/api/v1/templates/large", content=buffer.getvalue(), headers=headers)
        assert answer.is_success, answer.text
    fleet.lines["n1"].throttle(100_000)
    ready = fleet.scratch / "ready"
    command = workloads.python(WAITING, str(ready))
    probes = [{"kind": "log", "pattern": "Done"}]
    fields = {"templates": ["large"], "nodes": ["n1"], "command": command, "probes": probes}
    await fleet.group(min=1, startup_timeout_seconds=600, **fields)
    await fleet.until(lambda seen: any(each["state"] == "PREPARING" for each in seen.values()))
    await fleet.daemons["n1"].kill()
    fleet.lines["n1"].heal()
    await fleet.daemon("n1")
    seen = await fleet.until(lambda seen: any(each["state"] == "STARTING" for each in seen.values()))
    (one,) = seen.values()
    await eventually(lambda: fleet.copies.now().get(one["id"]))
    await fleet.daemons["n1"].kill()
    pids = fleet.copies.now()[one["id"]]
    await fleet.daemon("n1")
    ready.touch()
    found = await fleet.running(1)
    assert list(found) == [one["id"]]
    assert {found[one["id"]]["pid"]} == pids
    assert list(await fleet.instances()) == [one["id"]], "nothing was started in its place"


@pytest.mark.trap("T11")
async def test_of_a_partition_in_which_lines_look_alive_no_id_comes_out_twice(fleet):
    await fleet.group(min=6, disconnect=SOON)
    await fleet.group("world", min=3, static=True, disconnect=SOON)
    before = await fleet.running(6)
    worlds = await fleet.running(3, "world")
    fleet.lines["n1"].stall()  # nothing passes, and nobody is told
    await fleet.lines["n2"].cut()
    away = {id for id, each in before.items() if each["node"] in ("n1", "n2")}
    await fleet.until(lambda seen: all(seen[id]["lost"] for id in away))
    await fleet.until(
        lambda seen: [e["node"] for e in seen.values() if e["state"] == "RUNNING"] == ["n3"] * 6
    )
    assert away <= set(fleet.copies.now()), "the nodes keep what they have"
    await fleet.lines["n1"].cut(refuse=False)
    for line in fleet.lines.values():
        line.heal()
    after = await fleet.running(6)
    again = await fleet.running(3, "world")
    assert {id: each["pid"] for id, each in again.items()} == {id: each["pid"] for id, each in worlds.items()}
    alive = {**after, **again}
    await eventually(
        lambda: fleet.copies.now() == {id: {each["pid"]} for id, each in alive.items()},
        state=fleet.copies.now,
    )


@pytest.mark.trap("T11")
async def test_a_group_that_needs_at_most_one_never_has_two_however_its_node_is_cut_off(fleet):
    stop = [{"signal": "SIGTERM", "wait_seconds": 1}]
    away = {"stop_after_seconds": 2, "replace_after_seconds": 13}
    await fleet.group(min=1, max=1, stop=stop, disconnect=away)
    (lost,) = (await fleet.running(1)).values()
    fleet.lines[lost["node"]].stall()
    await eventually(lambda: lost["id"] not in fleet.copies.now(), state=fleet.copies.now)
    assert list(await fleet.instances()) == [lost["id"]], "it has ended before another is started"
    seen = await fleet.until(lambda seen: len(seen) == 2)
    (new,) = set(seen) - {lost["id"]}
    await fleet.until(lambda seen: seen[new]["state"] == "RUNNING")
    await fleet.lines[lost["node"]].cut(refuse=False)
    fleet.lines[lost["node"]].heal()
    await fleet.running(1)
    ended = (await fleet.instances())[lost["id"]]
    assert (ended["state"], ended["exit"]["outcome"]) == ("STOPPED", "isolated")


@pytest.mark.trap("T11", "T36")
async def test_a_leader_that_is_killed_while_a_node_is_away_is_succeeded_on_postgresql(processes, scratch):
    with PostgresServer() as postgres:
        async with postgres.database() as url:
            key = {"CORRAL_PKI_CLUSTER_KEY_FILE": str(scratch / "cluster.key"), **LEASE}
            async with line_fleet(processes, scratch, store=url, **key) as fleet:
                await succeeded(processes, fleet, url, key)
                for process in processes.running():
                    await process.kill()


async def succeeded(processes: ProcessCluster, fleet: LineFleet, url: str, key: dict[str, str]) -> None:
    old = processes.running()[-1]
    new = Estate(processes, fleet.scratch, store=url, data=fleet.scratch / "successor")
    await new.controller(**{**SWIFT, **key})
    await fleet.group(min=3, disconnect=SOON)
    before = await fleet.running(3)
    (lost,) = [each for each in before.values() if each["node"] == "n1"]
    await fleet.lines["n1"].cut()
    await old.kill()
    fleet.api = f"http://{new.http}"
    for line in fleet.lines.values():
        line.retarget(new.grpc)
    seen = await fleet.until(lambda seen: len(seen) == 4)
    (next,) = set(seen) - set(before)
    await fleet.until(lambda seen: seen[next]["state"] == "RUNNING" and seen[lost["id"]]["lost"])
    kept = {id: each["pid"] for id, each in before.items() if id != lost["id"]}
    assert kept.items() <= {id: each["pid"] for id, each in (await fleet.instances()).items()}.items()
    fleet.lines["n1"].heal()
    await fleet.until(lambda seen: seen[lost["id"]]["state"] in ("RUNNING", "STOPPING", *ENDED))
    assert kept.items() <= {id: each["pid"] for id, each in (await fleet.instances()).items()}.items()
