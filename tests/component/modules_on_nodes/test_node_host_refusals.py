"""What a node does not take, cannot keep, or is not brought: said once, visible, and in nobody's way."""

from __future__ import annotations

import random
import shutil

import pytest
from node_host_rig import NodeRig, Package, packed

from corral.testing.module_processes import measured_lag
from corral.testing.waiting import eventually
from corral.wire.v1 import module_pb2 as pb

CALM = 30.0
"""Seconds, on a machine that is busy with other tests; in this process it would take a minute."""
CHOOSY = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_start(self, ctx):
        ctx.logger.info("started with " + ctx.config["word"])

    async def on_reload(self, ctx):
        ctx.logger.info("offered " + ctx.config["word"])
        if ctx.config["word"] == "bad":
            raise ValueError("no such word")
"""
SCHEMA = {"type": "object", "properties": {"word": {"type": "string", "default": "none"}}}
GOOD, BAD = b'{"word":"good"}', b'{"word":"bad"}'
SPEAKING = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    def register_commands(self, commands):
        commands.add("tell me", self.tell)

    async def tell(self, call):
        pass
"""
LINGERING = """
import threading
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_start(self, ctx):
        threading.Thread(target=threading.Event().wait, name="forgotten").start()
"""


def control(id: str = "small", **fields) -> dict:
    fields = {"intent": pb.MODULE_INTENT_ACTIVE, **fields}
    return {"module_control": pb.ModuleControl(module_id=id, **fields)}


async def test_settings_that_a_module_refuses_stand_with_its_state_and_are_not_offered_again_unasked(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        script, package = rig.script, packed(scratch, source=CHOOSY, config=SCHEMA)
        await rig.install(package, settings=GOOD)

        def offered() -> list[str]:
            live = rig.app.modules.engine.live("small")
            return [line.rpartition(" ")[2] for line in live.log if "offered" in line] if live else []

        await script.say(**control(settings_json=GOOD, reload=True))  # as they are: still what was asked for
        await eventually(lambda: offered() == ["good"], state=offered)
        script.set["small"] = package.entry(settings=BAD)
        await script.say(**control(settings_json=BAD))
        await eventually(lambda: "no such word" in script.last("small").last_error)
        told = script.last("small")
        assert (told.state, told.from_state) == ("ACTIVE", "ACTIVE")
        assert told.last_error.startswith("settings_refused: ")

        await rig.stop()
        await rig.start()
        (entry,) = script.greetings[-1].modules
        assert entry.settings_sha256 == script.set["small"].settings_sha256  # nothing to be sent
        assert "no such word" in entry.last_error
        assert await rig.app.modules.settled() == ()
        await script.say(**control(settings_json=BAD))
        await script.say(**control(settings_json=BAD, reload=True))
        await eventually(lambda: script.errors() == ["MODULE_FAILED"] * 2, state=script.errors)
        assert offered() == ["bad"]
        await script.say(**control(settings_json=GOOD))
        await eventually(lambda: script.last("small").last_error == "")
        assert (
            rig.app.modules.set_entries()[0].settings_sha256 == package.entry(settings=GOOD).settings_sha256
        )


@pytest.mark.system
@pytest.mark.trap("T82")
async def test_settings_that_take_a_minute_to_check_hold_up_nobody_on_a_node(scratch):
    """A module whose schema is small and whose settings are, too; each of them for each of the others."""
    words = {"type": "array", "items": {"anyOf": [{"const": number} for number in range(3000)]}}
    schema = {"type": "object", "properties": {**SCHEMA["properties"], "words": words}}
    many = b'{"word":"good","words":[' + b",".join([b"-1"] * 10_000) + b"]}"
    async with NodeRig(scratch) as rig:
        await rig.start()
        script, package = rig.script, packed(scratch, source=CHOOSY, config=schema)
        await rig.install(package, settings=GOOD)
        script.set["small"] = package.entry(settings=many)
        async with measured_lag() as lag:
            await script.say(**control(settings_json=many))
            await eventually(lambda: "settings_refused" in script.last("small").last_error)
        assert lag.worst < CALM
        assert "more than 3 s" in script.last("small").last_error
        assert script.last("small").state == "ACTIVE"


async def test_settings_of_a_refused_version_are_not_for_the_one_that_runs(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        script, old = rig.script, packed(scratch, source=CHOOSY, config=SCHEMA)
        new = packed(scratch, version="2.0.0", source="raise RuntimeError('not today')", config=SCHEMA)
        await rig.install(old, settings=GOOD)
        await script.say(module_install=new.install(settings=GOOD))
        await eventually(lambda: script.last("small").refused_sha256 == new.sha256)
        await script.say(
            module_install=new.install(settings=b'{"word":"other"}')
        )  # and nobody asked for it again
        await script.say(module_install=packed(scratch, "later").install())
        await script.told("later", "ACTIVE")
        assert await rig.app.modules.settled() == ()
        entries = {entry.module_id: entry for entry in rig.app.modules.set_entries()}
        assert entries["small"].settings_sha256 == old.entry(settings=GOOD).settings_sha256


async def test_what_a_lost_session_announced_holds_up_no_start_of_the_next_one(scratch):
    async with NodeRig(scratch, modules__node_sync_timeout_seconds=60) as rig:
        await rig.start()
        old, new = packed(scratch), packed(scratch, version="2.0.0")
        await rig.install(old)
        rig.script.set["small"] = new.entry()
        await rig.script.meet_again()  # its frame never comes
        rig.script.set["small"] = old.entry()
        await rig.script.meet_again()
        await eventually(lambda: rig.app.link.session_id == f"s{len(rig.script.greetings)}")
        assert await rig.app.modules.settled() == ()


async def test_an_order_to_rest_does_not_wait_for_a_new_version_on_its_way(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        old, new = (
            packed(scratch),
            packed(scratch, version="2.0.0", files={"noise": random.Random(1).randbytes(1 << 20)}),
        )
        await rig.install(old)
        rig.script.blobs[new.sha256] = new.content
        rig.script.cut_after, rig.script.hang_up = 1, lambda: None  # the line goes quiet
        await rig.script.say(module_install=new.install(offered=True))
        await eventually(lambda: len(rig.script.fetches) == 1)
        await rig.script.say(**control(intent=pb.MODULE_INTENT_INACTIVE))
        await rig.script.told("small", "STOPPING", "INSTALLED")
        await eventually(
            lambda: rig.script.last("small").version == "2.0.0", state=lambda: rig.script.fetches
        )
        assert rig.script.last("small").intent == pb.MODULE_INTENT_INACTIVE


async def test_a_disk_that_refuses_an_archive_is_told_and_holds_up_nothing_until_it_takes_it(scratch):
    async with NodeRig(scratch, modules__node_sync_timeout_seconds=60) as rig:
        await rig.start()
        package: Package = packed(scratch)
        rig.script.blobs[package.sha256] = package.content
        incoming = rig.data / "modules" / "incoming"
        shutil.rmtree(incoming)
        incoming.write_text("not a directory")
        await rig.script.say(module_install=package.install(offered=True))
        await eventually(lambda: rig.script.errors() == ["STORAGE_UNAVAILABLE"], state=rig.script.errors)
        assert await rig.app.modules.settled() == ()
        incoming.unlink()
        incoming.mkdir()
        await rig.script.told("small", "ACTIVE")
        assert rig.script.errors() == ["STORAGE_UNAVAILABLE"]


async def test_what_nobody_can_call_is_refused_leaks_are_figures_and_leftovers_go(scratch):
    async with NodeRig(scratch, modules__leak_grace_seconds=0.1) as rig:
        await rig.start()
        await rig.install(packed(scratch, "speaking", source=SPEAKING), state="FAILED")
        assert rig.script.last("speaking").reason == "bad_registration:command:tell me"
        assert "part on the controller" in rig.script.last("speaking").last_error

        lingering = packed(scratch, "lingering", source=LINGERING)
        await rig.install(lingering)
        await rig.script.say(module_uninstall=pb.ModuleUninstall(module_id="lingering"))
        del rig.script.set["lingering"]
        await rig.script.told("lingering", "UNLOADED")
        await eventually(lambda: lingering.sha256 not in rig.archives())
        kept = rig.data / "cache" / "modules" / "artifacts" / f"{'0' * 64}.zip"
        kept.write_bytes(b"of a daemon that was killed")
        await rig.script.meet_again()

        def leaked() -> list[tuple[str, float]]:
            frames = rig.script.of("module_metrics")[-1:]
            families = [family for frame in frames for family in frame.families if family.name == "leaked"]
            return [(family.module_id, family.samples[0].value) for family in families]

        await eventually(lambda: leaked() == [("lingering", 1.0)], state=leaked)
        await eventually(lambda: not kept.exists())
