"""Upgrades, intents and settings on a node, and its end."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import time

import msgspec
import pytest
from node_host_rig import NodeRig, packed

from corral.testing.waiting import eventually
from corral.wire.v1 import module_pb2 as pb

FRAGILE = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_start(self, ctx):
        raise RuntimeError("not on this node")
"""
TUNED = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_start(self, ctx):
        ctx.logger.info("started with " + ctx.config["word"])

    async def on_reload(self, ctx):
        if ctx.config["word"] == "bad":
            raise ValueError("no such word")
        ctx.logger.info("reloaded with " + ctx.config["word"])
"""
SCHEMA = {"type": "object", "properties": {"word": {"type": "string", "default": "none"}}}
HOOK_MS = 30_000
"""How long the module may take, at most: `MAX_HOOK_DEADLINE_MS`."""
HUNG = """
import asyncio
import pathlib
import time
from corral.sdk import DaemonModule

class Module(DaemonModule):
    def on_stop(self, ctx):
        time.sleep(600)
"""


def control(id: str = "small", **fields) -> dict:
    fields = {"intent": pb.MODULE_INTENT_ACTIVE, **fields}
    return {"module_control": pb.ModuleControl(module_id=id, **fields)}


async def test_an_upgrade_that_fails_leaves_the_old_version_and_is_not_tried_again_unless_asked_for(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        old, new = packed(scratch), packed(scratch, version="2.0.0", source=FRAGILE)
        await rig.install(old)
        rig.script.set["small"] = new.entry()
        await rig.script.say(module_install=new.install(is_upgrade=True, previous_version="1.0.0"))
        await eventually(lambda: rig.script.last("small").refused_sha256 == new.sha256)
        told = rig.script.last("small")
        assert (told.state, told.version, told.sha256) == ("ACTIVE", "1.0.0", old.sha256)
        first, _, story = told.last_error.partition("\n")
        assert first.startswith("hook_failed:on_start: RuntimeError: not on this node")
        assert "1.0.0 serves again" in story
        await eventually(lambda: rig.script.errors() == ["MODULE_UPGRADE_FAILED"], state=rig.script.errors)
        await eventually(lambda: rig.archives() == {old.sha256, new.sha256})  # kept, for when it is asked for

        await rig.stop()
        await rig.start()
        assert await rig.app.modules.settled() == ()
        (entry,) = rig.script.greetings[-1].modules
        assert (entry.sha256, entry.refused_sha256) == (old.sha256, new.sha256)
        pid, steps = rig.pid("small"), len(rig.script.steps("small"))
        await rig.script.say(module_install=new.install())
        await rig.script.say(module_install=new.install(again=True))
        await eventually(lambda: rig.script.errors() == ["MODULE_UPGRADE_FAILED"] * 2)
        await eventually(lambda: rig.script.steps("small")[steps:].count("WAITING"))
        assert rig.pid("small") == pid

        fixed = packed(scratch, version="2.0.1")
        await rig.install(fixed)
        assert rig.script.last("small").refused_sha256 == ""
        await eventually(lambda: rig.archives() == {fixed.sha256})


async def test_intents_and_settings_follow_the_controller_also_where_the_module_failed(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch, source=TUNED, config=SCHEMA)
        await rig.install(package, settings=b'{"word":"first"}')
        say, told = rig.script.say, rig.script.told
        await say(**control(intent=pb.MODULE_INTENT_PAUSED, reason="too loud"))
        paused = await told("small", "STOPPING", "INSTALLED")
        assert (paused.reason, paused.intent) == ("paused", pb.MODULE_INTENT_PAUSED)
        await say(**control(intent=pb.MODULE_INTENT_INACTIVE))
        await eventually(lambda: rig.script.last("small").reason == "deactivated")
        assert rig.script.last("small").intent == pb.MODULE_INTENT_INACTIVE
        await say(**control())
        await told("small", "INSTALLED", "WAITING", "ACTIVE")
        pid = rig.pid("small")
        await say(**control(settings_json=b'{"word":"second"}'))
        await eventually(lambda: "INFO reloaded with second" in rig.app.modules.engine.live("small").log)
        await say(**control(settings_json=b'{"word":"bad"}'))
        await eventually(lambda: rig.script.errors() == ["MODULE_FAILED"], state=rig.script.errors)
        assert rig.pid("small") == pid

        broken = packed(scratch, "broken", source=FRAGILE)
        await rig.install(broken, state="FAILED")
        await say(**control("broken", intent=pb.MODULE_INTENT_INACTIVE))
        await eventually(lambda: rig.script.last("broken").intent == pb.MODULE_INTENT_INACTIVE)
        assert rig.script.last("broken").state == "FAILED"
        await say(**control("broken", intent=pb.MODULE_INTENT_INACTIVE, recover=True))
        await told("broken", "FAILED", "FAILED", "INSTALLED")


async def test_the_latest_word_counts_and_what_came_before_it_is_not_carried_out(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        versions = [packed(scratch, version=f"1.0.{number}") for number in range(5)]
        for package in versions:
            await rig.script.say(module_install=package.install())
        await rig.script.say(**control(intent=pb.MODULE_INTENT_INACTIVE))
        await eventually(lambda: rig.script.last("small").intent == pb.MODULE_INTENT_INACTIVE)
        last = await rig.script.told("small", "INSTALLED", version="1.0.4")
        assert last.sha256 == versions[-1].sha256
        seen = {update.version for update in rig.script.of("module_state_update")}
        assert not seen & {"1.0.1", "1.0.2", "1.0.3"}
        await rig.script.say(module_uninstall=pb.ModuleUninstall(module_id="small"))
        await rig.script.say(module_install=versions[0].install())
        await rig.script.told("small", "ACTIVE", version="1.0.0")
        await eventually(lambda: rig.archives() == {versions[0].sha256})


async def test_a_hung_module_does_not_hold_up_the_end_of_the_daemon_and_is_named(scratch):
    async with NodeRig(scratch, shutdown__budget_seconds=5) as rig:
        await rig.start()
        await rig.install(packed(scratch, "hung", source=HUNG, hook_ms=HOOK_MS))
        await rig.install(packed(scratch))
        pid, began = rig.pid("hung"), time.monotonic()
        stragglers = await rig.app.modules.close(budget=0.5)
        assert stragglers == ["hung"]
        await rig.stop()
        assert time.monotonic() - began < HOOK_MS / 1000, "somebody waited for its hook"
        (record,) = [
            msgspec.json.decode(path.read_bytes())["value"]["record"]
            for path in (rig.data / "modules" / "records").glob("hung.json")
        ]
        assert record["phase"] == "ACTIVE"  # a shutdown is no failure
        await rig.start()
        assert await rig.app.modules.settled() == ()
        assert rig.pid("hung") not in (None, pid)


async def test_a_wish_is_carried_out_once_however_often_it_is_told_and_starts_wait_for_it(scratch):
    async with NodeRig(scratch, modules__node_sync_timeout_seconds=60) as rig:
        await rig.start()
        package = packed(scratch, source=TUNED, config=SCHEMA)
        await rig.install(package, settings=b'{"word":"good"}', reload_ms=7)
        script = rig.script

        def reloads() -> int:
            live = rig.app.modules.engine.live("small")
            return sum("reloaded" in line for line in live.log) if live else 0

        def noted(reload_ms: int, recover_ms: int) -> bool:
            last = script.last("small")
            return (last.reload_ms, last.recover_ms) == (reload_ms, recover_ms)

        await eventually(lambda: noted(7, 0))
        assert reloads() == 0, "what has just come up has read its settings"
        entry = package.entry(settings=b'{"word":"good"}')
        entry.reload_ms = 8
        script.set["small"] = entry
        await script.meet_again()
        waiting = asyncio.create_task(rig.app.modules.settled(), name="test/start")
        for _ in range(3):
            await script.say(**control(reload=True, reload_ms=8, recover_ms=3))
        assert await waiting == ()
        await eventually(lambda: noted(8, 3))
        assert reloads() == 1
        steps = len(script.of("module_state_update"))
        for _ in range(20):
            await script.meet_again()
            await script.say(**control(reload=True, reload_ms=8, recover_ms=3))
        (said,) = script.greetings[-1].modules
        assert (said.reload_ms, said.recover_ms) == (8, 3)
        assert await rig.app.modules.settled() == ()
        assert (reloads(), len(script.of("module_state_update"))) == (1, steps)
        for times in (2, 3):  # a controller that does not say when: each time is a time
            await script.say(**control(reload=True))
            await eventually(lambda times=times: reloads() == times)


PAIRED_HOOKS = """
import os, pathlib
from corral.sdk import DaemonModule

class Module(DaemonModule):
    def on_load(self, ctx):
        self.note("on_load")

    def on_stop(self, ctx):
        self.note("on_stop")

    def on_unload(self, ctx):
        self.note("on_unload")

    def note(self, what):
        with open(PLACE, "a") as file:
            file.write(f"{what} {os.getpid()}\\n")
"""


@pytest.mark.trap("T80")
@pytest.mark.parametrize("intent", [pb.MODULE_INTENT_INACTIVE, pb.MODULE_INTENT_PAUSED])
async def test_a_module_that_is_held_back_has_no_process_on_a_node_either(scratch, intent):
    async with NodeRig(scratch) as rig:
        await rig.start()
        place = scratch / "hooks"
        await rig.install(packed(scratch, source=PAIRED_HOOKS.replace("PLACE", repr(str(place)))))
        first = rig.pid("small")
        await rig.script.say(**control(intent=intent, reason="it burns CPU"))
        await rig.script.told("small", "STOPPING", "INSTALLED")
        assert rig.pid("small") is None
        assert not pathlib.Path(f"/proc/{first}").exists()
        await rig.script.say(**control())
        await rig.script.told("small", "WAITING", "ACTIVE")
        noted = place.read_text().splitlines()
        assert noted == [
            f"on_load {first}", f"on_stop {first}", f"on_unload {first}", f"on_load {rig.pid('small')}"
        ]  # fmt: skip


SLOW = """
import asyncio, pathlib
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_start(self, ctx):
        PLACE.joinpath("begun").touch()
        while not PLACE.joinpath("go").exists():
            await asyncio.sleep(0.01)
"""


@pytest.mark.trap("T84")
async def test_an_upgrade_that_a_lost_zygote_cut_short_is_tried_again_by_itself(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        await rig.install(packed(scratch))
        source = SLOW.replace("PLACE", f"pathlib.Path({str(scratch)!r})")
        new = packed(scratch, version="2.0.0", source=source, hook_ms=30_000)
        rig.script.set["small"] = new.entry()
        await rig.script.say(module_install=new.install(is_upgrade=True, previous_version="1.0.0"))
        await eventually((scratch / "begun").exists)
        os.kill(rig.app.modules._pool.zygote_pid, signal.SIGKILL)
        (scratch / "go").touch()
        await eventually(
            lambda: (rig.script.last("small").state, rig.script.last("small").version) == ("ACTIVE", "2.0.0")
        )
        assert rig.script.last("small").refused_sha256 == ""
