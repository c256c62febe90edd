"""A controller that is ordered to end by its API: in order, with 0, and nothing that runs is touched."""

from __future__ import annotations

import asyncio
import pathlib

import httpx
import pytest

from corral.domain.groups.variable_checks import JOIN_VARIABLE
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.waiting import eventually

PATH = "/api/v1/cluster/shutdown"
GROUP = {
    "name": "lobby",
    "min": 1,
    "min_alive_ms": 0,
    "command": ["sh", "-c", "exec sleep 600"],
    "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
}


class Site:
    def __init__(self, cluster: ProcessCluster, directory: pathlib.Path) -> None:
        self._cluster = cluster
        self.data = directory / "controller"
        self.http, self.grpc, self.bootstrap = free_addresses(3)

    async def controller(self) -> ServiceProcess:
        flags = ("--http", self.http, "--grpc", self.grpc, "--bootstrap", self.bootstrap)
        process = self._cluster.start("controller", "--data", str(self.data), *flags)
        await process.ready()
        return process

    def client(self) -> httpx.AsyncClient:
        token = (self.data / "admin.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=f"http://{self.http}", headers=headers, timeout=30)


async def read_to_the_end(client: httpx.AsyncClient, begun: asyncio.Event) -> str:
    """The whole of an event stream, until the server ends it."""
    text = ""
    async with client.stream("GET", "/api/v1/events/stream") as stream:
        begun.set()
        async for part in stream.aiter_text():
            text += part
    return text


@pytest.mark.system
async def test_a_controller_ends_with_0_when_it_is_told_to_and_its_streams_say_why(
    tmp_path: pathlib.Path,
) -> None:
    async with ProcessCluster(tmp_path) as cluster:
        site = Site(cluster, tmp_path)
        first = await site.controller()
        async with site.client() as client, site.client() as reader, asyncio.TaskGroup() as tasks:
            begun = asyncio.Event()
            stream = tasks.create_task(read_to_the_end(reader, begun))
            await begun.wait()
            answer = await client.post(PATH, json={"reason": "moved to another host"})
            assert (answer.status_code, answer.json()["http"]) == (200, site.http)
            assert await first.wait() == 0
        assert "no longer leads" in await stream
        await site.controller()
        async with site.client() as client:
            audit = (await client.get("/api/v1/audit", params={"action": "cluster.shutdown"})).json()["items"]
        assert sorted(entry["outcome"] for entry in audit) == ["begun", "ok"]
        assert {entry["after"]["reason"] for entry in audit} == {"moved to another host"}


@pytest.mark.system
async def test_instances_and_daemons_go_on_without_it(tmp_path: pathlib.Path) -> None:
    async with ProcessCluster(tmp_path) as cluster:
        site = Site(cluster, tmp_path)
        controller = await site.controller()
        async with site.client() as client:
            join = (await client.post("/api/v1/nodes/join-tokens", json={"node_id": "n1"})).json()["token"]
            daemon = cluster.start(
                *("daemon", "--data", str(tmp_path / "n1"), "--controller", site.grpc, "--node-id", "n1"),
                environment={JOIN_VARIABLE: join},
            )
            await daemon.ready()
            (await client.post("/api/v1/groups", json=GROUP)).raise_for_status()
            before = await eventually(lambda: running(client))
            await client.post(PATH, json={})
            assert await controller.wait() == 0
        assert daemon.alive
        await site.controller()
        async with site.client() as client:
            after = await eventually(lambda: running(client))
        assert (after["pid"], after["incarnation"]) == (before["pid"], before["incarnation"])


async def running(client: httpx.AsyncClient) -> dict[str, object] | None:
    found = await client.get("/api/v1/instances/lobby-1")
    shown: dict[str, object] = found.json()
    return shown if shown.get("state") == "RUNNING" else None
