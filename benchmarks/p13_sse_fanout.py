"""P13: SSE fan-out to 200 clients, and what one that stops reading does to the others.

Two servers, each a process of its own; this process is the 200 clients:

* ours: a whole controller; events come from durable commits of 64 concurrent writers, and about 100 nodes;
* floor: a plain ASGI handler under the same uvicorn that writes the same bytes, encoded before.

Throughput is deliveries a second until the last client has the last event. Latency is measured
at a steady rate, from right before the commit to the client's read, with and without a client
that stops reading; that it really has stopped is checked by what the kernel holds for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import logging
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import structlog
import uvicorn
import uvloop

from benchmarks.sizes import sized
from benchmarks.trees import fresh_directory
from corral.controller.state.collections import NODES
from corral.domain.events import Draft, EventType
from corral.domain.ids import NodeId
from corral.domain.node_states import NodeState
from corral.domain.records import NodeRecord
from corral.store.port import ABSENT
from corral.testing.cluster import LocalCluster

CLIENTS = sized(200, 4)
EVENTS = sized(6000, 3000)
WRITERS = 64
STALLING_BURSTS = 6  # the kernel takes some megabytes for a client that does not read
STEADY_EVENTS = sized(300, 10)
STEADY_RATE = 100.0
ROUNDS = sized(3, 1)
TURNS = sized(5, 1)
TARGET = 100_000
_NEEDLE = b"\nevent: NODE_ERROR_REPORTED\n"
_STAMP = b'"context":"'
_DEADLINE = 60.0


# the clients


class Reader(asyncio.Protocol):
    """Counts frames; a frame may be cut anywhere between two reads."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._rest = b""
        self.bytes = 0
        self.frames = 0
        self.wanted = 0
        self.latencies: list[float] = []
        self.timed = False
        self.opened = asyncio.get_running_loop().create_future()
        self.done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.bytes += len(data)
        data = self._rest + data
        cut = data.rfind(b"\n\n") + 2
        if cut == 1:
            self._rest = data
            return
        whole, self._rest = data[:cut], data[cut:]
        if not self.opened.done() and b": following" in whole:
            self.opened.set_result(None)
        self.frames += whole.count(_NEEDLE)
        if self.timed:
            now = time.monotonic()
            for part in whole.split(_STAMP)[1:]:
                self.latencies.append(now - float(part.split(b'"', 1)[0]))
        if self.done is not None and self.frames >= self.wanted and not self.done.done():
            self.done.set_result(None)

    def expect(self, frames: int, *, timed: bool = False) -> asyncio.Future[None]:
        self.frames = 0
        self.wanted = frames
        self.timed = timed
        self.done = asyncio.get_running_loop().create_future()
        return self.done


@contextlib.asynccontextmanager
async def readers(port: int, token: str, count: int, *, query: str = "") -> AsyncIterator[list[Reader]]:
    loop = asyncio.get_running_loop()
    request = (
        f"GET /api/v1/events/stream{query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    ).encode()
    made: list[Reader] = []
    try:
        for _ in range(count):
            _, reader = await loop.create_connection(lambda: Reader(request), "127.0.0.1", port)
            made.append(reader)
        await asyncio.wait_for(asyncio.gather(*(reader.opened for reader in made)), _DEADLINE)
        yield made
    finally:
        for reader in made:
            reader.transport.abort()


class Stalled:
    """A client that asks for the stream and never reads it."""

    def __init__(self, port: int, token: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect(("127.0.0.1", port))
        self._socket.sendall(
            f"GET /api/v1/events/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )

    def held(self) -> int:
        """What the kernel holds for it on both ends; whatever else was published, the server kept."""
        own = f":{self._socket.getsockname()[1]:04X}"
        total = 0
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            _, local, remote, _, queues, *_ = line.split()
            if local.endswith(own) or remote.endswith(own):
                total += sum(int(queue, 16) for queue in queues.split(":"))
        return total

    def close(self) -> None:
        self._socket.close()


class Server:
    """A server process, spoken to by lines."""

    def __init__(self, kind: str, directory: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.p13_sse_fanout", kind, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.hello = self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError("the server process ended")

    async def order(self, **what: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        return await asyncio.to_thread(self._line)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


async def throughput(server: Server, *, query: str = "") -> float:
    """Deliveries a second, the best of some rounds: others use this machine too."""
    port, token = server.hello["port"], server.hello["token"]
    best = 0.0
    async with readers(port, token, CLIENTS, query=query) as clients:
        for _ in range(ROUNDS):
            began = time.monotonic()
            await everywhere(server, clients, EVENTS, burst=EVENTS)
            best = max(best, EVENTS * CLIENTS / (time.monotonic() - began))
    return best


async def steady(server: Server, *, with_stalled: bool) -> tuple[float, float]:
    """p99 and the server's CPU, in milliseconds, for a steady rate; with and without a stalled client
    the same bursts come first."""
    port, token = server.hello["port"], server.hello["token"]
    with contextlib.ExitStack() as stack:
        stopped = stack.enter_context(contextlib.closing(Stalled(port, token))) if with_stalled else None
        async with readers(port, token, CLIENTS) as clients:
            before = 0.0
            for _ in range(STALLING_BURSTS):
                before = await everywhere(server, clients, EVENTS, burst=EVENTS)
            if stopped is not None:
                missing = clients[0].bytes - stopped.held()
                assert missing > 1_000_000, f"it does not stall: only {missing} bytes are left behind"
            after = await everywhere(
                server, clients, STEADY_EVENTS, timed=True, steady=STEADY_EVENTS, rate=STEADY_RATE
            )
            samples = [sample * 1000 for client in clients for sample in client.latencies]
    return statistics.quantiles(samples, n=100)[98], (after - before) * 1000


async def compared(server: Server) -> dict[str, tuple[float, float]]:
    """Medians of some turns each, the order reversed every time: the machine's mood hits both alike."""
    turns: dict[str, list[tuple[float, float]]] = {"quiet": [], "stalled": []}
    for turn in range(TURNS):
        for kind in sorted(turns, reverse=turn % 2 == 1):
            turns[kind].append(await steady(server, with_stalled=kind == "stalled"))
    return {
        kind: (statistics.median(p99 for p99, _ in taken), statistics.median(cpu for _, cpu in taken))
        for kind, taken in turns.items()
    }


async def everywhere(
    server: Server, clients: list[Reader], frames: int, *, timed: bool = False, **order: Any
) -> float:
    """Give an order and wait until every client has every event of it, once; the server's CPU so far."""
    waiting = [client.expect(frames, timed=timed) for client in clients]
    answer = await server.order(**order)
    await asyncio.wait_for(asyncio.gather(*waiting), _DEADLINE)
    assert all(client.frames == frames for client in clients), "every client, every event, once"
    return float(answer["cpu"])


# the servers


def stamped() -> dict[str, Any]:
    """The data of an event, with the time at which it was made."""
    return {"code": "BENCHMARK", "message": "", "context": repr(time.monotonic()), "suppressed_before": 0}


async def serve_ours(directory: str) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    async with LocalCluster(pathlib.Path(directory)) as cluster:
        controller = await cluster.controller()
        term = controller.app.role.term
        assert term is not None
        ledger = term.ledger

        now = dt.datetime.now(dt.UTC)
        nodes = [
            NodeRecord(
                id=NodeId(f"node-{number}"),
                state=NodeState.ENROLLED,
                state_since=now,
                reason="enrolled",
                enrolled_at=now,
                serials=("1",),
            )
            for number in range(100)
        ]
        await ledger.commit(*(NODES.put(node.id, node, expect=ABSENT) for node in nodes))

        async def make(number: int) -> None:
            subject = f"node-{number % 100}"
            await ledger.commit(Draft(type=EventType.NODE_ERROR_REPORTED, subject=subject, data=stamped()))

        async def writer(first: int, count: int) -> None:
            for number in range(first, count, WRITERS):
                await make(number)

        async def burst(count: int) -> None:
            await asyncio.gather(*(writer(first, count) for first in range(WRITERS)))

        port = int(controller.url.rsplit(":", 1)[1])
        await obey({"port": port, "token": controller.admin_token}, burst, make)


async def serve_floor(_directory: str) -> None:
    wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    log: list[bytes] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal wake
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b": following\n\n", "more_body": True})
        position = len(log)
        while True:
            if position == len(log):
                await asyncio.shield(wake)
                continue
            piece = b"".join(log[position : position + 300])
            position = min(len(log), position + 300)
            await send({"type": "http.response.body", "body": piece, "more_body": True})

    def publish(number: int) -> None:
        nonlocal wake
        body = {
            "id": f"1-{number + 10_000}",
            "type": "NODE_ERROR_REPORTED",
            "subject": f"node-{number % 100}",
            "at": "2026-11-15T03:43:24.123456Z",
            "data": stamped(),
        }
        data = json.dumps(body, separators=(",", ":"))
        log.append(f"id: 1-{number + 10_000}\nevent: NODE_ERROR_REPORTED\ndata: {data}\n\n".encode())

    async def burst(count: int) -> None:
        nonlocal wake
        for number in range(count):
            publish(number)
            if number % WRITERS == WRITERS - 1 or number == count - 1:  # a group commit's worth
                wake.set_result(None)
                wake = asyncio.get_running_loop().create_future()
                await asyncio.sleep(0)

    async def make(number: int) -> None:
        nonlocal wake
        publish(number)
        wake.set_result(None)
        wake = asyncio.get_running_loop().create_future()

    config = uvicorn.Config(
        app, port=0, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([sock]), name="p13/floor")
    while not server.started:
        await asyncio.sleep(0.01)
    await obey({"port": sock.getsockname()[1], "token": "none"}, burst, make)
    serving.cancel()
    os._exit(0)  # its handlers know no end


async def obey(hello: dict[str, Any], burst: Any, make: Any) -> None:
    """Say where we are, then do as told until the line ends."""
    print(json.dumps(hello), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        if "burst" in order:
            await burst(order["burst"])
        else:
            loop = asyncio.get_running_loop()
            began = loop.time()
            for number in range(order["steady"]):
                await asyncio.sleep(max(0.0, began + number / order["rate"] - loop.time()))
                await make(number)
        print(json.dumps({"cpu": time.process_time()}), flush=True)


async def measure() -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for kind in ("floor", "ours"):
        server = await asyncio.to_thread(Server, kind, str(fresh_directory()))
        try:
            figures[kind] = await throughput(server)
            if kind == "ours":
                figures["with_resources"] = await throughput(server, query="?with=resource")
                figures |= await compared(server)
        finally:
            await asyncio.to_thread(server.close)
    return figures


def run() -> list[dict[str, Any]]:
    figures = uvloop.run(measure())
    rate, floor = figures["ours"], figures["floor"]
    (quiet, quiet_cpu), (beside, beside_cpu) = figures["quiet"], figures["stalled"]
    return [
        {
            "name": f"P13 SSE fan-out, {CLIENTS} clients, best of {ROUNDS}",
            "value": round(rate),
            "unit": "deliveries/s",
            "floor": round(floor),
            "ratio": round(rate / floor, 3),
            "target": f">= {TARGET}",
            "ok": rate >= TARGET,
        },
        {
            "name": f"P13 SSE fan-out with resources, {CLIENTS} clients, best of {ROUNDS}",
            "value": round(figures["with_resources"]),
            "unit": "deliveries/s",
            "floor": round(rate),
            "ratio": round(figures["with_resources"] / rate, 3),
            "target": f">= {TARGET}",
            "ok": figures["with_resources"] >= TARGET,
        },
        {
            "name": f"P13 delivery p99 at {CLIENTS * STEADY_RATE:.0f}/s beside a stalled client, median of {TURNS}",
            "value": round(beside, 2),
            "unit": "ms",
            "floor": round(quiet, 2),
            "ratio": round(beside / quiet, 3),
            "target": "<= 1.25 x without it, + 1 ms",
            "ok": beside <= 1.25 * quiet + 1.0,
        },
        {  # what others do on this machine moves a p99, but not the CPU that we use
            "name": f"P13 server CPU for {STEADY_EVENTS * CLIENTS} deliveries beside a stalled client",
            "value": round(beside_cpu),
            "unit": "ms",
            "floor": round(quiet_cpu),
            "ratio": round(beside_cpu / quiet_cpu, 3),
            "target": "<= 1.1 x without it",
            "ok": beside_cpu <= 1.1 * quiet_cpu,
        },
    ]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        uvloop.run({"ours": serve_ours, "floor": serve_floor}[sys.argv[1]](sys.argv[2]))
    else:
        for entry in run():
            print(entry)
