"""Several starts that need the same file: what one of them names or asks cannot fail or hold up another."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest
from cache_rig import MEGABYTE, CacheNode
from web_server import Asked, WebServer, says, serves

from corral.domain.groups.plans import PlanArtifact
from corral.errors import Code, CorralError, Rejected
from corral.testing.waiting import eventually

JAR = os.urandom(300_000)
DIGEST = hashlib.sha256(JAR).hexdigest()


@pytest.fixture
async def web():
    async with WebServer() as server:
        server.pages["/good"] = serves(JAR)
        yield server


def jar(web: WebServer, path: str, *, file: str = "server.jar", sha256: str = DIGEST) -> PlanArtifact:
    return PlanArtifact(file=file, url=web.url(path), sha256=sha256)


def asked(web: WebServer, path: str) -> bool:
    return any(one.path == path for one in web.asked)


async def silent(_: Asked, writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + JAR[:1000])
    await writer.drain()
    await asyncio.Event().wait()


async def drips(_: Asked, writer) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n")
    for byte in JAR:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


def parts(node: CacheNode) -> list[str]:
    return sorted(path.name for path in (node.data / "cache" / "parts").iterdir())


@pytest.mark.parametrize("page", [silent, drips], ids=["silent", "one byte now and then"])
async def test_a_slow_url_holds_up_nobody_who_has_another_one(scratch, web, page):
    """And who waited for the slow one takes the file that came from elsewhere."""
    web.pages["/slow"] = page
    async with CacheNode(scratch / "n1", silence=60) as node:
        slow = asyncio.create_task(node.cache.warm_artifact(jar(web, "/slow")))
        await eventually(lambda: asked(web, "/slow"))
        await node.cache.warm_artifact(jar(web, "/good"))
        await slow
        assert [len(web.asked), parts(node)] == [2, []]


async def test_a_url_that_fails_fails_nobody_who_has_another_one(scratch, web):
    refused = asyncio.Event()

    async def good(request: Asked, writer) -> None:
        await refused.wait()
        await serves(JAR)(request, writer)

    async def missing(request: Asked, writer) -> None:
        await eventually(lambda: asked(web, "/good"))
        await says("404 Not Found")(request, writer)

    web.pages["/good"], web.pages["/secret-of-others"] = good, missing
    async with CacheNode(scratch / "n1", silence=60) as node:
        failing = asyncio.create_task(node.cache.warm_artifact(jar(web, "/secret-of-others")))
        await eventually(lambda: asked(web, "/secret-of-others"))
        waiting = asyncio.create_task(node.cache.warm_artifact(jar(web, "/good")))
        with pytest.raises(Rejected) as caught:
            await failing
        assert "/secret-of-others" in caught.value.message
        refused.set()
        await waiting


async def test_a_reason_names_the_url_of_its_own_start(scratch, web):
    pages = [f"/{number}" for number in range(8)]
    web.pages.update(dict.fromkeys(pages, says("404 Not Found")))
    async with CacheNode(scratch / "n1", silence=60) as node:
        starts = (node.cache.warm_artifact(jar(web, page)) for page in pages)
        errors = await asyncio.gather(*starts, return_exceptions=True)
    assert [page for page, error in zip(pages, errors, strict=True) if web.url(page) in str(error)] == pages


async def test_a_url_is_asked_once_however_many_starts_name_it(scratch, web):
    async with CacheNode(scratch / "n1", silence=60) as node:
        starts = (node.cache.warm_artifact(jar(web, "/good", file=f"{number}.jar")) for number in range(5))
        await asyncio.gather(*starts)
    assert len(web.asked) == 1


async def test_a_file_that_comes_from_many_urls_at_once_counts_once(scratch, web):
    together = asyncio.Barrier(5)

    async def page(request: Asked, writer) -> None:
        await together.wait()
        await serves(JAR)(request, writer)

    web.pages.update({f"/{number}": page for number in range(5)})
    async with CacheNode(scratch / "n1", silence=60) as node:
        starts = (node.cache.warm_artifact(jar(web, f"/{number}")) for number in range(5))
        await asyncio.gather(*starts)
        assert node.cache.status().total_size_bytes == len(JAR)
        assert parts(node) == []


async def test_a_start_that_is_stopped_ends_its_own_download_alone(scratch, web):
    release = asyncio.Event()

    async def later(request: Asked, writer) -> None:
        await release.wait()
        await serves(JAR)(request, writer)

    web.pages["/slow"], web.pages["/later"] = silent, later
    async with CacheNode(scratch / "n1", silence=60) as node:
        stopped, waiting = (
            asyncio.create_task(node.cache.warm_artifact(jar(web, page))) for page in ("/slow", "/later")
        )
        await eventually(lambda: len(web.asked) == 2)
        stopped.cancel()
        await asyncio.wait([stopped])
        assert stopped.cancelled()
        release.set()
        await waiting


async def test_a_size_that_a_server_only_announces_takes_no_room(scratch, web):
    async def page(_: Asked, writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (100 * MEGABYTE))
        await writer.drain()
        await asyncio.Event().wait()

    web.pages["/huge"] = page
    async with CacheNode(scratch / "n1", silence=60, quota=100 * MEGABYTE) as node:
        huge = asyncio.create_task(node.cache.warm_artifact(jar(web, "/huge", sha256="a" * 64)))
        await eventually(lambda: asked(web, "/huge"))
        await node.cache.warm_artifact(jar(web, "/good"))
        assert not huge.done()
        huge.cancel()
        await asyncio.wait([huge])


async def test_a_file_larger_than_the_quota_is_refused_before_it_comes(scratch, web):
    web.pages["/huge"] = says("200 OK", Content_Length=str(101 * MEGABYTE))
    async with CacheNode(scratch / "n1", silence=60, quota=100 * MEGABYTE) as node:
        with pytest.raises(Rejected) as caught:
            await node.cache.warm_artifact(jar(web, "/huge"))
    assert caught.value.code is Code.CACHE_FULL


async def test_partial_files_of_urls_that_fail_stay_within_half_of_the_quota(scratch, web):
    async def breaks_off(_: Asked, writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + os.urandom(MEGABYTE))
        await writer.drain()
        writer.close()

    async with CacheNode(scratch / "n1", quota=4 * MEGABYTE) as node:
        for number in range(6):
            web.pages[f"/cut-{number}"] = breaks_off
            with pytest.raises(CorralError):
                await node.cache.warm_artifact(jar(web, f"/cut-{number}"))
        held = sum(path.stat().st_size for path in (node.data / "cache" / "parts").iterdir())
        assert 0 < held <= 2 * MEGABYTE
