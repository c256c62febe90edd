"""Archives on their way to a node: what is proven is kept, what is not never runs."""

from __future__ import annotations

import os

import pytest
from node_host_rig import NodeRig, Package, packed

from corral.errors import Code, Rejected
from corral.signing import new_key, sign_keyed
from corral.testing.waiting import eventually
from corral.wire.v1 import module_pb2 as pb

NOISE = {"noise.bin": os.urandom(900_000)}


def signing(scratch, **more):
    """A key pair of the test's, and what a node that trusts it is told."""
    pair = new_key()
    root = scratch / "keys.pem"
    root.write_bytes(pair.public_pem)
    settings = {"required": True, "mode": "keyed", "trust_root": str(root), **more}
    return pair, {f"modules__signing__{name}": value for name, value in settings.items()}


async def test_what_is_not_the_archive_that_was_named_is_reported_and_not_kept(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        good, other = packed(scratch), packed(scratch, version="2.0.0")
        await rig.install(good)
        frame = other.install(jar_bytes=other.content[:-1] + b"?")
        await rig.script.say(module_install=frame)
        await eventually(lambda: rig.script.errors() == ["ARTIFACT_DIGEST_MISMATCH"], state=rig.script.errors)
        assert rig.script.of("error_report")[0].context == "module:small"
        rig.script.blobs[other.sha256] = other.content[:-1] + b"?"
        await rig.script.say(module_install=other.install(offered=True))
        await eventually(lambda: len(rig.script.errors()) == 2, state=rig.script.errors)
        assert rig.script.errors()[1] == "ARTIFACT_DIGEST_MISMATCH"
        assert rig.archives() == {good.sha256}
        assert list((rig.data / "modules" / "incoming").iterdir()) == []
        rig.script.blobs[other.sha256] = other.content
        await rig.install(other, offered=True)  # nothing is held against an archive that never came


async def test_without_a_good_signature_the_old_version_runs_on_and_the_new_one_is_refused_for_good(scratch):
    pair, settings = signing(scratch)
    async with NodeRig(scratch, **settings) as rig:
        await rig.start()
        good, bad = packed(scratch), packed(scratch, version="2.0.0")
        proven = {"signature_kind": "sig", "signature_bytes": sign_keyed(good.path, pair.private_pem)}
        await rig.install(good, **proven)
        pid = rig.pid("small")
        forged = {"signature_kind": "sig", "signature_bytes": proven["signature_bytes"]}
        await rig.script.say(module_install=bad.install(**forged))
        await eventually(lambda: rig.script.last("small").refused_sha256 == bad.sha256)
        told = rig.script.last("small")
        assert (told.state, told.version, told.sha256) == ("ACTIVE", "1.0.0", good.sha256)
        assert "signature" in told.last_error
        await eventually(lambda: rig.script.errors() == ["SIGNATURE_VERIFICATION_FAILED"])
        assert rig.archives() == {good.sha256}

        await rig.script.say(module_install=packed(scratch, "unsigned").install())
        refused = await rig.script.told("unsigned", "FAILED")
        assert (refused.reason, refused.sha256) == ("refused:signature_verification_failed", "")
        await rig.script.meet_again()
        entries = {entry.module_id: entry for entry in rig.script.greetings[-1].modules}
        assert entries["small"].refused_sha256 == bad.sha256
        assert (entries["unsigned"].state, entries["unsigned"].sha256) == ("FAILED", "")
        assert rig.pid("small") == pid

        await rig.stop()
        sidecar = rig.data / "cache" / "modules" / "artifacts" / f"{good.sha256}.zip.sig"
        sidecar.write_bytes(sign_keyed(bad.path, pair.private_pem))  # of another archive
        await rig.start()
        down = await rig.script.told("small", "FAILED")
        assert (down.reason, rig.pid("small")) == ("signature_refused", None)
        await rig.script.say(module_install=good.install(**proven))
        await rig.script.told("small", "INSTALLED", "WAITING", "ACTIVE")


async def test_another_try_of_a_module_whose_signature_was_lost_is_carried_out(scratch):
    pair, settings = signing(scratch)
    async with NodeRig(scratch, **settings) as rig:
        await rig.start()
        package = packed(scratch)
        proof = sign_keyed(package.path, pair.private_pem)
        await rig.install(package, signature_kind="sig", signature_bytes=proof)
        await rig.stop()
        sidecar = rig.data / "cache" / "modules" / "artifacts" / f"{package.sha256}.zip.sig"
        sidecar.unlink()
        await rig.start()
        assert (await rig.script.told("small", "FAILED")).reason == "signature_refused"
        sidecar.write_bytes(proof)
        again = pb.ModuleControl(
            module_id="small", intent=pb.MODULE_INTENT_ACTIVE, recover=True, recover_ms=7
        )
        await rig.script.say(module_control=again)
        await eventually(lambda: rig.script.last("small").recover_ms == 7)
        assert rig.script.steps("small")[-4:] == ["INSTALLED", "WAITING", "ACTIVE", "ACTIVE"]


async def test_a_node_that_requires_signatures_and_trusts_nobody_does_not_start(scratch):
    async with NodeRig(scratch) as rig:
        with pytest.raises(Rejected) as caught:
            await rig.start(modules__signing__required=True)
        assert caught.value.code is Code.INVALID_CONFIG


async def test_an_archive_speaks_for_itself_and_not_its_frame(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch)
        await rig.script.say(module_install=package.install(version="9.9.9"))
        refused = await rig.script.told("small", "FAILED")
        assert (refused.refused_sha256, refused.reason) == (package.sha256, "refused:manifest_invalid")
        await rig.script.say(module_install=package.install(module_id="somebody"))
        await rig.script.told("somebody", "FAILED")
        await eventually(lambda: rig.script.errors() == ["MANIFEST_INVALID"] * 2, state=rig.script.errors)
        await eventually(lambda: len(rig.archives()) <= 1)
        await rig.install(package, again=True)
        assert rig.script.last("small").refused_sha256 == ""


async def test_an_archive_for_the_controller_alone_is_passed_over(scratch):
    controller_only = {
        "hosts": ["controller"],
        "backend": {"controller": {"entrypoint": "small_module:Module"}},
    }
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch, **controller_only)
        rig.script.blobs[package.sha256] = package.content
        await rig.script.say(module_install=package.install(offered=True))  # declined by the frame's word
        liar = package.install(offered=True, manifest_yaml="")
        await rig.script.say(module_install=liar)
        await eventually(lambda: rig.script.fetches == [(package.sha256, 0)])
        await eventually(lambda: not rig.archives())
        assert await rig.app.modules.settled() == ()
        assert rig.script.steps("small") == []
        assert rig.app.modules.set_entries() == []
        assert rig.script.errors() == []


async def test_an_interrupted_fetch_goes_on_where_it_was_cut_also_in_the_next_daemon(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = Package(packed(scratch, files=NOISE).path)
        rig.script.blobs[package.sha256] = package.content
        rig.script.set["small"] = package.entry()
        rig.script.cut_after = 256 * 1024
        await rig.script.say(module_install=package.install(offered=True))
        await eventually(lambda: len(rig.script.fetches) == 2)  # by itself, in the next session
        first = rig.script.fetches[1][1]
        assert 0 < first < len(package.content)
        await rig.script.told("small", "ACTIVE")
        assert list((rig.data / "modules" / "incoming").iterdir()) == []

        later = packed(scratch, version="2.0.0", files=NOISE)
        rig.script.blobs[later.sha256] = later.content
        rig.script.cut_after = 256 * 1024
        hung_up = rig.script.hang_up
        rig.script.hang_up = lambda: None  # the line just goes quiet
        await rig.script.say(module_install=later.install(offered=True))
        part = await eventually(lambda: next((rig.data / "modules" / "incoming").glob("*.part"), None))
        await eventually(lambda: part.stat().st_size >= 256 * 1024)
        await rig.stop()
        rig.script.hang_up = hung_up
        await rig.start()
        await rig.script.say(module_install=later.install(offered=True))
        await rig.script.told("small", "ACTIVE", version="2.0.0")
        assert rig.script.fetches[-1][1] >= 256 * 1024


async def test_a_start_that_waits_for_an_archive_says_how_far_it_is_from_before_its_first_byte(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch, files=NOISE)
        rig.script.blobs[package.sha256] = package.content
        rig.script.set["small"] = package.entry()
        size, awaited = len(package.content), rig.app.modules.awaited
        rig.script.answers.clear()
        await rig.script.say(module_install=package.install(offered=True))
        await eventually(lambda: rig.script.fetches == [(package.sha256, 0)])
        assert awaited() == (f"small: being fetched, 0 of {size} bytes",)
        rig.script.cut_after = 256 * 1024
        rig.script.hang_up = lambda: None
        rig.script.answers.set()
        half = f"small: being fetched, {256 * 1024} of {size} bytes"
        await eventually(lambda: awaited() == (half,), state=awaited)


async def test_an_order_to_go_ends_a_fetch_that_has_begun(scratch):
    async with NodeRig(scratch) as rig:
        await rig.start()
        package = packed(scratch, files=NOISE)
        rig.script.blobs[package.sha256] = package.content
        rig.script.cut_after = 256 * 1024
        rig.script.hang_up = lambda: None
        await rig.script.say(module_install=package.install(offered=True))
        await eventually(lambda: rig.script.fetches == [(package.sha256, 0)])
        await rig.script.say(module_uninstall=pb.ModuleUninstall(module_id="small"))
        assert await rig.app.modules.settled() == ()
        assert rig.script.steps("small") == []
        assert rig.app.modules.set_entries() == []
