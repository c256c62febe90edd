"""Downloads from servers that do everything wrong: nothing is kept, and the error says why."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import ssl
import tracemalloc

import pytest
from web_server import Asked, WebServer, says, serves

from corral.daemon.cache.download_targets import parse_target
from corral.daemon.cache.downloads import Downloads
from corral.daemon.cache.http_exchange import exchange
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.clock import SystemClock
from corral.system.daemon_config import DownloadsSection
from corral.system.entropy import SystemEntropy
from corral.testing.ports import free_range
from corral.testing.waiting import eventually

CONTENT = os.urandom(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
MEGABYTE = 1024 * 1024


def downloads(**settings) -> Downloads:
    known = {"allow_private": True, "timeout_seconds": 1, "attempts": 1, **settings}
    return Downloads(settings=DownloadsSection(**known), clock=SystemClock(), entropy=SystemEntropy())


@pytest.fixture
async def web():
    async with WebServer() as server:
        yield server


async def refusal(scratch, url, *, sha256=DIGEST, size=0, fetcher=None) -> CorralError:
    """The error of a download that must not succeed; nothing that counts is left behind."""
    with pytest.raises(CorralError) as caught:
        await (fetcher or downloads()).fetch(url, scratch / "got", sha256=sha256, size=size)
    assert not (scratch / "got").exists()
    return caught.value


async def test_a_file_is_downloaded_and_verified(web, scratch):
    web.pages["/server.jar"] = serves(CONTENT)
    assert await downloads().fetch(web.url("/server.jar"), scratch / "got", sha256=DIGEST) == len(CONTENT)
    assert (scratch / "got").read_bytes() == CONTENT
    assert [path.name for path in scratch.iterdir()] == ["got"]


@pytest.mark.trap("T33")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_followed_to_the_file(web, scratch, status):
    web.pages["/old"] = says(f"{status} Moved", Location="/new/server.jar")
    web.pages["/new/server.jar"] = serves(CONTENT)
    assert await downloads().fetch(web.url("/old"), scratch / "got", sha256=DIGEST) == len(CONTENT)


@pytest.mark.trap("T33")
async def test_the_page_of_a_redirect_that_leads_nowhere_is_not_taken_for_the_file(web, scratch):
    page = b"<html>moved</html>"
    web.pages["/lost"] = says("302 Found", page)
    error = await refusal(scratch, web.url("/lost"), sha256=hashlib.sha256(page).hexdigest())
    assert isinstance(error, Rejected)
    assert "302 Found" in error.message


@pytest.mark.trap("T33")
async def test_redirects_in_a_circle_come_to_an_end(web, scratch):
    web.pages["/a"] = says("302 Found", Location="/b")
    web.pages["/b"] = says("302 Found", Location="/a")
    error = await refusal(scratch, web.url("/a"))
    assert isinstance(error, Rejected)
    assert "redirects more than 5 times" in error.message
    assert len(web.asked) == 6


@pytest.mark.trap("T33")
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("401 Unauthorized", Rejected),
        ("403 Forbidden", Rejected),
        ("404 Not Found", Rejected),
        ("410 Gone", Rejected),
        ("418 I'm a Teapot", Rejected),
        ("204 No Content", Rejected),
        ("304 Not Modified", Rejected),
        ("429 Too Many Requests", Retryable),
        ("500 Internal Server Error", Retryable),
        ("503 Service Unavailable", Retryable),
    ],
)
async def test_an_answer_that_is_no_success_is_never_kept(web, scratch, status, kind):
    """Not even when its body has the right digest: a status is no file."""
    web.pages["/x"] = says(status, b"" if status[:3] in ("204", "304") else CONTENT)
    error = await refusal(scratch, web.url("/x?token=hush", credentials="joe:secret@"))
    assert isinstance(error, kind)
    assert error.code is Code.CACHE_DOWNLOAD_FAILED
    assert status[:3] in error.message
    assert f"http://127.0.0.1:{web.port}/x " in error.message
    assert "secret" not in str(error)
    assert "hush" not in str(error)


@pytest.mark.trap("T33")
async def test_a_truncated_download_is_not_kept_and_goes_on_where_it_broke(web, scratch):
    web.pages["/x"] = serves(CONTENT, cut_after=100_000)
    error = await refusal(scratch, web.url("/x"))
    assert isinstance(error, Retryable)
    assert "hung up in the middle" in error.message
    assert (scratch / "got.part").stat().st_size == 100_000
    web.pages["/x"] = serves(CONTENT)
    assert await downloads().fetch(web.url("/x"), scratch / "got", sha256=DIGEST) == len(CONTENT)
    assert web.asked[-1].headers["range"] == "bytes=100000-"
    assert (scratch / "got").read_bytes() == CONTENT


async def test_a_broken_download_is_taken_up_again_by_itself_with_if_range(web, scratch):
    web.pages["/x"] = serves(CONTENT, cut_after=200_000)
    fetcher = downloads(attempts=3)
    assert await fetcher.fetch(web.url("/x"), scratch / "got", sha256=DIGEST) == len(CONTENT)
    assert [asked.headers.get("if-range") for asked in web.asked] == [None, '"v1"']


async def test_a_file_that_was_replaced_meanwhile_is_begun_again(web, scratch):
    (scratch / "got.part").write_bytes(os.urandom(1000))
    web.pages["/x"] = serves(CONTENT)
    fetcher = downloads(attempts=2)
    assert await fetcher.fetch(web.url("/x"), scratch / "got", sha256=DIGEST) == len(CONTENT)
    assert [asked.first_byte for asked in web.asked] == [1000, 0]


async def test_a_leftover_that_is_longer_than_the_file_is_begun_again(web, scratch):
    (scratch / "got.part").write_bytes(b"x" * (len(CONTENT) + 5))

    async def page(asked: Asked, writer) -> None:
        answer = says("416 Range Not Satisfiable") if asked.first_byte else serves(CONTENT)
        await answer(asked, writer)

    web.pages["/x"] = page
    fetcher = downloads(attempts=2)
    assert await fetcher.fetch(web.url("/x"), scratch / "got", sha256=DIGEST) == len(CONTENT)


@pytest.mark.trap("T33")
async def test_a_file_with_another_digest_is_refused_for_good(web, scratch):
    web.pages["/x"] = serves(b"y" + CONTENT[1:])
    error = await refusal(scratch, web.url("/x"), fetcher=downloads(attempts=4))
    assert isinstance(error, Rejected)
    assert error.code is Code.ARTIFACT_DIGEST_MISMATCH
    assert len(web.asked) == 1
    assert list(scratch.iterdir()) == []


@pytest.mark.trap("T33")
async def test_a_login_page_instead_of_the_file_is_called_one(web, scratch):
    web.pages["/x"] = says("200 OK", b"<html>log in</html>", Content_Type="text/html; charset=utf-8")
    error = await refusal(scratch, web.url("/x"))
    assert isinstance(error, Rejected)
    assert "HTML page" in error.message
    assert "login" in (error.hint or "")


@pytest.mark.trap("T33")
@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1])
async def test_a_file_of_another_size_is_refused_before_it_is_read(web, scratch, size):
    web.pages["/x"] = serves(CONTENT)
    error = await refusal(scratch, web.url("/x"), size=size)
    assert isinstance(error, Rejected)
    assert f"has {len(CONTENT)} bytes, not {size}" in error.message


@pytest.mark.trap("T33")
async def test_a_body_without_end_is_cut_off_at_the_limit(web, scratch):
    async def page(_: Asked, writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    web.pages["/x"] = page
    tracemalloc.start()
    try:
        error = await refusal(scratch, web.url("/x"), fetcher=downloads(max_bytes=32 * MEGABYTE))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(error, Rejected)
    assert "larger than downloads.max_bytes" in error.message
    assert peak < 12 * MEGABYTE, "so much was in memory at once"
    assert list(scratch.iterdir()) == []


async def test_a_file_that_announces_more_than_the_limit_is_not_read_at_all(web, scratch):
    web.pages["/x"] = says("200 OK", b"x", Content_Length="99999999999")
    error = await refusal(scratch, web.url("/x"), fetcher=downloads(max_bytes=MEGABYTE))
    assert isinstance(error, Rejected)


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_file_without_announced_length_is_taken_when_its_digest_is_right(web, scratch, chunked):
    async def page(_: Asked, writer) -> None:
        if chunked:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for start in range(0, len(CONTENT), 10_000):
                block = CONTENT[start : start + 10_000]
                writer.write(f"{len(block):x}\r\n".encode() + block + b"\r\n")
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT)

    web.pages["/x"] = page
    assert await downloads().fetch(web.url("/x"), scratch / "got", sha256=DIGEST) == len(CONTENT)


@pytest.mark.trap("T33")
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_cut_without_announced_length_is_noticed_by_the_digest(web, scratch, chunked):
    async def page(_: Asked, writer) -> None:
        if chunked:
            writer.write(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2710\r\n" + CONTENT[:10_000] + b"\r\n"
            )
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT[:10_000])

    web.pages["/x"] = page
    error = await refusal(scratch, web.url("/x"))
    assert "hung up in the middle" in error.message if chunked else "cut short" in error.message


@pytest.mark.trap("T33")
@pytest.mark.parametrize("phase", ["head", "body", "chunk", "silent", "mute"])
async def test_a_server_that_drips_or_falls_silent_is_given_up(web, scratch, phase):
    async def page(_: Asked, writer) -> None:
        if phase == "mute":
            await asyncio.Event().wait()
        length = b"Transfer-Encoding: chunked" if phase == "chunk" else b"Content-Length: 300000"
        writer.write(b"HTTP/1.1 200 OK\r\n" + length + b"\r\n")
        if phase != "head":
            writer.write(b"\r\n5;extension=" if phase == "chunk" else b"\r\n12345")
        if phase == "silent":
            await asyncio.Event().wait()
        while True:
            writer.write(b"X-A: b\r\n" if phase == "head" else b"a")
            await writer.drain()
            await asyncio.sleep(0.05)

    web.pages["/x"] = page
    error = await refusal(scratch, web.url("/x"))
    assert isinstance(error, Retryable)
    assert ("sent less than 1 KiB a second" in error.message) == (phase in ("body", "chunk"))


@pytest.mark.trap("T33")
@pytest.mark.parametrize("lengths", [True, False])
async def test_a_server_that_sends_the_same_half_for_ever_is_given_up(web, scratch, lengths):
    """It knows no ranges: however much it sends, it never gets any further."""
    half = os.urandom(3 * MEGABYTE)

    async def page(_: Asked, writer) -> None:
        length = f"Content-Length: {2 * len(half)}\r\n" if lengths else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n".encode() + half)

    web.pages["/x"] = page
    error = await refusal(scratch, web.url("/x"), fetcher=downloads(attempts=2))
    assert "after 2 attempts" in error.message
    assert isinstance(error, Retryable if lengths else Rejected)
    assert len(web.asked) <= 4


async def test_what_is_no_http_is_an_error_that_says_so(web, scratch):
    async def page(_: Asked, writer) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await asyncio.sleep(60)

    web.pages["/x"] = page
    assert "no HTTP answer" in (await refusal(scratch, web.url("/x"))).message


async def test_a_server_that_is_not_there_is_worth_another_try(scratch):
    first, _ = free_range(1)
    assert isinstance(await refusal(scratch, f"http://127.0.0.1:{first}/x"), Retryable)


@pytest.mark.trap("T33")
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.1", "0.0.0.0"]
)
async def test_private_addresses_are_refused_unless_allowed(scratch, host):
    fetcher = downloads(allow_private=False)
    error = await refusal(scratch, f"http://{host}:1/x", fetcher=fetcher)
    assert isinstance(error, Rejected)
    assert error.code is Code.ARTIFACT_REFUSED


@pytest.mark.trap("T33")
async def test_a_redirect_to_a_host_that_is_not_allowed_is_refused(web, scratch):
    web.pages["/x"] = says("302 Found", Location=f"http://localhost:{web.port}/y")
    web.pages["/y"] = serves(CONTENT)
    error = await refusal(scratch, web.url("/x"), fetcher=downloads(allow_hosts=("127.0.0.1",)))
    assert error.code is Code.ARTIFACT_REFUSED
    assert "localhost" in error.message
    assert [asked.path for asked in web.asked] == ["/x"]


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://example.org/x", "http://:80/x", "gopher:x"]
)
async def test_a_redirect_to_anything_but_http_is_refused(web, scratch, location):
    web.pages["/x"] = says("302 Found", Location=location)
    assert (await refusal(scratch, web.url("/x"))).code is Code.ARTIFACT_REFUSED


async def test_credentials_go_to_their_own_host_only(web, scratch):
    web.pages["/x"] = says("302 Found", Location="/y")
    web.pages["/y"] = says("302 Found", Location=f"http://localhost:{web.port}/z")
    web.pages["/z"] = serves(CONTENT)
    await downloads().fetch(web.url("/x", credentials="joe:secret@"), scratch / "got", sha256=DIGEST)
    assert [asked.headers.get("authorization", "")[:6] for asked in web.asked] == ["Basic ", "Basic ", ""]


async def test_a_cancelled_download_leaves_its_part_and_nothing_else(web, scratch):
    async def page(_: Asked, writer) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + CONTENT[:100_000])
        await writer.drain()
        await asyncio.sleep(60)

    web.pages["/x"] = page
    fetcher = downloads(timeout_seconds=30)
    fetching = asyncio.create_task(fetcher.fetch(web.url("/x"), scratch / "got", sha256=DIGEST))
    await eventually(lambda: web.asked)
    fetching.cancel()
    await asyncio.gather(fetching, return_exceptions=True)
    assert fetching.cancelled()
    assert not (scratch / "got").exists()


async def test_a_head_without_end_is_cut_off_also_behind_an_announcement(web, scratch):
    sent = 0

    async def page(_, writer):
        nonlocal sent
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n")
        for number in range(100_000):
            writer.write(b"X-%d: %s\r\n" % (number, b"x" * 8000))
            await writer.drain()
            sent += 8000

    web.pages["/endless"] = page
    error = await refusal(scratch, web.url("/endless"), fetcher=downloads(timeout_seconds=30))
    assert isinstance(error, Rejected)
    assert "head has no end" in error.message
    assert sent < 50 * MEGABYTE


async def test_what_comes_behind_the_answer_changes_nothing(web, scratch):
    async def page(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(CONTENT) + CONTENT)
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n")

    web.pages["/jar"] = page
    assert await downloads().fetch(web.url("/jar"), scratch / "got", sha256=DIGEST) == len(CONTENT)


async def test_a_file_that_was_packed_on_the_way_is_refused_and_called_so(web, scratch):
    web.pages["/jar"] = says("200 OK", gzip.compress(CONTENT), Content_Encoding="gzip")
    error = await refusal(scratch, web.url("/jar"))
    assert error.code is Code.ARTIFACT_DIGEST_MISMATCH
    assert "packed it (gzip)" in error.message


async def test_a_file_whose_name_alone_was_missing_is_not_fetched_again(web, scratch):
    """A daemon was killed between the last byte and the name."""
    (scratch / "got.part").write_bytes(CONTENT)
    assert await downloads().fetch(web.url("/jar"), scratch / "got", sha256=DIGEST) == len(CONTENT)
    assert web.asked == []
    assert [path.name for path in scratch.iterdir()] == ["got"]


@pytest.mark.parametrize("first", ["127.0.0.2", "224.0.0.1", "fe80::1"], ids=["refuses", "no way", "no link"])
async def test_the_next_address_is_tried_when_the_first_cannot_be_reached(web, scratch, first):
    web.pages["/jar"] = serves(CONTENT)
    target = parse_target(web.url("/jar"))
    tls = ssl.create_default_context()
    async with exchange(target, [first, "127.0.0.1"], {}, timeout=5, tls=tls) as answer:
        assert answer.status == 200
