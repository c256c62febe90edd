"""Which events, and what of them, a caller gets: the same on every way to them, live or replayed, from memory or the log."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import json
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from http_rig import Rig, http_rig
from sse_client import SseClient, following

from corral.controller.instances.decision_entries import decision_entries
from corral.domain.decisions import DecisionKind
from corral.domain.events import Cursor, Draft, EventType
from corral.domain.groups.instance_records import DecisionRecord
from corral.domain.ids import DecisionId, Epoch
from corral.domain.permissions import Role
from corral.domain.sensitive_fields import HIDDEN

MARK = "hunter2"
LAST = "the last one"
STREAM = "/api/v1/events/stream"

HAPPENED = (
    Draft(
        type=EventType.INSTANCE_COMMAND,
        subject="lobby-1",
        data={"line": f"login {MARK} lobby", "group": "lobby", "node": "node-1"},
    ),
    Draft(
        type=EventType.INSTANCE_COMMAND,
        subject="arena-2",
        data={"line": f"login {MARK} arena", "group": "arena", "node": "node-2"},
    ),
    Draft(type=EventType.GROUP_SCALED, subject="lobby", data={"from": 1, "to": 2}),
    Draft(type=EventType.GROUP_SCALED, subject="arena", data={"from": 1, "to": 2}),
    Draft(type=EventType.NODE_ERROR_REPORTED, subject="node-1", data={"code": "X", "message": f"at {MARK}"}),
    Draft(type=EventType.NODE_ERROR_REPORTED, subject="node-2", data={"code": "X", "message": f"at {MARK}"}),
    Draft(
        type=EventType.INSTANCE_CRASHED,
        subject="lobby-1",
        data={"group": "lobby", "node": "node-1", "reason": f"see https://bob:{MARK}@host.example/x"},
    ),
    Draft(type=EventType.DEPLOYMENT_CREATED, subject="dep-1", data={"group": "lobby", "target": 2}),
    Draft(type=EventType.DEPLOYMENT_CREATED, subject="dep-2", data={"group": "arena", "target": 2}),
    Draft(type=EventType.CRASH_LOOP_STARTED, subject="arena", data={"pauses": 1}),
    Draft(
        type=EventType.CATALOG_UPDATED,
        subject="paper/1",
        data={"url": f"https://bob:{MARK}@host.example/a.jar"},
    ),
    Draft(
        type=EventType.MODULE_EVENT,
        subject="shop/SOLD",
        data={"module": "shop", "type": "SOLD", "data": {"to": "arena"}},
    ),
    Draft(type=EventType.TOKEN_CREATED, subject="tok-1", data={"name": "t", "role": "ADMIN"}),
    Draft(type=EventType.USER_CREATED, subject="eve", data={"bindings": []}),
    Draft(type=EventType.ROLE_CREATED, subject="more", data={"permissions": []}),
    Draft(type=EventType.SESSION_ENDED, subject="ses-1", data={"user": "eve", "reason": "logout"}),
    Draft(type=EventType.JOIN_TOKEN_CREATED, subject="join-1", data={"node_id": "node-3"}),
)
ACCOUNTS = {"TOKEN_CREATED", "USER_CREATED", "ROLE_CREATED", "SESSION_ENDED", "JOIN_TOKEN_CREATED"}
OF_LOBBY = {
    ("INSTANCE_COMMAND", "lobby-1"),
    ("GROUP_SCALED", "lobby"),
    ("INSTANCE_CRASHED", "lobby-1"),
    ("DEPLOYMENT_CREATED", "dep-1"),
}
OF_NODE_1 = {
    ("INSTANCE_COMMAND", "lobby-1"),
    ("INSTANCE_CRASHED", "lobby-1"),
    ("NODE_ERROR_REPORTED", "node-1"),
}
EVERYTHING = {(each.type.value, each.subject) for each in HAPPENED}
NO_ACCOUNTS = {each for each in EVERYTHING if each[0] not in ACCOUNTS}

Got = list[dict[str, Any]]
Way = Callable[[Rig, httpx.AsyncClient], Awaitable[Got]]


async def happen(rig: Rig) -> Cursor:
    """Everything, and last what each of the callers gets; the cursor before it."""
    before = rig.hub.head
    await rig.ledger.commit(*HAPPENED)
    ends = [
        Draft(type=EventType.GROUP_SCALED, subject="lobby", data={"rule": LAST}),
        Draft(type=EventType.NODE_CORDONED, subject="node-1", data={"reason": LAST}),
    ]
    await rig.ledger.commit(*ends)
    return before


def is_last(event: dict[str, Any]) -> bool:
    return LAST in json.dumps(event)


async def read(stream: SseClient) -> Got:
    found: Got = []
    while not found or not is_last(found[-1]):
        data = (await stream.event()).data
        assert data is not None
        found.append(data)
    return found


async def listed(rig: Rig, client: httpx.AsyncClient, **query: Any) -> Got:
    found: Got = []
    params: dict[str, Any] = {"limit": 3, **query}
    while True:
        page = (await client.get("/api/v1/events", params=params)).json()
        found += page["items"]
        if page["next"] is None:
            return found
        params["after"] = page["next"]


async def from_list(rig: Rig, client: httpx.AsyncClient) -> Got:
    return await listed(rig, client, after=str(await happen(rig)))


async def from_newest(rig: Rig, client: httpx.AsyncClient) -> Got:
    await happen(rig)
    answer = await client.get("/api/v1/events", params={"newest": True, "limit": 30})
    found: Got = answer.json()["items"]
    return found


async def from_live_stream(rig: Rig, client: httpx.AsyncClient) -> Got:
    async with following(client) as stream:
        await stream.frame()
        reading = asyncio.create_task(read(stream))
        await happen(rig)
        return await reading


async def from_after(rig: Rig, client: httpx.AsyncClient) -> Got:
    before = await happen(rig)
    async with following(client, params={"after": str(before)}) as stream:
        return await read(stream)


async def from_last_event_id(rig: Rig, client: httpx.AsyncClient) -> Got:
    before = await happen(rig)
    async with following(client, headers={"Last-Event-ID": str(before)}) as stream:
        return await read(stream)


async def from_ticket(rig: Rig, client: httpx.AsyncClient) -> Got:
    before = await happen(rig)
    ticket = (await client.post("/api/v1/events/tickets")).json()["ticket"]
    asked = {"ticket": ticket, "after": str(before)}
    async with rig.client("") as browser, following(browser, params=asked) as stream:
        return await read(stream)


WAYS: dict[str, tuple[Way, int]] = {
    "list": (from_list, 1000),
    "newest of the list": (from_newest, 1000),
    "live stream": (from_live_stream, 1000),
    "after a cursor": (from_after, 1000),
    "after Last-Event-ID": (from_last_event_id, 1000),
    "by a ticket": (from_ticket, 1000),
    "after a cursor, from the log": (from_after, 2),
    "after Last-Event-ID, from the log": (from_last_event_id, 2),
}
"""With how many events are in memory."""


@contextlib.asynccontextmanager
async def caller(rig: Rig, name: str) -> AsyncIterator[httpx.AsyncClient]:
    match name:
        case "VIEWER" | "OPERATOR" | "ADMIN":
            _, text = await rig.token(Role(name))
        case "lobby":
            _, text = await rig.token(Role.OPERATOR, scope={"groups": ["lobby"]})
        case "viewer of lobby":
            _, text = await rig.token(Role.VIEWER, scope={"groups": ["lob*"]})
        case "node-1":
            _, text = await rig.token(Role.ADMIN, scope={"nodes": ["node-1"]})
        case "both":
            _, text = await rig.token(Role.ADMIN, scope={"groups": ["lobby"], "nodes": ["node-1"]})
        case "mixed":
            some = {"role": "ADMIN", "scope": {"groups": ["lobby"]}}
            user = {"name": "eva", "bindings": [{"role": "VIEWER"}, some]}
            async with rig.client() as admin:
                assert (await admin.post("/api/v1/users", json=user)).status_code == 201
            _, text = await rig.token(Role.ADMIN, owner="eva")
    async with rig.client(text) as made:
        yield made


CALLERS: dict[str, tuple[set[tuple[str, str]], bool]] = {
    "VIEWER": (NO_ACCOUNTS, False),
    "OPERATOR": (NO_ACCOUNTS, True),
    "ADMIN": (EVERYTHING, True),
    "lobby": (OF_LOBBY, True),
    "viewer of lobby": (OF_LOBBY, False),
    "node-1": (OF_NODE_1, True),
    "both": (OF_LOBBY | OF_NODE_1, True),
    "mixed": (NO_ACCOUNTS, False),
}
"""What each gets, and whether it sees what is sensitive in it."""


@pytest.mark.trap("T91")
@pytest.mark.parametrize("way", WAYS)
async def test_who_gets_which_events_is_the_same_on_every_way(data: pathlib.Path, way: str) -> None:
    get, ring_events = WAYS[way]
    async with http_rig(data, ring_events=ring_events) as rig:
        for name, (expected, sees_all) in CALLERS.items():
            async with caller(rig, name) as client:
                found = [each for each in await get(rig, client) if not is_last(each)]
            ours = [each for each in found if (each["type"], each["subject"]) in EVERYTHING]
            assert {(each["type"], each["subject"]) for each in ours} == expected, name
            marked = [each for each in ours if MARK in json.dumps(each)]
            hidden = [each for each in ours if HIDDEN in json.dumps(each, ensure_ascii=False)]
            assert bool(marked) == sees_all, (name, marked)
            assert bool(hidden) != sees_all, name
            if name == "lobby":
                assert "arena" not in json.dumps(ours)


FILTERS: tuple[tuple[dict[str, str], set[tuple[str, str]]], ...] = (
    ({"group": "lobby"}, OF_LOBBY),
    ({"node": "node-1"}, OF_NODE_1),
)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "by a ticket"])
async def test_events_of_a_group_and_of_a_node_are_found_on_every_way(data: pathlib.Path, way: str) -> None:
    get, ring_events = WAYS[way]
    async with http_rig(data, ring_events=ring_events) as rig, caller(rig, "ADMIN") as client:
        for query, expected in FILTERS:
            client.params = httpx.QueryParams(query)
            found = [each for each in await get(rig, client) if not is_last(each)]
            assert {(each["type"], each["subject"]) for each in found} == expected, query


async def test_filters_hold_together_and_give_nothing_beyond_the_scope(rig: Rig) -> None:
    await happen(rig)
    both = {"group": "lobby", "node": "node-1", "types": "INSTANCE_CRASHED,GROUP_SCALED"}
    async with caller(rig, "ADMIN") as client:
        items = (await client.get("/api/v1/events", params=both)).json()["items"]
        assert [each["type"] for each in items] == ["INSTANCE_CRASHED"]
        joining = (await client.get("/api/v1/events", params={"node": "node-3"})).json()["items"]
        assert [each["type"] for each in joining] == ["JOIN_TOKEN_CREATED"]
    async with caller(rig, "lobby") as client:
        assert (await client.get("/api/v1/events", params={"group": "arena"})).json()["items"] == []


async def test_events_about_accounts_are_refused_to_who_asks_for_them_without_the_permission_everywhere(
    rig: Rig,
) -> None:
    for name in ["VIEWER", "OPERATOR", "lobby", "node-1", "mixed"]:
        async with caller(rig, name) as client:
            for path, type in itertools.product(["/api/v1/events", STREAM], ACCOUNTS):
                answer = await client.get(path, params={"types": f"GROUP_SCALED,{type}"})
                told = answer.status_code, answer.json()["error"]["code"]
                assert told == (403, "FORBIDDEN"), (name, path, type)


@pytest.mark.trap("T91")
async def test_the_causes_that_why_names_are_those_that_its_reader_may_have(rig: Rig) -> None:
    """An event about accounts, and one with a line that somebody typed, that led to a decision about a group."""
    await rig.group("lobby", min=0)
    made = [
        Draft(type=EventType.TOKEN_CREATED, subject="tok-1", data={"name": MARK}),
        Draft(
            type=EventType.NODE_CORDONED,
            subject="node-1",
            data={"reason": f"https://bob:{MARK}@host.example/x"},
        ),
    ]
    for number, draft in enumerate(made):
        event = (await rig.ledger.commit(draft)).events[0]
        decision = DecisionRecord(
            id=DecisionId(f"dec-{number}"),
            cause="x",
            kind=DecisionKind.SKIP,
            subject="lobby",
            reason="of that",
            epoch=Epoch(1),
            at=dt.datetime.now(dt.UTC),
            causes=(f"event:{event.cursor}",),
        )
        await rig.ledger.commit(*decision_entries(decision, group="lobby", instance=None))
        chains = {}
        for name in ("VIEWER", "ADMIN"):
            async with caller(rig, name) as client:
                chains[name] = json.dumps((await client.get("/api/v1/groups/lobby/why")).json()["chain"])
        assert draft.subject in chains["ADMIN"]
        assert MARK not in chains["VIEWER"]
        assert ("tok-1" in chains["VIEWER"], "node-1" in chains["VIEWER"]) == (False, number == 1)
