"""Lists of instances, groups and nodes: summaries, ids, searches and orders, within the scope of their caller."""

from __future__ import annotations

import pathlib
from typing import Any

import httpx
import pytest
from http_rig import Rig, http_rig
from test_scopes import error, fleet, scoped

from corral.domain.groups.instance_records import ExitRecord
from corral.domain.instance_states import InstanceState
from corral.domain.permissions import Role
from corral.domain.sensitive_fields import HIDDEN
from corral.system.http_config import HttpLimitsSection

__all__ = ["fleet"]  # the fixture

LISTS = {"/api/v1/instances": "id", "/api/v1/groups": "name", "/api/v1/nodes": "id"}
URL = "http://bob:hunter2@files.example/a?sig=SIGNED"


async def ids(client: httpx.AsyncClient, path: str, **query: Any) -> list[str]:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return [item[LISTS[path]] for item in answer.json()["items"]]


async def everything(client: httpx.AsyncClient, path: str, **query: Any) -> list[str]:
    """The ids on all pages."""
    found: list[str] = []
    while True:
        page = (await client.get(path, params=query)).json()
        found += [item[LISTS[path]] for item in page["items"]]
        if page["next"] is None:
            return found
        query["cursor"] = page["next"]


async def test_a_summary_says_of_a_resource_what_the_resource_says(fleet: Rig) -> None:
    fleet.workload.vitals.players("lobby-1", fleet.state.instances.require("lobby-1").record.incarnation,
                                  count=7, maximum=20)  # fmt: skip
    async with fleet.client() as client:
        for path, name in LISTS.items():
            full = (await client.get(path)).json()
            page = (await client.get(path, params={"view": "summary", "limit": 5000})).json()
            assert sorted(page) == ["items", "next", "total"]
            assert (page["total"], page["next"]) == (len(full["items"]), None)
            for whole, summary in zip(full["items"], page["items"], strict=True):
                whole = {**whole, **whole.get("status", {})}
                told = {
                    "exit",
                    "mode",
                    "states",
                    "paused",
                    "paused_until",
                    "held",
                    "closed",
                    "connected",
                    "min",
                    "max",
                    "players",
                }
                same = summary.keys() - told
                assert {key: whole[key] for key in same} == {key: summary[key] for key in same}, whole[name]
    lobby = next(item for item in await summaries(fleet, path="/api/v1/groups") if item["name"] == "lobby")
    assert (lobby["states"], lobby["held"], lobby["closed"]) == ({"RUNNING": 2}, False, False)
    by_id = {item["id"]: item for item in await summaries(fleet)}
    assert (by_id["lobby-1"]["players"], by_id["lobby-1"]["max_players"]) == (7, 20)
    assert by_id["lobby-2"]["players"] is None


async def summaries(rig: Rig, token: str | None = None, path: str = "/api/v1/instances", **query: Any) -> Any:
    async with rig.client(token) as client:
        answer = await client.get(path, params={"view": "summary", **query})
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]


async def test_a_summary_changes_with_its_instance_its_group_and_its_players(
    fleet: Rig, client: httpx.AsyncClient
) -> None:
    before = {item["id"]: item for item in await summaries(fleet)}
    assert {item["id"]: item for item in await summaries(fleet)} == before
    await fleet.report("lobby-1", restarts=3, reason="x" * 300)
    assert (await client.patch("/api/v1/groups/arena", json={"max_players": 99})).status_code == 200
    record = fleet.state.instances.require("lobby-2").record
    fleet.workload.vitals.players("lobby-2", record.incarnation, count=1, maximum=2)
    after = {item["id"]: item for item in await summaries(fleet)}
    assert (after["lobby-1"]["restarts"], len(after["lobby-1"]["reason"])) == (3, 200)
    assert after["lobby-1"]["revision"] == fleet.state.instances.revision("lobby-1")
    assert {after[id]["max_players"] for id in ("arena-1", "arena-2")} == {99}
    assert after["lobby-2"]["players"] == 1
    await fleet.report("lobby-1", state=InstanceState.STOPPED, ended_at=fleet.clock.now())
    assert (await client.delete("/api/v1/instances/lobby-1")).status_code == 204
    assert sorted(item["id"] for item in await summaries(fleet)) == ["arena-1", "arena-2", "lobby-2"]


@pytest.mark.trap("T91")
@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
async def test_a_summary_has_nothing_sensitive_for_anybody(rig: Rig, role: Role) -> None:
    await rig.group(
        "lobby", env={"KEY": "env-secret"}, variables={"V": "variable-secret"}, labels={"team": "red"}
    )
    ended = ExitRecord(known=True, code=1, signal=None, crashed=True, outcome="crashed", summary=f"cannot fetch {URL}",
                       ended_at=rig.clock.now())  # fmt: skip
    made = await rig.instance("lobby", reason=f"waits for {URL}", exit=ended, variables={"W": "start-secret"})
    _, token = await rig.token(role)
    async with rig.client(token) as client:
        texts = [
            (await client.get(path, params={"view": "summary"})).text for path in LISTS
        ]  # fmt: skip
    for text in texts:
        for secret in ("hunter2", "SIGNED", "secret", HIDDEN):
            assert secret not in text
    assert "waits for http://files.example/a" in texts[0]
    assert made.id in texts[0]
    async with rig.client() as admin:
        assert "hunter2" in (await admin.get(f"/api/v1/instances/{made.id}")).text, (
            "the resource itself has it"
        )


async def test_nobody_finds_out_by_a_search_or_an_order_what_is_hidden_from_him(rig: Rig) -> None:
    await rig.group("lobby", env={"KEY": "hunter2"}, properties={"a": "hunter2"}, labels={"team": "red"})
    _, token = await rig.token(Role.VIEWER)
    async with rig.client(token) as client:
        assert await ids(client, "/api/v1/groups", q="hunter2") == []
        assert await ids(client, "/api/v1/groups", q="team=RED") == ["lobby"]
        answer = await client.get("/api/v1/groups", params={"sort": "env"})
    assert error(answer) == (400, "INVALID_FIELD")
    assert "'updated_at'" in answer.json()["error"]["hint"] or "updated_at" in answer.text


@pytest.mark.parametrize("view", ["full", "summary"])
async def test_scopes_hold_for_every_way_to_ask_and_for_totals(fleet: Rig, view: str) -> None:
    async with await scoped(fleet, groups=["lobby"], nodes=["node-2"]) as both:
        for query in ({}, {"ids": "lobby-1,lobby-2,arena-2,zz"}, {"q": "-"}, {"sort": "-id"}, {"live": True},
                      {"state": "RUNNING,STARTING"}, {"q": "lobby", "sort": "players"}):  # fmt: skip
            answer = (await both.get("/api/v1/instances", params={"view": view, **query})).json()
            assert [item["id"] for item in answer["items"]] == ["lobby-2"], query
            assert answer.get("total", 1) == 1, query
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        for query in ({}, {"ids": "arena,lobby"}, {"q": "a"}, {"q": "b"}, {"sort": "-instances"}):
            answer = (await lobbies.get("/api/v1/groups", params={"view": view, **query})).json()
            found = [item["name"] for item in answer["items"]]
            assert found == ([] if query == {"q": "a"} else ["lobby"]), query
            assert answer.get("total", len(found)) == len(found), query
        assert await ids(lobbies, "/api/v1/nodes", view=view) == []
    async with await scoped(fleet, nodes=["node-2"]) as second:
        answer = (await second.get("/api/v1/nodes", params={"view": view, "ids": "node-1,node-2"})).json()
        assert ([item["id"] for item in answer["items"]], answer.get("total", 1)) == (["node-2"], 1)


@pytest.mark.parametrize("view", ["full", "summary"])
async def test_instances_are_found_by_states_ids_text_and_listed_in_an_order(fleet: Rig, view: str) -> None:
    path = "/api/v1/instances"
    await fleet.report("arena-1", state=InstanceState.CRASHED, ended_at=fleet.clock.now())
    await fleet.report("arena-2", restarts=5)
    async with fleet.client() as client:
        assert await ids(client, path, view=view, state="CRASHED") == ["arena-1"]
        assert await ids(client, path, view=view, state="CRASHED,RUNNING", group="arena") == [
            "arena-1",
            "arena-2",
        ]
        assert await ids(client, path, view=view, state=["CRASHED", "STOPPED"]) == ["arena-1"]
        assert await ids(client, path, view=view, state="STOPPED,SCHEDULED") == []
        assert await ids(client, path, view=view, ids="lobby-2,nope,arena-1") == ["arena-1", "lobby-2"]
        assert await ids(client, path, view=view, q="LOB") == ["lobby-1", "lobby-2"]
        assert await ids(client, path, view=view, sort="-restarts", limit=1) == ["arena-2"]
        for order in ("node", "-node", "-id", "players", "-started_at", "state"):
            listed = await everything(client, path, view=view, sort=order, limit=1)
            assert sorted(listed) == ["arena-1", "arena-2", "lobby-1", "lobby-2"], order
        assert await everything(client, path, view=view, sort="node", limit=3) == [
            "arena-1", "lobby-1", "arena-2", "lobby-2",
        ]  # fmt: skip


async def test_wrong_queries_are_refused_with_what_is_possible(fleet: Rig) -> None:
    async with fleet.client() as client:
        path = "/api/v1/instances"
        for query, field in (
            ({"state": "RUNNING,GONE"}, "state"),
            ({"sort": "secret"}, "sort"),
            ({"view": "tiny"}, "view"),
            ({"limit": 501}, "limit"),
            ({"limit": 5001, "view": "summary"}, "limit"),
            ({"limit": 0}, "limit"),
            ({"ids": ",".join(f"i-{n}" for n in range(501))}, "ids"),
            ({"q": "x" * 101}, "q"),
        ):
            answer = await client.get(path, params=query)
            assert error(answer) == (400, "INVALID_FIELD"), query
            assert answer.json()["error"]["field"] == field
        assert "RUNNING" in (await client.get(path, params={"state": "GONE"})).json()["error"]["hint"]
        assert error(await client.get(path, params={"sorted": "id"})) == (400, "UNKNOWN_FIELD")
        next = (await client.get(path, params={"limit": 1, "sort": "-id"})).json()["next"]
        for query in ({"sort": "id"}, {}, {"sort": "-players", "view": "summary"}):
            assert error(await client.get(path, params={**query, "cursor": next})) == (400, "INVALID_CURSOR")
        foreign = await client.get("/api/v1/groups", params={"cursor": next, "sort": "-name"})
        assert error(foreign) == (400, "INVALID_CURSOR")


async def test_a_large_page_a_search_and_an_order_count_as_several_requests(data: pathlib.Path) -> None:
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=25)) as rig:
        for query, count in (({"view": "summary", "limit": 5000}, 11), ({"q": "x"}, 5), ({"sort": "id"}, 5)):
            _, text = await rig.token(Role.VIEWER)
            async with rig.client(text) as caller:
                answers = [await caller.get("/api/v1/instances", params=query) for _ in range(7)]
            assert answers[0].status_code == 200
            refused = next(each for each in answers if each.status_code == 429)
            assert f"counts as {count}" in refused.json()["error"]["message"]
