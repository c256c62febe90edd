"""A daemon that is killed in the middle of something: the next one goes on from what is on the disk."""

from __future__ import annotations

import os
import pathlib

import pytest
from node_host_rig import ModuleScript, packed

from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.wire.v1.data_pb2_grpc import add_DataServiceServicer_to_server

WAITS = """
import os, time
from corral.sdk import DaemonModule

class Module(DaemonModule):
    def {hook}(self, ctx):
        ctx.logger.warning("waiting in {hook}")
        while not os.path.exists({gate!r}):
            time.sleep(0.01)
"""
STALL = 256 * 1024


def module_processes(scratch: pathlib.Path) -> list[int]:
    """Pids of what module hosts below this directory have running."""
    mark = f"CORRAL_MODULE_HOUSE={scratch}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.system
async def test_a_daemon_killed_while_it_fetches_installs_or_upgrades_goes_on_afterwards(scratch):
    data, script = scratch / "node", ModuleScript()
    gates = [scratch / "loaded", scratch / "started"]
    noise = {"noise.bin": os.urandom(600_000)}
    first = packed(
        scratch, source=WAITS.format(hook="on_load", gate=str(gates[0])), files=noise, hook_ms=30_000
    )
    source = WAITS.format(hook="on_start", gate=str(gates[1]))
    second = packed(scratch, version="2.0.0", source=source, hook_ms=30_000)
    script.blobs = {package.sha256: package.content for package in (first, second)}
    script.set["small"] = first.entry()
    services = ScriptedController(
        script, also=lambda server: add_DataServiceServicer_to_server(script, server)
    )
    async with services as controller, ProcessCluster(scratch) as cluster:
        controller.enrol(data, "n1")

        async def started() -> ServiceProcess:
            before = len(script.greetings)
            daemon = cluster.start("daemon", "--data", str(data), "--controller", controller.address)
            await eventually(lambda: len(script.greetings) > before and script.is_open)
            return daemon

        daemon = await started()
        script.cut_after, hang_up = STALL, script.hang_up
        script.hang_up = lambda: None  # the line goes quiet, and the daemon waits
        await script.say(module_install=first.install(offered=True))
        incoming = data / "modules" / "incoming"
        part = await eventually(lambda: next(incoming.glob("*.part"), None))
        await eventually(lambda: part.stat().st_size >= STALL)
        await daemon.kill()  # in the middle of a fetch
        script.hang_up = hang_up

        daemon = await started()
        assert list(script.greetings[-1].modules) == []
        await script.say(module_install=first.install(offered=True))
        await script.told("small", "INSTALLED")
        assert script.fetches[-1][1] >= STALL
        await eventually(lambda: len(module_processes(scratch)) >= 2)
        await daemon.kill()  # in the middle of an installation

        gates[0].touch()
        daemon = await started()
        assert [entry.sha256 for entry in script.greetings[-1].modules] == [first.sha256]
        await script.told("small", "ACTIVE", version="1.0.0")
        script.set["small"] = second.entry()
        await script.say(module_install=second.install(offered=True))
        await script.told("small", "STOPPING", "INSTALLED", "WAITING", version="2.0.0")
        await daemon.kill()  # in the middle of an upgrade

        daemon = await started()
        entry = script.greetings[-1].modules[0]
        assert (entry.sha256, entry.version) == (first.sha256, "1.0.0")
        await script.told("small", "ACTIVE", version="1.0.0")
        gates[1].touch()
        fetched = len(script.fetches)
        await script.say(module_install=second.install(offered=True))
        await script.told("small", "ACTIVE", version="2.0.0")
        assert len(script.fetches) == fetched  # it was here already

        def said() -> set[tuple[str, str, str]]:
            lines = [line for line in script.of("daemon_log_record") if line.logger == "module:small"]
            return {(line.level, line.message, line.mdc["version"]) for line in lines}

        wanted = {("WARN", "waiting in on_load", "1.0.0"), ("WARN", "waiting in on_start", "2.0.0")}
        await eventually(lambda: said() == wanted, state=said)
        assert await daemon.terminate() == 0
        assert module_processes(scratch) == []
