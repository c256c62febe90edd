"""Static instances that get their place on a node before they run: a request, the record, the directory, the first start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from corral.controller.instances.world_changes import MOST_OF_GROUP
from corral.testing.api_calls import wait_for_instance
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.wire.features import FEATURES, WORLDS

GROUP = {
    "name": "world",
    "static": True,
    "min": 0,
    "command": ["sh", "-c", "cat level.dat; exec sleep 600"],
    "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
}
WORLD = {"instance": "world-2", "node": "n1", "reason": "copied by a test"}
AT = "/api/v1/groups/world/worlds"
AT_ONCE = 25


@pytest.fixture
async def controller(cluster: LocalCluster) -> LocalController:
    controller = await cluster.controller()
    await controller.call("POST", "/api/v1/groups", GROUP)
    return controller


@pytest.fixture
async def daemon(cluster: LocalCluster, controller: LocalController) -> LocalDaemon:
    return await cluster.daemon("n1", controller)


@pytest.fixture
async def client(controller: LocalController) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=60) as client:
        yield client


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.system
async def test_places_are_not_reserved_without_end(
    controller: LocalController, daemon: LocalDaemon, client: httpx.AsyncClient
) -> None:
    async def reserve(number: int) -> None:
        made = await client.post(AT, json={**WORLD, "instance": f"world-{number}"})
        assert made.is_success, made.text

    for first in range(1, MOST_OF_GROUP + 1, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, MOST_OF_GROUP + 1))
        await asyncio.gather(*map(reserve, numbers))
    assert error(await client.post(AT, json={**WORLD, "instance": "world-5000"})) == (409, "GROUP_FULL")
    assert (await client.post(AT, json=WORLD)).is_success, "it is there already"


async def test_a_reserved_instance_takes_files_and_stays_stopped_until_it_is_started(
    controller: LocalController, daemon: LocalDaemon, client: httpx.AsyncClient
) -> None:
    files = "/api/v1/instances/world-2/files"
    made = (await client.post(AT, json=WORLD)).json()
    assert (made["node"], made["state"], made["reason"]) == ("n1", "STOPPED", "copied by a test")
    assert (await client.get(files)).json()["items"] == []
    assert error(await client.get(f"{files}/stat", params={"path": "a"})) == (404, "NOT_FOUND")
    for path in ("level.dat", "region/r.0"):
        put = await client.put(f"{files}/content", params={"path": path}, content=b"the old world\n")
        assert put.status_code == 200, put.text
    place = daemon.config.data / "static/world-2"
    assert (place / "region/r.0").read_bytes() == b"the old world\n"
    await controller.call("PATCH", "/api/v1/groups/world", {"min": 2})
    await wait_for_instance(controller, "world-1", lambda found: found["state"] == "RUNNING")
    assert (await controller.call("GET", "/api/v1/instances/world-2"))["state"] == "STOPPED"
    await controller.call("POST", "/api/v1/instances/world-2/restart?wait=running&timeout=30", {})
    assert (await client.get(f"{files}/content", params={"path": "level.dat"})).content == b"the old world\n"
    assert error(await client.post(AT, json=WORLD)) == (409, "CONFLICT")


async def test_a_repetition_changes_nothing_and_a_world_stays_on_its_node(
    cluster: LocalCluster, controller: LocalController, daemon: LocalDaemon, client: httpx.AsyncClient
) -> None:
    await cluster.daemon("n2", controller)
    first = (await client.post(AT, json=WORLD)).json()
    again = (await client.post(AT, json={**WORLD, "reason": "other"})).json()
    assert (again["reason"], again["incarnation"]) == (first["reason"], first["incarnation"])
    events = await controller.call("GET", "/api/v1/events?types=INSTANCE_RESERVED")
    assert len(events["items"]) == 1
    assert error(await client.post(AT, json={**WORLD, "node": "n2"})) == (409, "CONFLICT")
    assert not (daemon.config.data / "static/world-2").exists(), "it is made with its first file"


CANNOT_BE = [
    ({"instance": "lobby-1"}, (400, "INVALID_FIELD")),
    ({"instance": "world-0"}, (400, "INVALID_FIELD")),
    ({"instance": "../x"}, (400, "INVALID_FIELD")),
    ({"node": "nowhere"}, (404, "NOT_FOUND")),
]


async def test_what_cannot_be_reserved_is_refused(daemon: LocalDaemon, client: httpx.AsyncClient) -> None:
    del daemon
    for change, expected in CANNOT_BE:
        assert error(await client.post(AT, json={**WORLD, **change})) == expected, change


async def test_a_group_that_keeps_no_directories_has_no_places(
    controller: LocalController, daemon: LocalDaemon, client: httpx.AsyncClient
) -> None:
    del daemon
    await controller.call("POST", "/api/v1/groups", {**GROUP, "name": "lobby", "static": False})
    refused = await client.post("/api/v1/groups/lobby/worlds", json={"instance": "lobby-1", "node": "n1"})
    assert error(refused) == (409, "CONFLICT")


async def test_a_node_that_knows_no_worlds_gets_none(depot: Any) -> None:
    await depot.begin()
    await depot.talker(features=[name for name in FEATURES if name != WORLDS])
    controller = depot.controller
    await controller.call("POST", "/api/v1/groups", GROUP)
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers) as client:
        nodes = (await client.get("/api/v1/nodes")).json()["items"]
        refused = await client.post(AT, json={**WORLD, "node": nodes[0]["id"]})
    assert error(refused) == (409, "NOT_SUPPORTED")
    assert (await controller.call("GET", "/api/v1/instances"))["items"] == []
