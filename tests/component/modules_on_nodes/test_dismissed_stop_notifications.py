"""Modules that an operator holds back or takes away are owed nothing more; a real daemon with its own book."""

from __future__ import annotations

import json
import os
import pathlib
import signal
from typing import Any

from hooked_node import FIRST, HEAD, UNLESS_BROKEN, order, plan
from node_host_rig import NodeRig, Package, packed

from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import StopOrder
from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.v1 import module_pb2 as pb

HELD_BACK = {"off": pb.MODULE_INTENT_INACTIVE, "held": pb.MODULE_INTENT_PAUSED}


def ears(scratch: pathlib.Path, id: str) -> Package:
    source = UNLESS_BROKEN.replace('ctx.config["heard"]', repr(str(scratch / f"{id}.heard")))
    return packed(scratch / "packed", id, source=HEAD + source.replace("class Demo", "class Module"))


def heard(scratch: pathlib.Path, id: str) -> list[tuple[str, str]]:
    path = scratch / f"{id}.heard"
    told = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return [(line["id"], line["hook"]) for line in told]


async def hears(scratch: pathlib.Path, id: str, *wanted: tuple[str, str]) -> None:
    """Until it has heard exactly this; what is about different instances may come in any order."""
    await eventually(lambda: sorted(heard(scratch, id)) == sorted(wanted), state=lambda: heard(scratch, id))


async def started(rig: NodeRig, id: str) -> Run:
    supervisor = rig.app.supervision.supervisor
    run = supervisor.start(order(id, plan(workloads.silent()), incarnation=FIRST), begun=lambda _: None)
    await eventually(lambda: run.pid)
    return run


async def control(rig: NodeRig, id: str, **fields: Any) -> None:
    await rig.script.say(module_control=pb.ModuleControl(module_id=id, **fields))


async def test_what_is_uninstalled_deactivated_or_paused_is_owed_nothing_more(scratch):
    packages = {id: ears(scratch, id) for id in ("gone", "off", "held", "stays")}
    async with NodeRig(scratch) as rig:
        await rig.start()
        for package in packages.values():
            await rig.install(package)
        run, fence = await started(rig, "one-1"), await started(rig, "fence-1")
        begun = (("one-1", "started"), ("fence-1", "started"))
        for id in packages:
            await hears(scratch, id, *begun)
            (scratch / f"{id}.heard.broken").touch()
            os.kill(rig.pid(id) or 0, signal.SIGKILL)
        for id in packages:
            await rig.script.told(id, "FAILED")
        await run.ask_stop(StopOrder(reason="the test says so", force=True))
        await eventually(
            lambda: run.files.pending_modules() == tuple(sorted(packages)), state=run.files.pending_modules
        )

        for id, intent in HELD_BACK.items():
            await control(rig, id, intent=intent)
        del rig.script.set["gone"]
        await rig.script.say(module_uninstall=pb.ModuleUninstall(module_id="gone"))
        await eventually(lambda: run.files.pending_modules() == ("stays",), state=run.files.pending_modules)

        for id in packages:
            (scratch / f"{id}.heard.broken").unlink()
        await rig.script.told("gone", "UNLOADED")
        await rig.install(packages["gone"])
        for id in ("off", "held", "stays"):
            await control(rig, id, intent=pb.MODULE_INTENT_ACTIVE, recover=True)
        for id in ("off", "held", "gone"):
            await hears(scratch, id, *begun, ("fence-1", "started"))
        await hears(scratch, "stays", *begun, ("fence-1", "started"), ("one-1", "stopped"))
        await eventually(run.files.modules_notified)
        await fence.ask_stop(StopOrder(reason="the test is over", force=True))
        await eventually(lambda: all(("fence-1", "stopped") in heard(scratch, id) for id in packages))
