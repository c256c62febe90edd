"""The registry of a group: which instances proxies may send players to, and who may read it."""

from __future__ import annotations

import datetime as dt
import pathlib
from typing import Any

import httpx
from http_rig import Rig, http_rig
from test_api_workload import error, say, token_of

from corral.domain.groups.instance_records import InstanceRecord, Readiness
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.permissions import Role
from corral.system.http_config import HttpLimitsSection

PORTS = {"ports": {"primary": {"range": [30000, 30010]}, "query": {"of": "primary", "offset": 100}}}


async def registry(client: httpx.AsyncClient, name: str = "lobby", **query: Any) -> dict[str, Any]:
    answer = await client.get(f"/api/v1/groups/{name}/registry", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def shown(client: httpx.AsyncClient, name: str = "lobby") -> list[str]:
    return [each["id"] for each in (await registry(client, name))["instances"]]


async def proxy(rig: Rig, **fields: Any) -> InstanceRecord:
    await rig.group("gate", category="proxy", **fields)
    return await rig.instance("gate")


async def test_a_ready_instance_is_listed_with_address_ports_and_players(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.online("node-1", address="play-1.example.org")
    await rig.group(max_players=50, **PORTS)
    record = await rig.instance()
    await say(rig, token_of(rig, record), "players", {"count": 7})
    found = await registry(client)
    assert found["instances"] == [
        {
            "id": "lobby-1",
            "node": "node-1",
            "address": "play-1.example.org",
            "port": 30000,
            "ports": {"primary": 30000, "query": 30100},
            "players": 7,
            "max_players": 50,
        }
    ]
    assert (found["group"], found["ready"], found["fallback"], found["next"]) == ("lobby", 1, [], None)
    assert found["maintenance"] == {"enabled": False, "message": "", "bypass": [], "schedule": ""}


NOT_LISTED = [
    {"readiness": Readiness.WAITING},
    {"state": InstanceState.STARTING},
    {"state": InstanceState.OFFLINE},
    {"state": InstanceState.DRAINING, "wanted": Wanted.DRAIN},
    {"wanted": Wanted.DRAIN},
    {"wanted": Wanted.STOP},
    {"state": InstanceState.STOPPED},
    {"warm": True},
]


async def test_one_that_does_not_serve_or_is_about_to_go_is_not_listed(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.online("node-1", address="10.0.0.1")
    for _ in range(2):
        await rig.instance()
    assert await shown(client) == ["lobby-1", "lobby-2"]
    for fields in NOT_LISTED:
        before = rig.state.instances.require("lobby-1").record
        await rig.report("lobby-1", **fields)
        assert await shown(client) == ["lobby-2"], fields
        await rig.report(
            "lobby-1", state=before.state, wanted=before.wanted, readiness=before.readiness, warm=False
        )
        assert await shown(client) == ["lobby-1", "lobby-2"], fields


NO_ADDRESSES = ["", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "a b", "-x", "1.2.3", "http://x/"]


async def test_no_player_is_sent_to_what_is_no_address(client: httpx.AsyncClient, rig: Rig) -> None:
    for number, address in enumerate([*NO_ADDRESSES, "fd00::5"], start=1):
        await rig.online(f"node-{number}", address=address)
        await rig.instance(node=f"node-{number}")
    found = await registry(client)
    assert [each["address"] for each in found["instances"]] == ["fd00::5"]
    without = [f"lobby-{number}" for number in range(1, len(NO_ADDRESSES) + 1)]
    assert (found["without_address"], found["ready"]) == (without, len(without) + 1)


async def test_the_groups_that_take_its_players_are_named_in_their_order(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.group("limbo")
    await rig.group("hub", fallback_group="limbo", maintenance={"enabled": True})
    await rig.group("lobby", fallback_group="hub")
    await rig.instance("limbo")
    assert (await registry(client))["fallback"] == [
        {"group": "hub", "ready": 0, "maintenance": True},
        {"group": "limbo", "ready": 1, "maintenance": False},
    ]


async def test_no_player_is_sent_to_a_group_that_is_held(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online("node-1", address="play-1.example.org")
    await rig.group("hub")
    await rig.group("lobby", fallback_group="hub")
    await say(rig, token_of(rig, await rig.instance()), "players", {"count": 3})
    await rig.instance("hub")
    for name in ("hub", "lobby"):
        answer = await client.post(
            f"/api/v1/groups/{name}/hold", json={"reason": "a patch", "when_empty": True}
        )
        assert answer.status_code == 200, answer.text
    found = await registry(client)
    assert (found["held"], found["ready"], found["instances"]) == (True, 0, [])
    assert found["fallback"] == [{"group": "hub", "ready": 0, "maintenance": False}]
    assert (await client.post("/api/v1/groups/lobby/release")).status_code == 200
    assert await shown(client) == ["lobby-1"]


async def test_a_schedule_closes_the_group_while_it_is_active(client: httpx.AsyncClient, rig: Rig) -> None:
    closed = {"enabled": True, "message": "back at noon", "bypass": ["ann"]}
    night = {"name": "night", "cron": "* * * * *", "duration_seconds": 3600, "maintenance": closed}
    await rig.group(schedules=[night], maintenance={"enabled": False, "message": "never shown"})
    assert (await registry(client))["maintenance"] == {**closed, "schedule": "night"}


async def test_who_may_join_all_the_same_is_for_proxies_and_operators(rig: Rig) -> None:
    await rig.group(maintenance={"enabled": True, "message": "closed", "bypass": ["ann", "bob"]})
    record = await proxy(rig)
    _, viewer = await rig.token(Role.VIEWER)
    for token, names in (
        (viewer, ["•••", "•••"]),
        (rig.admin, ["ann", "bob"]),
        (token_of(rig, record), ["ann", "bob"]),
    ):
        async with rig.client(token) as caller:
            found = (await registry(caller))["maintenance"]
            assert (found["message"], found["bypass"]) == ("closed", names)
    async with rig.client(viewer) as caller:
        for path in ("/api/v1/groups/lobby", "/api/v1/groups/lobby/document", "/api/v1/groups"):
            assert "ann" not in (await caller.get(path)).text


async def test_only_a_run_of_a_proxy_reads_it_by_its_token(rig: Rig) -> None:
    server, gate = await rig.instance(), await proxy(rig)
    async with rig.client(token_of(rig, gate)) as workload:
        assert [each["id"] for each in (await registry(workload))["instances"]] == []
        assert error(await workload.get("/api/v1/groups/none/registry")) == (404, "NOT_FOUND")
        assert error(await workload.get("/api/v1/groups/lobby")) == (401, "UNAUTHENTICATED")
    async with rig.client(token_of(rig, server)) as workload:
        refused = await workload.get("/api/v1/groups/lobby/registry")
    assert error(refused) == (403, "FORBIDDEN")
    assert "category is not 'proxy'" in refused.json()["error"]["message"]
    token = token_of(rig, gate)
    for wrong in (token[:-4] + "AAAA", "cw1.x.y"):
        async with rig.client(wrong) as workload:
            assert error(await workload.get("/api/v1/groups/lobby/registry")) == (
                401,
                "WORKLOAD_TOKEN_INVALID",
            )
    await rig.report("gate-1", state=InstanceState.STOPPED)
    async with rig.client(token) as workload:
        assert error(await workload.get("/api/v1/groups/lobby/registry")) == (401, "WORKLOAD_TOKEN_INVALID")


async def test_an_expired_token_of_a_proxy_is_refused(rig: Rig) -> None:
    await rig.group()
    token = token_of(rig, await proxy(rig))
    rig.clock.offset = dt.timedelta(days=2)
    async with rig.client(token) as workload:
        assert error(await workload.get("/api/v1/groups/lobby/registry")) == (401, "WORKLOAD_TOKEN_INVALID")


async def test_a_group_whose_program_is_a_proxy_is_one(rig: Rig) -> None:
    await rig.group()
    async with rig.client() as client:
        entry = {
            "url": "https://x.example.org/v.jar",
            "sha256": "0" * 64,
            "file": "v.jar",
            "category": "proxy",
        }
        made = await client.put("/api/v1/catalog/velocity/3", json=entry)
        assert made.status_code in (200, 201), made.text
    record = await rig.instance("lobby")
    gate = {"command": [], "jvm": {}, "artifact": {"platform": "velocity", "version": "3"}}
    async with rig.client() as client:
        made = await client.post("/api/v1/groups", json={"name": "gate", **gate})
        assert made.status_code == 201, made.text
    gate_record = await rig.instance("gate")
    async with rig.client(token_of(rig, gate_record)) as workload:
        assert (await registry(workload))["ready"] == 1
    assert record.group == "lobby"


async def test_a_long_registry_comes_in_pages(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online("node-1", address="10.0.0.1")
    for _ in range(3):
        await rig.instance()
    first = await registry(client, limit=2)
    second = await registry(client, limit=2, cursor=first["next"])
    ids = [each["id"] for page in (first, second) for each in page["instances"]]
    assert (ids, first["ready"], second["next"]) == (["lobby-1", "lobby-2", "lobby-3"], 3, None)
    refused = await client.get("/api/v1/groups/lobby/registry", params={"limit": 5001})
    assert error(refused) == (400, "INVALID_FIELD")


async def test_a_large_page_counts_as_several_requests_for_tokens_and_proxies_alike(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=25)) as rig:
        await rig.instance()
        gate = await proxy(rig)
        _, text = await rig.token(Role.VIEWER)
        path = "/api/v1/groups/lobby/registry"
        async with rig.client(text) as caller:
            answers = [await caller.get(path, params={"limit": 5000}) for _ in range(4)]
        refused = next(each for each in answers if each.status_code == 429)
        assert answers[0].status_code == 200
        assert "counts as 21" in refused.json()["error"]["message"]
        async with rig.client(token_of(rig, gate)) as workload:
            answers = [await workload.get(path, params={"limit": 5000}) for _ in range(90)]
        codes = [each.status_code for each in answers]
        assert codes[:57] == [200] * 57
        assert 429 in codes
        refused = next(each for each in answers if each.status_code == 429)
        assert "counts as 21" in refused.json()["error"]["message"]
