"""Universe's instances: shapes, states, refusals, and what lies behind each change."""

from __future__ import annotations

from typing import Any

import httpx
from http_rig import Rig
from stand_in_node import StandInNode
from test_universe_controller import refusal
from websockets.asyncio.client import connect

from corral.controller.http.resources.universe.universe_schemas import STATES
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.permissions import Role
from corral.testing.waiting import eventually

ALL = "/api/instances"


def node_of(rig: Rig) -> StandInNode:
    return rig.sessions.links[NodeId("node-1")]


async def test_an_instance_has_the_shape_of_universe(client: httpx.AsyncClient, rig: Rig) -> None:
    ports = {"primary": {"range": [30000, 30010]}}
    await rig.group("lobby", ports=ports, memory_mb=256, cpu=0.5)
    await rig.online("node-1", address="10.0.0.1")
    record = await rig.instance()
    shown = (await client.get(f"{ALL}/{record.id}")).json()
    seen = rig.sessions.present[NodeId("node-1")].last_seen
    assert shown == {
        "id": "lobby-1",
        "configurationName": "lobby",
        "wrapperNodeId": "node-1",
        "hostAddress": "10.0.0.1",
        "allocatedPort": 30000,
        "state": "ONLINE",
        "lastHeartbeat": str(int(seen.timestamp() * 1000)),
        "processPid": str(record.pid),
        "allocatedRamMB": 256,
        "allocatedCpu": 50.0,
        "runtime": "process",
    }
    assert (await client.get(f"{ALL}/LOBBY-1")).json() == shown
    assert (await client.get(ALL)).json() == [shown]


async def test_every_state_of_ours_is_one_of_universe(client: httpx.AsyncClient, rig: Rig) -> None:
    assert set(STATES) == set(InstanceState)
    record = await rig.instance()
    for ours, theirs in (
        (InstanceState.DRAINING, "ONLINE"),
        (InstanceState.STOPPING, "ONLINE"),
        (InstanceState.OFFLINE, "OFFLINE"),
        (InstanceState.PREPARING, "CREATING"),
    ):
        await rig.report(record.id, state=ours)
        assert (await client.get(f"{ALL}/{record.id}")).json()["state"] == theirs


async def test_a_line_is_put_into_its_input_once(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    for _ in range(2):
        answer = await client.post(
            f"{ALL}/{record.id}/execute", json={"command": "say hi"}, headers={"Idempotency-Key": "k"}
        )
        assert (answer.status_code, set(answer.json())) == (200, {"message"})
    assert node_of(rig).commands == ["say hi"]
    assert refusal(await client.post(f"{ALL}/{record.id}/execute", json={"command": "a\nb"}))[0] == 400
    assert refusal(await client.post(f"{ALL}/{record.id}/execute", json={}))[0] == 400


async def test_the_last_lines_are_read(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    node_of(rig).say(record.id, record.incarnation, b"one\ntwo\nthree\nfo")
    logs = (await client.get(f"{ALL}/{record.id}/logs", params={"lines": 3})).json()
    assert logs == {
        "instanceId": record.id,
        "lines": ["two", "three", "fo"],
        "totalLines": 3,
        "requestedLines": 3,
    }
    assert (await client.get(f"{ALL}/{record.id}/logs")).json()["requestedLines"] == 100
    assert refusal(await client.get(f"{ALL}/{record.id}/logs", params={"lines": 0}))[0] == 400
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as other:
        assert refusal(await other.get(f"{ALL}/{record.id}/logs"))[0] == 403


async def test_the_live_log_sends_each_line_once_and_ignores_what_it_gets(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    node = node_of(rig)
    node.say(record.id, record.incarnation, b"before\n")
    ticket = (await client.post("/api/v1/events/tickets")).json()["ticket"]
    url = f"{rig.url.replace('http', 'ws', 1)}{ALL}/{record.id}/live-log?ticket={ticket}"
    async with connect(url) as socket:
        await socket.send("stop")
        # it begins where the console is when it is opened: what comes meanwhile may or may not be a part
        await eventually(lambda: len(rig.leading.streams) == 1, deadline=15)
        node.say(record.id, record.incarnation, b"one\ntw")
        assert await socket.recv() == "one"
        node.say(record.id, record.incarnation, b"o\n\xff\n")
        assert [await socket.recv() for _ in range(2)] == ["two", "\ufffd"]
    assert node.commands == []


async def test_what_is_outside_of_a_scope_is_not_there(client: httpx.AsyncClient, rig: Rig) -> None:
    inside, outside = await rig.instance("lobby"), await rig.instance("arena")
    scope: dict[str, Any] = {"groups": ["lobby"]}
    _, text = await rig.token(Role.OPERATOR, scope=scope)
    async with rig.client(text) as scoped:
        assert [each["id"] for each in (await scoped.get(ALL)).json()] == [inside.id]
        assert refusal(await scoped.get(f"{ALL}/{outside.id}"))[0] == 404
        assert refusal(await scoped.delete(f"{ALL}/{outside.id}"))[0] == 404
        assert refusal(await scoped.post(ALL, json={"configurationName": "arena"}))[0] == 403
