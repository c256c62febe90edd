"""Templates on their way to real daemons: missing contents only, resumed after a cut, never a wrong one."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from depot import unpacked

from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually

MEGABYTE = 1024 * 1024


def tree(*, change: bytes = b"") -> dict[str, bytes]:
    contents = {f"world/region/r.{n}.mca": WORLD[n * 65536 : (n + 1) * 65536] for n in range(64)}
    return {**contents, "server.properties": b"motd=" + change}


WORLD = os.urandom(4 * MEGABYTE)


async def held(depot, node="n1"):
    report = await depot.term.distribution.cache_status(node)
    return {(each.name, each.version) for each in report.templates}


async def test_a_sync_brings_what_is_missing_and_the_next_one_only_what_changed(cluster, depot):
    async with FaultProxy() as proxy:
        controller = await depot.begin(via=proxy)
        await cluster.daemon("n1", controller)
        await depot.upload("world", tree())
        assert [(each.ok, each.message) for each in await depot.term.distribution.sync("world")] == [
            (True, "")
        ]
        assert await held(depot) == {("world", 1)}
        before = proxy.forwarded_bytes
        await depot.upload("world", tree(change=b"changed"))
        assert [each.ok for each in await depot.term.distribution.sync("world", ["n1"])] == [True]
        assert proxy.forwarded_bytes - before < 200_000
        assert {("world", 2)} <= await held(depot)
        before = proxy.forwarded_bytes
        assert [each.ok for each in await depot.term.distribution.sync("world")] == [True]
        assert proxy.forwarded_bytes - before < 50_000


@pytest.mark.trap("T9")
async def test_a_transfer_that_is_cut_goes_on_and_ends_with_the_right_bytes(cluster, depot):
    async with FaultProxy() as proxy:
        controller = await depot.begin(via=proxy)
        daemon = await cluster.daemon("n1", controller)
        await depot.upload("world", tree())
        proxy.throttle(4 * MEGABYTE)
        start = proxy.forwarded_bytes
        syncing = asyncio.create_task(depot.term.distribution.sync("world", ["n1"]))
        await eventually(lambda: proxy.forwarded_bytes - start > MEGABYTE)
        await proxy.cut(refuse=False)
        await syncing  # the session it was asked in has ended: that is what it says, or it was faster
        proxy.heal()
        await eventually(lambda: depot.session("n1") is not None)
        await daemon.app.ready.wait()

        async def complete():
            answers = await depot.term.distribution.sync("world", ["n1"])
            return answers[0].ok

        await eventually(complete)
        assert await held(depot) == {("world", 1)}
        assert proxy.forwarded_bytes - start < 2 * len(WORLD)


async def test_a_node_that_joins_has_the_templates_of_the_groups_soon_after(cluster, depot):
    controller = await depot.begin()
    await depot.upload("base", {"a.txt": b"1"})
    await depot.upload("world", tree())
    await depot.group("lobby", templates=["base", "world"])
    await cluster.daemon("n1", controller)

    async def warm():
        return {("base", 1), ("world", 1)} <= await held(depot)

    await eventually(warm)


async def test_a_start_has_its_files_and_what_it_made_of_them_can_be_saved(cluster, depot):
    controller = await depot.begin()
    await depot.upload("base", {"greeting.txt": b"hello %NAME%", "kept.txt": b"1"})
    await cluster.daemon("n1", controller)
    await depot.group(
        command=["sh", "-c", "echo made > made.txt; exec sleep 600"],
        templates=["base"],
        substitute=["*.txt"],
        variables={"NAME": "group"},
        stop=[{"signal": "SIGTERM", "wait_seconds": 5}],
    )
    body = {"group": "lobby", "variables": {"NAME": "own"}}
    await controller.call("POST", "/api/v1/instances?wait=running", body)

    async def saved():
        held = bytearray()
        async with depot.term.distribution.save_files("lobby-1", ["greeting.txt", "made.txt"]) as blocks:
            async for block in blocks:
                held += block
        files = unpacked(bytes(held))
        return files if files.get("made.txt") else None

    assert await eventually(saved) == {"greeting.txt": b"hello own", "made.txt": b"made\n"}
    await depot.upload("base", {"greeting.txt": b"good evening"})
    await controller.call("POST", "/api/v1/instances/lobby-1/restart?wait=running", {})
    assert (await eventually(saved))["greeting.txt"] == b"good evening"
    assert depot.state.instances.require("lobby-1").record.variables == {"NAME": "own"}


async def test_a_static_instance_comes_back_under_its_id_with_its_world(cluster, depot):
    controller = await depot.begin()
    await depot.upload("base", {"seed.txt": b"seed"})
    daemon = await cluster.daemon("n1", controller)
    await depot.group(
        command=["sh", "-c", "echo begun >> world.txt; exec sleep 600"],
        templates=["base"],
        static=True,
        min=1,
    )
    await eventually(lambda: state_of(depot) == "RUNNING")
    first = depot.state.instances.require("lobby-1").record
    assert first.home == "n1"
    begun = daemon.config.data / "static/lobby-1/world.txt"
    await eventually(lambda: begun.exists() and begun.read_text())
    await controller.call("POST", "/api/v1/instances/lobby-1/kill?wait=stopped", {})
    await controller.call("POST", "/api/v1/instances/lobby-1/restart", {})
    await eventually(lambda: depot.state.instances.require("lobby-1").record.incarnation > first.incarnation)
    await eventually(lambda: state_of(depot) == "RUNNING")

    async def world():
        async with depot.term.distribution.save_files("lobby-1", ["*.txt"]) as blocks:
            files = unpacked(b"".join([block async for block in blocks]))
        return files if files["world.txt"].count(b"\n") == 2 else None

    assert (await eventually(world))["seed.txt"] == b"seed"
    assert [stored.record.id for stored in depot.state.instances] == ["lobby-1"]
    (daemon.config.data / "static" / "forgotten-1").mkdir()
    await cluster.restart(daemon)
    await eventually(lambda: depot.state.nodes.require("n1").record.worlds == ("forgotten-1", "lobby-1"))
    assert depot.state.nodes.require("n1").record.static_directory == str(daemon.config.data / "static")


@pytest.mark.trap("T75")
async def test_a_played_world_outlives_template_changes_restarts_crashes_and_changed_rules(cluster, depot):
    controller = await depot.begin()
    shipped = {"world/level.dat": b"seed", "server.properties": b"motd=hi", "plugins/a.jar": b"1"}
    await depot.upload("base", shipped)
    daemon = await cluster.daemon("n1", controller)
    await depot.group(
        command=["sleep", "600"],
        templates=["base"],
        static=True,
        min=1,
        restart={"attempts": 0},
        stop=[{"signal": "SIGTERM", "wait_seconds": 5}],
    )
    await eventually(lambda: state_of(depot) == "RUNNING")
    world = daemon.config.data / "static" / "lobby-1"
    (world / "world/level.dat").write_bytes(b"six months of playing")
    (world / "server.properties").write_bytes(b"motd=mine")

    def record():
        return depot.state.instances.require("lobby-1").record

    async def begun_after(order):
        before = record().incarnation
        await order
        await eventually(lambda: record().incarnation > before and state_of(depot) == "RUNNING")
        assert (world / "world/level.dat").read_bytes() == b"six months of playing"
        assert (world / "server.properties").read_bytes() == b"motd=mine"

    def restarted():
        return controller.call("POST", "/api/v1/instances/lobby-1/restart", {})

    async def crashed():
        os.kill(record().pid, signal.SIGKILL)

    await depot.upload("base", {**shipped, "plugins/a.jar": b"2"})
    await begun_after(restarted())
    assert (world / "plugins/a.jar").read_bytes() == b"2"
    await depot.upload("base", {**shipped, "plugins/a.jar": b"3"})
    await begun_after(crashed())
    assert (world / "plugins/a.jar").read_bytes() == b"3"
    for rules in ({"substitute": ["*.properties"]}, {"merge": ["*.properties"]}):
        await controller.call("PATCH", "/api/v1/groups/lobby", rules)
        await begun_after(restarted())
    await depot.upload("base", {**shipped, "plugins/a.jar": b"3", "server.properties": b"motd=new"})
    await begun_after(restarted())
    why = await controller.call("GET", "/api/v1/instances/lobby-1/why")
    assert why["files_kept"] == ["server.properties: it was changed since it was laid"]
    (daemon.config.data / "static" / ".seeds" / "lobby-1.json").unlink()
    await begun_after(restarted())


def state_of(depot, id="lobby-1"):
    found = depot.state.instances.find(id)
    return found.record.state.value if found else None
