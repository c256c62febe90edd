"""Templates on their way from a real controller into a node's cache."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest
from cache_rig import MEGABYTE, NODE, CacheNode, publish

from corral.domain.groups.plans import PlanArtifact, PlanTemplate
from corral.domain.templates import PIECE
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually

SMALL = {"server.properties": b"port=%PORT%\n", "run.sh": b"#!/bin/sh\n", "empty": b""}


@pytest.fixture
async def proxy():
    async with FaultProxy() as proxy:
        yield proxy


@pytest.fixture
async def node(scratch):
    async with CacheNode(scratch / "n1") as node:
        yield node


def blobs_of(content: bytes) -> list[str]:
    """The digests under which the controller holds a file."""
    held = [content[at : at + PIECE] for at in range(0, len(content), PIECE)]
    return [hashlib.sha256(piece).hexdigest() for piece in held]


async def refusal(node, template) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await node.files(template)
    return caught.value


async def test_a_small_template_comes_within_the_control_stream(cluster, node):
    controller = await cluster.controller()
    template = await publish(controller, "lobby", SMALL, modes={"run.sh": 0o555})
    await node.join(controller)
    assert await node.files(template) == SMALL
    async with node.cache.use() as use:
        manifest = await use.template(template)
    assert {file.path: file.mode for file in manifest.files} == {
        "server.properties": 0o644,
        "run.sh": 0o555,
        "empty": 0o644,
    }


@pytest.mark.system
async def test_a_large_template_comes_by_digest_in_bundles_and_pieces(cluster, node):
    controller = await cluster.controller()
    files = {f"plugins/{number:04}.yml": os.urandom(number * 37) for number in range(1500)}
    files["world/region.bin"] = os.urandom(13 * MEGABYTE + 5)
    files["server.jar"] = os.urandom(3 * MEGABYTE)
    template = await publish(controller, "games/bedwars", files)
    await node.join(controller)
    assert await node.files(template) == files


async def test_what_is_cached_needs_no_controller(cluster, scratch):
    controller = await cluster.controller()
    template = await publish(controller, "lobby", {**SMALL, "big": os.urandom(MEGABYTE)})
    async with CacheNode(scratch / "n1") as node:
        await node.join(controller)
        await node.files(template)
    async with CacheNode(scratch / "n1", link_wait=0.05) as again:
        assert (await again.files(template))["server.properties"] == SMALL["server.properties"]
        current = PlanTemplate(name="lobby", version=0, hash="")
        assert "big" in await again.files(current)
        other = PlanTemplate(name="lobby", version=2, hash="0" * 64)
        error = await refusal(again, other)
    assert isinstance(error, Retryable)
    assert error.code is Code.TEMPLATE_UNAVAILABLE


async def test_one_changed_file_moves_little_more_than_itself(cluster, scratch, proxy, node):
    controller = await cluster.controller(via=proxy, link__heartbeat_seconds=30)
    files = {f"config/{number:04}.yml": os.urandom(2000) for number in range(1000)}
    first = await publish(controller, "lobby", files)
    await node.join(controller)
    await node.files(first)
    files["config/0500.yml"] = os.urandom(10_000)
    second = await publish(controller, "lobby", files)
    before = proxy.forwarded_bytes
    assert await node.files(second) == files
    assert proxy.forwarded_bytes - before < 64 * 1024


async def test_a_template_that_grew_out_of_the_control_stream_comes_as_what_was_added(cluster, proxy, node):
    """The version we know came as an archive; what we made of it is what the controller has."""
    controller = await cluster.controller(via=proxy, link__heartbeat_seconds=30)
    files = {f"{number}.yml": os.urandom(50) for number in range(200)}
    first = await publish(controller, "lobby", files)
    await node.join(controller)
    files["jar"] = os.urandom(MEGABYTE)
    async with node.cache.use() as use:
        known = await use.template(first)
    term = controller.app.role.term
    assert known == await term.templates.tree_of(term.state.templates.require("lobby").record.version())
    second = await publish(controller, "lobby", files)
    assert await node.files(second) == files


@pytest.mark.system
async def test_a_change_within_a_large_file_moves_its_piece_only(cluster, proxy, node):
    controller = await cluster.controller(via=proxy, link__heartbeat_seconds=30)
    world = bytearray(os.urandom(24 * MEGABYTE + 100))
    first = await publish(controller, "lobby", {"world": bytes(world)})
    await node.join(controller)
    await node.files(first)
    world[9 * MEGABYTE] ^= 1
    second = await publish(controller, "lobby", {"world": bytes(world)})
    before = proxy.forwarded_bytes
    assert await node.files(second) == {"world": bytes(world)}
    assert proxy.forwarded_bytes - before < 5 * MEGABYTE


async def test_a_version_that_the_controller_does_not_have_is_refused_for_good(cluster, node):
    controller = await cluster.controller()
    await publish(controller, "lobby", SMALL)
    await node.join(controller)
    for name, hash in (("lobby", "a" * 64), ("nothing", "b" * 64), ("nothing", "")):
        error = await refusal(node, PlanTemplate(name=name, version=1, hash=hash))
        assert isinstance(error, Rejected), error
        assert error.code is Code.TEMPLATE_NOT_FOUND


async def test_what_several_ask_for_at_once_is_fetched_once(cluster, proxy, node):
    controller = await cluster.controller(via=proxy, link__heartbeat_seconds=30)
    content = {"big": os.urandom(6 * MEGABYTE)}
    template = await publish(controller, "lobby", content)
    await node.join(controller)
    before = proxy.forwarded_bytes
    results = await asyncio.gather(*(node.files(template) for _ in range(8)))
    assert all(result == content for result in results)
    assert proxy.forwarded_bytes - before < 7 * MEGABYTE


async def test_contents_that_several_templates_share_come_once_and_are_never_mixed_up(cluster, proxy, node):
    controller = await cluster.controller(via=proxy, link__heartbeat_seconds=30)
    shared = {"server.jar": os.urandom(6 * MEGABYTE), **{f"c/{n}": os.urandom(3000) for n in range(100)}}
    trees = [{**shared, "own": os.urandom(200_000)} for _ in range(5)]
    templates = [await publish(controller, f"t{number}", tree) for number, tree in enumerate(trees)]
    await node.join(controller)
    before = proxy.forwarded_bytes
    assert await asyncio.gather(*map(node.files, templates)) == trees
    assert proxy.forwarded_bytes - before < 8.5 * MEGABYTE


async def test_a_template_waits_for_the_contents_it_shares_and_for_no_others(cluster, proxy, node):
    controller = await cluster.controller(via=proxy, link__heartbeat_seconds=30)
    shared = {"shared": os.urandom(2 * MEGABYTE)}
    small = await publish(controller, "small", shared)
    large = await publish(controller, "large", {**shared, "world": os.urandom(16 * MEGABYTE)})
    await node.join(controller)
    proxy.throttle(2 * MEGABYTE)
    before = proxy.forwarded_bytes
    fetching = asyncio.create_task(node.files(large))
    await eventually(lambda: proxy.forwarded_bytes > before + 300_000)
    assert await node.files(small) == shared
    assert not fetching.done()
    proxy.heal()
    await fetching


async def test_an_order_that_was_given_up_does_not_disturb_the_next(cluster, proxy, node):
    controller = await cluster.controller(via=proxy)
    content = {"big": os.urandom(6 * MEGABYTE), "small": os.urandom(900_000)}
    template = await publish(controller, "lobby", content)
    await node.join(controller)
    for share in range(1, 8):
        start = proxy.forwarded_bytes
        fetching = asyncio.create_task(node.files(template))
        await eventually(lambda start=start, share=share: proxy.forwarded_bytes > start + share * 40_000)
        fetching.cancel()
    assert await node.files(template) == content


@pytest.mark.parametrize("hash", ["../../../etc/passwd", "A" * 64, "0" * 63, "/"])
async def test_a_hash_that_is_none_never_becomes_a_path(node, hash):
    error = await refusal(node, PlanTemplate(name="lobby", version=1, hash=hash))
    assert isinstance(error, Rejected)
    assert error.code is Code.INVALID_FIELD


@pytest.mark.system
@pytest.mark.trap("T9")
async def test_a_cut_transfer_goes_on_where_it_stopped_by_itself(cluster, proxy, scratch):
    async with CacheNode(scratch / "n1", link_wait=20) as node:
        controller = await cluster.controller(via=proxy)
        content = {"big": os.urandom(16 * MEGABYTE), "other": os.urandom(2 * MEGABYTE)}
        template = await publish(controller, "lobby", content)
        await node.join(controller)
        proxy.throttle(10 * MEGABYTE)
        before = proxy.forwarded_bytes
        fetching = asyncio.create_task(node.files(template))
        for _ in range(3):
            reached = proxy.forwarded_bytes + 4 * MEGABYTE
            await eventually(lambda reached=reached: proxy.forwarded_bytes > reached)
            await proxy.cut(refuse=False)
        proxy.heal()
        assert await fetching == content
        assert proxy.forwarded_bytes - before < 22 * MEGABYTE


@pytest.mark.system
@pytest.mark.trap("T9")
async def test_a_cut_for_good_is_an_error_and_the_next_attempt_goes_on(cluster, proxy, scratch):
    controller = await cluster.controller(via=proxy)
    content = {"big": os.urandom(16 * MEGABYTE)}
    template = await publish(controller, "lobby", content)
    async with CacheNode(scratch / "n1", link_wait=0.2) as node:
        await node.join(controller)
        proxy.throttle(10 * MEGABYTE)
        start = proxy.forwarded_bytes
        fetching = asyncio.create_task(node.files(template))
        await eventually(lambda: proxy.forwarded_bytes > start + 9 * MEGABYTE)
        await proxy.cut(refuse=True)
        with pytest.raises(Retryable) as caught:
            await fetching
        assert caught.value.code is Code.TEMPLATE_UNAVAILABLE
        before = proxy.forwarded_bytes
        proxy.heal()
        await eventually(node.link.connected.is_set)
        assert await node.files(template) == content
        assert proxy.forwarded_bytes - before < 9 * MEGABYTE


async def test_a_preparation_that_is_cancelled_leaves_a_part_that_the_next_one_uses(cluster, proxy, node):
    controller = await cluster.controller(via=proxy)
    content = {"big": os.urandom(12 * MEGABYTE)}
    template = await publish(controller, "lobby", content)
    await node.join(controller)
    proxy.throttle(10 * MEGABYTE)
    start = proxy.forwarded_bytes
    fetching = asyncio.create_task(node.files(template))
    await eventually(lambda: proxy.forwarded_bytes > start + 6 * MEGABYTE)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)
    proxy.heal()
    before = proxy.forwarded_bytes
    assert await node.files(template) == content
    assert proxy.forwarded_bytes - before < 8 * MEGABYTE


@pytest.mark.parametrize("harm", ["written", "shorter", "gone", "replaced by a directory"])
async def test_a_content_that_was_harmed_is_fetched_again_before_it_is_used(cluster, node, harm):
    controller = await cluster.controller()
    content = {"big": os.urandom(MEGABYTE), "small": b"x" * 100}
    template = await publish(controller, "lobby", content)
    await node.join(controller)
    async with node.cache.use() as use:
        manifest = await use.template(template)
        path = use.content(manifest.files[0].digest)
    path.chmod(0o644)
    if harm == "written":
        path.write_bytes(b"y" * len(content["big"]))
    elif harm == "shorter":
        os.truncate(path, 10)
    else:
        path.unlink()
    if harm == "replaced by a directory":
        path.mkdir()
        (path / "file").touch()
    assert await node.files(template) == content


async def test_a_cache_that_was_emptied_under_the_daemon_is_filled_again(cluster, node):
    controller = await cluster.controller()
    content = {"big": os.urandom(MEGABYTE)}
    template = await publish(controller, "lobby", content)
    await node.join(controller)
    await node.files(template)
    for path in (node.data / "cache").rglob("*"):
        if path.is_file():
            path.unlink()
    assert await node.files(template) == content


async def test_an_uploaded_artifact_comes_from_the_controller_by_its_digest(cluster, proxy, node):
    controller = await cluster.controller(via=proxy)
    content = os.urandom(8 * MEGABYTE)
    digest = await controller.put_blob(content, node=NODE)
    await node.join(controller)
    artifact = PlanArtifact(platform="paper", version="1.21", file="server.jar", sha256=digest)
    proxy.throttle(10 * MEGABYTE)
    start = proxy.forwarded_bytes

    async def fetch() -> bytes:
        async with node.cache.use() as use:
            return (await use.artifact(artifact)).read_bytes()

    fetching = asyncio.create_task(fetch())
    await eventually(lambda: proxy.forwarded_bytes > start + 3 * MEGABYTE)
    await proxy.cut(refuse=False)
    proxy.heal()
    assert await fetching == content
    missing = PlanArtifact(file="server.jar", sha256="0" * 64)
    with pytest.raises(Rejected) as caught:
        async with node.cache.use() as use:
            await use.artifact(missing)
    assert caught.value.code is Code.ARTIFACT_NOT_FOUND


@pytest.mark.system
@pytest.mark.trap("T9")
@pytest.mark.parametrize("size", [200_000, 9 * MEGABYTE], ids=["in a bundle", "in pieces"])
async def test_a_controller_that_sends_wrong_bytes_again_and_again_is_given_up(cluster, node, size):
    """Its disk is harmed, say. Nothing wrong is kept, what is right is, and the next order goes on."""
    controller = await cluster.controller()
    files = {"bad": os.urandom(size), "good": os.urandom(100_000)}
    template = await publish(controller, "lobby", files)
    await node.join(controller)
    right = {}
    for digest in blobs_of(files["bad"]):
        (path,) = controller.data.rglob(digest)
        right[path] = path.read_bytes()
        path.chmod(0o600)
        path.write_bytes(os.urandom(len(right[path])))
    error = await refusal(node, template)
    assert isinstance(error, Retryable)
    assert error.code is Code.TEMPLATE_UNAVAILABLE
    assert "another digest" in error.message
    assert node.cache.status().templates == []
    for path, content in right.items():
        path.write_bytes(content)
    assert await node.files(template) == files
