"""Groups that inherit, over the API: one document of many, and what a change of a parent does to all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest
from http_rig import Rig

from corral.controller.state.collections import GROUPS as RECORDS
from corral.domain.groups.group_checks import check_group
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.permissions import Role
from corral.testing.counted_calls import calls_by_turn

GROUPS = "/api/v1/groups"
BASE: dict[str, Any] = {"name": "base", "abstract": True, "memory_mb": 256, "env": {"A": "1"}}


def child(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "parent": "base", "command": ["x"], **fields}


@pytest.fixture
async def family(client: httpx.AsyncClient) -> None:
    for document in (BASE, child("lobby"), child("arena", memory_mb=512), child("duel", parent="arena")):
        answer = await client.post(GROUPS, json=document)
        assert answer.status_code == 201, answer.text


async def events(client: httpx.AsyncClient, type: str) -> list[tuple[str, Any]]:
    found = (await client.get("/api/v1/events", params={"types": type, "limit": 500})).json()["items"]
    return [(each["subject"], each["data"]) for each in found]


async def fields(client: httpx.AsyncClient, *names: str) -> dict[str, Any]:
    shapes = {each["name"]: each for each in (await client.get(GROUPS)).json()["items"]}
    return {name: shapes[name]["memory_mb"] for name in names}


@pytest.mark.usefixtures("family")
async def test_a_change_of_a_parent_is_one_of_all_that_inherit_it(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    before = rig.state.number
    changed = await client.patch(f"{GROUPS}/base", json={"memory_mb": 300, "labels": {"a": "b"}})
    assert changed.status_code == 200, changed.text
    assert rig.state.number == before + 1, "one transaction"
    assert await fields(client, "base", "lobby", "arena", "duel") == {
        "base": 300,
        "lobby": 300,
        "arena": 512,
        "duel": 512,
    }
    told = await events(client, "GROUP_UPDATED")
    assert sorted((name, sorted(data["changed"])) for name, data in told) == [
        ("arena", ["labels"]),
        ("base", ["labels", "memory_mb"]),
        ("duel", ["labels"]),
        ("lobby", ["labels", "memory_mb"]),
    ]


@pytest.mark.usefixtures("family")
async def test_one_invalid_child_refuses_all_and_is_named(client: httpx.AsyncClient, rig: Rig) -> None:
    await client.patch(f"{GROUPS}/duel", json={"min": 3})
    before = rig.state.number
    refused = await client.patch(f"{GROUPS}/base", json={"max": 2, "memory_mb": 1})
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["field"]) == (400, "INVALID_FIELD", "max")
    assert "group 'duel', which inherits this" in error["message"]
    assert "(written in 'base')" in error["message"]
    assert rig.state.number == before, "nothing changed"
    artifact = {"platform": "paper", "version": "1.0"}
    refused = await client.patch(f"{GROUPS}/base", json={"artifact": artifact})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "ARTIFACT_NOT_FOUND")
    assert "group 'arena', which inherits this" in refused.json()["error"]["message"]
    assert rig.state.number == before


@pytest.mark.usefixtures("family")
async def test_a_parent_with_children_stays_and_an_abstract_group_never_runs(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.online()
    refused = await client.delete(f"{GROUPS}/base")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFLICT")
    assert "'arena', 'lobby'" in refused.json()["error"]["message"]
    assert (await client.delete(f"{GROUPS}/duel")).status_code == 204
    for path, body in (("start", None), ("scale", {"count": 1})):
        refused = await client.post(f"{GROUPS}/base/{path}", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFLICT")
        assert "abstract" in refused.json()["error"]["message"]
    made = await client.post(GROUPS, json={"name": "idle", "command": ["x"], "min": 3, "abstract": True})
    assert made.json()["status"]["wanted"] == 0
    await rig.instance("lobby")
    refused = await client.patch(f"{GROUPS}/lobby", json={"abstract": True})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "abstract")
    assert "lobby-1" in refused.json()["error"]["message"]


@pytest.mark.usefixtures("family")
async def test_a_null_in_a_child_is_the_default_and_not_the_value_of_the_parent(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    shape = (await client.patch(f"{GROUPS}/lobby", json={"memory_mb": None, "env": {"A": None}})).json()
    assert (shape["memory_mb"], shape["env"]) == (0, {})
    record = rig.state.groups.require("lobby").record
    assert record.written == child("lobby", memory_mb=None, env={"A": None})
    assert (await client.patch(f"{GROUPS}/base", json={"memory_mb": 900})).status_code == 200
    assert await fields(client, "lobby") == {"lobby": 0}
    again = (await client.patch(f"{GROUPS}/lobby", json={"env": None})).json()
    assert again["env"] == {}
    other = (await client.patch(f"{GROUPS}/lobby", json={"env": {"B": "2"}})).json()
    assert other["env"] == {"B": "2"}, "what the parent has stays away"
    assert (await client.patch(f"{GROUPS}/lobby", json={"env": None})).json()["env"] == {}
    free = (await client.patch(f"{GROUPS}/lobby", json={"parent": None})).json()
    assert (free["parent"], free["memory_mb"], free["env"]) == ("", 0, {})


@pytest.mark.usefixtures("family")
async def test_an_object_that_was_read_and_is_sent_back_with_a_change_keeps_its_other_keys_inherited(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.patch(f"{GROUPS}/base", json={"restart": {"attempts": 7, "delay_ms": 9}})
    read = (await client.get(f"{GROUPS}/lobby")).json()
    patch = {"env": {**read["env"], "B": "2"}, "restart": {**read["restart"], "attempts": 3}}
    shape = (await client.patch(f"{GROUPS}/lobby", json=patch)).json()
    assert {key: shape[key] for key in patch} == patch
    assert rig.state.groups.require("lobby").record.written == child(
        "lobby", env={"B": "2"}, restart={"attempts": 3}
    )
    await client.patch(f"{GROUPS}/base", json={"env": {"A": "new"}, "restart": {"delay_ms": 5}})
    later = (await client.get(f"{GROUPS}/lobby")).json()
    assert later["env"] == {"A": "new", "B": "2"}
    assert (later["restart"]["attempts"], later["restart"]["delay_ms"]) == (3, 5)


async def test_a_patch_with_another_parent_keeps_what_it_repeats(client: httpx.AsyncClient) -> None:
    """What the group had from its old parent is not what it would have from the new one."""
    for document in (BASE, {**BASE, "name": "big", "memory_mb": 1024, "pids": 9}, child("lobby")):
        await client.post(GROUPS, json=document)
    patch = {"parent": "big", "memory_mb": 256, "pids": 0}
    answer = await client.patch(f"{GROUPS}/lobby", json=patch)
    assert answer.status_code == 200, answer.text
    assert {key: answer.json()[key] for key in patch} == patch
    document = (await client.get(f"{GROUPS}/lobby/document")).json()
    assert {key: document[key] for key in patch} == patch
    same = await client.patch(f"{GROUPS}/lobby", json={"parent": "big", "env": {"A": "1"}})
    assert same.status_code == 200, same.text
    assert "env" not in (await client.get(f"{GROUPS}/lobby/document")).json(), "the parent stays"
    await client.patch(f"{GROUPS}/lobby", json={"parent": None, "env": {"A": "1"}})
    assert (await client.get(f"{GROUPS}/lobby")).json()["env"] == {"A": "1"}


async def test_a_missing_parent_has_the_nearest_name(client: httpx.AsyncClient) -> None:
    await client.post(GROUPS, json=BASE)
    refused = await client.post(GROUPS, json=child("lobby", parent="bass"))
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "parent")
    assert refused.json()["error"]["hint"] == "did you mean 'base'?"
    assert (await client.get(f"{GROUPS}/lobby")).status_code == 404
    refused = await client.patch(f"{GROUPS}/base", json={"parent": "base"})
    assert refused.json()["error"]["field"] == "parent"


async def test_a_group_from_before_documents_were_kept_can_be_changed_and_inherited(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.post(GROUPS, json={"name": "base", "command": ["x"], "memory_mb": 7, "min": 0})
    stored = rig.state.groups.require("base")
    earlier = msgspec.structs.replace(stored.record, written=None)
    await rig.ledger.commit(RECORDS.put("base", earlier, expect=stored.revision))
    made = await client.post(GROUPS, json={"name": "lobby", "parent": "base"})
    assert (made.status_code, made.json()["memory_mb"], made.json()["command"]) == (201, 7, ["x"])
    assert (await client.patch(f"{GROUPS}/base", json={"memory_mb": 8})).json()["memory_mb"] == 8
    assert rig.state.groups.require("base").record.written == {
        "name": "base",
        "command": ["x"],
        "memory_mb": 8,
    }
    assert await fields(client, "lobby") == {"lobby": 8}


async def test_a_parent_that_goes_and_a_child_that_comes_at_once_never_both_succeed(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for _ in range(10):
        assert (await client.post(GROUPS, json=BASE)).status_code == 201
        made, gone = await asyncio.gather(
            client.post(GROUPS, json=child("lobby")), client.delete(f"{GROUPS}/base")
        )
        assert (made.status_code, gone.status_code) in {(201, 409), (400, 204)}
        for name in ("lobby", "base"):
            await client.delete(f"{GROUPS}/{name}")


async def test_descendants_of_a_changed_parent_do_not_hold_up_the_loop(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.post(GROUPS, json=BASE)
    children = [{"body": child(f"g-{number}", max=number)} for number in range(400)]
    await client.post("/api/v1/apply", json={"documents": children})
    async with calls_by_turn() as count:
        answer = await client.patch(f"{GROUPS}/base", json={"memory_mb": 300})
    assert answer.status_code == 200, answer.text
    assert count.of(check_group) == 0, "done by a thread"
    assert count.of(resolve_plan) == 400
    assert count.most_in_a_turn < count.calls / 2
    assert {each.record.spec.memory_mb for each in rig.state.groups} == {300}


@pytest.mark.usefixtures("family")
async def test_edits_of_a_parent_and_other_changes_of_its_children_at_once_are_all_kept(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    async def sent(method: str, path: str, body: dict[str, Any]) -> None:
        while (answer := await client.request(method, f"{GROUPS}/{path}", json=body)).status_code == 409:
            assert answer.json()["error"]["code"] == "CONFLICT", "too many at once: it is sent again"
        assert answer.status_code == 200, answer.text

    patches = [sent("PATCH", ("base", "lobby")[n % 2], {"env": {f"K{n}": "x"}}) for n in range(15)]
    scales = [sent("POST", "lobby/scale", {"count": n}) for n in range(15)]
    await asyncio.gather(*(each for pair in zip(patches, scales, strict=True) for each in pair))
    record = rig.state.groups.require("lobby").record
    assert record.spec.env.keys() == {"A", *(f"K{number}" for number in range(15))}
    assert rig.state.groups.require("duel").record.spec.env.keys() == {
        "A",
        *(f"K{number}" for number in range(0, 15, 2)),
    }
    assert record.target in range(15)


@pytest.mark.usefixtures("family")
async def test_a_resolved_group_says_where_each_value_was_written(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.patch(f"{GROUPS}/duel", json={"env": {"A": None, "B": "2"}})
    answer = await client.get(f"{GROUPS}/duel/resolved")
    found = answer.json()
    assert (found["name"], found["ancestors"]) == ("duel", ["arena", "base"])
    assert (found["document"]["memory_mb"], found["document"]["env"]) == (512, {"B": "2"})
    assert found["origins"] == {
        "command": "duel",
        "env/B": "duel",
        "memory_mb": "arena",
        "name": "duel",
        "parent": "duel",
    }
    assert answer.headers["etag"] == f'"{found["revision"]}"'
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as looking:
        hidden = (await looking.get(f"{GROUPS}/duel/resolved")).json()
    assert hidden["document"]["env"] == {"B": "•••"}
    assert hidden["origins"] == found["origins"]
    assert (await client.get(f"{GROUPS}/nobody/resolved")).status_code == 404
