"""Changes of files with an Idempotency-Key: made once, whatever the store or the node does meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import httpx
import pytest
from http_rig import Rig

from corral.domain.groups.instance_records import InstanceRecord
from corral.errors import Code, Rejected, Retryable
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually

BODIES: dict[str, dict[str, Any]] = {
    "rename": {"path": "a", "to": "b", "replace": True},
    "delete": {"path": "a"},
    "unpack": {"path": "a.zip", "replace": True},
}
VERBS = ["write", *BODIES]
MOMENTS = ["before the change", "after the change"]


async def change(
    client: httpx.AsyncClient, record: InstanceRecord, verb: str, *, key: str | None = "k-1"
) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    files = f"/api/v1/instances/{record.id}/files"
    if verb == "write":
        return await client.put(f"{files}/content", params={"path": "a"}, content=b"v2", headers=headers)
    return await client.post(f"{files}/{verb}", json=BODIES[verb], headers=headers)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def made(rig: Rig) -> list[str]:
    return [verb for verb, _ in rig.distribution.asked]


def fail_once(rig: Rig, failure: StoreFault) -> None:
    """As soon as the change was made, the store fails once."""
    failures = [failure]

    def fail() -> None:
        if failures:
            rig.store.commits.fail(failures.pop())

    rig.distribution.on_change = fail


async def outcomes(client: httpx.AsyncClient, verb: str) -> list[str]:
    """The audit of such changes, the latest first."""
    listed = await client.get("/api/v1/audit", params={"limit": 500})
    return [item["outcome"] for item in listed.json()["items"] if item["action"] == f"instances.files.{verb}"]


def published(rig: Rig) -> int:
    return sum(event.type == "INSTANCE_FILE_CHANGED" for commit in rig.commits for event in commit.events)


@pytest.mark.trap("T70")
@pytest.mark.parametrize(
    ("verb", "moment", "failure"),
    [
        *itertools.product(VERBS[:1], MOMENTS, [StoreFault.BEFORE, StoreFault.AFTER, StoreFault.LOST]),
        *((verb, moment, StoreFault.LOST) for verb in VERBS[1:] for moment in MOMENTS),
    ],
)
async def test_a_change_whose_request_is_repeated_while_the_store_fails_is_made_once(
    client: httpx.AsyncClient, rig: Rig, verb: str, moment: str, failure: StoreFault
) -> None:
    record = await rig.instance()
    if moment == "before the change":
        rig.store.commits.fail(failure)
    else:
        fail_once(rig, failure)
    for _ in range(4):
        answer = await change(client, record, verb)
        assert answer.status_code == 200 or code(answer) == (503, "STORE_UNAVAILABLE")
        await eventually(lambda: rig.writer.healthy, deadline=10.0)
    assert answer.headers["idempotency-replayed"] == "true"
    assert answer.json()["changed"] is True
    assert made(rig) == [verb]
    assert published(rig) == 1
    assert await outcomes(client, verb) == ["ok", "begun"]


@pytest.mark.trap("T70")
@pytest.mark.parametrize("verb", VERBS)
async def test_a_change_that_was_interrupted_is_in_doubt_for_its_key_and_is_not_made_again(
    client: httpx.AsyncClient, rig: Rig, verb: str
) -> None:
    record = await rig.instance()

    def lose() -> None:
        raise Retryable(Code.NODE_OFFLINE, "the connection ended before the node had answered")

    rig.distribution.on_change = lose
    assert code(await change(client, record, verb)) == (409, "NODE_OFFLINE")
    rig.distribution.on_change = lambda: None
    for _ in range(2):
        assert code(await change(client, record, verb)) == (409, "MAY_HAVE_ARRIVED")
    assert made(rig) == [verb]
    assert (await change(client, record, verb, key="k-2")).status_code == 200
    assert (await change(client, record, verb, key=None)).status_code == 200
    assert made(rig) == [verb] * 3


@pytest.mark.trap("T70")
@pytest.mark.parametrize(
    ("verb", "put_off"),
    [*((verb, Code.RATE_LIMITED) for verb in VERBS), (VERBS[0], Code.NOT_SUPPORTED)],
)
async def test_a_repetition_that_is_put_off_leaves_the_first_attempt_in_doubt(
    client: httpx.AsyncClient, rig: Rig, verb: str, put_off: Code
) -> None:
    record = await rig.instance()

    def lose() -> None:
        raise Retryable(Code.NODE_OFFLINE, "the connection ended before the node had answered")

    rig.distribution.on_change = lose
    assert code(await change(client, record, verb)) == (409, "NODE_OFFLINE")
    rig.distribution.on_change = lambda: None
    rig.distribution.busy = Retryable(put_off, "not now")
    assert code(await change(client, record, verb))[1] == put_off.name
    rig.distribution.busy = None
    assert code(await change(client, record, verb)) == (409, "MAY_HAVE_ARRIVED")
    assert made(rig) == [verb]


async def test_an_answered_write_is_answered_again_while_its_node_is_away(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    assert (await change(client, record, "write")).status_code == 200
    rig.distribution.failure = Retryable(Code.NODE_OFFLINE, "its node is not connected")
    again = await change(client, record, "write")
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert made(rig) == ["write"]


async def test_a_key_belongs_to_the_conditions_of_its_request(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance()
    at, digest = f"/api/v1/instances/{record.id}/files/content", "0" * 64

    async def put(**conditions: str) -> httpx.Response:
        headers = {"Idempotency-Key": "k-1", **conditions}
        return await client.put(at, params={"path": "a"}, content=b"v2", headers=headers)

    assert (await put(**{"If-None-Match": "*"})).status_code == 200
    assert (await put(**{"If-None-Match": "*"})).headers["idempotency-replayed"] == "true"
    for other in ({}, {"If-Match": f'"{digest}"'}):
        assert code(await put(**other))[1] == "IDEMPOTENCY_KEY_REUSED"


@pytest.mark.parametrize("verb", VERBS)
async def test_a_change_that_was_refused_may_be_tried_again_with_its_key(
    client: httpx.AsyncClient, rig: Rig, verb: str
) -> None:
    record = await rig.instance()

    def refuse() -> None:
        raise Rejected(Code.DISK_FULL, "no room")

    rig.distribution.on_change = refuse
    assert code(await change(client, record, verb))[1] == "DISK_FULL"
    assert await outcomes(client, verb) == ["failed", "begun"]
    rig.distribution.on_change = lambda: None
    assert (await change(client, record, verb)).status_code == 200
    assert made(rig) == [verb] * 2


async def test_two_requests_with_one_key_at_a_time_change_something_once(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record = await rig.instance()
    answers = await asyncio.gather(*(change(client, record, "delete") for _ in range(8)))
    assert {answer.status_code for answer in answers} == {200}
    assert made(rig) == ["delete"]
