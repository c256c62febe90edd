"""The HTTP client against a real server that behaves badly."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from corral.sdk import HttpClient, HttpRequestFailed
from corral.sdk.runner.workers import Workers


@contextlib.asynccontextmanager
async def served(answers: dict[str, bytes]):
    """Raw answers by path; an empty one never comes."""

    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            seen.append(head)
            answer = answers[head.split()[1].decode()]
            writer.write(answer)
            await writer.drain()
            if not answer:
                await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    workers = Workers("test/http")

    async def invoke(label, function, *arguments):
        return await workers.run(label, function, *arguments)

    try:
        port = server.sockets[0].getsockname()[1]
        yield HttpClient(invoke), f"http://127.0.0.1:{port}", seen
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.to_thread(workers.close, 10)


def whole(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def test_every_status_is_an_answer_and_redirects_are_followed():
    answers = {
        "/ok": whole("200 OK", b'{"a": 1}'),
        "/none": whole("404 Not Found", b"nothing"),
        "/moved": whole("302 Found", b"", "Location: /ok"),
    }
    async with served(answers) as (client, url, seen):
        assert (await client.get(url + "/ok")).json(dict) == {"a": 1}
        missing = await client.get(url + "/none", headers={"X-A": "b"})
        assert (missing.status, missing.text) == (404, "nothing")
        assert b"X-A: b" in seen[1]
        moved = await client.get(url + "/moved")
        assert (moved.status, moved.url) == (200, url + "/ok")
        posted = await client.post(url + "/ok", json={"b": [1]})
        assert posted.status == 200
        assert b"application/json" in seen[-1]


async def test_what_is_too_large_too_slow_or_no_http_fails_with_the_reason():
    answers = {
        "/large": whole("200 OK", b"x" * 5000),
        "/file": whole("302 Found", b"", "Location: file:///etc/passwd"),
        "/ftp": whole("302 Found", b"", "Location: ftp://127.0.0.1/x"),
        "/odd": b"nonsense\r\n\r\n",
        "/slow": b"",
    }
    async with served(answers) as (client, url, _):
        for path, why in (
            ("/large", "more than"),
            ("/file", "not allowed"),
            ("/ftp", "ftp"),
            ("/odd", "nonsense"),
            ("/slow", "no answer|timed out"),
        ):
            with pytest.raises(HttpRequestFailed, match=why):
                await client.get(url + path, max_bytes=1000, timeout=10 if path != "/slow" else 0.2)
        with pytest.raises(HttpRequestFailed):
            await client.get("http://127.0.0.1:1/")
        for address in ("file:///etc/passwd", "ftp://x", "x"):
            with pytest.raises(ValueError, match="no http"):
                await client.get(address)
