"""Dry runs: what a change would do, and nothing of it done."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from http_rig import Rig

from corral.controller.state.collections import NODES
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import NodeState

GROUPS = "/api/v1/groups"
DRY = {"dry_run": "true"}


@pytest.fixture
async def unchanged(rig: Rig) -> Any:
    """A function that says whether nothing was stored since it was asked last."""
    seen = [rig.state.number]

    def same() -> bool:
        before, seen[0] = seen[0], rig.state.number
        return before == seen[0]

    return same


async def test_a_group_that_would_be_created_is_described_and_a_wrong_one_refused(
    client: httpx.AsyncClient, unchanged: Any
) -> None:
    document = {"name": "lobby", "command": ["x"], "min": 2}
    answer = await client.post(GROUPS, json=document, params=DRY)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [(each["group"], each["change"]) for each in found["changes"]] == [("lobby", "created")]
    fields = {each["field"]: (each["before"], each["after"]) for each in found["changes"][0]["fields"]}
    assert fields == {"command": (None, ["x"]), "min": (None, 2)}
    assert (found["instances"], found["players"], found["worlds"], found["warnings"]) == ([], 0, [], [])
    wrong = await client.post(GROUPS, json={**document, "max": 1}, params=DRY)
    assert (wrong.status_code, wrong.json()["error"]["field"]) == (400, "max")
    assert unchanged()
    assert (await client.get(f"{GROUPS}/lobby")).status_code == 404


async def test_a_change_of_a_document_shows_fields_effects_and_instances_of_all_that_inherit_it(
    client: httpx.AsyncClient, rig: Rig, unchanged: Any
) -> None:
    await client.post(GROUPS, json={"name": "base", "abstract": True})
    await client.post(GROUPS, json={"name": "lobby", "parent": "base", "command": ["x"]})
    made = await rig.instance()
    rig.workload.vitals.players(made.id, made.incarnation, count=4, maximum=10)
    unchanged()
    patch = {"memory_mb": 5, "max": 3, "nodes": ["n9"]}
    found = (await client.patch(f"{GROUPS}/base", json=patch, params=DRY)).json()
    effects = [("max", "now"), ("memory_mb", "restart"), ("nodes", "next_start")]
    for change, name in zip(found["changes"], ("base", "lobby"), strict=True):
        assert (change["group"], change["change"]) == (name, "updated")
        assert sorted((each["field"], each["effect"]) for each in change["fields"]) == effects
    assert [(each["id"], each["effect"]) for each in found["instances"]] == [("lobby-1", "outdated")]
    assert found["players"] == 4
    put = await client.put(f"{GROUPS}/lobby/document", json={"command": ["x"], "nodes": ["n9"]}, params=DRY)
    assert [(each["id"], each["effect"]) for each in put.json()["instances"]] == [("lobby-1", "placement")]
    same = await client.put(f"{GROUPS}/lobby/document", json={"parent": "base", "command": ["x"]}, params=DRY)
    assert same.json()["changes"] == []
    assert unchanged()
    assert (await client.get(f"{GROUPS}/lobby")).json()["memory_mb"] == 0


async def test_a_dry_run_with_a_key_is_described_anew_each_time(
    client: httpx.AsyncClient, rig: Rig, unchanged: Any
) -> None:
    """Nothing is stored under the key, so it is free for the change itself."""
    await rig.instance()
    stored = rig.state.nodes.require("node-1")
    away = msgspec.structs.replace(stored.record, state=NodeState.DISCONNECTED)
    await rig.ledger.commit(NODES.put("node-1", away, expect=stored.revision))
    rig.sessions.present.clear()
    unchanged()
    requests: list[tuple[str, str, Any]] = [
        ("POST", GROUPS, {"name": "new", "command": ["x"]}),
        ("PATCH", f"{GROUPS}/lobby", {"memory_mb": 5}),
        ("PUT", f"{GROUPS}/lobby/document", {"command": ["y"]}),
        ("DELETE", f"{GROUPS}/lobby?cascade=true", None),
        ("POST", "/api/v1/instances/lobby-1/kill", {}),
        ("DELETE", "/api/v1/nodes/node-1", None),
    ]
    for number, (method, path, body) in enumerate(requests):
        url = f"{path}{'&' if '?' in path else '?'}dry_run=true"
        headers = {"Idempotency-Key": f"dry-{number}"}
        answers = [await client.request(method, url, json=body, headers=headers) for _ in range(2)]
        assert [each.status_code for each in answers] == [200, 200], (method, path, answers[1].text)
        assert answers[0].json() == answers[1].json()
        assert unchanged(), (method, path)
    made = await client.post(GROUPS, json=requests[0][2], headers={"Idempotency-Key": "dry-0"})
    assert made.status_code == 201, made.text


async def test_worlds_that_would_be_left_are_shown_without_a_confirmation(
    client: httpx.AsyncClient, rig: Rig, unchanged: Any
) -> None:
    await rig.group("world", static=True)
    await rig.instance("world", state=InstanceState.STOPPED, home="node-1")
    unchanged()
    off = (await client.patch(f"{GROUPS}/world", json={"static": False}, params=DRY)).json()
    assert [(each["id"], each["node"]) for each in off["worlds"]] == [("world-1", "node-1")]
    assert "deleted when they stop" in off["warnings"][0]
    gone = (await client.delete(f"{GROUPS}/world", params=DRY)).json()
    assert [each["change"] for each in gone["changes"]] == ["deleted"]
    assert [each["id"] for each in gone["worlds"]] == ["world-1"]
    assert unchanged()


async def test_a_deletion_a_kill_and_a_removal_show_who_would_end(
    client: httpx.AsyncClient, rig: Rig, unchanged: Any
) -> None:
    made = await rig.instance()
    rig.workload.vitals.players(made.id, made.incarnation, count=2, maximum=10)
    await rig.instance()
    unchanged()
    refused = await client.delete(f"{GROUPS}/lobby", params=DRY)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "GROUP_NOT_EMPTY")
    gone = (await client.delete(f"{GROUPS}/lobby", params={**DRY, "cascade": "true"})).json()
    ends = [(each["id"], each["effect"], each["players"]) for each in gone["instances"]]
    assert sorted(ends) == [("lobby-1", "stopped", 2), ("lobby-2", "stopped", None)]
    assert (gone["players"], "1 of the instances" in gone["warnings"][0]) == (2, True)
    killed = (await client.post("/api/v1/instances/lobby-1/kill", json={}, params=DRY)).json()
    assert [(each["id"], each["effect"]) for each in killed["instances"]] == [("lobby-1", "killed")]
    waiting = await client.post("/api/v1/instances/lobby-1/kill", json={}, params={**DRY, "wait": "stopped"})
    assert (waiting.status_code, waiting.json()["error"]["field"]) == (400, "wait")
    connected = await client.delete("/api/v1/nodes/node-1", params=DRY)
    assert connected.status_code == 409, "a node that is connected is not removed"
    assert unchanged()
    rig.sessions.present.clear()
    stored = rig.state.nodes.require("node-1")
    away = msgspec.structs.replace(stored.record, state=NodeState.DISCONNECTED)
    await rig.ledger.commit(NODES.put("node-1", away, expect=stored.revision))
    unchanged()
    removed = await client.delete("/api/v1/nodes/node-1", params=DRY)
    assert [each["effect"] for each in removed.json()["instances"]] == ["given_up", "given_up"]
    assert "stop-all" in removed.json()["warnings"][0]
    assert unchanged()
    assert (await client.get("/api/v1/nodes/node-1")).status_code == 200


async def test_a_hold_and_a_release_say_what_they_would_stop_and_start(
    client: httpx.AsyncClient, rig: Rig, unchanged: Any
) -> None:
    await client.post(GROUPS, json={"name": "lobby", "command": ["x"], "min": 2})
    busy, idle = await rig.instance(), await rig.instance()
    rig.workload.vitals.players(busy.id, busy.incarnation, count=3, maximum=10)
    rig.workload.vitals.players(idle.id, idle.incarnation, count=0, maximum=10)
    unchanged()

    async def asked(verb: str, **body: Any) -> Any:
        answer = await client.post(f"{GROUPS}/lobby/{verb}", json=body or None, params=DRY)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def effects(found: Any) -> dict[str, str]:
        return {each["id"]: each["effect"] for each in found["instances"]}

    at_once = await asked("hold", reason="a new map")
    assert effects(at_once) == {busy.id: "stopped", idle.id: "stopped"}
    assert (at_once["players"], at_once["changes"][0]["change"]) == (3, "held")
    assert {(each["kind"], each["rule"]) for each in at_once["decisions"]} >= {("stop", "hold.stop")}
    later = await asked("hold", reason="a new map", when_empty=True)
    assert effects(later) == {busy.id: "stopped_when_empty", idle.id: "stopped"}
    assert (await asked("release"))["changes"] == []
    assert unchanged()
    assert (await client.get(f"{GROUPS}/lobby")).json()["status"]["hold"] is None

    await client.post(GROUPS, json={"name": "game", "command": ["x"], "min": 1})
    await client.post(f"{GROUPS}/game/hold", json={"reason": "a new map"})
    unchanged()
    released = (await client.post(f"{GROUPS}/game/release", params=DRY)).json()
    assert [each["change"] for each in released["changes"]] == ["released"]
    assert [(each["kind"], each["node"]) for each in released["decisions"]] == [("start", "node-1")]
    assert (released["instances"], unchanged()) == ([], True)
    assert (await client.get(f"{GROUPS}/game")).json()["status"]["hold"]["reason"] == "a new map"
