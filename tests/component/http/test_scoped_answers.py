"""Answers to callers with a scope, decisions and reasons among them: all about what is within it, nothing about the rest."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import httpx
import pytest
from http_rig import Rig
from test_scoped_requests import BOTH, GROUPS, INSTANCES, NODES
from test_scopes import fleet, names, scoped

from corral.controller.instances.decision_entries import decision_entries
from corral.domain.decisions import DecisionKind
from corral.domain.events import Draft, EventType
from corral.domain.groups.instance_records import DecisionRecord
from corral.domain.ids import DecisionId, Epoch
from corral.domain.permissions import Role

__all__ = ["fleet"]  # the fixture


async def decisions(
    client: httpx.AsyncClient, subject: str | None = None, **query: Any
) -> set[tuple[str, str]]:
    """Subject and node of each that is listed, on all pages."""
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {**({"subject": subject} if subject else {}), **query}
    while True:
        page = (await client.get("/api/v1/decisions", params=params)).json()
        found += page["items"]
        if page["next"] is None:
            ids = [each["id"] for each in found]
            assert len(ids) == len(set(ids)), "each is listed once"
            return {(each["subject"], each["node"]) for each in found}
        params["cursor"] = page["next"]


@pytest.mark.parametrize("limit", [1, 200])
async def test_decisions_about_what_is_in_the_scope_are_listed_and_no_others(fleet: Rig, limit: int) -> None:
    everything = {(f"{group}-{n}", f"node-{n}") for group in ("lobby", "arena") for n in (1, 2)}
    async with fleet.client() as admin:
        assert everything <= await decisions(admin, limit=limit)
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        assert await decisions(lobbies, limit=limit) == {("lobby-1", "node-1"), ("lobby-2", "node-2")}
        assert await decisions(lobbies, "instance/lobby-2", limit=limit) == {("lobby-2", "node-2")}
        assert await decisions(lobbies, "node/node-1", limit=limit) == {("lobby-1", "node-1")}
        assert await decisions(lobbies, "group/arena", limit=limit) == set()
    async with await scoped(fleet, nodes=["node-1"]) as node:
        assert await decisions(node, limit=limit) == {("lobby-1", "node-1"), ("arena-1", "node-1")}
    async with await scoped(fleet, groups=["lobby"], nodes=["node-1"]) as both:
        assert await decisions(both, limit=limit) == {("lobby-1", "node-1")}
        assert await decisions(both, "group/lobby", limit=limit) == {("lobby-1", "node-1")}
        assert await decisions(both, "node/node-1", limit=limit) == {("lobby-1", "node-1")}


async def why(client: httpx.AsyncClient, subject: str) -> dict[str, Any]:
    answer = await client.get(f"/api/v1/{subject}/why")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_why_a_node_runs_what_it_runs_leaves_out_other_groups(fleet: Rig) -> None:
    async with await scoped(fleet, groups=["lobby"], nodes=["node-1"]) as both:
        told = await why(both, "nodes/node-1")
        assert "arena" not in json.dumps(told)
        assert "lobby-1" in json.dumps(told)
        assert "1 instance on it" in told["summary"]
    async with await scoped(fleet, nodes=["node-1"]) as node:
        assert "arena-1" in json.dumps(await why(node, "nodes/node-1"))


async def test_why_a_group_is_short_names_no_instances_of_others(fleet: Rig) -> None:
    """Those of others hold the memory that it lacks; and the other group, which it waits for, tells why it is not ready."""
    async with fleet.client() as admin:
        await fleet.group("big", min=0, memory_mb=4000, priority=0)
        await fleet.instance("big", node="node-1")
        await fleet.instance("big", node="node-2")
        body = {"name": "short", "command": ["x"], "min": 1, "memory_mb": 3000, "priority": 90}
        assert (await admin.post("/api/v1/groups", json=body)).status_code == 201
        whole = await why(admin, "groups/short")
        assert "big-1" in json.dumps(whole), "else there is nothing to hide"
    async with await scoped(fleet, groups=["short"]) as short:
        told = await why(short, "groups/short")
        assert "big" not in json.dumps(told)
        assert told["summary"] == whole["summary"]


async def test_the_chain_of_causes_ends_at_the_scope(fleet: Rig) -> None:
    """A crash elsewhere led to it: that it did is told, what it was is not."""
    secret = Draft(
        type=EventType.INSTANCE_CRASHED,
        subject="arena-1",
        data={"group": "arena", "node": "node-1", "reason": "out of memory"},
    )
    event = (await fleet.ledger.commit(secret)).events[0]
    decision = DecisionRecord(
        id=DecisionId("dec-made"),
        cause="a crash",
        kind=DecisionKind.START,
        subject="lobby-1",
        reason="there is room now",
        epoch=Epoch(1),
        at=dt.datetime.now(dt.UTC),
        node="node-1",
        causes=(f"event:{event.cursor}",),
    )
    await fleet.ledger.commit(*decision_entries(decision, group="lobby", instance="lobby-1"))
    async with fleet.client() as admin:
        whole = (await why(admin, "groups/lobby"))["chain"]
        assert [each["subject"] for each in whole] == ["arena-1", "lobby-1"]
    async with await scoped(fleet, Role.ADMIN, groups=["lobby"]) as lobbies:
        chain = (await why(lobbies, "groups/lobby"))["chain"]
        assert [each["kind"] for each in chain] == ["truncated", "decision"]
        assert "arena" not in json.dumps(chain)
        assert "memory" not in json.dumps(chain)


async def test_filters_of_lists_find_nothing_outside(fleet: Rig) -> None:
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        for path, query in (
            (INSTANCES, {"group": "arena"}),
            ("/api/v1/crashes", {"group": "arena"}),
            ("/api/v1/deployments", {"group": "arena"}),
            ("/api/v1/decisions", {"subject": "group/arena"}),
            ("/api/v1/decisions", {"subject": "instance/arena-1"}),
            ("/api/v1/events", {"subject": "arena"}),
            ("/api/v1/events", {"subject": "arena-1"}),
            ("/api/v1/events", {"subject": "node-1"}),
            (NODES, {"state": "ONLINE"}),
        ):
            answer = await lobbies.get(path, params=query)
            assert (answer.status_code, answer.json()["items"]) == (200, []), (path, query)
        assert await names(lobbies, f"{INSTANCES}?node=node-2", "id") == ["lobby-2"]


async def test_the_catalog_names_groups_within_the_scope(fleet: Rig) -> None:
    async with fleet.client() as admin:
        body = {"file": "a.jar", "url": "https://bob:hunter2@example.org/a.jar", "sha256": "0" * 64}
        assert (await admin.put("/api/v1/catalog/paper/1", json=body)).status_code == 201
        for group in ("lobby", "arena"):
            program = {"artifact": {"platform": "paper", "version": "1"}}
            assert (await admin.patch(f"{GROUPS}/{group}", json=program)).status_code == 200
        (entry,) = (await admin.get("/api/v1/catalog")).json()["items"]
        assert entry["used_by"] == ["arena", "lobby"]
        assert "hunter2" in entry["url"]
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        (entry,) = (await lobbies.get("/api/v1/catalog")).json()["items"]
        assert entry["used_by"] == ["lobby"]
        assert "hunter2" not in entry["url"], "whoever has it could fetch what other groups run"


async def test_the_cluster_counts_nodes_within_the_scope(fleet: Rig) -> None:
    async with await scoped(fleet, nodes=["node-1"]) as first, await scoped(fleet, groups=["*"]) as groups:
        assert (await first.get("/api/v1/cluster")).json()["nodes"] == {"ONLINE": 1}
        assert (await groups.get("/api/v1/cluster")).json()["nodes"] == {}
    async with fleet.client() as admin:
        assert (await admin.get("/api/v1/cluster")).json()["nodes"] == {"ONLINE": 2}


async def test_a_registry_shows_instances_and_fallbacks_within_the_scope(fleet: Rig) -> None:
    async with fleet.client() as admin:
        assert (await admin.patch(f"{GROUPS}/lobby", json={"fallback_group": "arena"})).status_code == 200
        whole = (await admin.get(f"{GROUPS}/lobby/registry")).json()
        assert (whole["ready"], [each["group"] for each in whole["fallback"]]) == (2, ["arena"])
    async with await scoped(fleet, **BOTH) as both:
        part = (await both.get(f"{GROUPS}/lobby/registry")).json()
        assert (part["ready"], part["fallback"]) == (1, [])
        assert part["instances"] + part["without_address"] == ["lobby-1"]
    async with await scoped(fleet, groups=["lobby", "arena"]) as groups:
        assert (await groups.get(f"{GROUPS}/lobby/registry")).json() == whole


async def test_the_drain_of_a_node_lists_instances_within_the_scope(fleet: Rig) -> None:
    async with fleet.client() as admin:
        drained = await admin.post(f"{NODES}/node-1/drain", json={}, params={"confirm": "node-1"})
        assert [each["id"] for each in drained.json()["drain"]["instances"]] == ["arena-1", "lobby-1"]
    async with await scoped(fleet, **BOTH) as both:
        (listed,) = (await both.get(NODES)).json()["items"]
        for shown in (listed, (await both.get(f"{NODES}/node-1")).json()):
            assert [each["id"] for each in shown["drain"]["instances"]] == ["lobby-1"]
    async with await scoped(fleet, nodes=["node-1"]) as node:
        shown = (await node.get(f"{NODES}/node-1")).json()
        assert [each["id"] for each in shown["drain"]["instances"]] == ["arena-1", "lobby-1"]
