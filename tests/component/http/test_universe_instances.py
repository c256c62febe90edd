"""Universe's instances: shapes, states, refusals, and what lies behind each change."""

from __future__ import annotations

import datetime as dt
from typing import Any

import httpx
import pytest
from http_rig import Rig
from stand_in_node import StandInNode
from test_api_workload import reports, token_of
from test_universe_controller import refusal
from websockets.asyncio.client import connect

from corral.controller.http.resources.universe.universe_schemas import STATES
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted
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


@pytest.mark.parametrize(
    ("state", "theirs", "seconds"),
    [(InstanceState.CRASHED, "OFFLINE", 15), (InstanceState.STOPPED, "STOPPED", 10)],
)
async def test_an_ended_instance_is_listed_for_some_seconds_and_always_shown_by_id(
    client: httpx.AsyncClient, rig: Rig, state: InstanceState, theirs: str, seconds: int
) -> None:
    record = await rig.instance()
    now = rig.clock.now()
    for age, listed in ((seconds - 3, True), (seconds + 1, False)):
        ended = now - dt.timedelta(seconds=age)
        await rig.report(record.id, state=state, ended_at=ended, wanted=Wanted.STOP)
        assert len((await client.get(ALL)).json()) == listed
        assert (await client.get(f"{ALL}/{record.id}")).json()["state"] == theirs


async def test_an_instance_is_created_of_a_configuration(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    await rig.group("lobby")
    made = await client.post(ALL, json={"configurationName": "Lobby"}, headers={"Idempotency-Key": "k"})
    assert (made.status_code, made.json()["state"]) == (201, "CREATING")
    assert (made.json()["allocatedPort"], made.json()["processPid"]) == (0, "0")
    again = await client.post(ALL, json={"configurationName": "Lobby"}, headers={"Idempotency-Key": "k"})
    assert again.json() == made.json()
    assert [each.record.id for each in rig.state.instances] == ["lobby-1"]
    assert [each["subject"] for each in await rig.audits("instances.start")] == ["lobby-1"]


async def test_an_unknown_configuration_is_400_and_no_capacity_503(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    status, text = refusal(await client.post(ALL, json={"configurationName": "none"}))
    assert (status, "group 'none' does not exist" in text) == (400, True)
    await rig.online("node-1", memory_mb=100)
    await rig.group("large", memory_mb=4000)
    answer = await client.post(ALL, json={"configurationName": "large"})
    assert refusal(answer)[0] == 503
    assert answer.headers["retry-after"] == "5"
    assert refusal(await client.post(ALL, json={}))[0] == 400
    await rig.group("few", ports={"primary": {"range": [31000, 31000]}})
    assert (await client.post(ALL, json={"configurationName": "few"})).status_code == 201
    assert refusal(await client.post(ALL, json={"configurationName": "few"}))[0] == 503


async def test_a_delete_stops_what_lives_and_forgets_what_has_ended(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    answer = await client.delete(f"{ALL}/{record.id}")
    assert (answer.status_code, set(answer.json())) == (200, {"message"})
    assert rig.state.instances.require(record.id).record.wanted is Wanted.STOP
    assert len(await rig.audits("instances.stop")) == 1
    await rig.report(record.id, state=InstanceState.STOPPED)
    assert (await client.delete(f"{ALL}/{record.id}")).status_code == 200
    assert rig.state.instances.find(record.id) is None
    assert refusal(await client.delete(f"{ALL}/{record.id}"))[0] == 404


async def test_its_address_is_changed_until_it_is_started_again(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    path = f"{ALL}/{record.id}"
    changed = await client.patch(path, json={"hostAddress": "play.example.org"})
    assert (changed.status_code, changed.json()["hostAddress"]) == (200, "play.example.org")
    registry = (await client.get("/api/v1/groups/lobby/registry")).json()
    assert [each["address"] for each in registry["instances"]] == ["play.example.org"]
    assert refusal(await client.patch(path, json={"hostAddress": "0.0.0.0"}))[0] == 400
    status, text = refusal(await client.patch(path, json={"state": "STOPPED"}))
    assert (status, text) == (400, "unknown field 'state'; known: hostAddress")
    (entry,) = await rig.audits("instances.update")
    assert entry["after"] == {"host_address": "play.example.org"}
    await rig.report(record.id, state=InstanceState.STOPPED)
    await client.patch(f"{path}/lifecycle", params={"target": "start"})
    assert rig.state.instances.require(record.id).record.host_address == ""


async def test_the_lifecycle_goes_through_our_own_changes(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    path = f"{ALL}/{record.id}/lifecycle"
    before = await rig.audits("instances.start")
    runs = await client.patch(path, params={"target": "start"})
    assert (runs.status_code, runs.json()["instance"]["state"]) == (200, "ONLINE")
    assert await rig.audits("instances.start") == before
    stopped = await client.patch(path, params={"target": "stop"})
    assert (stopped.status_code, stopped.json()["instance"]["id"]) == (200, record.id)
    await rig.report(record.id, state=InstanceState.STOPPED)
    started = await client.patch(path, params={"target": "start"})
    assert (started.status_code, started.json()["instance"]["state"]) == (200, "CREATING")
    await rig.report(record.id, state=InstanceState.RUNNING)
    restarted = await client.patch(path, params={"target": "restart"})
    assert restarted.status_code == 200
    assert len(await rig.audits("instances.start")) == len(before) + 1
    assert len(await rig.audits("instances.restart")) == 1
    assert len(await rig.audits("instances.stop")) == 1
    for target in ("explode", ""):
        assert refusal(await client.patch(path, params={"target": target}))[0] == 400


async def test_an_instance_reports_its_own_readiness_and_no_other(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, other = await rig.instance(), await rig.instance()
    async with rig.client(token_of(rig, record)) as workload:
        for state in ("OFFLINE", "ONLINE"):
            body = {"state": state, "lastHeartbeat": "1700000000000"}
            answer = await workload.put(f"{ALL}/{record.id}/state", json=body)
            assert (answer.status_code, answer.json()["id"]) == (200, record.id)
        assert refusal(await workload.put(f"{ALL}/{other.id}/state", json={"state": "ONLINE"}))[0] == 403
        assert refusal(await workload.put(f"{ALL}/{record.id}/state", json={"state": "CREATING"}))[0] == 400
        assert refusal(await workload.get(f"{ALL}/{record.id}"))[0] == 401
    assert [(each.ready, each.not_ready) for each in reports(rig)] == [(False, True), (True, False)]
    assert await rig.audits("instances.report_state") == []
    assert rig.state.instances.require(record.id).record.wanted is Wanted.RUN


async def test_a_caller_reports_the_readiness_of_what_it_manages(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    path = f"{ALL}/{record.id}/state"
    assert (await client.put(path, json={"state": "OFFLINE", "lastHeartbeat": 5})).status_code == 200
    assert [each.not_ready for each in reports(rig)] == [True]
    entries = await rig.audits("instances.report_state")
    assert {each["subject"] for each in entries} == {record.id}
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as other:
        assert refusal(await other.put(path, json={"state": "ONLINE"}))[0] == 403
    node_of(rig).lacks("not_ready")
    status, text = refusal(await client.put(path, json={"state": "OFFLINE"}))
    assert (status, text) == (409, "the daemon of node 'node-1' does not know such a report yet; update it")
    await rig.report(record.id, state=InstanceState.STOPPED)
    assert refusal(await client.put(path, json={"state": "ONLINE"}))[0] == 409


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
