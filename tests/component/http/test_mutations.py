"""Mutations: one transaction with audit and idempotency, preconditions, and races."""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
from typing import Any

import httpx
import pytest
from http_rig import Rig

from corral.controller.http.pipeline.idempotency import LIFE, expired
from corral.controller.state.collections import IDEMPOTENCY, NODES, TOKENS, USERS
from corral.domain.permissions import Role
from corral.store.port import Put
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually

PATH = "/api/v1/tokens"
BODY = {"name": "deploy", "role": "OPERATOR"}


def keyed(key: str) -> dict[str, str]:
    return {"Idempotency-Key": key}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_mutation_answers_with_the_revision_it_was_stored_under(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    answer = await client.post(PATH, json=BODY)
    body = answer.json()
    assert (answer.status_code, body["revision"]) == (201, rig.state.number)
    assert answer.headers["etag"] == f'"{body["revision"]}"'
    shown = await client.get(f"{PATH}/{body['id']}")
    assert shown.headers["etag"] == answer.headers["etag"]
    assert shown.json() == {key: value for key, value in body.items() if key not in ("token", "warning")}


async def test_change_event_audit_and_idempotency_record_are_one_commit(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.post(PATH, json=BODY, headers=keyed("k-1"))
    commit = rig.commits[-1]
    assert {change.collection for change in commit.changes} == {TOKENS.name, USERS.name, IDEMPOTENCY.name}
    assert [event.type.value for event in commit.events] == ["TOKEN_CREATED"]
    assert [entry.journal for entry in commit.entries] == ["audit"]


async def test_the_audit_tells_who_did_what_from_where(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    me = (await client.get("/api/v1/auth/me")).json()["token"]["id"]
    await client.post("/api/v1/nodes/node-1/cordon", json={"reason": "new disk"})
    (entry,) = await rig.audits("nodes.cordon")
    assert (entry["actor"], entry["subject"], entry["address"]) == (f"token:{me}", "node-1", "127.0.0.1")
    assert (entry["before"]["admission"], entry["after"]["admission"]) == ("open", "cordoned")
    assert entry["after"]["admission_reason"] == "new disk"


async def test_a_secret_is_neither_in_the_store_nor_in_the_audit_nor_in_the_event(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    text = (await client.post(PATH, json=BODY, headers=keyed("k-1"))).json()["token"]
    secret = text.rsplit("_", 1)[1].encode()
    for file in rig.data.rglob("*"):
        if file.is_file() and file.name != "admin.token":
            content = file.read_bytes()
            assert secret not in content, file
            assert rig.admin.encode() not in content, file


async def test_what_is_already_so_changes_nothing(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    first = await client.post("/api/v1/nodes/node-1/cordon", json={"reason": "disk"})
    number = rig.state.number
    again = await client.post("/api/v1/nodes/node-1/cordon", json={"reason": "disk"})
    assert again.json() == first.json()
    assert rig.state.number == number


# If-Match


async def test_if_match_lets_the_seen_revision_through_and_no_other(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1")
    path = "/api/v1/nodes/node-1"
    seen = (await client.get(path)).headers["etag"]
    assert (await client.post(f"{path}/cordon", headers={"If-Match": seen})).status_code == 200
    stale = await client.post(f"{path}/uncordon", headers={"If-Match": seen})
    assert error(stale) == (412, "REVISION_MISMATCH")
    assert (await client.get(path)).json()["admission"] == "cordoned"
    weak = await client.post(f"{path}/uncordon", headers={"If-Match": "W/" + seen})
    assert error(weak) == (412, "REVISION_MISMATCH")
    several = f'"1", {(await client.get(path)).headers["etag"]}'
    assert (await client.post(f"{path}/uncordon", headers={"If-Match": several})).status_code == 200
    assert (await client.delete(path, headers={"If-Match": "*"})).status_code == 204


async def test_a_malformed_if_match_is_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    for header in ["7", '"7', "", '"7",', 'w/"7"', ",".join(['"1"'] * 50)]:
        answer = await client.post("/api/v1/nodes/node-1/cordon", headers={"If-Match": header})
        assert error(answer) == (400, "BAD_REQUEST"), header
        assert answer.json()["error"]["field"] == "If-Match", header


async def test_if_match_on_a_creation_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post(PATH, json=BODY, headers={"If-Match": '"1"'})
    assert error(answer) == (400, "BAD_REQUEST")


async def test_if_match_on_what_is_not_there_is_not_found(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/v1/nodes/ghost/cordon", headers={"If-Match": "*"})
    assert error(answer) == (404, "NOT_FOUND")


# others are faster


async def touch(rig: Rig, name: str, **fields: Any) -> None:
    stored = rig.state.nodes.require(name)
    record = type(stored.record)(
        **{
            **{field: getattr(stored.record, field) for field in stored.record.__struct_fields__},
            **fields,
        }
    )
    await rig.ledger.commit(NODES.put(name, record, expect=None))


async def behind_a_change(rig: Rig, request: Any) -> httpx.Response:
    """Send a request that reads the state while a change of the same node is on its way."""
    rig.store.commits.hold()
    change = asyncio.create_task(touch(rig, "node-1", address="10.0.0.9"))
    await eventually(lambda: rig.writer.pending == 1)
    asked = asyncio.create_task(request)
    await eventually(lambda: rig.writer.pending == 2)
    rig.store.commits.let_go()
    await change
    answer: httpx.Response = await asked
    return answer


async def test_a_mutation_is_described_again_when_somebody_was_faster(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1")
    answer = await behind_a_change(rig, client.post("/api/v1/nodes/node-1/cordon"))
    assert answer.status_code == 200
    node = (await client.get("/api/v1/nodes/node-1")).json()
    assert (node["admission"], node["address"]) == ("cordoned", "10.0.0.9")
    assert node == answer.json()


async def test_a_caller_who_insists_on_a_revision_is_told_that_somebody_was_faster(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1")
    seen = (await client.get("/api/v1/nodes/node-1")).headers["etag"]
    asking = client.post("/api/v1/nodes/node-1/cordon", headers={"If-Match": seen})
    assert error(await behind_a_change(rig, asking)) == (412, "REVISION_MISMATCH")
    assert (await client.get("/api/v1/nodes/node-1")).json()["admission"] == "open"


async def test_two_administrators_cannot_revoke_each_other_at_once(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    other, other_text = await rig.token(Role.ADMIN)
    first = (await client.get("/api/v1/auth/me")).json()["token"]["id"]
    async with rig.client(other_text) as second:
        rig.store.commits.hold()
        deletions = [
            asyncio.create_task(client.delete(f"{PATH}/{other}")),
            asyncio.create_task(second.delete(f"{PATH}/{first}")),
        ]
        await eventually(lambda: rig.writer.pending == 2)
        rig.store.commits.let_go()
        answers = await asyncio.gather(*deletions)
    assert sorted(answer.status_code for answer in answers) == [204, 401], "the second one is nobody any more"
    assert len(rig.state.tokens) == 1


async def test_the_last_administrator_cannot_be_revoked(client: httpx.AsyncClient, rig: Rig) -> None:
    me = (await client.get("/api/v1/auth/me")).json()["token"]["id"]
    await rig.token(Role.OPERATOR)
    await rig.token(Role.ADMIN, expires_in_seconds=60)
    rig.clock.offset = dt.timedelta(minutes=5)
    assert error(await client.delete(f"{PATH}/{me}")) == (409, "CONFLICT")


# idempotency


async def test_the_same_key_takes_effect_once_and_is_answered_the_same(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    first = await client.post(PATH, json=BODY, headers=keyed("k-1"))
    tokens = len(rig.state.tokens)
    again = await client.post(PATH, json=BODY, headers=keyed("k-1"))
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert len(rig.state.tokens) == tokens
    assert len(await rig.audits("tokens.create")) == 1


async def test_a_replayed_deletion_is_answered_the_same(client: httpx.AsyncClient, rig: Rig) -> None:
    id, _ = await rig.token(Role.VIEWER)
    for _ in range(2):
        answer = await client.delete(f"{PATH}/{id}", headers=keyed("gone"))
        assert (answer.status_code, answer.content) == (204, b"")
    assert error(await client.delete(f"{PATH}/{id}")) == (404, "NOT_FOUND")


async def test_a_key_with_another_request_is_refused(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    await client.post(PATH, json=BODY, headers=keyed("k-1"))
    other_body = await client.post(PATH, json={**BODY, "name": "x"}, headers=keyed("k-1"))
    other_path = await client.post("/api/v1/nodes/node-1/cordon", headers=keyed("k-1"))
    assert error(other_body) == error(other_path) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_keys_of_different_callers_have_nothing_to_do_with_each_other(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, other = await rig.token(Role.ADMIN)
    first = await client.post(PATH, json=BODY, headers=keyed("k-1"))
    async with rig.client(other) as second:
        theirs = await second.post(PATH, json=BODY, headers=keyed("k-1"))
    assert theirs.status_code == 201
    assert theirs.json()["id"] != first.json()["id"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "\xe9"])
async def test_a_malformed_key_is_refused(client: httpx.AsyncClient, key: str) -> None:
    headers = {b"Idempotency-Key": key.encode("latin-1")}
    answer = await client.post(PATH, json=BODY, headers=headers)
    assert error(answer) == (400, "BAD_REQUEST")


async def test_fifty_requests_with_one_key_at_once_take_effect_once(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    tokens = len(rig.state.tokens)
    rig.store.commits.hold()
    asking = [asyncio.create_task(client.post(PATH, json=BODY, headers=keyed("k-1"))) for _ in range(50)]
    await eventually(lambda: rig.writer.pending >= 50)
    rig.store.commits.let_go()
    answers = await asyncio.gather(*asking)
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert len(rig.state.tokens) == tokens + 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1


async def test_a_key_whose_answer_was_lost_with_the_connection_finds_what_was_done(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    rig.store.commits.fail(StoreFault.AFTER)
    first = await client.post(PATH, json=BODY, headers=keyed("k-1"))
    again = await client.post(PATH, json=BODY, headers=keyed("k-1"))
    assert first.status_code == again.status_code == 201
    assert first.json()["id"] == again.json()["id"]


async def test_a_request_that_changes_nothing_keeps_its_answer_under_its_key(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1")
    path = "/api/v1/nodes/node-1/uncordon"
    first = await client.post(path, headers=keyed("k-1"))
    await client.post("/api/v1/nodes/node-1/cordon")
    again = await client.post(path, headers=keyed("k-1"))
    assert again.json() == first.json()
    assert again.headers["idempotency-replayed"] == "true"
    assert not await rig.audits("nodes.uncordon")


async def test_a_refusal_is_not_kept(client: httpx.AsyncClient, rig: Rig) -> None:
    path = "/api/v1/nodes/node-1/cordon"
    assert error(await client.post(path, headers=keyed("k-1"))) == (404, "NOT_FOUND")
    await rig.node("node-1")
    assert (await client.post(path, headers=keyed("k-1"))).status_code == 200


async def test_a_key_is_forgotten_after_a_day(client: httpx.AsyncClient, rig: Rig) -> None:
    first = await client.post(PATH, json=BODY, headers=keyed("k-1"))
    assert expired(rig.state, now=rig.clock.now(), limit=10) == []
    rig.clock.offset = LIFE
    assert len(expired(rig.state, now=rig.clock.now(), limit=10)) == 1
    again = await client.post(PATH, json=BODY, headers=keyed("k-1"))
    assert again.json()["id"] != first.json()["id"]
    assert expired(rig.state, now=rig.clock.now(), limit=10) == []


async def test_an_answer_at_rest_opens_only_with_the_callers_token_and_key(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    answer = await client.post(PATH, json=BODY, headers=keyed("k-1"))
    (write,) = [c for c in rig.commits[-1].changes if c.collection == IDEMPOTENCY.name]
    assert write.body is not None
    assert answer.json()["token"].encode() not in write.body
    # somebody with the store in his hands puts that answer under a key of his own
    stolen = IDEMPOTENCY.decode(write.body)
    _, text = await rig.token(Role.ADMIN)
    async with rig.client(text) as thief:
        await thief.post(PATH, json=BODY, headers=keyed("k-1"))
        (target,) = [c for c in rig.commits[-1].changes if c.collection == IDEMPOTENCY.name]
        forged: Put = IDEMPOTENCY.put(target.id, stolen, expect=None)
        await rig.ledger.commit(forged)
        answer = await thief.post(PATH, json=BODY, headers=keyed("k-1"))
    assert error(answer) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_the_fingerprint_of_a_body_is_keyed(client: httpx.AsyncClient, rig: Rig) -> None:
    """Whoever reads the store must not be able to try passwords at the speed of a plain digest."""
    body = b'{"name":"ada","password":"mossy kettle under nine bridges","bindings":[]}'
    made = await client.post(
        "/api/v1/users",
        content=body,
        headers={**keyed("k-1"), "Content-Type": "application/json"},
    )
    assert made.status_code == 201, made.text
    (stored,) = rig.state.idempotency
    parts = (b"POST", b"/api/v1/users", b"", body)
    plain = hashlib.sha256(b"".join(len(each).to_bytes(8, "big") + each for each in parts)).hexdigest()
    assert stored.record.request_sha256 != plain
