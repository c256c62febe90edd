"""What one token may have at once, and how often it may ask; others do not notice one that takes all it can get."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from http_rig import Rig, http_rig
from raw_client import raw_call
from sse_client import following
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from corral.controller.http.pipeline.caller_limits import BODY_OF_A_REQUEST
from corral.domain.permissions import Role
from corral.system.http_config import HttpLimitsSection
from corral.testing.waiting import eventually

LIMITS = HttpLimitsSection(streams=2, tickets=2, uploads=1, requests_per_second=0)
JAR = "/api/v1/catalog/paper/1.0/file"


def limited(answer: httpx.Response) -> bool:
    error = answer.json().get("error", {})
    return (
        (answer.status_code, error.get("code")) == (429, "RATE_LIMITED")
        and int(answer.headers["retry-after"]) >= 1
        and error["message"].startswith(("the token ", "the caller "))
    )


@pytest.mark.trap("T92")
async def test_a_token_that_has_all_its_streams_gets_no_more_and_others_get_theirs(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, limits=LIMITS) as rig, rig.client() as admin:
        _, text = await rig.token(Role.OPERATOR)
        record = await rig.instance()
        async with rig.client(text) as greedy, following(greedy), following(greedy):
            for path in (
                "/api/v1/events/stream",
                "/api/v1/logs/stream?source=controller",
                f"/api/v1/instances/{record.id}/console/stream",
                f"/api/v1/instances/{record.id}/console/download",
            ):
                assert limited(await greedy.get(path)), path
            url = f"{rig.url.replace('http:', 'ws:')}/api/v1/instances/{record.id}/console/ws"
            with pytest.raises(InvalidStatus, match="429"):
                async with connect(url, additional_headers={"Authorization": f"Bearer {text}"}, proxy=None):
                    pass
            assert (await greedy.put(JAR, params={"name": "x"}, content=b"x")).status_code == 201
            async with following(admin):
                pass
        async with rig.client(text) as greedy, following(greedy):
            pass  # what has ended does not count


@pytest.mark.trap("T92")
async def test_a_wait_is_a_stream_and_is_refused_before_anything_is_changed(data: pathlib.Path) -> None:
    async with http_rig(data, limits=LIMITS) as rig, rig.client() as admin:
        await rig.online()
        await rig.group()
        _, text = await rig.token(Role.OPERATOR)
        ask: dict[str, Any] = {"json": {"group": "lobby"}, "params": {"wait": "running", "timeout": 60}}
        async with rig.client(text) as greedy:
            waiting = [asyncio.create_task(greedy.post("/api/v1/instances", **ask)) for _ in range(2)]
            await eventually(lambda: (len(rig.leading.streams), len(rig.state.instances)) == (2, 2))
            assert limited(await greedy.post("/api/v1/instances", **ask))
            assert len(rig.state.instances) == 2
            assert (await greedy.post("/api/v1/instances", json={"group": "lobby"})).status_code == 201
            async with following(admin):
                pass
            id = (await greedy.get("/api/v1/auth/me")).json()["token"]["id"]
            await admin.delete(f"/api/v1/tokens/{id}")
            for answer in await asyncio.gather(*waiting):
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
                assert "the change was made" in answer.json()["error"]["message"]


@pytest.mark.trap("T92")
async def test_uploads_have_places_of_their_own(data: pathlib.Path) -> None:
    async with http_rig(data, limits=LIMITS) as rig, rig.client() as admin:
        _, text = await rig.token(Role.OPERATOR)
        sending = raw_call(rig, "PUT", f"{JAR}?name=x", token=text, Content_Length="10")
        async with sending as call, rig.client(text) as greedy:
            await call.send(b"x")
            await eventually(lambda: len(rig.leading.uploads) == 1)
            assert limited(await greedy.put(JAR, params={"name": "y"}, content=b"y"))
            async with following(greedy), following(greedy):
                assert (await admin.put(JAR, params={"name": "z"}, content=b"z")).status_code == 201


@pytest.mark.trap("T92")
async def test_large_sets_of_documents_are_few_and_small_ones_go_by(data: pathlib.Path) -> None:
    limits = HttpLimitsSection(uploads=9, requests_per_second=0)
    async with http_rig(data, limits=limits) as rig, contextlib.AsyncExitStack() as stack:
        texts = [(await rig.token(Role.OPERATOR))[1] for _ in range(3)]
        small = {"documents": [{"body": {"name": "lobby", "command": ["a"]}}]}
        large = {
            "documents": [{"body": {"name": f"g-{n}", "command": ["a", "x" * 60_000]}} for n in range(20)]
        }
        first, _, third = [await stack.enter_async_context(rig.client(text)) for text in texts]
        for open_ones, token in enumerate([texts[0], texts[0], texts[1], texts[1]]):
            head = {"Content_Length": "2000000"} if open_ones % 2 else {"Transfer_Encoding": "chunked"}
            call = raw_call(rig, "POST", "/api/v1/apply", token=token, **head)
            sending = await stack.enter_async_context(call)
            await eventually(lambda count=open_ones + 1: len(rig.leading.large_bodies) == count)
            if open_ones == 1:
                assert limited(await first.post("/api/v1/apply", json=large)), "those of the token"
                answer = await third.post("/api/v1/apply", json=large)
                assert answer.status_code == 200, answer.text
        refused = await third.post("/api/v1/apply", json=large)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert "4 large requests are open already" in refused.json()["error"]["message"]
        assert (await first.post("/api/v1/apply", json=small)).status_code == 200
        sending.drop()
        await eventually(lambda: len(rig.leading.large_bodies) == 3)
        answer = await third.post("/api/v1/apply", json=large)
        assert answer.status_code == 200, answer.text


@pytest.mark.trap("T92")
async def test_tickets_are_counted_until_they_are_used(data: pathlib.Path) -> None:
    async with http_rig(data, limits=LIMITS) as rig, rig.client() as admin, rig.client("") as browser:
        _, text = await rig.token(Role.VIEWER)
        async with rig.client(text) as greedy:
            asked = [await greedy.post("/api/v1/events/tickets") for _ in range(3)]
            assert [each.status_code for each in asked] == [200, 200, 429]
            assert limited(asked[2])
            assert (await admin.post("/api/v1/events/tickets")).status_code == 200
            async with following(browser, params={"ticket": asked[0].json()["ticket"]}):
                assert (await greedy.post("/api/v1/events/tickets")).status_code == 200
                assert limited(await greedy.post("/api/v1/events/tickets"))


@pytest.mark.trap("T92")
async def test_streams_by_tickets_are_streams_of_the_token_that_asked_for_them(data: pathlib.Path) -> None:
    async with http_rig(data, limits=LIMITS) as rig, rig.client() as admin, rig.client("") as browser:
        _, text = await rig.token(Role.VIEWER)

        async def ticket() -> dict[str, str]:
            answer = await greedy.post("/api/v1/events/tickets")
            return {"ticket": answer.json()["ticket"], "with": "resource"}

        async with rig.client(text) as greedy:
            async with following(browser, params=await ticket()), following(browser, params=await ticket()):
                refused = await browser.get("/api/v1/events/stream", params=await ticket())
                assert limited(refused)
                assert limited(await greedy.get("/api/v1/events/stream"))
                async with following(admin):
                    pass
            async with following(browser, params=await ticket()):
                pass  # what has ended does not count


@pytest.mark.trap("T92")
async def test_a_token_that_asks_too_often_is_told_to_wait_and_others_are_not(data: pathlib.Path) -> None:
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=20)) as rig:
        _, text = await rig.token(Role.VIEWER)
        async with rig.client(text) as greedy, rig.client() as admin:
            answers = [await greedy.get("/api/v1/auth/me") for _ in range(30)]
            assert [each.status_code for each in answers[:20]] == [200] * 20
            assert any(limited(each) for each in answers[20:])
            assert (await admin.get("/api/v1/auth/me")).status_code == 200


async def test_an_answer_that_takes_the_leader_long_counts_as_several(data: pathlib.Path) -> None:
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=20)) as rig:
        _, text = await rig.token(Role.VIEWER)
        async with rig.client(text) as greedy:
            answers = [await greedy.get("/api/v1/groups/lobby/why") for _ in range(12)]
            assert [each.status_code for each in answers[:4]] == [404] * 4
            assert any(limited(each) for each in answers[4:])
            refused = next(each for each in answers if limited(each))
            assert "this request counts as 5" in refused.json()["error"]["message"]
    async with http_rig(data / "small", limits=HttpLimitsSection(requests_per_second=1, burst=3)) as rig:
        _, text = await rig.token(Role.VIEWER)
        async with rig.client(text) as greedy:
            assert (await greedy.get("/api/v1/groups/lobby/why")).status_code == 404


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_large_body_counts_as_several_requests(data: pathlib.Path, chunked: bool) -> None:
    async def sent(client: httpx.AsyncClient, size: int) -> httpx.Response:
        raw = msgspec.json.encode({"name": "x" * size})

        async def pieces() -> AsyncIterator[bytes]:
            yield raw

        head = {"Content-Type": "application/json"}
        return await client.post("/api/v1/groups", content=pieces() if chunked else raw, headers=head)

    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=20)) as rig:
        texts = [(await rig.token(Role.OPERATOR))[1] for _ in range(2)]
        async with rig.client(texts[0]) as small, rig.client(texts[1]) as large:
            answers = [await sent(small, 5 * BODY_OF_A_REQUEST) for _ in range(6)]
            assert [each.status_code for each in answers[:3]] == [400] * 3
            refused = next(each for each in answers if limited(each))
            assert "this request counts as 5" in refused.json()["error"]["message"]
            assert int(refused.headers["retry-after"]) == 5
            largest = await sent(large, 100 * BODY_OF_A_REQUEST)
            assert largest.status_code == 400, "a third of a burst is the most that it counts as"


async def test_a_set_of_many_documents_counts_as_several_requests(data: pathlib.Path) -> None:
    documents = [{"body": {"name": f"g-{number}", "command": ["a"]}} for number in range(100)]
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=20)) as rig:
        _, text = await rig.token(Role.OPERATOR)
        async with rig.client(text) as client:
            sets = {"dry_run": True, "documents": documents}
            answers = await asyncio.gather(*(client.post("/api/v1/apply", json=sets) for _ in range(10)))
            assert sum(each.status_code == 200 for each in answers) >= 3
            assert any(limited(each) for each in answers), "ten requests of one document would have passed"
        _, text = await rig.token(Role.OPERATOR)
        async with rig.client(text) as client:
            many = [{"body": {**documents[0]["body"], "name": f"g-{number}"}} for number in range(1000)]
            answer = await client.post("/api/v1/apply", json={"dry_run": True, "documents": many})
            assert answer.status_code == 200, "a set of any size passes alone, however small the burst"


async def test_a_change_that_many_groups_inherit_counts_as_several_requests(data: pathlib.Path) -> None:
    base = {"name": "base", "abstract": True, "command": ["a"]}
    heirs = [{"name": f"g-{number}", "parent": "base"} for number in range(100)]
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=20)) as rig:
        _, text = await rig.token(Role.OPERATOR)
        async with rig.client() as admin, rig.client(text) as client:
            made = await admin.post(
                "/api/v1/apply", json={"documents": [{"body": each} for each in (base, *heirs)]}
            )
            made.raise_for_status()
            change = {"args": ["b"]}
            asked = (client.patch("/api/v1/groups/base?dry_run=true", json=change) for _ in range(10))
            answers = await asyncio.gather(*asked)
            assert sum(each.status_code == 200 for each in answers) >= 3
            assert any(limited(each) for each in answers), "ten changes of one group would have passed"


async def test_a_document_with_many_patterns_counts_as_several_requests(data: pathlib.Path) -> None:
    kind = {"file": "a.txt", "format": "text", "op": "regex", "value": "v"}
    patches = [{**kind, "path": f"^{number}"} for number in range(400)]
    document = {"name": "lobby", "command": ["a"], "patches": patches}
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=30)) as rig:
        _, text = await rig.token(Role.OPERATOR)
        async with rig.client(text) as client:
            asked = (client.post("/api/v1/groups?dry_run=true", json=document) for _ in range(4))
            answers = await asyncio.gather(*asked)
            assert any(each.status_code == 200 for each in answers)
            assert any(limited(each) for each in answers), "by their bytes all would pass"


async def test_an_address_whose_credentials_are_no_good_is_told_to_wait(data: pathlib.Path) -> None:
    async with http_rig(data, limits=HttpLimitsSection()) as rig, rig.client("corral_guess") as guesser:
        answers: set[int] = set()

        async def told_to_wait() -> bool:
            """Many at once: one by one, on a busy machine, they may come no faster than is allowed."""
            asked = [guesser.get("/api/v1/auth/me") for _ in range(40)]
            answers.update(answer.status_code for answer in await asyncio.gather(*asked))
            return 429 in answers

        await eventually(told_to_wait)
        assert answers == {401, 429}
        async with rig.client() as admin:
            assert (await admin.get("/api/v1/auth/me")).status_code == 200


async def test_who_hangs_up_gives_his_places_back(rig: Rig) -> None:
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(rig.client())
        for _ in range(3):
            await stack.enter_async_context(following(client))
        await eventually(lambda: len(rig.leading.streams) == 3)
    await eventually(lambda: len(rig.leading.streams) == 0)
