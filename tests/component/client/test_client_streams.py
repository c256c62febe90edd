"""Streams across cuts: nothing is lost, nothing comes twice; and what ends one for good."""

from __future__ import annotations

import asyncio

import pytest
from callers import calling
from scripted_server import ScriptedServer, answer, refused

from corral.client import InvalidAnswer, Unauthorized, UnknownData, models
from corral.testing.cluster import LocalController
from corral.testing.fault_proxy import FaultProxy
from corral.testing.waiting import eventually

HEAD = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n\r\n"
MANY = 60


def event(number: int, type: str = "NODE_CORDONED", data: str = '{"reason": "x"}') -> bytes:
    text = f'{{"id":"1-{number}","type":"{type}","subject":"n","at":"2026-01-01T00:00:00Z","data":{data}}}'
    return f"id: 1-{number}\nevent: {type}\ndata: {text}\n\n".encode()


async def test_events_across_cuts_are_neither_lost_nor_doubled(kind, controller: LocalController):
    address = controller.url.removeprefix("http://")
    async with (
        FaultProxy(address) as proxy,
        calling(kind, f"http://{proxy.address}", token=controller.admin_token) as caller,
    ):
        wanted = [f"t{number}" for number in range(MANY)]
        start = asyncio.Event()

        async def disturb() -> None:
            await start.wait()
            for number, name in enumerate(wanted):
                await controller.call("POST", "/api/v1/tokens", {"name": name, "role": "VIEWER"})
                if number % 7 == 3:
                    before = proxy.connections
                    await proxy.cut(refuse=False)
                    if number % 2:  # the others are made while it is away
                        await eventually(lambda before=before: proxy.connections > before)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(disturb())
            follow = tasks.create_task(
                caller.items(
                    lambda corral: corral.events.stream(types=["TOKEN_CREATED"], after="0-0"), most=MANY + 1
                )
            )
            await eventually(lambda: proxy.connections)
            start.set()
        found = [each.data.name for each in follow.result() if isinstance(each, models.TokenCreatedEvent)]
    assert [name for name in found if name in wanted] == wanted
    assert proxy.connections > 4, "it was cut, and came back"


async def test_a_stream_goes_on_after_its_last_id_and_forgets_where_it_began(kind):
    cut = event(3)[:-5]
    steps = [HEAD + event(1) + event(2) + cut, refused(503, "NOT_LEADER"), HEAD + event(3)]
    async with (
        ScriptedServer(steps, closes=True) as server,
        calling(kind, server.url) as caller,
    ):
        found = await caller.items(lambda corral: corral.events.stream(after="1-0", group="g"), most=3)
    assert [each.id for each in found] == ["1-1", "1-2", "1-3"]
    first, *others = server.asked
    assert "after=1-0" in first.line
    assert "last-event-id" not in first.headers
    assert [asked.headers["last-event-id"] for asked in others] == ["1-2", "1-2"]
    assert all("after" not in asked.line and "group=g" in asked.line for asked in others)


async def test_a_position_without_data_moves_the_stream(kind):
    steps = [HEAD + b": heartbeat\nid: 1-8\n\n", HEAD + event(9)]
    async with ScriptedServer(steps, closes=True) as server, calling(kind, server.url) as caller:
        found = await caller.items(lambda corral: corral.events.stream(last_event_id="1-5"), most=1)
    assert [each.id for each in found] == ["1-9"]
    assert [asked.headers["last-event-id"] for asked in server.asked] == ["1-5", "1-8"]


async def test_an_event_of_a_later_version_is_shown_as_unknown(kind):
    steps = [HEAD + event(1, "MOON_ROSE", '{"phase": 3}') + event(2)]
    async with ScriptedServer(steps, closes=True) as server, calling(kind, server.url) as caller:
        unknown, known = await caller.items(lambda corral: corral.events.stream(), most=2)
    assert isinstance(unknown, UnknownData)
    assert (unknown.event, unknown.data["data"]) == ("MOON_ROSE", {"phase": 3})
    assert isinstance(known, models.NodeCordonedEvent)


async def test_a_refusal_ends_a_stream_for_good(kind):
    steps = [HEAD + event(1), refused(401, "TOKEN_INVALID")]
    async with ScriptedServer(steps, closes=True) as server, calling(kind, server.url) as caller:
        with pytest.raises(Unauthorized):
            await caller.items(lambda corral: corral.events.stream())


async def test_what_is_no_stream_is_refused(kind):
    async with ScriptedServer([answer(200, {})]) as server, calling(kind, server.url) as caller:
        with pytest.raises(InvalidAnswer, match="no text/event-stream"):
            await caller.items(lambda corral: corral.events.stream())


async def test_a_frame_without_an_end_is_bounded(kind):
    steps = [HEAD + event(1) + b"data: " + b"x" * (9 * 1024 * 1024)]
    async with ScriptedServer(steps, closes=True) as server, calling(kind, server.url) as caller:
        with pytest.raises(InvalidAnswer):
            await caller.items(lambda corral: corral.events.stream())
    assert len(server.asked) == 1, "opened again it would get the same frame"
