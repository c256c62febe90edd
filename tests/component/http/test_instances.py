"""Instances over the API: the fixed shape, the verbs, and what callers may wait for."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import httpx
import pytest
from http_rig import Rig

from corral.controller.state.collections import CRASHES
from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.instance_records import ExitRecord, Readiness, StartFailure
from corral.domain.instance_states import InstanceState
from corral.store.port import ABSENT
from corral.testing.waiting import eventually

INSTANCES = "/api/v1/instances"
FIXED_NAMES = {
    "id", "group", "node", "state", "wanted", "ready", "port", "ports", "pid", "players", "started_at",
    "ended_at", "exit", "plan_hash", "revision", "reason", "deployment_revision", "runtime", "uptime_ms",
    "last_seen", "incarnation", "restarts",
}  # fmt: skip


def ended(code: int | None, *, signal: int | None = None, crashed: bool = True) -> ExitRecord:
    return ExitRecord(
        known=True,
        code=code,
        signal=signal,
        crashed=crashed,
        outcome="crashed" if crashed else "stopped",
        summary=f"exit code {code}" if signal is None else f"signal {signal}",
        ended_at=dt.datetime.now(dt.UTC),
    )


async def test_a_start_is_answered_with_the_scheduled_record(client: httpx.AsyncClient, rig: Rig) -> None:
    node = await rig.online()
    await rig.group(ports={"primary": {"range": [30000, 30005]}, "query": {"port": 30050}}, memory_mb=64)
    answer = await client.post(INSTANCES, json={"group": "lobby"})
    assert answer.status_code == 201, answer.text
    shape = answer.json()
    assert set(shape) >= FIXED_NAMES
    assert (shape["state"], shape["wanted"], shape["node"], shape["group"]) == (
        "SCHEDULED", "run", "node-1", "lobby",
    )  # fmt: skip
    assert (shape["port"], shape["ports"]) == (30000, {"primary": 30000, "query": 30050})
    assert (shape["pid"], shape["exit"], shape["ready"], shape["deployment_revision"]) == (
        None,
        None,
        False,
        1,
    )
    await eventually(lambda: [m for m in node.sent if m.WhichOneof("payload") == "start_instance"])
    assert (await client.get(f"{INSTANCES}/{shape['id']}")).json()["revision"] == shape["revision"]


async def test_the_fixed_shape_of_one_that_runs_and_of_one_that_ended(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    shape = (await client.get(f"{INSTANCES}/{record.id}")).json()
    assert (shape["state"], shape["ready"], shape["pid"], shape["runtime"]) == (
        "RUNNING",
        True,
        4711,
        "process",
    )
    assert shape["last_seen"] is not None
    exit = ended(None, signal=9)
    await rig.report(record.id, state=InstanceState.CRASHED, exit=exit, ended_at=exit.ended_at)
    shape = (await client.get(f"{INSTANCES}/{record.id}")).json()
    assert {key: shape["exit"][key] for key in ("code", "signal", "crashed", "summary")} == {
        "code": None, "signal": 9, "crashed": True, "summary": "signal 9",
    }  # fmt: skip
    assert shape["ready"] is False


async def test_a_list_is_filtered_and_paged(client: httpx.AsyncClient, rig: Rig) -> None:
    for group in ("lobby", "arena"):
        for _ in range(3):
            await rig.instance(group)
    first = (await client.get(INSTANCES, params={"limit": 4})).json()
    rest = (await client.get(INSTANCES, params={"limit": 4, "cursor": first["next"]})).json()
    assert len(first["items"]) == 4
    assert len({item["id"] for item in first["items"] + rest["items"]}) == 6
    for params, count in (
        ({"group": "arena"}, 3),
        ({"node": "node-1"}, 6),
        ({"node": "none"}, 0),
        ({"state": "RUNNING"}, 6),
        ({"state": "CRASHED"}, 0),
        ({"wanted": "stop"}, 0),
    ):
        found = (await client.get(INSTANCES, params=params)).json()["items"]
        assert len(found) == count, params


@pytest.mark.parametrize(
    ("method", "params", "known"),
    [
        ("GET", {"state": "RUN"}, "RUNNING"),
        ("GET", {"wanted": "x"}, "run"),
        ("POST", {"wait": "x"}, "running"),
    ],
)
async def test_an_unknown_word_is_refused_with_those_that_are_known(
    client: httpx.AsyncClient, method: str, params: dict[str, str], known: str
) -> None:
    body = {"group": "lobby"} if method == "POST" else None
    refused = await client.request(method, INSTANCES, params=params, json=body)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["field"]) == ("INVALID_FIELD", *params)
    assert known in error["hint"]


async def test_a_start_by_the_id_of_an_instance_says_what_starts_that_again(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    error = (await client.post(INSTANCES, json={"group": record.id})).json()["error"]
    assert error["code"] == "NOT_FOUND"
    assert error["message"] == f"group '{record.id}' does not exist; that is an instance of group 'lobby'"
    assert f"'corral instance restart {record.id}'" in error["hint"]
    assert "'corral instance start lobby'" in error["hint"]


async def test_what_is_out_of_reach_or_going_is_not_ready(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    await rig.report(record.id, state=InstanceState.RUNNING, readiness=Readiness.READY)
    assert (await client.get(f"{INSTANCES}/{record.id}")).json()["ready"] is True
    assert (await client.get("/api/v1/groups/lobby")).json()["status"]["ready"] == 1
    for state in (InstanceState.OFFLINE, InstanceState.STOPPING):
        await rig.report(record.id, state=state)
        assert (await client.get(f"{INSTANCES}/{record.id}")).json()["ready"] is False
        assert (await client.get("/api/v1/groups/lobby")).json()["status"]["ready"] == 0


async def test_waiting_tells_how_the_run_ended_and_not_why_an_attempt_before_it_was_refused(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.online()
    await rig.group()
    starting = asyncio.create_task(
        client.post(INSTANCES, json={"group": "lobby"}, params={"wait": "running", "timeout": 20})
    )
    (stored,) = await eventually(lambda: list(rig.state.instances))
    failure = StartFailure(stage="VALIDATION", code="PORT_IN_USE", message="taken", permanent=False)
    now = dt.datetime.now(dt.UTC)
    await rig.report(
        stored.record.id,
        state=InstanceState.CRASHED,
        start_failure=failure,
        started_at=now,
        exit=ended(3),
    )
    told = (await starting).json()["error"]["message"]
    assert "exit code 3" in told
    assert "PORT_IN_USE" not in told


async def test_without_a_node_a_start_is_refused_with_the_reason(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.group()
    answer = await client.post(INSTANCES, json={"group": "lobby"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "NO_CAPACITY")
    missing = await client.post(INSTANCES, json={"group": "loby"})
    assert (missing.status_code, missing.json()["error"]["hint"]) == (404, "did you mean 'lobby'?")


async def test_waiting_ends_when_it_runs(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    await rig.group()
    starting = asyncio.create_task(
        client.post(INSTANCES, json={"group": "lobby"}, params={"wait": "running", "timeout": 20})
    )
    (stored,) = await eventually(lambda: list(rig.state.instances))
    await rig.report(stored.record.id, state=InstanceState.STARTING, pid=1)
    await rig.report(stored.record.id, state=InstanceState.RUNNING)
    answer = await starting
    assert (answer.status_code, answer.json()["state"]) == (201, "RUNNING")
    assert answer.headers["etag"] == f'"{answer.json()["revision"]}"'


async def test_waiting_ends_with_the_reason_when_it_cannot_run(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    await rig.group()
    starting = asyncio.create_task(
        client.post(INSTANCES, json={"group": "lobby"}, params={"wait": "running", "timeout": 20})
    )
    (stored,) = await eventually(lambda: list(rig.state.instances))
    failure = StartFailure(
        stage="PROCESS_START", code="COMMAND_NOT_FOUND", message="there is no 'x'", permanent=True
    )
    await rig.report(stored.record.id, state=InstanceState.CRASHED, start_failure=failure)
    answer = await starting
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "START_FAILED")
    assert "COMMAND_NOT_FOUND at PROCESS_START: there is no 'x'" in answer.json()["error"]["message"]


async def test_waiting_runs_out_and_says_what_was_seen(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    await rig.group()
    answer = await client.post(INSTANCES, json={"group": "lobby"}, params={"wait": "running", "timeout": 1})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "TIMEOUT")
    assert "it is SCHEDULED" in answer.json()["error"]["message"]
    assert len(list(rig.state.instances)) == 1, "it was started all the same"


async def test_a_keyed_start_happens_once_and_waits_each_time(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    await rig.group()
    headers = {"Idempotency-Key": "k-1"}
    params = {"wait": "running", "timeout": 1}
    assert (
        await client.post(INSTANCES, json={"group": "lobby"}, params=params, headers=headers)
    ).status_code == 504
    (stored,) = list(rig.state.instances)
    await rig.report(stored.record.id, state=InstanceState.RUNNING)
    again = await client.post(INSTANCES, json={"group": "lobby"}, params=params, headers=headers)
    assert (again.status_code, again.json()["state"]) == (201, "RUNNING")
    assert again.headers["idempotency-replayed"] == "true"
    assert len(list(rig.state.instances)) == 1


@pytest.mark.parametrize(("verb", "force"), [("stop", False), ("kill", True)])
async def test_an_order_is_sent_audited_and_waited_for(
    client: httpx.AsyncClient, rig: Rig, verb: str, force: bool
) -> None:
    record = await rig.instance()
    node = rig.sessions.links[record.node]
    ordering = asyncio.create_task(
        client.post(f"{INSTANCES}/{record.id}/{verb}", json={"reason": "tidy"}, params={"wait": "stopped"})
    )
    order = await eventually(
        lambda: [m.stop_instance for m in node.sent if m.WhichOneof("payload") == "stop_instance"]
    )
    assert (order[0].incarnation, order[0].force) == (record.incarnation, force)
    await rig.report(record.id, state=InstanceState.STOPPED, exit=ended(0, crashed=False))
    answer = await ordering
    assert (answer.status_code, answer.json()["state"]) == (200, "STOPPED"), answer.text
    assert len(await rig.audits(f"instances.{verb}")) == 1


@pytest.mark.parametrize(("method", "path"), [("POST", "start"), ("PATCH", "lifecycle?target=start")])
async def test_an_ended_instance_is_started_again_and_one_that_runs_is_left_alone(
    client: httpx.AsyncClient, rig: Rig, method: str, path: str
) -> None:
    record = await rig.instance()
    url = f"{INSTANCES}/{record.id}/{path}"
    number = rig.state.number
    left = await client.request(method, url)
    assert (left.status_code, left.json()["incarnation"]) == (200, record.incarnation), left.text
    assert not any(m.WhichOneof("payload") == "stop_instance" for m in rig.sessions.links[record.node].sent)
    assert rig.state.instances.require(record.id).record == record
    await rig.report(record.id, state=InstanceState.STOPPED, exit=ended(0, crashed=False))
    started = await client.request(method, url, json={"reason": "the night is over"})
    assert (started.status_code, started.json()["state"]) == (200, "SCHEDULED"), started.text
    assert started.json()["incarnation"] > record.incarnation
    assert rig.state.number > number
    assert (await client.request(method, f"{INSTANCES}/nobody/{path}")).status_code == 404


async def test_the_lifecycle_stops_and_restarts(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    url = f"{INSTANCES}/{record.id}/lifecycle"
    restarted = await client.patch(url, params={"target": "restart"})
    assert (restarted.status_code, restarted.json()["wanted"]) == (200, "stop"), restarted.text
    stopped = await client.patch(url, params={"target": "stop"}, json={"reason": "enough"})
    assert (stopped.status_code, stopped.json()["reason"]) == (200, "enough"), stopped.text
    assert [len(await rig.audits(f"instances.{verb}")) for verb in ("restart", "stop")] == [1, 1]
    refused = await client.patch(url, params={"target": "explode"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "target")


async def test_only_an_ended_instance_is_forgotten(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    refused = await client.delete(f"{INSTANCES}/{record.id}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFLICT")
    await rig.report(record.id, state=InstanceState.STOPPED)
    assert (await client.delete(f"{INSTANCES}/{record.id}")).status_code == 204
    assert (await client.get(f"{INSTANCES}/{record.id}")).status_code == 404


async def test_a_command_is_taken_or_refused_in_the_nodes_words(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    node = rig.sessions.links[record.node]
    taken = await client.post(f"{INSTANCES}/{record.id}/command", json={"command": "say hello"})
    assert taken.status_code == 200
    assert taken.json() == {
        "id": record.id,
        "command": "say hello",
        "incarnation": record.incarnation,
        "offset": 0,
    }
    assert node.commands == ["say hello"]
    (entry,) = await rig.audits("instances.command")
    assert entry["after"] == {"command": "say hello"}
    node.refuse_commands = "INPUT_NOT_READ"
    refused = await client.post(f"{INSTANCES}/{record.id}/command", json={"command": "again"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "INPUT_NOT_READ")
    assert "65536" in refused.json()["error"]["message"]
    for wrong in ("two\nlines", "x" * 5000, "nul\0"):
        answer = await client.post(f"{INSTANCES}/{record.id}/command", json={"command": wrong})
        assert answer.status_code == 400


async def test_an_instance_explains_itself(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    told = (await client.get(f"{INSTANCES}/{record.id}/why")).json()
    assert told["files_kept"] == []
    assert (told["subject"], told["state"]) == (f"instance/{record.id}", "RUNNING")
    assert [decision["kind"] for decision in told["decisions"]], "its start was a decision"
    listed = (await client.get("/api/v1/decisions", params={"subject": f"instance/{record.id}"})).json()
    assert listed["items"] == told["decisions"]
    wrong = await client.get("/api/v1/decisions", params={"subject": "module/x"})
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "subject")


def crash_of(record: Any, number: int) -> CrashRecord:
    return CrashRecord(
        id=f"{record.id}.{record.incarnation + number}",
        instance=record.id,
        incarnation=record.incarnation + number,
        group=record.group,
        node=record.node,
        at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=number),
        exit=ended(1),
        crash_class="unknown",
        signature="s",
        uptime_ms=5,
        tail=("last words",),
        tail_offset=17,
    )


async def test_crashes_are_listed_newest_first_and_shown_with_their_tail(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    for number in range(5):
        crash = crash_of(record, number)
        await rig.ledger.commit(CRASHES.put(crash.id, crash, expect=ABSENT))
    first = (await client.get("/api/v1/crashes", params={"limit": 3})).json()
    rest = (await client.get("/api/v1/crashes", params={"limit": 3, "cursor": first["next"]})).json()
    assert [item["incarnation"] - record.incarnation for item in first["items"] + rest["items"]] == [
        4,
        3,
        2,
        1,
        0,
    ]
    assert rest["next"] is None
    assert "tail" not in first["items"][0]
    shown = (await client.get(f"/api/v1/crashes/{first['items'][0]['id']}")).json()
    assert (shown["tail"], shown["tail_offset"]) == (["last words"], 17)
    assert (await client.get("/api/v1/crashes", params={"group": "other"})).json()["items"] == []


async def test_a_node_counts_the_instances_that_live_on_it(client: httpx.AsyncClient, rig: Rig) -> None:
    first, _ = await rig.instance(), await rig.instance()
    assert (await client.get("/api/v1/nodes/node-1")).json()["instances"] == 2
    await rig.report(first.id, state=InstanceState.STOPPED)
    assert (await client.get("/api/v1/nodes/node-1")).json()["instances"] == 1


@pytest.mark.trap("T27")
@pytest.mark.parametrize(
    "limit",
    [
        {"max": 3},
        {"max": 999, "ports": {"primary": {"range": [30000, 30002]}}},
        {"max": 999, "memory_mb": 1300},
    ],
    ids=["maximum", "ports", "memory"],
)
async def test_of_a_hundred_creates_at_once_where_one_more_fits_exactly_one_succeeds(
    client: httpx.AsyncClient, rig: Rig, limit: dict[str, Any]
) -> None:
    await rig.online(memory_mb=4096)
    await rig.group(**limit)

    async def create() -> int:
        return (await client.post(INSTANCES, json={"group": "lobby"})).status_code

    assert [await create(), await create()] == [201, 201]
    answers = await asyncio.gather(*(create() for _ in range(100)))
    assert sorted(answers) == [201] + [409] * 99
    found = (await client.get(INSTANCES, params={"live": True})).json()["items"]
    assert len(found) == 3


async def test_where_an_instance_is_reached_can_be_set_until_its_next_start(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    path = f"/api/v1/instances/{record.id}"
    before = (await client.get(path)).headers["etag"]
    answer = await client.patch(path, json={"host_address": "play.example.org"}, headers={"If-Match": before})
    assert (answer.status_code, answer.json()["host_address"]) == (200, "play.example.org")
    registry = (await client.get("/api/v1/groups/lobby/registry")).json()
    assert [each["address"] for each in registry["instances"]] == ["play.example.org"]
    for wrong in ({"host_address": "0.0.0.0"}, {"host_address": "a b"}, {"port": 1}):
        assert (await client.patch(path, json=wrong)).status_code == 400
    assert (await client.patch(path, json={})).json()["host_address"] == "play.example.org"
    (entry,) = await rig.audits("instances.update")
    assert (entry["before"], entry["after"]) == ({"host_address": ""}, {"host_address": "play.example.org"})
    await rig.report(record.id, state=InstanceState.STOPPED)
    assert (await client.post(f"{path}/restart")).json()["host_address"] == ""
