"""Node caches over the API."""

from __future__ import annotations

import httpx
from http_rig import Rig
from test_scopes import scoped

from corral.domain.permissions import Role
from corral.errors import Code, Retryable

CACHE = "/api/v1/nodes/node-1/cache"


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_cache_is_shown_as_its_node_tells(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    shown = (await client.get(CACHE)).json()
    assert set(shown) == {
        "node", "total_bytes", "quota_bytes", "templates", "artifacts", "bootstraps", "failures",
    }  # fmt: skip
    assert set(shown["templates"][0]) == {"name", "hash", "version", "size", "last_used"}
    assert error(await client.get("/api/v1/nodes/ghost/cache")) == (404, "NOT_FOUND")
    rig.distribution.failure = Retryable(Code.NODE_OFFLINE, "node 'node-1' is not connected")
    assert error(await client.get(CACHE)) == (409, "NODE_OFFLINE")


async def test_a_prewarm_tells_what_failed_and_is_audited(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    await rig.group()
    warmed = (await client.post(f"{CACHE}/prewarm", json={"group": "lobby"})).json()
    assert warmed["failures"] == [{"subject": "template/base", "code": "CACHE_FULL", "message": "no room"}]
    assert (await client.post(f"{CACHE}/prewarm")).status_code == 200
    assert [asked[1] for asked in rig.distribution.asked] == [("node-1", "lobby"), ("node-1", None)]
    entry = (await rig.audits("nodes.prewarm"))[-1]
    assert entry["after"] == {"group": "lobby", "failures": {"template/base": "CACHE_FULL"}}
    assert error(await client.post(f"{CACHE}/prewarm", json={"group": "ghost"})) == (404, "NOT_FOUND")


async def test_all_nodes_are_prewarmed_by_one_call(client: httpx.AsyncClient, rig: Rig) -> None:
    for name in ("node-1", "node-2"):
        await rig.node(name)
    answer = await client.post("/api/v1/nodes/cache/prewarm", json={})
    assert [item["node"] for item in answer.json()["items"]] == ["node-1", "node-2"]


async def test_a_viewer_may_look_and_not_prewarm(rig: Rig) -> None:
    await rig.node("node-1")
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as looking:
        assert (await looking.get(CACHE)).status_code == 200
        assert error(await looking.post(f"{CACHE}/prewarm")) == (403, "FORBIDDEN")


async def test_templates_of_groups_outside_of_the_scope_are_not_listed(rig: Rig) -> None:
    await rig.node("node-1")
    await rig.group()
    async with rig.client() as admin:
        assert (await admin.get(CACHE)).json()["templates"] != []
    async with await scoped(rig, groups=["lobby"], nodes=["node-1"]) as lobbies:
        shown = (await lobbies.get(CACHE)).json()
        assert (shown["templates"], shown["node"]) == ([], "node-1")
        warmed = await lobbies.post(f"{CACHE}/prewarm", json={"group": "lobby"})
        assert warmed.status_code != 200 or warmed.json()["failures"] == []
