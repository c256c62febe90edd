"""Signatures of what a node has: another one reaches it, and counts, by the node's own trust."""

from __future__ import annotations

import hashlib

from node_archives import at_nodes, install, node_archive, wait_at_nodes

from corral.signing import new_key, sign_keyed
from corral.testing.signing_authority import SigningServices
from corral.testing.waiting import eventually


def digest(content):
    return hashlib.sha256(content).hexdigest()


def trusting(root, log_key):
    settings = {"required": True, "mode": "keyed", "trust_root": str(root), "rekor__public_key": str(log_key)}
    return {f"modules__signing__{name}": value for name, value in settings.items()}


def pid_of(daemon):
    live = daemon.app.modules.engine.live("small")
    return live.pid if live else None


async def test_a_node_that_refused_a_signature_takes_another_and_keeps_it_when_keys_are_replaced(
    cluster, scratch
):
    house, key, later = SigningServices(), new_key(), new_key()
    authorities = house.write_pem_root(scratch / "authorities.pem").read_bytes()
    root, log_key = scratch / "root.pem", house.write_log_key(scratch / "log.pub")
    root.write_bytes(key.public_pem + authorities)
    controller = await cluster.controller()  # has no keys: what comes with an archive goes to nodes as it is
    daemon = await cluster.daemon("n1", controller, **trusting(root, log_key))
    archive = node_archive(scratch / "a")
    forged, by_key = (sign_keyed(archive, pair.private_pem) for pair in (new_key(), key))
    by_house = house.classic(archive)

    await install(controller, archive, signature=forged)
    refused = (await wait_at_nodes(controller, "small", n1=("FAILED", "1.0.0")))["n1"]
    assert refused["reason"] == "refused:signature_verification_failed"
    resigned = await install(controller, archive, signature=by_key)
    assert resigned["outcome"] == "signature_updated"
    assert not resigned["nodes"][0]["settled"], "that state is the answer to the signature before"
    await wait_at_nodes(controller, "small", n1=("ACTIVE", "1.0.0"))
    pid = pid_of(daemon)

    async def has(content):
        def there():
            return [entry.signature_sha256 for entry in daemon.app.modules.set_entries()]

        await eventually(lambda: there() == [digest(content)], state=there)

    async def untroubled():
        async def heard():
            found = (await at_nodes(controller, "small"))["n1"]
            return None if found["error"] else found

        return await eventually(heard)

    resigned = await install(controller, archive, signature=forged)  # not valid here: the one that is stays
    assert not resigned["nodes"][0]["settled"]

    async def told():
        return "signature" in ((await at_nodes(controller, "small"))["n1"]["error"] or "")

    await eventually(told)
    await has(forged)  # was answered, and is not sent again
    assert (await at_nodes(controller, "small"))["n1"]["phase"] == "ACTIVE"
    await install(controller, archive, signature=by_house)
    await has(by_house)
    assert pid_of(daemon) == pid
    shown = await untroubled()
    assert (shown["progress"], shown["settled"]) == ("", True)
    steps = "/api/v1/events?types=MODULE_NODE_STATE"
    before = (await controller.call("GET", steps))["items"]
    resigned = await install(controller, archive, signature=by_key)
    assert not resigned["nodes"][0]["settled"]

    async def settled():
        return (await at_nodes(controller, "small"))["n1"]["settled"]

    await eventually(settled)
    assert (await controller.call("GET", steps))["items"] == before, "the module took no step"
    await install(controller, archive, signature=by_house)
    await has(by_house)
    names = [path.name for path in (daemon.config.data / "cache/modules/artifacts").glob("*.zip.*")]
    assert names == [f"{shown['sha256']}.zip.cosign.bundle"]

    await daemon.app.stop()
    root.write_bytes(later.public_pem + authorities)
    await install(controller, archive, signature=by_key)  # while it is away; it trusts that no more
    daemon = await cluster.restart(daemon)
    await daemon.app.ready.wait()
    await has(by_key)
    await wait_at_nodes(controller, "small", n1=("ACTIVE", "1.0.0"))
    assert await daemon.app.modules.settled() == ()

    await daemon.app.stop()
    root.write_bytes(later.public_pem)
    daemon = await cluster.restart(daemon)
    await wait_at_nodes(controller, "small", n1=("FAILED", "1.0.0"))
    await install(controller, archive, signature=sign_keyed(archive, later.private_pem))
    await wait_at_nodes(controller, "small", n1=("ACTIVE", "1.0.0"))
    assert not (await untroubled())["refused"]
