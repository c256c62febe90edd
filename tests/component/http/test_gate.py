"""What a controller answers when it does not lead, when its store fails, and when we have a bug."""

from __future__ import annotations

import pathlib

import httpx
from http_rig import Rig, http_rig

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.pipeline.route_table import Read
from corral.controller.http.routes import ROUTES
from corral.domain.permissions import Permission
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually


async def test_the_probes_of_a_leader(client: httpx.AsyncClient, rig: Rig) -> None:
    assert (await client.get("/health")).json() == {"status": "ok"}
    ready = {"status": "ready", "role": "leader", "epoch": rig.cluster.epoch, "notes": []}
    assert (await client.get("/ready")).json() == ready
    ping = (await client.get("/api/ping")).json()
    assert ping == {
        "pong": True,
        "version": rig.setting.version,
        "build": rig.setting.build,
        "cluster": rig.state.identity.id,
        "status": "ok",
        "nodeId": rig.setting.holder,
        "clusterName": rig.state.identity.id,
        "master": True,
    }


async def test_a_standby_lives_but_is_not_ready_and_answers_nothing_else(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    rig.leads = False
    assert (await client.get("/health")).status_code == 200
    assert (await client.get("/api/ping")).json()["cluster"] is None
    for path in ("/ready", "/api/v1/nodes", "/api/v1/events/stream", "/api/v1/openapi.json"):
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "NOT_LEADER")
        assert answer.headers["retry-after"] == "1"


async def test_a_write_that_the_store_refuses_is_503_and_so_is_ready_until_it_recovers(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    rig.store.commits.fail(*[StoreFault.BEFORE] * 3)
    answer = await client.post("/api/v1/tokens", json={"name": "t", "role": "VIEWER"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "STORE_UNAVAILABLE")
    assert answer.headers["retry-after"] == "1"
    ready = await client.get("/ready")
    assert (ready.status_code, ready.json()["error"]["code"]) == (503, "STORE_UNAVAILABLE")
    assert "no space left" in ready.json()["error"]["message"]
    assert (await client.get("/api/v1/nodes")).status_code == 200, "reads go on from memory"
    await eventually(lambda: rig.writer.healthy)
    assert (await client.get("/ready")).status_code == 200


async def test_a_deposed_leader_says_so(client: httpx.AsyncClient, rig: Rig) -> None:
    rig.store.commits.fail(StoreFault.FENCED)
    answer = await client.post("/api/v1/tokens", json={"name": "t", "role": "VIEWER"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "FENCED")
    assert "retry-after" in answer.headers


async def test_a_leader_that_stops_meanwhile_says_when_to_try_again(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.writer.close()
    answer = await client.post("/api/v1/tokens", json={"name": "t", "role": "VIEWER"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "SHUTTING_DOWN")
    assert answer.headers["retry-after"] == "1"


async def test_a_bug_is_answered_with_an_id_and_nothing_of_what_it_was(data: pathlib.Path) -> None:
    async def broken(call: ApiCall[None, NoQuery]) -> None:
        raise ZeroDivisionError("secret detail")

    route = Read(
        method="GET", path="/api/v1/broken", permission=Permission.SELF_READ, summary="x", handler=broken
    )
    async with http_rig(data, routes=(*ROUTES, route)) as rig, rig.client() as client:
        answer = await client.get("/api/v1/broken")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (500, "INTERNAL")
        assert "err-" in error["message"]
        assert "secret detail" not in answer.text
        assert "ZeroDivision" not in answer.text
        assert (await client.get("/health")).status_code == 200
