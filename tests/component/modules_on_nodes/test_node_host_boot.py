"""A node that boots: what it has runs, with or without a controller, as long as it is what it was."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from node_host_rig import NodeRig, packed

from corral.domain.modules.verbs import Verb
from corral.errors import CorralError, Retryable
from corral.testing.waiting import eventually
from corral.wire.v1 import module_pb2 as pb

HELD = """
import asyncio, os
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_start(self, ctx):
        while os.path.exists({hold!r}):
            await asyncio.sleep(0.01)
"""


def phases(rig) -> dict[str, str]:
    return {entry.module_id: entry.state for entry in rig.app.modules.set_entries()}


def reasons(rig) -> dict[str, str]:
    return {entry.module_id: entry.reason for entry in rig.app.modules.set_entries()}


def tampered(rig, package) -> None:
    path = rig.data / "cache" / "modules" / "artifacts" / f"{package.sha256}.zip"
    path.chmod(0o600)
    path.write_bytes(package.content.replace(b"small_module", b"smell_module"))


@pytest.mark.trap("T5")
async def test_without_a_controller_what_is_cached_runs_and_what_was_tampered_with_does_not(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        sound, changed = packed(scratch, "sound"), packed(scratch)
        await rig.install(sound)
        await rig.install(changed)
        await rig.stop()
        tampered(rig, changed)
        nowhere = {"controllers": ["127.0.0.1:1"]}
        (rig.data / "controllers.json").unlink(missing_ok=True)
        await rig.start(connect=False, **nowhere)
        assert await rig.app.modules.settled() == ("small: cannot_load:digest_mismatch",)
        assert phases(rig) == {"sound": "ACTIVE", "small": "FAILED"}
        assert reasons(rig)["small"] == "cannot_load:digest_mismatch"
        assert rig.pid("small") is None
        assert not rig.app.link.connected.is_set()
        await rig.stop()

        rig.script.blobs[changed.sha256] = changed.content
        await rig.start()
        (entry,) = [one for one in rig.script.greetings[-1].modules if one.module_id == "small"]
        assert (entry.sha256, entry.state) == ("", "FAILED")  # so that the controller sends it
        await rig.script.say(module_install=changed.install(offered=True))
        await rig.script.told("small", "FAILED", "INSTALLED", "WAITING", "ACTIVE")
        assert len(rig.script.fetches) == 1


async def test_an_archive_found_damaged_while_there_is_a_controller_is_fetched_again_by_itself(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch)
        rig.script.blobs[package.sha256] = package.content
        await rig.install(package, offered=True)
        tampered(rig, package)
        await rig.app.modules.engine.act("small", Verb.DEACTIVATE)
        await rig.app.modules.engine.act("small", Verb.ACTIVATE)
        await rig.script.told("small", "FAILED", "INSTALLED", "WAITING", "ACTIVE")
        assert len(rig.script.fetches) == 2
        assert await rig.app.modules.settled() == ()


async def test_a_record_that_cannot_be_read_is_set_aside_and_the_module_comes_again(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package, other = packed(scratch), packed(scratch, "other")
        await rig.install(package)
        await rig.install(other)
        await rig.stop()
        records = rig.data / "modules" / "records"
        (records / "small.json").write_text('{"format": "corral-node-module", "version": 1, "value": {"id')
        (records / ".other.json.77.tmp").write_text("half a wri")
        await rig.start()
        assert [entry.module_id for entry in rig.script.greetings[-1].modules] == ["other"]
        await eventually(lambda: phases(rig) == {"other": "ACTIVE"}, state=lambda: phases(rig))
        await rig.script.say(module_install=package.install())
        await eventually(lambda: phases(rig) == {"other": "ACTIVE", "small": "ACTIVE"})
        assert sorted(path.name for path in records.iterdir()) == [
            "other.json",
            "small.json",
            "small.json.damaged",
        ]


async def test_starts_wait_for_the_set_and_no_longer_than_they_are_told_to(scratch):
    async with NodeRig(scratch, modules__node_sync_timeout_seconds=1) as rig:
        package = packed(scratch)
        rig.script.set["small"] = package.entry()
        await rig.start()
        assert await rig.app.modules.settled() == ("small: not as the controller wants it yet",)
        assert await rig.app.modules.settled() == ("small: not as the controller wants it yet",)
        await rig.script.say(module_install=package.install())
        await rig.script.told("small", "ACTIVE")

        async def settled() -> bool:  # on a busy machine the second is over before it is ACTIVE
            return await rig.app.modules.settled() == ()

        await eventually(settled)


async def test_a_start_waits_for_the_module_that_is_slow_to_come_up_and_names_no_other(scratch):
    hold = scratch / "hold"
    async with NodeRig(scratch, modules__node_sync_timeout_seconds=60) as rig:
        await rig.start()
        await rig.install(packed(scratch, "slow", source=HELD.format(hold=str(hold)), hook_ms=30_000))
        for id in ("at-rest", "quick"):
            await rig.install(packed(scratch, id))
        await rig.app.modules.engine.act("at-rest", Verb.DEACTIVATE)
        rig.script.set["at-rest"].intent = pb.MODULE_INTENT_INACTIVE
        await rig.stop()
        hold.touch()
        await rig.start()
        waiting = asyncio.create_task(rig.app.modules.settled(), name="test/start")
        awaited = rig.app.modules.awaited
        await eventually(lambda: awaited() == ("slow: still starting",), state=awaited)
        assert not waiting.done()
        hold.unlink()
        assert await waiting == ()
        assert phases(rig) == {"slow": "ACTIVE", "quick": "ACTIVE", "at-rest": "INSTALLED"}


async def test_a_node_without_modules_starts_no_process_for_them(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        assert await rig.app.modules.settled() == ()
        assert not (rig.data / "modules" / "processes").exists()
        assert not (rig.data / "cache" / "modules").exists()


@pytest.mark.trap("T81")
async def test_a_daemon_without_modules_runs_none_says_so_and_goes_on_with_them_later(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        await rig.install(packed(scratch))
        await rig.stop()
        await rig.start(modules__enabled="false")
        await rig.app.modules.booted()
        assert await rig.app.modules.settled() == ("small: modules_disabled",)
        assert (phases(rig), reasons(rig)) == ({"small": "INSTALLED"}, {"small": "modules_disabled"})
        assert rig.pid("small") is None
        await rig.stop()
        await rig.start()
        await eventually(lambda: phases(rig) == {"small": "ACTIVE"}, state=lambda: reasons(rig))


async def test_a_step_that_the_disk_does_not_take_is_told_over_the_link_once_and_again_when_it_is_stored(
    scratch,
):
    """The controller must not show ACTIVE for what has stopped."""
    async with NodeRig(scratch) as rig:
        await rig.start()
        await rig.install(packed(scratch))
        record = rig.data / "modules" / "records" / "small.json"
        kept = record.read_bytes()
        record.unlink()
        (record / "in the way").mkdir(parents=True)
        with pytest.raises(CorralError) as refused:
            await rig.app.modules.engine.act("small", Verb.DEACTIVATE)
        assert isinstance(refused.value, Retryable)
        os.kill(rig.pid("small"), signal.SIGKILL)

        def direct() -> list[str]:
            heard = [m for m in rig.script.heard if m.WhichOneof("payload") == "module_state_update"]
            return [m.module_state_update.state for m in heard if not m.spool_sequence]

        await eventually(lambda: "INSTALLED" in direct() or "STOPPING" in direct(), state=direct)
        told = len(direct())
        (record / "in the way").rmdir()
        record.rmdir()
        record.write_bytes(kept)
        await eventually(
            lambda: phases(rig) == {"small": "ACTIVE"} and rig.pid("small"), state=lambda: reasons(rig)
        )
        assert len(direct()) == told <= 4
