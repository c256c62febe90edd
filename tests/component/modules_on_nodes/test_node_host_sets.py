"""What the controller's set and its frames do to the modules of a node."""

from __future__ import annotations

import pytest
from node_host_rig import ModuleScript, NodeRig, packed

from corral.testing.waiting import eventually
from corral.wire import features
from corral.wire.v1 import module_pb2 as pb


@pytest.mark.system
@pytest.mark.trap("T1")
async def test_a_hundred_reconnects_restart_no_module_and_transfer_nothing(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch, "large", files={"noise.bin": bytes(range(256)) * 2048})
        rig.script.blobs[package.sha256] = package.content
        await rig.install(package, offered=True)
        pid, steps = rig.pid("large"), rig.script.steps("large")
        assert steps == ["INSTALLED", "WAITING", "ACTIVE"]
        assert [offset for _, offset in rig.script.fetches] == [0]
        for number in range(100):
            await rig.script.meet_again()
            if number % 10 == 0:  # a controller that sends everything at each handshake
                await rig.script.say(module_install=package.install(offered=True))
        assert len(rig.script.greetings) == 101
        (entry,) = rig.script.greetings[-1].modules
        assert (entry.module_id, entry.sha256, entry.state) == ("large", package.sha256, "ACTIVE")
        assert entry.settings_sha256 == package.entry().settings_sha256
        assert rig.pid("large") == pid
        assert rig.script.steps("large") == steps
        assert len(rig.script.fetches) == 1


@pytest.mark.trap("T2")
async def test_a_module_that_the_set_lacks_after_an_absence_is_gone_without_a_trace(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package, other = packed(scratch), packed(scratch, "other")
        await rig.install(package)
        await rig.install(other)
        pid = rig.pid("other")
        del rig.script.set["small"]
        await rig.script.meet_again()
        gone = await rig.script.told("small", "STOPPING", "INSTALLED", "UNLOADED")
        assert (gone.reason, gone.from_state) == ("uninstall", "INSTALLED")
        assert rig.pid("small") is None
        assert rig.pid("other") == pid
        await eventually(lambda: rig.archives() == {other.sha256}, state=rig.archives)
        assert [path.stem for path in (rig.data / "modules" / "records").iterdir()] == ["other"]


async def test_a_controller_that_knows_no_sets_takes_nothing_away(scratch):
    plain = tuple(feature for feature in features.FEATURES if feature != features.MODULES)
    async with NodeRig(scratch, ModuleScript(features=plain)) as rig:
        await rig.start()
        package = packed(scratch)
        frame = package.install(settings=b"", intent=pb.MODULE_INTENT_UNSPECIFIED)
        await rig.script.say(module_install=frame)
        await rig.script.told("small", "ACTIVE")
        pid = rig.pid("small")
        await rig.script.meet_again()
        await rig.script.say(module_install=frame)  # it sends everything at each handshake
        await rig.script.say(module_uninstall=pb.ModuleUninstall(module_id="nobody"))
        assert await rig.app.modules.settled() == ()
        assert (rig.pid("small"), rig.script.steps("small")[-1]) == (pid, "ACTIVE")


@pytest.mark.trap("T15")
async def test_a_frame_of_a_deposed_controller_does_nothing(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch)
        await rig.install(package)
        pid = rig.pid("small")
        older = rig.script.epoch - 1
        await rig.script.say(epoch=older, module_uninstall=pb.ModuleUninstall(module_id="small"))
        await rig.script.say(epoch=older, module_install=packed(scratch, "intruder").install())
        await eventually(lambda: rig.script.errors() == ["STALE_EPOCH"], state=rig.script.errors)
        assert await rig.app.modules.settled() == ()
        assert rig.pid("small") == pid
        assert rig.script.steps("intruder") == []


async def test_frames_that_lack_or_mistake_a_field_are_answered_and_change_nothing(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch)
        await rig.install(package)
        good = package.install()
        bad = [
            {"module_install": pb.ModuleInstall(module_id="small", version="1.0.0")},
            {"module_install": package.install(module_id="../../etc")},
            {"module_install": package.install(sha256="../../../etc/passwd")},
            {"module_install": package.install(intent=77)},
            {"module_install": package.install(settings_json=b"[1]")},
            {"module_install": package.install(signature_bytes=b"x", signature_kind="wax")},
            {"module_uninstall": pb.ModuleUninstall()},
            {"module_control": pb.ModuleControl(intent=pb.MODULE_INTENT_INACTIVE)},
            {"module_control": pb.ModuleControl(module_id="small", intent=9)},
        ]
        for frame in bad:
            await rig.script.say(**frame)
        expected = ["MISSING_FIELD", *["INVALID_FIELD"] * 5, *["MISSING_FIELD"] * 2, "INVALID_FIELD"]
        await eventually(lambda: rig.script.errors() == expected, state=rig.script.errors)
        assert "sha256" in rig.script.of("error_report")[0].error_message
        await rig.script.say(module_install=good)
        assert await rig.app.modules.settled() == ()
        assert rig.script.steps("small") == ["INSTALLED", "WAITING", "ACTIVE"]


async def test_an_offer_from_a_controller_without_a_data_channel_is_answered(scratch):
    async with NodeRig(scratch, ModuleScript(features=())) as rig:
        await rig.start()
        package = packed(scratch)
        await rig.script.say(module_install=package.install(offered=True))
        await eventually(lambda: rig.script.errors() == ["NOT_SUPPORTED"], state=rig.script.errors)
        report = rig.script.of("error_report")[0]
        assert (report.context, "jar_bytes" in report.error_message) == ("module:small", True)
        await rig.script.say(module_install=package.install())
        await eventually(lambda: "ACTIVE" in rig.script.steps("small"), state=rig.script.errors)


@pytest.mark.trap("T6")
async def test_a_provider_that_comes_after_its_consumer_lets_it_become_active(scratch):
    provider = """
        from typing import Protocol
        from corral.sdk import CapabilityBinding, DaemonModule

        class Answering(Protocol):
            async def answer(self) -> int: ...

        class Answers:
            async def answer(self) -> int:
                return 42

        class Module(DaemonModule):
            def capability_handles(self):
                return [CapabilityBinding("test.answers", Answering, Answers)]
    """
    async with NodeRig(scratch) as rig:
        await rig.start()
        needs = {"requires": [{"id": "test.answers", "versionRange": "^1.0"}]}
        consumer = packed(scratch, "consumer", capabilities=needs)
        waiting = await rig.install(consumer, state="WAITING")
        assert waiting.reason == "waiting_for_capability:test.answers"
        assert await rig.app.modules.settled() == ("consumer: waiting_for_capability:test.answers",)
        gives = {"provides": [{"id": "test.answers", "version": "1.0.0"}]}
        await rig.install(packed(scratch, "provider", source=provider, capabilities=gives))
        assert await rig.app.modules.settled() == ()
        await rig.script.told("consumer", "WAITING", "ACTIVE")
