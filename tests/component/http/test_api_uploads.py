"""Uploads as such: streamed, bounded, refused early, and nothing of them left when they do not arrive."""

from __future__ import annotations

import asyncio
import hashlib
import pathlib
from collections.abc import AsyncIterator

import httpx
import pytest
from http_rig import Rig, http_rig
from raw_client import raw_call

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.messages.request import BodyPace, HttpRequest, Message, Scope
from corral.controller.http.messages.uploads import UploadBody
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Route, Upload
from corral.controller.http.routes import ROUTES
from corral.controller.state.ledger import Mutation
from corral.domain.permissions import Permission, Role
from corral.errors import Rejected
from corral.system.controller_config import TemplatesSection
from corral.system.entropy import SystemEntropy
from corral.system.http_config import HttpLimitsSection
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually

JAR = "/api/v1/catalog/paper/1.21/file"
NAMED = {"name": "server.jar"}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def stored(rig: Rig) -> list[str]:
    return [stamp.digest for stamp in await rig.store.blobs.blob_stamps(limit=100)]


async def test_a_body_is_stored_and_named_by_one_commit(client: httpx.AsyncClient, rig: Rig) -> None:
    data = bytes(range(256)) * 4096
    answer = await client.put(JAR, params={**NAMED, "sha256": sha256(data)}, content=data)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["sha256"], answer.json()["size"]) == (sha256(data), len(data))
    assert answer.headers["etag"] == f'"{answer.json()["revision"]}"'
    assert await stored(rig) == [sha256(data)]
    assert [event.type.value for event in rig.commits[-1].events] == ["CATALOG_UPDATED"]
    (entry,) = await rig.audits("catalog.put")
    assert entry["after"]["sha256"] == sha256(data)


async def test_a_body_larger_than_it_may_be_is_refused_by_its_length(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    limit = rig.setting.templates.max_bytes
    async with raw_call(rig, "PUT", f"{JAR}?name=x", Content_Length=str(limit + 1)) as call:
        status, _, body = await call.answer()  # not a byte of it was sent
    assert (status, body["error"]["code"]) == (413, "BODY_TOO_LARGE")
    assert str(limit) in body["error"]["message"]
    assert len(rig.state.catalog) == 0


async def test_a_body_that_does_not_say_its_length_is_cut_off_at_the_limit(rig: Rig) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 65_536

    async with rig.client() as client:
        answer = await client.put(JAR, params=NAMED, content=endless())
    assert error(answer) == (413, "BODY_TOO_LARGE")
    assert await stored(rig) == []


async def test_a_caller_that_hangs_up_in_the_middle_leaves_nothing(rig: Rig) -> None:
    async with raw_call(rig, "PUT", f"{JAR}?name=x", Content_Length="100000") as call:
        await call.send(b"x" * 50_000)
        await eventually(lambda: len(rig.leading.uploads) == 1)
        call.drop()
    await eventually(lambda: len(rig.leading.uploads) == 0)
    assert await stored(rig) == []
    assert len(rig.state.catalog) == 0
    assert await rig.audits("catalog.put") == []


async def test_a_caller_that_stops_sending_is_given_up(data: pathlib.Path) -> None:
    async with http_rig(data, upload_idle_seconds=0.2) as rig:
        async with raw_call(rig, "PUT", f"{JAR}?name=x", Content_Length="100000") as call:
            await call.send(b"x" * 1000)
            status, _, body = await call.answer()
        assert (status, body["error"]["code"]) == (400, "BAD_REQUEST")
        assert "nothing came" in body["error"]["message"]
        assert await stored(rig) == []


async def test_a_slow_caller_is_waited_for(data: pathlib.Path) -> None:
    async with http_rig(data, upload_idle_seconds=5.0) as rig:
        async with raw_call(rig, "PUT", f"{JAR}?name=x", Content_Length="10") as call:
            for _ in range(10):
                await call.send(b"x")
                await asyncio.sleep(0.02)  # the slowness itself, nothing waits for it
            status, _, body = await call.answer()
        assert (status, body["size"]) == (201, 10)


async def test_a_caller_that_only_keeps_its_place_is_given_up() -> None:
    async def trickle() -> Message:
        await asyncio.sleep(0.02)  # the slowness itself
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def refuse(message: Message) -> None:
        raise AssertionError(message)

    scope: Scope = {"type": "http", "headers": [], "path": "/", "query_string": b"", "method": "PUT"}
    request = HttpRequest(scope, trickle, refuse, entropy=SystemEntropy())
    pace = BodyPace(pause_seconds=10.0, idle_seconds=10.0)
    incoming = UploadBody(request, limit=10**6, pace=pace, digested=False, head_start_seconds=0.1)
    with pytest.raises(Rejected, match="less than 1024 bytes a second"):
        await incoming.drain()
    assert pace.size < 50


async def test_what_is_not_taken_waits_with_the_caller(data: pathlib.Path) -> None:
    """A store that is slow slows the caller down: the controller holds next to nothing."""
    go_on = asyncio.Event()
    taken: list[int] = []

    async def slow(call: ApiCall[None, NoQuery], source: AsyncIterator[bytes]) -> Describe:
        async for piece in source:
            taken.append(len(piece))
            await go_on.wait()

        async def describe() -> Mutation:
            return Mutation(action="x", subject="x", steps=(), status=204)

        return describe

    route = Upload(
        method="PUT",
        path="/api/v1/slow",
        permission=Permission.CATALOG_MANAGE,
        summary="Take bytes slowly",
        status=204,
        handler=slow,
        limit=lambda: 2**30,
    )
    routes: tuple[Route, ...] = (*ROUTES, route)
    size = 64 * 1024 * 1024
    async with http_rig(data, routes=routes) as rig:
        async with raw_call(rig, "PUT", "/api/v1/slow", Content_Length=str(size)) as call:
            sending = asyncio.create_task(call.send(b"x" * size))
            await eventually(lambda: taken)
            before = -1
            while before != (waiting := call.writer.transport.get_write_buffer_size()):
                before = waiting
                await asyncio.sleep(0.1)  # until nothing moves any more
            assert waiting > size // 2, "the caller could send far more than was taken"
            assert sum(taken) < 1024 * 1024
            go_on.set()
            status, _, _ = await call.answer()
            await sending
        assert status == 204
        assert sum(taken) == size
        assert max(taken) < 4 * 1024 * 1024


async def test_nothing_of_a_body_is_read_before_the_caller_is_known(rig: Rig) -> None:
    _, viewer = await rig.token(Role.VIEWER)
    refusals = [
        ({"token": "nobody"}, JAR, (401, "UNAUTHENTICATED")),
        ({"token": viewer}, f"{JAR}?name=x", (403, "FORBIDDEN")),
        ({"If_Match": '"7"'}, f"{JAR}?name=x", (412, "REVISION_MISMATCH")),
        ({"If_Match": "7"}, f"{JAR}?name=x", (400, "BAD_REQUEST")),
        ({"Idempotency_Key": "a b"}, f"{JAR}?name=x", (400, "BAD_REQUEST")),
        ({"Content_Type": "multipart/form-data; boundary=x"}, f"{JAR}?name=x", (415, "UNSUPPORTED_MEDIA_TYPE")),
        ({"Content_Encoding": "gzip"}, f"{JAR}?name=x", (415, "UNSUPPORTED_MEDIA_TYPE")),
        ({"Content_Range": "bytes 0-1/5"}, f"{JAR}?name=x", (400, "BAD_REQUEST")),
        ({}, JAR, (400, "MISSING_FIELD")),
        ({}, f"{JAR}?nmae=x", (400, "UNKNOWN_FIELD")),
    ]  # fmt: skip
    for headers, target, expected in refusals:
        async with raw_call(rig, "PUT", target, Content_Length="1000000", **headers) as call:
            status, _, body = await call.answer()  # not a byte of the body was sent
        assert (status, body["error"]["code"]) == expected, headers
    assert await stored(rig) == []


@pytest.mark.trap("T25")
async def test_a_token_that_is_revoked_ends_its_upload_at_once(rig: Rig) -> None:
    id, operator = await rig.token(Role.OPERATOR)
    async with raw_call(rig, "PUT", f"{JAR}?name=x", token=operator, Content_Length="1000") as call:
        await call.send(b"x" * 500)
        await eventually(lambda: len(rig.leading.uploads) == 1)
        async with rig.client() as client:
            await client.delete(f"/api/v1/tokens/{id}")
        async with asyncio.timeout(1.0):
            status, _, body = await call.answer()
    assert (status, body["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert "revoked" in body["error"]["message"]
    assert await stored(rig) == []


async def test_the_end_of_a_term_ends_an_upload(rig: Rig) -> None:
    async with raw_call(rig, "PUT", f"{JAR}?name=x", Content_Length="1000") as call:
        await call.send(b"x" * 500)
        await eventually(lambda: len(rig.leading.uploads) == 1)
        rig.leading.uploads.close_all("this controller no longer leads")
        status, headers, body = await call.answer()
    assert (status, body["error"]["code"]) == (503, "NOT_LEADER")
    assert headers["retry-after"] == "1"


async def test_a_key_takes_effect_once_and_speaks_for_these_bytes_alone(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    headers = {"Idempotency-Key": "k-1"}
    first = await client.put(JAR, params=NAMED, content=b"one", headers=headers)
    number = rig.state.number
    again = await client.put(JAR, params=NAMED, content=b"one", headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotency-replayed"] == "true"
    assert rig.state.number == number
    other = await client.put(JAR, params=NAMED, content=b"two", headers=headers)
    assert error(other) == (409, "IDEMPOTENCY_KEY_REUSED")
    assert rig.state.catalog.require("paper/1.21").record.sha256 == sha256(b"one")


async def test_one_key_sent_by_many_at_once_takes_effect_once(client: httpx.AsyncClient, rig: Rig) -> None:
    answers = await asyncio.gather(
        *(client.put(JAR, params=NAMED, content=b"one", headers={"Idempotency-Key": "k-1"}) for _ in range(8))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["revision"] for answer in answers}) == 1
    assert len(await rig.audits("catalog.put")) == 1


async def test_a_commit_whose_answer_is_lost_is_made_once_and_answered(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    rig.store.commits.fail(StoreFault.AFTER)
    headers = {"Idempotency-Key": "k-1"}
    first = await client.put(JAR, params=NAMED, content=b"one", headers=headers)
    again = await client.put(JAR, params=NAMED, content=b"one", headers=headers)
    assert (first.status_code, again.json()) == (201, first.json())
    assert len(await rig.audits("catalog.put")) == 1


async def test_what_came_in_and_cannot_be_committed_is_named_by_nothing(rig: Rig) -> None:
    rig.store.commits.fail(*[StoreFault.BEFORE] * 1000)
    async with raw_call(rig, "PUT", f"{JAR}?name=x", Content_Length="3") as call:
        await call.send(b"one")
        status, headers, body = await call.answer()
    assert (status, body["error"]["code"]) == (503, "STORE_UNAVAILABLE")
    assert "retry-after" in headers
    assert len(rig.state.catalog) == 0
    assert await stored(rig) == [sha256(b"one")], "it waits for another try, or to be collected"


async def test_uploads_side_by_side_all_arrive(data: pathlib.Path) -> None:
    large = TemplatesSection(max_bytes=16 * 1024 * 1024)
    async with http_rig(data, templates=large) as rig, rig.client() as client:
        bodies = [bytes([number]) * (3 * 1024 * 1024) for number in range(6)]
        answers = await asyncio.gather(
            *(
                client.put(f"/api/v1/catalog/paper/{number}/file", params=NAMED, content=body)
                for number, body in enumerate(bodies)
            )
        )
        assert [answer.status_code for answer in answers] == [201] * 6
        assert sorted(await stored(rig)) == sorted(sha256(body) for body in bodies)


async def test_too_many_uploads_at_once_are_told_to_come_later(data: pathlib.Path) -> None:
    async with (
        http_rig(data, limits=HttpLimitsSection(all_uploads=1)) as rig,
        raw_call(rig, "PUT", f"{JAR}?name=x", Content_Length="10") as call,
        rig.client() as client,
    ):
        await call.send(b"x")
        await eventually(lambda: len(rig.leading.uploads) == 1)
        assert error(await client.put(JAR, params=NAMED, content=b"y")) == (429, "RATE_LIMITED")
        await call.send(b"x" * 9)
        assert (await call.answer())[0] == 201
