"""Commands and routes of modules with an Idempotency-Key: done once, whatever the store and the module do."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from http_rig import Rig, http_rig
from module_archives import module_zip

from corral.controller.http.pipeline.module_calls import KEPT_MAX
from corral.testing.failing_store import StoreFault
from corral.testing.waiting import eventually

COUNTING = """
    import asyncio
    import os

    from corral.sdk import CommandParameter, PlatformModule, Response


    class Counting(PlatformModule):
        def __init__(self):
            self.done = []
            self.released = asyncio.Event()

        def register_routes(self, routes):
            routes.post("/do/{how}", self.route, deadline_ms=1000)
            routes.post("/stream", self.stream, streams=True)
            routes.get("/done", lambda request: {"done": self.done})
            routes.get("/release", self.release)

        def register_commands(self, commands):
            commands.add("do", self.command, parameters=[CommandParameter("how")])

        async def health_check(self):
            return None

        async def route(self, request):
            body = await self.do(request.parameters["how"])
            return Response(status=201, body=body.encode(), headers={"X-Mine": "yes", "Content-Type": "text/plain"})

        async def command(self, invocation):
            return [await self.do(invocation.arguments[0])]

        async def stream(self, request):
            self.done.append("stream")
            async def pieces():
                yield b"piece"
            return Response.stream(pieces())

        def release(self, request):
            self.released.set()
            return {}

        async def do(self, how):
            self.done.append(how)
            if how == "wait":
                await self.released.wait()
            if how == "raise":
                raise RuntimeError("no")
            if how == "die":
                os._exit(7)
            if how == "sleep":
                await asyncio.sleep(60)
            return f"done {len(self.done)} " + "x" * (100_000 if how == "large" else 0)
"""

Do = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
async def rig(data: pathlib.Path) -> AsyncIterator[Rig]:
    async with http_rig(data, patience=0.2) as made:
        installed = await made.install(module_zip("counting", source=COUNTING, name="Counting"))
        assert installed["phase"] == "ACTIVE", installed
        yield made


@pytest.fixture(params=["command", "route"])
def do(request: pytest.FixtureRequest, client: httpx.AsyncClient) -> Do:
    async def call(how: str, key: str | None = "k-1") -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        if request.param == "route":
            return await client.post(f"/api/v1/modules/counting/do/{how}", headers=headers)
        return await client.post("/api/v1/commands/execute", json={"command": f"do {how}"}, headers=headers)

    return call


async def done(client: httpx.AsyncClient) -> list[str]:
    found: list[str] = (await client.get("/api/v1/modules/counting/done")).json()["done"]
    return found


async def until_waiting(client: httpx.AsyncClient) -> None:
    async def waits() -> bool:
        return await done(client) == ["wait"]

    await eventually(waits)


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def audits(rig: Rig) -> int:
    return len(await rig.audits("commands.execute")) + len(await rig.audits("modules.call"))


async def until_healthy(rig: Rig) -> None:
    await eventually(lambda: rig.writer.healthy, deadline=10)


async def test_a_call_is_done_once_and_answered_the_same(client: httpx.AsyncClient, rig: Rig, do: Do) -> None:
    first = await do("it")
    again = await do("it")
    assert first.status_code == again.status_code
    assert first.content == again.content
    assert first.headers.get("x-mine") == again.headers.get("x-mine")
    assert again.headers["idempotency-replayed"] == "true"
    assert (await done(client), await audits(rig)) == (["it"], 1)
    assert code(await do("other")) == (409, "IDEMPOTENCY_KEY_REUSED")
    await do("it", key=None)
    await do("it", key="k-2")
    assert (await done(client), await audits(rig)) == (["it"] * 3, 3)


@pytest.mark.trap("T70")
async def test_nothing_is_done_while_the_store_refuses_the_key(
    client: httpx.AsyncClient, rig: Rig, do: Do
) -> None:
    rig.store.commits.fail(StoreFault.BEFORE)
    assert code(await do("it")) == (503, "STORE_UNAVAILABLE")
    assert await done(client) == []
    await until_healthy(rig)
    assert (await do("it")).is_success
    assert await done(client) == ["it"]


async def test_a_call_that_was_refused_while_nobody_knew_what_the_store_did_is_done_later(
    client: httpx.AsyncClient, rig: Rig, do: Do
) -> None:
    rig.store.commits.fail(StoreFault.AFTER)
    rig.store.commits.fail_resolving(times=1_000_000)
    refused = await do("it")
    assert code(refused) == (503, "STORE_UNAVAILABLE")
    rig.store.commits.let_resolve()
    await until_healthy(rig)
    assert len(list(rig.state.idempotency)) == 1, "the key was stored as begun"
    assert (await do("it")).is_success
    assert (await do("it")).headers["idempotency-replayed"] == "true"
    assert await done(client) == ["it"]
    assert not rig.leading.attempts.never_acted


@pytest.mark.trap("T70")
async def test_a_call_whose_answer_could_not_be_stored_may_have_been_done(
    client: httpx.AsyncClient, rig: Rig, do: Do
) -> None:
    calling = asyncio.create_task(do("wait"))
    await until_waiting(client)
    rig.store.commits.fail(StoreFault.BEFORE)
    await client.get("/api/v1/modules/counting/release")
    assert (await calling).is_success, "it was done, and that is what the caller is told"
    await until_healthy(rig)
    for _ in range(2):
        refused = await do("wait")
        assert code(refused) == (409, "MAY_HAVE_ARRIVED")
        assert "may have been done" in refused.json()["error"]["message"]
    assert await done(client) == ["wait"]


async def test_a_failure_of_the_module_is_the_answer_to_its_key(
    client: httpx.AsyncClient, rig: Rig, do: Do
) -> None:
    first = await do("raise")
    again = await do("raise")
    assert code(first) == code(again) == (502, "MODULE_FAILED")
    assert again.headers["idempotency-replayed"] == "true"
    assert await done(client) == ["raise"]


async def test_a_call_in_which_the_module_died_may_have_been_done(
    client: httpx.AsyncClient, rig: Rig, do: Do
) -> None:
    assert code(await do("die")) == (503, "MODULE_NOT_ACTIVE")

    async def back() -> bool:
        return (await client.get("/api/v1/modules/counting/done")).status_code == 200

    await eventually(back, deadline=20)
    assert code(await do("die")) == (409, "MAY_HAVE_ARRIVED")
    assert await done(client) == []


async def test_a_call_that_did_not_reach_the_module_may_be_tried_again(
    client: httpx.AsyncClient, rig: Rig, do: Do
) -> None:
    assert (await client.post("/api/v1/modules/counting/deactivate")).status_code == 200
    assert (await do("it")).status_code >= 400
    assert (await client.post("/api/v1/modules/counting/activate")).status_code == 200
    assert (await do("it")).is_success
    assert await done(client) == ["it"]


async def test_a_route_that_takes_too_long_is_not_called_again(client: httpx.AsyncClient, rig: Rig) -> None:
    headers = {"Idempotency-Key": "k-1"}
    for _ in range(2):
        late = await client.post("/api/v1/modules/counting/do/sleep", headers=headers)
        assert code(late) == (504, "MODULE_TIMEOUT")
    assert await done(client) == ["sleep"]


async def test_a_keyed_call_goes_on_when_its_caller_leaves_and_answers_the_next_one(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    headers = {"Idempotency-Key": "k-1"}
    leaving = asyncio.create_task(client.post("/api/v1/modules/counting/do/wait", headers=headers))
    await until_waiting(client)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await client.get("/api/v1/modules/counting/release")
    again = await client.post("/api/v1/modules/counting/do/wait", headers=headers)
    assert (again.status_code, again.text.strip()) == (201, "done 1")
    assert await done(client) == ["wait"]


async def test_an_answer_that_is_not_kept_is_said_to_have_been_given(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    assert KEPT_MAX < 100_000
    for path in ("do/large", "stream"):
        headers = {"Idempotency-Key": path}
        first = await client.post(f"/api/v1/modules/counting/{path}", headers=headers)
        assert first.is_success
        again = await client.post(f"/api/v1/modules/counting/{path}", headers=headers)
        assert code(again) == (409, "ANSWER_NOT_KEPT")
    assert await done(client) == ["large", "stream"]
