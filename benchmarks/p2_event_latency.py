"""P2: from a POST to its event at an SSE client, the durable write included.

Tokens stand in for groups until there are groups: `POST /api/v1/tokens` to `TOKEN_CREATED`. The
controller is a process of its own with its data on this machine's disk; this process posts on one
connection and reads the stream on another. The floor is measured in the same run: one raw durable
SQLite commit, plus a POST to a plain ASGI handler that at once writes fixed bytes to a stream.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pathlib
import socket
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import structlog
import uvicorn
import uvloop

from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.testing.cluster import LocalCluster

REQUESTS = sized(400, 10)
WARM_UP = sized(50, 2)
TARGET_P50 = 5.0
TARGET_P95 = 15.0
_DEADLINE = 30.0


class Connection:
    """One HTTP/1.1 connection with as little as possible between us and the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader = reader
        self._writer = writer
        self._token = token

    @classmethod
    async def open(cls, port: int, token: str) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(reader, writer, token)

    def send(self, method: str, path: str, body: bytes = b"") -> None:
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )

    async def answer(self) -> None:
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 201"), head
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await self._reader.readexactly(length)

    async def until(self, needle: bytes) -> None:
        """Read the stream up to and including a frame that contains this."""
        while needle not in await self._reader.readuntil(b"\n\n"):
            pass

    def close(self) -> None:
        self._writer.close()


async def latencies(port: int, token: str) -> list[float]:
    """Milliseconds from sending a request to having its event."""
    stream, client = await Connection.open(port, token), await Connection.open(port, token)
    stream.send("GET", "/api/v1/events/stream")
    await stream.until(b": following")
    samples = []
    for number in range(WARM_UP + REQUESTS):
        began = time.perf_counter()
        client.send("POST", "/api/v1/tokens", b'{"name":"bench-%d","role":"VIEWER"}' % number)
        await stream.until(b"event: TOKEN_CREATED")
        samples.append((time.perf_counter() - began) * 1000)
        await client.answer()
    stream.close()
    client.close()
    return samples[WARM_UP:]


def raw_commits(directory: pathlib.Path) -> list[float]:
    """Milliseconds of one durable commit in the way our store commits, and nothing else."""
    db = sqlite3.connect(directory / "floor.db", isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")
    samples = []
    for _ in range(WARM_UP + REQUESTS):
        began = time.perf_counter()
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO t (body) VALUES (?)", (b"x" * 400,))
        db.execute("COMMIT")
        samples.append((time.perf_counter() - began) * 1000)
    db.close()
    return samples[WARM_UP:]


# the servers


async def serve_ours(directory: str, hello: Callable[[int, str], None]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    async with LocalCluster(pathlib.Path(directory)) as cluster:
        controller = await cluster.controller()
        hello(int(controller.url.rsplit(":", 1)[1]), controller.admin_token)
        await asyncio.to_thread(sys.stdin.read)


async def serve_echo(_directory: str, hello: Callable[[int, str], None]) -> None:
    frame = b"id: 1-1\nevent: TOKEN_CREATED\ndata: " + b"x" * 200 + b"\n\n"
    asked = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            await receive()
            asked.set()
            headers = [(b"content-length", b"250")]
            await send({"type": "http.response.start", "status": 201, "headers": headers})
            await send({"type": "http.response.body", "body": b"x" * 250})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b": following\n\n", "more_body": True})
        while True:
            await asked.wait()
            asked.clear()
            await send({"type": "http.response.body", "body": frame, "more_body": True})

    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([sock]), name="p2/echo")
    while not server.started:
        await asyncio.sleep(0.01)
    hello(sock.getsockname()[1], "none")
    await asyncio.to_thread(sys.stdin.read)
    serving.cancel()
    os._exit(0)  # its handlers know no end


def say_hello(port: int, token: str) -> None:
    print(json.dumps({"port": port, "token": token}), flush=True)


def against(kind: str, directory: str) -> list[float]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.p2_event_latency", kind, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = next(line for line in process.stdout if line.startswith("{"))
        hello = json.loads(line)
        return uvloop.run(asyncio.wait_for(latencies(hello["port"], hello["token"]), _DEADLINE))
    finally:
        process.stdin.close()
        process.wait(30)


def percentiles(samples: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(samples, n=100)
    return cuts[49], cuts[94]


def run() -> list[dict[str, Any]]:
    directory = fresh_directory()
    commit = percentiles(raw_commits(directory))
    echo = percentiles(against("echo", str(directory)))
    ours = percentiles(against("ours", str(directory)))
    entries = []
    for index, (name, target) in enumerate((("p50", TARGET_P50), ("p95", TARGET_P95))):
        floor = commit[index] + echo[index]
        entries.append(
            {
                "name": f"P2 POST to its event at an SSE client, {name}",
                "value": round(ours[index], 3),
                "unit": "ms",
                "floor": round(floor, 3),
                "ratio": round(ours[index] / floor, 2),
                "target": f"<= {target:g} ms",
                "ok": ours[index] <= target,
            }
        )
    return entries


if __name__ == "__main__":
    if len(sys.argv) == 3:
        uvloop.run({"ours": serve_ours, "echo": serve_echo}[sys.argv[1]](sys.argv[2], say_hello))
    else:
        for entry in run():
            print(entry)
