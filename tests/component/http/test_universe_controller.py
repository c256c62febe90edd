"""Universe's view of the controller and of the nodes, and its form of refusals."""

from __future__ import annotations

import asyncio
import pathlib

import httpx
import pytest
from http_rig import Rig, http_rig
from kept_connection import kept_connection
from matrix_callers import bearer

from corral.domain.permissions import Role
from corral.system.http_config import HttpLimitsSection
from corral.testing.cluster import LocalCluster


def refusal(answer: httpx.Response) -> tuple[int, str]:
    body = answer.json()
    assert set(body) == {"error"}
    assert isinstance(body["error"], str)
    return answer.status_code, body["error"]


async def test_a_standby_answers_a_ping_as_no_master(client: httpx.AsyncClient, rig: Rig) -> None:
    rig.leads = False
    ping = (await client.get("/api/ping")).json()
    assert (ping["status"], ping["master"], ping["clusterName"]) == ("ok", False, None)
    status, text = refusal(await client.get("/api/node"))
    assert (status, text) == (
        503,
        "this controller does not lead at present; ask the leader, or try again shortly",
    )


async def test_the_controller_shows_itself_its_host_and_its_configuration(cluster: LocalCluster) -> None:
    controller = await cluster.controller(modules__key_value__url="redis://user:hidden@127.0.0.1:1/0")
    ping = await controller.call("GET", "/api/ping")
    node = await controller.call("GET", "/api/node")
    assert (node["id"], node["clusterName"]) == (ping["nodeId"], ping["clusterName"])
    assert node["id"].startswith("controller-")
    assert f"{node['address']}:{node['port']}" == controller.grpc_address
    assert controller.url.endswith(f":{node['apiPort']}")
    assert int(node["uptimeMs"]) >= 0
    system = node["system"]
    assert all(isinstance(system[name], str) for name in ("freeMemory", "totalMemory", "maxMemory"))
    assert 0 < int(system["freeMemory"]) <= int(system["totalMemory"])
    shown = await controller.call("GET", "/api/node/config")
    assert shown["modules"]["key_value"]["url"] == "redis://127.0.0.1:1/0"
    assert shown["http"]["listen"] == "127.0.0.1:0"
    assert "hidden" not in str(shown)


async def test_the_configuration_is_for_administrators(rig: Rig) -> None:
    _, operator = await rig.token(Role.OPERATOR)
    async with rig.client(operator) as client:
        status, text = refusal(await client.get("/api/node/config"))
    assert (status, text) == (
        403,
        "role OPERATOR does not grant 'settings.read'; use a token of role ADMIN",
    )


async def test_nodes_are_listed_with_what_is_reserved_and_shown_with_their_instances(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.online("node-1", address="127.0.0.1")
    await rig.online("node-2", address="10.0.0.2")
    await rig.group("lobby", memory_mb=512, cpu=1.5)
    record = await rig.instance("lobby", node="node-2")
    assert (await client.get("/api/cluster/nodes")).json() == [
        {
            "id": name,
            "name": name,
            "address": address,
            "port": 0,
            "local": local,
            "resources": {"usedRamMB": memory, "usedCpu": cpu},
        }
        for name, address, local, memory, cpu in (
            ("node-1", "127.0.0.1", True, 0, 0.0),
            ("node-2", "10.0.0.2", False, 512, 150.0),
        )
    ]
    one = (await client.get("/api/cluster/nodes/NODE-2")).json()
    assert [each["id"] for each in one["instances"]] == [record.id]
    assert refusal(await client.get("/api/cluster/nodes/none"))[0] == 404


async def test_a_reload_without_a_directory_says_what_to_do(client: httpx.AsyncClient) -> None:
    status, text = refusal(await client.post("/api/node/reload"))
    assert (status, text.partition(";")[0]) == (409, "this controller has no directory of groups")


async def test_a_reload_reports_by_file(cluster: LocalCluster, scratch: pathlib.Path) -> None:
    folder = scratch / "groups"
    folder.mkdir()
    (folder / "arena.yaml").write_text("name: arena\ncommand: [sleep, '60']\n")
    controller = await cluster.controller(groups__directory=str(folder))
    (folder / "lobby.yaml").write_text("name: lobby\ncommand: [sleep, '60']\n")
    (folder / "bad.yaml").write_text("name: bad\ncolour: red\n")
    report = await controller.call("POST", "/api/node/reload")
    assert {each["name"]: each["action"] for each in report["groups"]}["lobby"] == "created"
    assert ("bad", "colour") in [(each["group"], each["field"]) for each in report["errors"]]


async def test_every_refusal_is_a_text(client: httpx.AsyncClient, rig: Rig) -> None:
    async with rig.client("") as stranger:
        assert refusal(await stranger.get("/api/instances"))[0] == 401
    assert refusal(await client.get("/api/instances/none"))[0] == 404
    assert refusal(await client.get("/api/instances/a/b/c"))[0] == 404
    assert refusal(await client.put("/api/instances"))[0] == 405
    put = "/api/configurations/lobby"
    assert refusal(await client.put(put, content=b"{" + b" " * 2_000_000 + b"}"))[0] == 413
    plain = {"content-type": "text/plain"}
    assert refusal(await client.put(put, content=b"{}", headers=plain))[0] == 415
    assert refusal(await client.get("/api/instances", params={"colour": "red"}))[0] == 400
    assert refusal(await client.get("/api/instances/a/live-log"))[0] == 400
    native = (await client.get("/api/v1/instances/none")).json()
    assert native["error"]["code"] == "NOT_FOUND"


async def test_too_many_requests_are_refused_with_a_text(data: pathlib.Path) -> None:
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=5)) as rig:
        async with rig.client() as client:
            answers = [await client.get("/api/configurations") for _ in range(7)]
        assert refusal(answers[-1])[0] == 429
        assert "retry-after" in answers[-1].headers


async def test_a_repeated_failure_is_told_in_the_same_form(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    rig.sessions.links["node-1"].refuse_commands = "NOT_RUNNING"  # type: ignore[index]
    asked = {"json": {"command": "x"}, "headers": {"Idempotency-Key": "k"}}
    path = f"/api/instances/{record.id}/execute"
    first, second = [await client.post(path, **asked) for _ in range(2)]  # type: ignore[arg-type]
    assert refusal(first) == refusal(second)
    assert first.status_code == 409


@pytest.mark.parametrize("path", ["/api/instances/x/live-log", "/api/node"])
async def test_a_refused_handshake_is_a_text_too(rig: Rig, path: str) -> None:
    async with kept_connection(rig) as connection:
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        }
        answer = await asyncio.wait_for(connection.ask("GET", path, {**bearer(rig.admin), **upgrade}), 15)
    assert (answer.status, answer.code) == (404, "a text")
