"""API tokens: who gets in, with what, and for how long."""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib

import httpx
import pytest
from http_rig import Rig, http_rig

from corral.domain.permissions import GRANTS, Role
from corral.testing.waiting import eventually


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_new_token_works_and_its_text_is_shown_once(client: httpx.AsyncClient, rig: Rig) -> None:
    id, text = await rig.token(Role.VIEWER)
    assert text.startswith(f"corral_{id}_")
    async with rig.client(text) as viewer:
        me = (await viewer.get("/api/v1/auth/me")).json()
    assert me["token"]["id"] == id
    assert me["permissions"] == sorted(GRANTS[Role.VIEWER])
    listed = (await client.get("/api/v1/tokens")).json()["items"]
    assert {item["name"] for item in listed} == {"first-admin", "t"}
    assert all("token" not in item and "secret_sha256" not in item for item in listed)


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer "])
async def test_the_scheme_is_read_kindly(rig: Rig, scheme: str) -> None:
    async with rig.client("") as client:
        answer = await client.get("/api/v1/nodes", headers={"Authorization": f"{scheme} {rig.admin}"})
    assert answer.status_code == 200


SPOILT = [
    lambda text: text[:-1] + ("a" if text[-1] != "a" else "b"),
    lambda text: text.replace("corral_", "corall_"),
    lambda text: text + "x",
    lambda text: text.upper(),
    lambda text: "corral_tok-aaaaaaaaaaaa_" + text.rsplit("_", 1)[1],
    lambda text: "corral__",
    lambda text: "é" * 10,
]


async def test_a_wrong_token_is_refused_and_not_told_why(rig: Rig) -> None:
    for spoil in SPOILT:
        async with rig.client("") as client:
            value = f"Bearer {spoil(rig.admin)}"  # type: ignore[operator]
            answer = await client.get("/api/v1/nodes", headers={b"Authorization": value.encode("latin-1")})
        assert error(answer) == (401, "UNAUTHENTICATED"), value
        assert answer.json()["error"]["message"] == "the token is not known here", value


@pytest.mark.parametrize("header", ["Basic YTpi", "Bearer", ""])
async def test_a_request_without_a_bearer_token_is_refused(rig: Rig, header: str) -> None:
    async with rig.client("") as client:
        answer = await client.get("/api/v1/nodes", headers={"Authorization": header})
    assert error(answer) == (401, "UNAUTHENTICATED")


async def test_an_expired_token_is_refused(rig: Rig) -> None:
    _, text = await rig.token(Role.VIEWER, expires_in_seconds=60)
    async with rig.client(text) as client:
        assert (await client.get("/api/v1/nodes")).status_code == 200
        rig.clock.offset = dt.timedelta(seconds=61)
        answer = await client.get("/api/v1/nodes")
    assert error(answer) == (401, "UNAUTHENTICATED")
    assert "expired at" in answer.json()["error"]["message"]


async def test_a_revoked_token_is_refused_at_once(client: httpx.AsyncClient, rig: Rig) -> None:
    id, text = await rig.token(Role.OPERATOR)
    assert (await client.delete(f"/api/v1/tokens/{id}")).status_code == 204
    async with rig.client(text) as revoked:
        assert error(await revoked.get("/api/v1/nodes")) == (401, "UNAUTHENTICATED")
    assert error(await client.get(f"/api/v1/tokens/{id}")) == (404, "NOT_FOUND")
    events = (await client.get("/api/v1/events?types=TOKEN_REVOKED")).json()["items"]
    assert [event["subject"] for event in events] == [id]


async def test_a_token_that_does_not_exist_is_answered_with_the_nearest_one(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    id, _ = await rig.token(Role.VIEWER)
    answer = await client.get(f"/api/v1/tokens/{id[:-1]}")
    assert error(answer) == (404, "NOT_FOUND")
    assert f"did you mean '{id}'?" in answer.json()["error"]["hint"]


@pytest.mark.parametrize(
    ("root", "role", "warned"),
    [(True, "OPERATOR", True), (True, "VIEWER", False), (False, "OPERATOR", False)],
)
async def test_an_operator_where_instances_are_root_is_told_to_be_an_administrator(
    data: pathlib.Path, root: bool, role: str, warned: bool
) -> None:
    async with http_rig(data, instances_are_root=root) as rig, rig.client() as client:
        made = (await client.post("/api/v1/tokens", json={"name": "t", "role": role})).json()
    assert ("as much as an ADMIN's" in made["warning"]) is warned


async def test_a_token_tells_when_it_was_last_used(client: httpx.AsyncClient, rig: Rig) -> None:
    id, text = await rig.token(Role.VIEWER)
    assert (await client.get(f"/api/v1/tokens/{id}")).json()["last_used_at"] is None
    async with rig.client(text) as other:
        await other.get("/api/v1/auth/me")
    assert (await client.get(f"/api/v1/tokens/{id}")).json()["last_used_at"] is not None


async def test_a_user_who_is_removed_while_a_token_is_made_leaves_none_behind(rig: Rig) -> None:
    """Somebody may get that name again, and must not inherit a token of the one before."""
    async with rig.client() as admin, rig.client() as other:
        made = await admin.post("/api/v1/users", json={"name": "ada", "bindings": [{"role": "VIEWER"}]})
        assert made.status_code == 201
        rig.store.commits.hold()
        removal = asyncio.create_task(admin.delete("/api/v1/users/ada"))
        creations = [
            asyncio.create_task(
                other.post("/api/v1/tokens", json={"name": "t", "role": "VIEWER", "owner": "ada"})
            )
            for _ in range(3)
        ]
        before = len(rig.store.commits.batches)
        await eventually(lambda: len(rig.store.commits.batches) > before)
        rig.store.commits.let_go()
        assert (await removal).status_code == 204
        assert {answer.status_code for answer in await asyncio.gather(*creations)} <= {201, 404}
    assert [each.record.owner for each in rig.state.tokens] == ["admin"]
