"""Users, custom roles, and tokens narrowed to some groups and nodes: what lies outside is not there."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from http_rig import Rig
from sse_client import following

from corral.domain.permissions import Role


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def scoped(rig: Rig, role: Role = Role.OPERATOR, **scope: list[str]) -> httpx.AsyncClient:
    _, text = await rig.token(role, scope=scope)
    return rig.client(text)


async def names(client: httpx.AsyncClient, path: str, field: str = "name") -> list[str]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return sorted(item[field] for item in answer.json()["items"])


@pytest.fixture
async def fleet(rig: Rig) -> Rig:
    """Two nodes, two groups, an instance of each group on each node."""
    for node in ("node-1", "node-2"):
        await rig.online(node)
    for group in ("lobby", "arena"):
        await rig.group(group, min=0)
        for node in ("node-1", "node-2"):
            await rig.instance(group, node=node)
    return rig


async def test_lists_hold_what_is_in_the_scope_and_nothing_else(fleet: Rig) -> None:
    async with await scoped(fleet, groups=["lob*"]) as lobbies:
        assert await names(lobbies, "/api/v1/groups") == ["lobby"]
        assert await names(lobbies, "/api/v1/instances", "id") == ["lobby-1", "lobby-2"]
        assert await names(lobbies, "/api/v1/nodes", "id") == []
    async with await scoped(fleet, nodes=["node-2"]) as second:
        assert await names(second, "/api/v1/groups") == []
        assert await names(second, "/api/v1/instances", "id") == ["arena-2", "lobby-2"]
        assert await names(second, "/api/v1/nodes", "id") == ["node-2"]
    async with await scoped(fleet, groups=["lobby"], nodes=["node-2"]) as both:
        assert await names(both, "/api/v1/instances", "id") == ["lobby-2"]


async def test_what_is_outside_answers_as_what_does_not_exist(fleet: Rig) -> None:
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        for outside, absent in (
            ("/api/v1/groups/arena", "/api/v1/groups/nope"),
            ("/api/v1/instances/arena-1", "/api/v1/instances/nope-1"),
            ("/api/v1/nodes/node-1", "/api/v1/nodes/nope"),
            ("/api/v1/groups/arena/why", "/api/v1/groups/nope/why"),
            ("/api/v1/instances/arena-1/console", "/api/v1/instances/nope-1/console"),
        ):
            there, missing = await lobbies.get(outside), await lobbies.get(absent)
            assert error(there) == error(missing) == (404, "NOT_FOUND")
        assert error(await lobbies.post("/api/v1/instances/arena-1/stop")) == (404, "NOT_FOUND")
        assert error(await lobbies.post("/api/v1/groups/arena/scale", json={"count": 3})) == (
            404,
            "NOT_FOUND",
        )
        assert error(await lobbies.post("/api/v1/nodes/node-1/cordon", json={})) == (404, "NOT_FOUND")
        assert (await lobbies.get("/api/v1/groups/lobby")).status_code == 200


async def test_what_concerns_the_whole_cluster_is_refused(fleet: Rig) -> None:
    async with await scoped(fleet, Role.ADMIN, groups=["lobby"]) as lobbies:
        for path in ("/api/v1/audit", "/api/v1/tokens", "/api/v1/users", "/api/v1/modules", "/metrics"):
            assert error(await lobbies.get(path)) == (403, "FORBIDDEN")
        made = await lobbies.post("/api/v1/tokens", json={"name": "x", "role": "VIEWER"})
        assert error(made) == (403, "FORBIDDEN")
        applied = await lobbies.post(
            "/api/v1/apply", json={"documents": [{"path": "a", "body": {"name": "a"}}]}
        )
        assert error(applied) == (403, "FORBIDDEN")


async def test_documents_stay_within_the_scope_of_their_writer(fleet: Rig) -> None:
    spec: dict[str, Any] = {"command": ["serve"], "memory_mb": 64}
    async with await scoped(fleet, groups=["lobby*"], nodes=["node-1"]) as both:
        outside = await both.post("/api/v1/groups", json={"name": "other", **spec, "nodes": ["node-1"]})
        assert error(outside) == (403, "FORBIDDEN")
        assert outside.json()["error"]["field"] == "name"
        anywhere = await both.post("/api/v1/groups", json={"name": "lobby-x", **spec})
        assert error(anywhere) == (403, "FORBIDDEN")
        assert anywhere.json()["error"]["field"] == "nodes"
        elsewhere = await both.post("/api/v1/groups", json={"name": "lobby-x", **spec, "nodes": ["node-2"]})
        assert error(elsewhere) == (403, "FORBIDDEN")
        made = await both.post("/api/v1/groups", json={"name": "lobby-x", **spec, "nodes": ["node-1"]})
        assert made.status_code == 201, made.text
        freed = await both.patch("/api/v1/groups/lobby-x", json={"nodes": []})
        assert error(freed) == (403, "FORBIDDEN")
        heir = await both.post(
            "/api/v1/groups", json={"name": "lobby-y", "parent": "arena", "nodes": ["node-1"]}
        )
        assert error(heir) == (403, "FORBIDDEN")
        assert error(await both.post("/api/v1/instances", json={"group": "arena"})) == (403, "FORBIDDEN")
    async with fleet.client(fleet.admin) as admin:
        assert await names(admin, "/api/v1/groups") == ["arena", "lobby", "lobby-x"]


async def test_a_parent_whose_heirs_are_outside_is_not_changed(fleet: Rig) -> None:
    async with fleet.client(fleet.admin) as admin:
        made = await admin.post("/api/v1/groups", json={"name": "heir", "parent": "lobby"})
        assert made.status_code == 201, made.text
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        edit = await lobbies.patch("/api/v1/groups/lobby", json={"memory_mb": 96})
        assert error(edit) == (403, "FORBIDDEN")
        assert "heir" not in edit.text


async def test_events_decisions_and_crashes_are_those_of_the_scope(fleet: Rig) -> None:
    async with await scoped(fleet, groups=["lobby"]) as lobbies:
        events = (await lobbies.get("/api/v1/events", params={"limit": 500})).json()["items"]
        assert {event["subject"] for event in events} == {"lobby", "lobby-1", "lobby-2"}
        decisions = (await lobbies.get("/api/v1/decisions")).json()["items"]
        assert all("arena" not in json.dumps(each) for each in decisions)
    async with fleet.client(fleet.admin) as admin:
        everything = (await admin.get("/api/v1/events", params={"limit": 500})).json()["items"]
        assert {"lobby", "arena"} <= {event["subject"] for event in everything}


@pytest.mark.trap("T25")
async def test_a_stream_ends_when_the_rights_of_its_user_change(fleet: Rig) -> None:
    async with fleet.client(fleet.admin) as admin:
        made = await admin.post("/api/v1/users", json={"name": "ada", "bindings": [{"role": "OPERATOR"}]})
        assert made.status_code == 201, made.text
        token = await admin.post("/api/v1/tokens", json={"name": "t", "role": "OPERATOR", "owner": "ada"})
        text = token.json()["token"]
        for change in (
            {"method": "PATCH", "url": "/api/v1/users/ada", "json": {"bindings": [{"role": "VIEWER"}]}},
            {"method": "POST", "url": "/api/v1/users/ada/lock", "json": {"reason": "left"}},
        ):
            async with fleet.client(text) as ada, following(ada) as stream:
                changed = await admin.request(**change)
                assert changed.status_code == 200, changed.text
                assert await stream.end() != ""
        async with fleet.client(text) as ada:
            refused = await ada.get("/api/v1/groups")
            assert error(refused) == (401, "UNAUTHENTICATED")
            assert "locked" in refused.json()["error"]["message"]
        assert (await admin.post("/api/v1/users/ada/unlock")).status_code == 200
        async with fleet.client(text) as ada:
            assert (await ada.get("/api/v1/groups")).status_code == 200
            assert error(await ada.post("/api/v1/groups/lobby/scale", json={"count": 2})) == (
                403,
                "FORBIDDEN",
            )


async def test_rights_of_one_scope_do_not_count_in_another(fleet: Rig) -> None:
    """Who reads everywhere, and may shut down one node and type into one console, may do so there alone."""
    mixed = [
        {"role": "OPERATOR"},
        {"role": "ADMIN", "scope": {"groups": ["lobby"]}},
        {"role": "ADMIN", "scope": {"nodes": ["node-1"]}},
    ]
    async with fleet.client(fleet.admin) as admin:
        made = await admin.post("/api/v1/users", json={"name": "eva", "bindings": mixed})
        assert made.status_code == 201, made.text
        body = {"name": "t", "role": "ADMIN", "owner": "eva"}
        text = (await admin.post("/api/v1/tokens", json=body)).json()["token"]
    async with fleet.client(text) as eva:
        refused = await eva.post(
            "/api/v1/nodes/node-2/drain", json={"shutdown": True}, params={"dry_run": True}
        )
        assert error(refused) == (404, "NOT_FOUND")
        allowed = await eva.post(
            "/api/v1/nodes/node-1/drain", json={"shutdown": True}, params={"dry_run": True}
        )
        assert allowed.status_code == 200, allowed.text
        assert error(await eva.get("/api/v1/audit")) == (403, "FORBIDDEN")


async def test_nobody_gives_more_than_he_has(rig: Rig) -> None:
    async with rig.client(rig.admin) as admin:
        keys = ["users.manage", "users.read", "tokens.manage", "roles.manage", "groups.read"]
        made = await admin.post("/api/v1/roles", json={"name": "keys", "permissions": keys})
        assert made.status_code == 201, made.text
        user = {"name": "bob", "bindings": [{"role": "keys"}]}
        assert (await admin.post("/api/v1/users", json=user)).status_code == 201
        token = (
            await admin.post("/api/v1/tokens", json={"name": "b", "role": "ADMIN", "owner": "bob"})
        ).json()["token"]
    async with rig.client(token) as bob:
        assert (await bob.get("/api/v1/auth/me")).status_code == 200, "every token may ask what it allows"
        for path, body in (
            ("/api/v1/users", {"name": "eve", "bindings": [{"role": "ADMIN"}]}),
            ("/api/v1/roles", {"name": "more", "permissions": ["cluster.manage"]}),
            ("/api/v1/tokens", {"name": "x", "role": "ADMIN", "owner": "admin"}),
        ):
            assert error(await bob.post(path, json=body)) == (403, "FORBIDDEN")
        assert error(await bob.post("/api/v1/users/admin/lock", json={"reason": "x"})) == (403, "FORBIDDEN")
        assert error(await bob.delete("/api/v1/users/admin")) == (403, "FORBIDDEN")
        same = {"name": "eve", "bindings": [{"role": "keys", "scope": {"groups": ["lobby"]}}]}
        assert (await bob.post("/api/v1/users", json=same)).status_code == 201


async def test_the_last_administrator_stays(rig: Rig) -> None:
    async with rig.client(rig.admin) as admin:
        for request in (
            {"method": "DELETE", "url": "/api/v1/users/admin"},
            {"method": "POST", "url": "/api/v1/users/admin/lock", "json": {"reason": "x"}},
            {"method": "PATCH", "url": "/api/v1/users/admin", "json": {"bindings": [{"role": "VIEWER"}]}},
            {
                "method": "PATCH",
                "url": "/api/v1/users/admin",
                "json": {"bindings": [{"role": "ADMIN", "scope": {"groups": ["*"]}}]},
            },
        ):
            assert error(await admin.request(**request)) == (409, "CONFLICT")
        user = {"name": "ada", "bindings": [{"role": "ADMIN"}]}
        assert (await admin.post("/api/v1/users", json=user)).status_code == 201
        assert (await admin.delete("/api/v1/users/ada")).status_code == 204


async def test_a_removed_user_takes_the_tokens_along(rig: Rig) -> None:
    async with rig.client(rig.admin) as admin:
        assert (
            await admin.post("/api/v1/users", json={"name": "ada", "bindings": [{"role": "VIEWER"}]})
        ).status_code == 201
        made = await admin.post("/api/v1/tokens", json={"name": "t", "role": "VIEWER", "owner": "ada"})
        assert (await admin.get("/api/v1/users/ada")).json()["tokens"] == 1
        assert (await admin.delete("/api/v1/users/ada")).status_code == 204
        listed = (await admin.get("/api/v1/tokens")).json()["items"]
        assert [item["owner"] for item in listed] == ["admin"]
    async with rig.client(made.json()["token"]) as ada:
        assert error(await ada.get("/api/v1/groups")) == (401, "UNAUTHENTICATED")


async def test_a_role_that_somebody_has_is_not_removed_and_fixed_ones_are_not_changed(rig: Rig) -> None:
    async with rig.client(rig.admin) as admin:
        body = {"name": "reader", "permissions": ["groups.read", "self.read"]}
        assert (await admin.post("/api/v1/roles", json=body)).status_code == 201
        user = {"name": "ada", "bindings": [{"role": "reader"}]}
        assert (await admin.post("/api/v1/users", json=user)).status_code == 201
        refused = await admin.delete("/api/v1/roles/reader")
        assert error(refused) == (409, "CONFLICT")
        assert "ada" in refused.json()["error"]["message"]
        assert error(await admin.delete("/api/v1/roles/ADMIN")) == (409, "CONFLICT")
        assert error(await admin.patch("/api/v1/roles/VIEWER", json={"description": "x"})) == (
            409,
            "CONFLICT",
        )
        unknown = await admin.post("/api/v1/users", json={"name": "bob", "bindings": [{"role": "raeder"}]})
        assert unknown.json()["error"]["field"] == "bindings[0].role"
        assert "reader" in unknown.json()["error"]["hint"]
        assert (await admin.delete("/api/v1/users/ada")).status_code == 204
        assert (await admin.delete("/api/v1/roles/reader")).status_code == 204
