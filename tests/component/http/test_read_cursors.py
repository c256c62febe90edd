"""`Corral-Cursor`: an answer, and all events after its cursor, make the state, whatever is written meanwhile."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
import msgspec
import pytest
from http_rig import Rig, http_rig
from sse_client import following

from corral.controller.events.hub import EventHub
from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.messages.paging import Page
from corral.controller.http.openapi import describe
from corral.controller.http.pipeline.route_table import Read
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.resources.instances.instance_schemas import (
    InstanceShape,
    InstanceView,
    instance_shape,
)
from corral.controller.http.routes import ROUTES
from corral.domain.events import START, Cursor
from corral.domain.permissions import Permission
from corral.store.port import Commit

INSTANCES = 4
WRITES = 120
READS = 12
SLOW = "/api/v1/slow-instances"
Revisions = dict[str, int]


async def read_slowly(view: InstanceView, hub: EventHub, call: ApiCall[None, NoQuery]) -> Page[InstanceShape]:
    """Lets something happen after it has read an instance, as what waits for a store or a node in between does."""
    del call
    items = []
    for id in list(view.state.instances.ids()):
        items.append(instance_shape(view, view.state.instances.require(id)))
        await hub.wakeup.wait(timeout=0.01)
    return Page(items=items, next=None)


SLOW_ROUTE = Read(
    method="GET",
    path=SLOW,
    permission=Permission.INSTANCES_READ,
    scope=Scoping.FILTERS,
    summary="Instances, one after another",
    response=Page[InstanceShape],
    handler=read_slowly,
)


@pytest.fixture
async def busy(data: pathlib.Path) -> AsyncIterator[Rig]:
    async with http_rig(data, routes=(*ROUTES, SLOW_ROUTE)) as rig:
        for _ in range(INSTANCES):
            await rig.instance()
        yield rig


async def test_every_read_has_the_position_of_the_event_log(rig: Rig, client: httpx.AsyncClient) -> None:
    await rig.happen("node-1")
    plain = [r for r in ROUTES if isinstance(r, Read) and r.method == "GET" and not r.parameters]
    assert len(plain) > 20
    for route in plain:
        answer = await client.get(route.path)
        if answer.status_code == 200:
            assert answer.headers["corral-cursor"] == str(rig.hub.head), route.name
        head = await client.head(route.path)
        assert head.headers.get("corral-cursor") == answer.headers.get("corral-cursor"), route.name
    posted = await client.post("/api/v1/events/tickets")
    missing = await client.get("/api/v1/instances/nobody")
    assert not {"corral-cursor"} & {*posted.headers, *missing.headers}


@pytest.mark.parametrize(("path", "in_one_step"), [("/api/v1/instances", True), (SLOW, False)])
async def test_an_answer_and_the_events_after_its_cursor_make_the_state_while_it_is_written(
    busy: Rig, path: str, in_one_step: bool
) -> None:
    reads: list[tuple[Revisions, Cursor]] = []

    async def write(id: str) -> None:
        for number in range(WRITES):
            await busy.report(id, restarts=number + 1)

    async def read() -> None:
        async with busy.client() as client:
            for _ in range(READS):
                answer = await client.get(path)
                found = {item["id"]: item["revision"] for item in answer.json()["items"]}
                reads.append((found, Cursor.parse(answer.headers["corral-cursor"])))

    before = busy.hub.head
    async with asyncio.TaskGroup() as group:
        for id in list(busy.state.instances.ids()):
            group.create_task(write(id))
        for _ in range(3):
            group.create_task(read())
    after = busy.hub.head
    assert any(before < cursor < after for _, cursor in reads), "some were read while others wrote"
    commits = placed(busy.commits)
    final = folded({}, busy.commits)
    for found, cursor in reads:
        known = folded({}, (each for at, each in commits if at <= cursor))
        assert found == known if in_one_step else all(found[id] >= known[id] for id in known)
        later = [each for at, each in commits if at > cursor]
        assert folded(found, later) == final
        assert folded(folded(found, later), later) == final, "twice makes no difference"


async def test_a_stream_from_the_cursor_of_an_answer_brings_every_later_event_once(busy: Rig) -> None:
    ids = list(busy.state.instances.ids())
    async with busy.client() as client:
        writing = asyncio.gather(
            *(busy.report(id, restarts=n) for n in range(20) for id in ids[:1]), return_exceptions=True
        )
        answer = await client.get("/api/v1/instances")
        await writing
        cursor = Cursor.parse(answer.headers["corral-cursor"])
        await busy.report(ids[1], restarts=77)
        last = busy.hub.head
        seen: list[str] = []
        async with following(client, params={"after": str(cursor)}) as reader:
            while not seen or seen[-1] != str(last):
                seen.append((await reader.event()).id)
    assert seen == [str(e.cursor) for each in busy.commits for e in each.events if e.cursor > cursor]


def placed(commits: Iterable[Commit]) -> list[tuple[Cursor, Commit]]:
    """Commits with the position of the event log right after each."""
    found, at = [], START
    for commit in commits:
        at = commit.events[-1].cursor if commit.events else at
        found.append((at, commit))
    return found


def folded(known: Revisions, commits: Iterable[Commit]) -> Revisions:
    """What a page does with events: it takes the newer revision of each resource."""
    found = dict(known)
    for commit in commits:
        for change in commit.changes:
            if change.collection == "instances" and change.body is not None:
                found[change.id] = max(found.get(change.id, 0), change.revision)
    return found


def test_the_position_is_in_the_description() -> None:
    document: Any = msgspec.to_builtins(describe(ROUTES))
    listed = document["paths"]["/api/v1/instances"]
    assert "Corral-Cursor" in listed["get"]["responses"]["200"]["headers"]
    assert "headers" not in listed["post"]["responses"]["201"]
