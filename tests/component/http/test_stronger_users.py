"""Who may do less changes nothing of who may do more: neither by users and roles nor by tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from browsers import browser, make_user, refused
from http_rig import Rig

from corral.testing.waiting import eventually

CLERK = [
    "users.read",
    "users.manage",
    "roles.read",
    "roles.manage",
    "tokens.read",
    "tokens.manage",
    "self.read",
]


@pytest.fixture
async def clerk(rig: Rig) -> AsyncIterator[httpx.AsyncClient]:
    """Somebody who looks after accounts, and may do nothing else."""
    async with rig.client() as admin:
        for name, permissions in (("clerk", CLERK), ("strong", ["modules.manage", "self.read"])):
            made = await admin.post("/api/v1/roles", json={"name": name, "permissions": permissions})
            assert made.status_code == 201, made.text
    await make_user(rig, "boss", role="ADMIN")
    await make_user(rig, "mate", role="strong")
    await make_user(rig, "helen", role="clerk")
    async with browser(rig, "helen") as made:
        yield made


async def test_no_token_of_somebody_who_may_more(clerk: httpx.AsyncClient, rig: Rig) -> None:
    body = {"name": "t", "role": "ADMIN", "permissions": ["self.read"]}
    assert refused(await clerk.post("/api/v1/tokens", json={**body, "owner": "boss"})) == "FORBIDDEN"
    assert (await clerk.post("/api/v1/tokens", json=body)).status_code == 201
    async with rig.client() as admin:
        theirs = (
            await admin.post("/api/v1/tokens", json={"name": "s", "role": "ADMIN", "owner": "boss"})
        ).json()
    assert refused(await clerk.delete(f"/api/v1/tokens/{theirs['id']}")) == "FORBIDDEN"


async def test_no_role_that_grants_more_is_changed_or_removed(clerk: httpx.AsyncClient) -> None:
    """Else one narrows it, takes it, and waits until an administrator restores it."""
    narrowed = await clerk.patch("/api/v1/roles/strong", json={"permissions": ["self.read"]})
    assert refused(narrowed) == "FORBIDDEN"
    assert refused(await clerk.patch("/api/v1/roles/strong", json={"description": "x"})) == "FORBIDDEN"
    own = await clerk.patch("/api/v1/roles/clerk", json={"description": "looks after accounts"})
    assert own.status_code == 200


async def test_nothing_of_a_stronger_user_is_changed(clerk: httpx.AsyncClient) -> None:
    assert refused(await clerk.patch("/api/v1/users/boss", json={"display_name": "system"})) == "FORBIDDEN"
    assert refused(await clerk.post("/api/v1/users/boss/reset-delay")) == "FORBIDDEN"
    assert refused(await clerk.patch("/api/v1/users/boss", json={})) == "FORBIDDEN"
    assert (await clerk.patch("/api/v1/users/helen", json={"display_name": "Helen"})).status_code == 200


async def test_no_name_that_only_looks_like_another(clerk: httpx.AsyncClient) -> None:
    for name in ["adm\u200bin", "adm\U000e0041in", "a\u00ad", "x" * 101]:
        answer = await clerk.patch("/api/v1/users/helen", json={"display_name": name})
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "display_name"), name


@pytest.mark.trap("T25")
async def test_a_change_that_is_evaluated_again_asks_again_who_makes_it(rig: Rig) -> None:
    """Its maker was locked, and what it changes was changed, while it waited for the store."""
    await make_user(rig, "mallory", role="ADMIN")
    await make_user(rig, "target", role="VIEWER")
    async with browser(rig, "mallory") as mallory, rig.client() as admin, rig.client() as other:
        rig.store.commits.hold()
        path = "/api/v1/users/target"
        lock = asyncio.create_task(admin.post("/api/v1/users/mallory/lock", json={"reason": "left"}))
        first = asyncio.create_task(other.patch(path, json={"display_name": "one"}))
        before = len(rig.store.commits.batches)
        await eventually(lambda: len(rig.store.commits.batches) > before)
        late = asyncio.create_task(mallory.patch(path, json={"bindings": [{"role": "ADMIN"}]}))
        await eventually(lambda: rig.writer.pending >= 2)
        rig.store.commits.let_go()
        assert (await lock).is_success
        assert (await first).is_success
        answer = await late
        assert (answer.status_code, refused(answer)) == (401, "UNAUTHENTICATED")
    assert rig.state.users.require("target").record.bindings[0].role == "VIEWER"


async def test_nobody_locks_himself_and_an_administrator_who_can_get_in_stays(rig: Rig) -> None:
    await make_user(rig, "anna", role="ADMIN")
    async with browser(rig, "anna") as anna, rig.client() as admin:
        assert refused(await anna.post("/api/v1/users/anna/lock", json={"reason": "typo"})) == "CONFLICT"
        own = await anna.post("/api/v1/users/anna/password", json={"password": "x" * 20})
        assert refused(own) == "CONFLICT", "one's own needs the present one"
        assert refused(await anna.delete("/api/v1/users/anna/totp")) == "CONFLICT"
        first = (await admin.get("/api/v1/auth/me")).json()["token"]["id"]
        made = await anna.post("/api/v1/tokens", json={"name": "mine", "role": "ADMIN"})
        assert made.status_code == 201
        assert (await anna.delete(f"/api/v1/tokens/{first}")).status_code == 204
        gone = await anna.delete("/api/v1/users/anna")
        assert refused(gone) == "CONFLICT", "admin has neither a password nor a token"


async def test_a_role_is_not_removed_while_it_is_being_bound(rig: Rig) -> None:
    async with rig.client() as admin, rig.client() as other:
        role = {"name": "brief", "permissions": ["groups.read"]}
        assert (await admin.post("/api/v1/roles", json=role)).status_code == 201
        rig.store.commits.hold()
        removal = asyncio.create_task(admin.delete("/api/v1/roles/brief"))
        await eventually(lambda: rig.writer.pending >= 1)
        body = {"name": "ada", "bindings": [{"role": "brief"}]}
        binding = asyncio.create_task(other.post("/api/v1/users", json=body))
        await eventually(lambda: rig.writer.pending >= 2)
        rig.store.commits.let_go()
        assert (await removal).status_code == 204
        assert (await binding).status_code == 400
