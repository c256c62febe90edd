"""A minute of ordinary load under the default limits: pages that follow events, consoles that are watched, scripts that
call. Nothing fails, nobody misses anything, nothing grows."""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import websockets.asyncio.client

from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instances
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually
from tests.system.estate import Estate
from tests.system.site_of_servers import CONTROLLER, DAEMON

pytestmark = pytest.mark.system

TOKENS = 10
STREAMS = 200
CONSOLES = 20
SERVERS = 5
CALLS_PER_SECOND = 50
WARM_UP_SECONDS = 15
SECONDS = 60
MOST_GROWTH_KB = 8 * 1024
"""Rings, caches and the allocator's own pools fill for a while; a leak of one object a call or event is far more."""


class Follower:
    """One client of the event stream: which events it received, in their order."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.refused = ""

    async def follow(self, client: httpx.AsyncClient, after: str) -> None:
        async with client.stream("GET", "/api/v1/events/stream", params={"after": after}) as answer:
            if answer.status_code != 200:
                self.refused = (await answer.aread()).decode()
                return
            async for line in answer.aiter_lines():
                if line.startswith('data: {"id"'):
                    self.events.append(json.loads(line[6:])["id"])
                elif line.startswith("event: RESYNC"):
                    self.refused = line


class Watcher:
    """One viewer of a console over a WebSocket: the lines it received."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def watch(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with websockets.asyncio.client.connect(url, additional_headers=headers) as socket:
            async for text in socket:
                self.lines += [item["line"] for item in json.loads(text).get("items", ())]


def calls(ids: list[str]) -> Iterator[tuple[str, str, dict[str, Any] | None]]:
    """What pages and scripts ask for, over and over; about one in ten changes something."""
    for number in itertools.count():
        id = ids[number % len(ids)]
        yield "GET", "/api/v1/instances?limit=100", None
        yield "GET", f"/api/v1/instances/{id}", None
        yield "GET", "/api/v1/groups", None
        yield "GET", "/api/v1/nodes", None
        yield "GET", f"/api/v1/instances/{id}/console?newest=true&limit=100", None
        yield "GET", f"/api/v1/instances/{id}/why", None
        yield "GET", "/api/v1/events?newest=true&limit=50", None
        yield "GET", f"/api/v1/instances/{id}/files", None
        yield "GET", "/api/v1/auth/me", None
        if number % 2:
            yield "POST", f"/api/v1/instances/{id}/command", {"command": f"say {number}"}
        else:
            yield "PATCH", "/api/v1/groups/lobby", {"labels": {"turn": str(number)}}


def memory(pid: int) -> int:
    """Resident kilobytes."""
    found = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def descriptors(pid: int) -> int:
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


async def ticks(seconds: float) -> AsyncIterator[int]:
    """The moments of a steady rate, for so long; a late one is not left out."""
    clock = asyncio.get_running_loop()
    began = clock.time()
    for number in range(int(seconds * CALLS_PER_SECOND)):
        await asyncio.sleep(max(0.0, began + number / CALLS_PER_SECOND - clock.time()))
        yield number


async def load(clients: list[httpx.AsyncClient], ids: list[str], seconds: float) -> list[str]:
    """Calls at the rate, whoever is still waiting for an answer; the calls that failed."""
    failed: list[str] = []
    asked = calls(ids)

    async def one(client: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None) -> None:
        answer = await client.request(method, path, json=body)
        if not answer.is_success:
            failed.append(f"{method} {path}: {answer.status_code} {answer.text}")

    async with asyncio.TaskGroup() as open_calls:
        async for number in ticks(seconds):
            open_calls.create_task(one(clients[number % len(clients)], *next(asked)))
    return failed


@pytest.mark.timeout(300)
async def test_two_hundred_streams_twenty_consoles_and_fifty_calls_a_second_cost_nobody_anything(
    processes: ProcessCluster, scratch: pathlib.Path
) -> None:
    estate = Estate(processes, scratch)
    controller = await estate.controller(**CONTROLLER)
    daemon = await estate.daemon("n1", **DAEMON)
    await create_group(estate, "lobby", workloads.chatty(per_second=50), min=SERVERS, max=SERVERS)
    ids = sorted(item["id"] for item in await wait_for_instances(estate, "lobby", SERVERS))
    tokens = [
        (await estate.call("POST", "/api/v1/tokens", {"name": f"t{number}", "role": "OPERATOR"}))["token"]
        for number in range(TOKENS)
    ]
    base = f"http://{estate.http}"
    clients = [
        httpx.AsyncClient(
            base_url=base,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(30, read=60),
            limits=httpx.Limits(max_connections=100),
        )
        for token in tokens
    ]
    idle = descriptors(controller.pid)
    (newest,) = (await estate.call("GET", "/api/v1/events?newest=true&limit=1"))["items"]
    followers = [Follower() for _ in range(STREAMS)]
    watchers = [Watcher() for _ in range(CONSOLES)]
    tasks = [
        asyncio.create_task(each.follow(clients[number % TOKENS], newest["id"]), name=f"follower {number}")
        for number, each in enumerate(followers)
    ] + [
        asyncio.create_task(
            each.watch(
                f"ws://{estate.http}/api/v1/instances/{ids[number % SERVERS]}/console/ws?after=0",
                tokens[number % TOKENS],
            ),
            name=f"watcher {number}",
        )
        for number, each in enumerate(watchers)
    ]
    try:
        assert await load(clients, ids, WARM_UP_SECONDS) == []
        before = memory(controller.pid), memory(daemon.pid)
        assert await load(clients, ids, SECONDS) == []
        after = memory(controller.pid), memory(daemon.pid)

        (last,) = (await estate.call("GET", "/api/v1/events?newest=true&limit=1"))["items"]
        await eventually(
            lambda: all(last["id"] in each.events[-20:] for each in followers),
            state=lambda: {(each.refused, len(each.events)) for each in followers},
        )
        assert [task.get_name() for task in tasks if task.done()] == []
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.aclose()
    everything = [each.events[: each.events.index(last["id"]) + 1] for each in followers]
    assert len(everything[0]) > SECONDS
    assert all(each == everything[0] for each in everything), "each received the same events, once, in order"
    for each in watchers:
        workloads.read_numbered(each.lines).check()
        assert len(each.lines) > SECONDS
    assert after[0] - before[0] < MOST_GROWTH_KB, (before, after)
    assert after[1] - before[1] < MOST_GROWTH_KB, (before, after)
    await eventually(lambda: descriptors(controller.pid) <= idle, state=lambda: descriptors(controller.pid))
