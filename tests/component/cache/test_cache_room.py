"""Quota, pins, orders and status, on a node whose controller is real."""

from __future__ import annotations

import asyncio
import hashlib
import os

import msgspec
import pytest
from cache_rig import MEGABYTE, CacheNode, publish
from web_server import WebServer, says, serves

from corral.daemon.cache.bootstrap_store import ISOLATED, BootstrapKey
from corral.daemon.workload.run_secrets import SecretGuard
from corral.domain.groups.plans import PlanArtifact, PlanTemplate
from corral.domain.groups.secret_masks import SecretMask
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.testing.waiting import eventually
from corral.wire.v1.plan_pb2 import (
    CONFIG_FORMAT_PAPER,
    PreWarmCache,
    PreWarmEntry,
    RequestCacheStatus,
    TemplateRef,
)

NO_SECRETS = SecretGuard(SecretMask(), frozenset(), put_names=False)
KEY = BootstrapKey(
    group="lobby",
    user=ISOLATED,
    paths=("cache/",),
    config_format="paper",
    version="1.21",
    digest="d" * 64,
)


@pytest.fixture
async def web():
    async with WebServer() as server:
        yield server


async def three(controller) -> list[PlanTemplate]:
    """Three templates of a megabyte each."""
    return [await publish(controller, f"t{number}", {"file": os.urandom(MEGABYTE)}) for number in range(3)]


def names(node: CacheNode) -> list[str]:
    return sorted(entry.name for entry in node.cache.status().templates)


def on_disk(node: CacheNode) -> int:
    root = node.data / "cache"
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file())


async def test_what_was_used_longest_ago_makes_room_for_what_comes(cluster, scratch):
    controller = await cluster.controller()
    async with CacheNode(scratch / "n1", quota=2 * MEGABYTE + 50_000) as node:
        await node.join(controller)
        t0, t1, t2 = await three(controller)
        await node.files(t0)
        await node.files(t1)
        await node.files(t0)
        await node.files(t2)
        assert names(node) == ["t0", "t2"]
        assert on_disk(node) == pytest.approx(node.cache.status().total_size_bytes, abs=10_000)
        assert on_disk(node) <= 2 * MEGABYTE + 50_000


async def test_what_a_preparation_uses_stays_whatever_needs_room(cluster, scratch):
    controller = await cluster.controller()
    async with CacheNode(scratch / "n1", quota=2 * MEGABYTE + 50_000) as node:
        await node.join(controller)
        t0, t1, t2 = await three(controller)
        async with node.cache.use() as use:
            first = await use.template(t0)
            second = await use.template(t1)
            with pytest.raises(Retryable) as caught:
                await node.files(t2)
            assert caught.value.code is Code.CACHE_FULL
            assert all(use.content(file.digest).exists() for file in first.files + second.files)
        assert await node.files(t2)


async def test_what_is_larger_than_the_quota_is_refused_for_good(cluster, scratch):
    controller = await cluster.controller()
    async with CacheNode(scratch / "n1", quota=MEGABYTE // 2) as node:
        await node.join(controller)
        template = await publish(controller, "big", {"file": os.urandom(MEGABYTE)})
        with pytest.raises(Rejected) as caught:
            await node.files(template)
    assert caught.value.code is Code.CACHE_FULL


async def test_a_smaller_quota_holds_from_the_next_start_on(cluster, scratch):
    controller = await cluster.controller()
    async with CacheNode(scratch / "n1") as node:
        await node.join(controller)
        for template in await three(controller):
            await node.files(template)
    async with CacheNode(scratch / "n1", quota=MEGABYTE + 50_000) as again:
        assert names(again) == ["t2"]
        assert on_disk(again) <= MEGABYTE + 100_000


async def test_the_status_names_everything_that_is_here(cluster, scratch, web):
    controller = await cluster.controller()
    jar = os.urandom(1000)
    web.pages["/server.jar"] = serves(jar)
    async with CacheNode(scratch / "n1") as node:
        await node.join(controller)
        template = await publish(controller, "lobby", {"a": b"x" * 100})
        await node.files(template)
        artifact = PlanArtifact(
            platform="paper",
            version="1.21",
            file="server.jar",
            url=web.url("/server.jar?token=hush"),
            sha256=hashlib.sha256(jar).hexdigest(),
        )
        async with node.cache.use() as use:
            path = await use.artifact(artifact)
            assert path.read_bytes() == jar
            assert use.bootstrap(KEY) is None
        (scratch / "work" / "cache").mkdir(parents=True)
        (scratch / "work" / "cache" / "patched.jar").write_bytes(b"p" * 70)
        assert (
            await node.cache.keep_bootstrap(KEY, scratch / "work", owner=os.geteuid(), guard=NO_SECRETS) == 70
        )
        async with node.cache.use() as use:
            assert (use.bootstrap(KEY) / "cache" / "patched.jar").read_bytes() == b"p" * 70
        node.order(request_cache_status=RequestCacheStatus(request_id="r1"))
    (message,) = node.said
    status = message.cache_status
    assert status.request_id == "r1"
    assert status.quota_bytes == 2**34
    assert [(one.name, one.hash, one.size_bytes) for one in status.templates] == [
        ("lobby", template.hash, 100)
    ]
    assert [(one.platform, one.version, one.jar_file, one.size_bytes) for one in status.jars] == [
        ("paper", "1.21", "server.jar", 1000)
    ]
    assert [(one.config_format, one.version, one.size_bytes) for one in status.bootstraps] == [
        (CONFIG_FORMAT_PAPER, "1.21", 70)
    ]
    assert status.total_size_bytes >= 1170
    assert b"hush" not in b"".join(path.read_bytes() for path in (node.data / "cache").rglob("*.json"))


@pytest.mark.trap("T33")
async def test_prewarming_fetches_what_it_can_and_names_what_it_cannot(cluster, scratch, web):
    controller = await cluster.controller()
    jar = os.urandom(1000)
    web.pages["/good"] = serves(jar)
    web.pages["/login"] = says("302 Found", b"please log in", Location="/page")
    web.pages["/page"] = says("200 OK", b"<html/>", Content_Type="text/html")
    async with CacheNode(scratch / "n1") as node:
        await node.join(controller)
        template = await publish(controller, "lobby", {"a": os.urandom(100_000)})
        digest = hashlib.sha256(jar).hexdigest()
        order = PreWarmCache(
            request_id="r2",
            templates=[
                TemplateRef(name="lobby", hash=template.hash),
                TemplateRef(name="nothing", hash="0" * 64),
            ],
            entries=[
                PreWarmEntry(
                    platform="p", platform_version="1", download_url=web.url("/good"), sha256=digest
                ),
                PreWarmEntry(
                    platform="p", platform_version="2", download_url=web.url("/login"), sha256="1" * 64
                ),
                PreWarmEntry(platform="p", platform_version="3", download_url="file:///x", sha256="2" * 64),
                PreWarmEntry(platform="p", platform_version="4", download_url=web.url("/good")),
            ],
        )
        node.order(pre_warm_cache=order)
        await eventually(lambda: node.said)
        status = node.said[0].cache_status
        assert status.request_id == "r2"
        assert {failure.subject: failure.error_code for failure in status.failures} == {
            "template/nothing": "TEMPLATE_NOT_FOUND",
            "artifact/p/2": "ARTIFACT_DIGEST_MISMATCH",
            "artifact/p/3": "ARTIFACT_REFUSED",
            "artifact/p/4": "ARTIFACT_REFUSED",
        }
        assert [one.sha256 for one in status.jars] == [digest]
        assert names(node) == ["lobby"]
        assert not (node.data / "cache" / "artifacts" / ("1" * 64)).exists()


async def test_a_plain_peer_is_told_of_failures_by_error_reports(scratch):
    async with CacheNode(scratch / "n1", link_wait=0.05) as node:
        node.order(pre_warm_cache=PreWarmCache(templates=[TemplateRef(name="lobby", hash="0" * 64)]))
        await eventually(lambda: len(node.said) == 2)
    assert node.said[0].WhichOneof("payload") == "cache_status"
    report = node.said[1].error_report
    assert (report.error_code, report.context) == ("CACHE_DOWNLOAD_FAILED", "template/lobby")


async def test_a_daemon_that_stops_ends_what_it_was_fetching(cluster, scratch, web):
    async def page(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        await asyncio.sleep(60)

    web.pages["/slow"] = page
    async with CacheNode(scratch / "n1") as node:
        entry = PreWarmEntry(
            platform="p", platform_version="1", download_url=web.url("/slow"), sha256="1" * 64
        )
        node.order(pre_warm_cache=PreWarmCache(entries=[entry]))
        await eventually(lambda: web.asked)
    assert node.said == []


async def test_a_harmed_artifact_is_fetched_again(scratch, web):
    jar = os.urandom(1000)
    web.pages["/server.jar"] = serves(jar)
    artifact = PlanArtifact(
        file="server.jar", url=web.url("/server.jar"), sha256=hashlib.sha256(jar).hexdigest()
    )
    async with CacheNode(scratch / "n1") as node, node.cache.use() as use:
        path = await use.artifact(artifact)
        path.chmod(0o644)
        path.write_bytes(b"y" * 1000)
        assert (await use.artifact(artifact)).read_bytes() == jar
        assert len(web.asked) == 2


async def test_a_full_disk_is_an_error_of_ours_and_leaves_nothing_half_made(cluster, scratch):
    """The parts' directory cannot take anything: as good as a disk that is full."""
    controller = await cluster.controller()
    async with CacheNode(scratch / "n1") as node:
        await node.join(controller)
        template = await publish(controller, "lobby", {"a": os.urandom(100_000)})
        parts = node.data / "cache" / "parts"
        parts.rmdir()
        parts.symlink_to("/dev/full")
        with pytest.raises(CorralError) as caught:
            await node.files(template)
        assert isinstance(caught.value, Retryable)
        assert names(node) == []
        parts.unlink()
        parts.mkdir()
        assert await node.files(template)


@pytest.mark.parametrize("announced", [True, False])
async def test_an_artifact_of_unknown_size_is_stopped_by_the_quota_while_it_comes(scratch, web, announced):
    sent = 0

    async def page(_, writer):
        nonlocal sent
        length = "Content-Length: 104857600\r\n" if announced else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode())
        for _ in range(100):
            writer.write(bytes(MEGABYTE))
            await writer.drain()
            sent += 1

    web.pages["/jar"] = page
    artifact = PlanArtifact(file="server.jar", sha256="a" * 64, url=web.url("/jar"))
    async with CacheNode(scratch / "n1", quota=3 * MEGABYTE) as node:
        with pytest.raises(Rejected) as caught:
            await node.cache.warm_artifact(artifact)
        assert caught.value.code is Code.CACHE_FULL
        assert sent < 20
        assert on_disk(node) == 0


async def test_room_for_an_artifact_of_unknown_size_is_made_while_it_comes(scratch, web):
    old, new = os.urandom(2 * MEGABYTE), os.urandom(2 * MEGABYTE)
    web.pages["/old"], web.pages["/new"] = serves(old), serves(new)

    def jar(name: str, content: bytes) -> PlanArtifact:
        return PlanArtifact(file=name, sha256=hashlib.sha256(content).hexdigest(), url=web.url(f"/{name}"))

    async with CacheNode(scratch / "n1", quota=3 * MEGABYTE) as node:
        async with node.cache.use() as use:
            await use.artifact(jar("old", old))
            with pytest.raises(Retryable) as caught:
                await node.cache.warm_artifact(jar("new", new))
            assert caught.value.code is Code.CACHE_FULL
        await node.cache.warm_artifact(jar("new", new))
        assert [entry.jar_file for entry in node.cache.status().jars] == ["new"]
        assert node.cache.status().total_size_bytes == len(new)


async def test_a_hundred_uses_of_one_template_look_once_and_find_harm_all_the_same(cluster, scratch):
    controller = await cluster.controller()
    files = {f"f{number}": os.urandom(100) for number in range(100)}
    async with CacheNode(scratch / "n1") as node:
        await node.join(controller)
        template = await publish(controller, "lobby", files)
        assert await node.files(template) == files
        (path,) = (node.data / "cache").rglob(hashlib.sha256(files["f7"]).hexdigest())
        path.chmod(0o600)
        path.write_bytes(b"!" * 100)
        assert await asyncio.gather(*(node.files(template) for _ in range(100))) == [files] * 100


async def test_a_first_run_that_is_taken_while_room_is_being_made_stays(scratch, web):
    """Eviction has chosen it, and has not removed it yet."""
    tree, key = scratch / "tree", msgspec.structs.replace(KEY, paths=("cache",))
    tree.mkdir()
    (tree / "cache").write_bytes(os.urandom(MEGABYTE))
    content = os.urandom(2 * MEGABYTE + 500_000)
    web.pages["/jar"] = serves(content)
    digest = hashlib.sha256(content).hexdigest()
    artifact = PlanArtifact(file="jar", sha256=digest, url=web.url("/jar"), size=len(content))
    async with CacheNode(scratch / "n1", quota=3 * MEGABYTE) as node:
        assert await node.cache.keep_bootstrap(key, tree, owner=os.geteuid(), guard=NO_SECRETS) == MEGABYTE
        coming = asyncio.create_task(node.cache.warm_artifact(artifact))
        while not (node.cache._room.lock.locked() or coming.done()):
            await asyncio.sleep(0)
        async with node.cache.use() as use:
            found = use.bootstrap(key)
            await asyncio.gather(coming, return_exceptions=True)
            assert found is None or (found / "cache").read_bytes() == (tree / "cache").read_bytes()
