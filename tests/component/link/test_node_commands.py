"""Commands that a node answers from what it knows itself, at both ends of the link."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from corral.controller.instances.node_commands import LINES_MAX, TEXT_MAX, read_answer
from corral.testing.api_calls import create_group, wait_for_instances
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.scripted_peers import ScriptedDaemon, enrolled_identity
from corral.wire.features import FEATURES, NODE_COMMANDS
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import NodeCommandResult


@pytest.fixture
async def controller(tmp_path: pathlib.Path) -> AsyncIterator[LocalController]:
    async with LocalCluster(tmp_path) as cluster:
        controller = await cluster.controller()
        controller.cluster = cluster  # type: ignore[attr-defined]  # for tests that add nodes
        yield controller


def caller(controller: LocalController, token: str) -> httpx.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=30, trust_env=False)


async def ask(client: httpx.AsyncClient, line: str, *, node: str = "web-1") -> httpx.Response:
    return await client.post(f"/api/v1/nodes/{node}/command", json={"command": line})


async def test_a_node_tells_what_only_it_knows(controller: Any) -> None:
    daemon = await controller.cluster.daemon("web-1", controller)
    ports = {"primary": {"range": [31870, 31890]}}
    await create_group(controller, "lobby", ["sleep", "600"], ports=ports)
    (lobby,) = await wait_for_instances(controller, "lobby", 1)
    async with caller(controller, controller.admin_token) as admin:
        info = json.loads("\n".join((await ask(admin, "node info -o json")).json()["output"]))
        assert (info["node"], info["instances"]) == ("web-1", 1)
        listed = (await ask(admin, "instance list")).json()
        assert (listed["exit_code"], listed["command"]) == (0, "instance list")
        assert listed["output"][0].split() == ["ID", "GROUP", "INCARNATION", "STATE", "PID", "PORT"]
        assert str(lobby["pid"]) in listed["output"][1].split()
        assert f"{lobby['pid']}" in str((await ask(admin, f"instance info {lobby['id']}")).json()["output"])
        assert str(lobby["port"]) in (await ask(admin, "ports")).json()["output"][1]
        assert (await ask(admin, "module list")).json()["output"] == ["nothing"]
        assert (await ask(admin, "cache list")).json()["exit_code"] == 0
        assert "instance list" in str((await ask(admin, "help")).json()["output"])
        for line, code in (
            ("instance info none", "NOT_FOUND"),
            ("node info now", "BAD_REQUEST"),
            ("node info -o xml", "BAD_REQUEST"),
        ):
            refused = (await ask(admin, line)).json()
            assert (refused["exit_code"], refused["error"]["code"]) == (1, code), line
        shell = await ask(admin, "/bin/sh -c id")
        assert (shell.status_code, shell.json()["error"]["code"]) == (404, "NOT_FOUND")
        assert (await ask(admin, "x " * 2000)).status_code == 400
        assert (await ask(admin, "help", node="web-9")).status_code == 404
        entries = (await admin.get("/api/v1/audit", params={"action": "nodes.command"})).json()["items"]
        assert {(each["subject"], each["outcome"]) for each in entries} >= {
            ("web-1", "begun"),
            ("web-1", "ok"),
        }
        await daemon.app.stop()
        gone = await ask(admin, "help")
        assert (gone.status_code, gone.json()["error"]["code"]) == (409, "NODE_OFFLINE")


async def test_other_commands_do_on_the_node_what_their_caller_may_and_nothing_elsewhere(
    controller: Any,
) -> None:
    for node in ("web-1", "web-2"):
        await controller.cluster.daemon(node, controller)
    ports = {"primary": {"range": [31870, 31890]}}
    await create_group(controller, "lobby", ["cat"], min=2, ports=ports, spread=[{"by": "node"}])
    places = {each["node"]: each["id"] for each in await wait_for_instances(controller, "lobby", 2)}
    here, elsewhere = places["web-1"], places["web-2"]
    async with caller(controller, controller.admin_token) as admin:
        for answer in (
            await ask(admin, f"instance exec {here} hello -o there"),
            await admin.post(
                "/api/cluster/nodes/web-1/command", json={"command": f"instance exec {here} hi"}
            ),
        ):
            assert answer.status_code == 200, answer.text
            assert not answer.json().get("error"), answer.text
        assert (await ask(admin, "instances ls -o name")).json()["output"] == [here]
        for line in (f"instance exec {elsewhere} hello", f"instance stop {elsewhere}", "node get web-2"):
            refused = (await ask(admin, line)).json()
            assert (refused["exit_code"], refused["error"]["code"]) == (1, "NOT_FOUND"), line
        for line in ("token create x --role ADMIN", "group scale lobby 0", "cluster settings"):
            assert (await ask(admin, line)).json()["error"]["code"] in ("FORBIDDEN", "NOT_FOUND"), line
        listed = (await admin.get(f"/api/v1/instances/{here}/commands")).json()["items"]
        assert [each["line"] for each in listed] == ["hi", "hello -o there"]
        assert (await admin.get(f"/api/v1/instances/{elsewhere}/commands")).json()["items"] == []
        unknown = await ask(admin, "lst")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "NOT_FOUND")
        unknown = await admin.post("/api/cluster/nodes/web-1/command", json={"command": "lst"})
        assert unknown.json()["output"] == [f"error: {unknown.json()['error']}"]
        entries = (await admin.get("/api/v1/audit", params={"action": "nodes.command"})).json()["items"]
        assert {each["subject"] for each in entries} == {"web-1"}


async def test_who_may_not_read_something_by_the_api_is_not_told_it_by_a_node(controller: Any) -> None:
    await controller.cluster.daemon("web-1", controller)
    async with caller(controller, controller.admin_token) as admin:
        tokens = {}
        for name, more in {
            "viewer": {"role": "VIEWER"},
            "nodes": {"role": "ADMIN", "permissions": ["commands.execute", "nodes.read"]},
            "part": {"role": "ADMIN", "scope": {"groups": ["lobby"], "nodes": ["web-1"]}},
            "node": {"role": "ADMIN", "scope": {"nodes": ["web-1"]}},
        }.items():
            made = await admin.post("/api/v1/tokens", json={"name": name, **more})
            assert made.status_code == 201, made.text
            tokens[name] = made.json()["token"]
    expected = {"viewer": (403, 403), "nodes": (200, 403), "part": (403, 403), "node": (200, 200)}
    for name, statuses in expected.items():
        async with caller(controller, tokens[name]) as client:
            found = [(await ask(client, line)).status_code for line in ("node info", "instance list")]
            assert tuple(found) == statuses, name


async def raw_daemon(controller: LocalController, directory: pathlib.Path) -> ScriptedDaemon:
    identity = await enrolled_identity(directory, token=await controller.join_token("raw"), node_id="raw")
    return ScriptedDaemon(identity, controller.grpc_address)


async def test_a_hostile_answer_is_bounded_and_spelled_out_and_a_late_one_is_dropped(
    controller: LocalController, tmp_path: pathlib.Path
) -> None:
    async with (
        await raw_daemon(controller, tmp_path / "raw") as daemon,
        caller(controller, controller.admin_token) as admin,
    ):
        await daemon.greet()
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(ask(admin, "node info", node="raw"))
            request = (await daemon.read_until("node_command")).node_command
            assert list(request.words) == ["node", "info"]
            for other in ("", "command-none"):  # of no request
                stray = NodeCommandResult(request_id=other, lines=["stray"])
                await daemon.send(DaemonMessage(node_command_result=stray))
            lines = ["\x1b[2J\n" + "x" * 5000, *["y" * 100] * 20_000]
            for _ in range(2):  # the second comes too late
                result = NodeCommandResult(request_id=request.request_id, lines=lines, error_code="EVIL")
                await daemon.send(DaemonMessage(node_command_result=result))
        found = asked.result().json()
        assert (found["error"]["code"], "\x1b" in found["output"][0]) == ("INTERNAL", False)
        assert sum(map(len, found["output"])) < TEXT_MAX + 100
        assert "left out" in found["output"][-1]
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(ask(admin, "help", node="raw"))
            await daemon.read_until("node_command")
            await daemon.hang_up()
        assert asked.result().json()["error"]["code"] == "NODE_OFFLINE"


async def test_a_daemon_without_the_feature_is_not_asked(
    controller: LocalController, tmp_path: pathlib.Path
) -> None:
    async with (
        await raw_daemon(controller, tmp_path / "raw") as daemon,
        caller(controller, controller.admin_token) as admin,
    ):
        await daemon.greet(features=[name for name in FEATURES if name not in (NODE_COMMANDS, "run-ends")])
        refused = await ask(admin, "help", node="raw")
        assert refused.json()["error"]["code"] == "NOT_SUPPORTED"


def test_lines_without_end_are_counted() -> None:
    answer = read_answer(NodeCommandResult(lines=[""] * (LINES_MAX + 5)))
    assert (len(answer.lines), answer.lines[-1]) == (LINES_MAX + 1, "(5 lines more are left out)")
