"""The event stream: live, replayed, filtered, with tickets, and honest about what it lost."""

from __future__ import annotations

import pathlib
import sqlite3
from typing import Any

import httpx
import pytest
from http_rig import Rig, http_rig
from sse_client import following

from corral.domain.events import OMITTED, Cursor, Draft, EventType
from corral.domain.permissions import Role
from corral.store.engine_selection import open_store
from corral.store.leadership import Leadership
from corral.store.port import Transaction
from corral.store.retention import Retention, RetentionPolicy
from corral.system.clock import SystemClock

STREAM = "/api/v1/events/stream"


def subjects(frames: list) -> list[str]:  # type: ignore[type-arg]
    return [frame.data["subject"] for frame in frames]


async def test_an_event_arrives_with_its_id_its_type_and_its_shape(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    async with following(client) as reader:
        opening = await reader.frame()
        assert (opening.comment, opening.id) == ("following", str(rig.hub.head))
        commit = await rig.happen("node-1", code="X")
        frame = await reader.event()
    (event,) = commit.events
    assert (frame.id, frame.event) == (str(event.cursor), "NODE_ERROR_REPORTED")
    assert frame.data == {
        "id": str(event.cursor),
        "type": "NODE_ERROR_REPORTED",
        "subject": "node-1",
        "at": event.at.isoformat().replace("+00:00", "Z"),
        "data": {"code": "X"},
    }
    assert reader.response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reader.response.headers["cache-control"] == "no-store"


async def test_a_stream_is_replayed_from_a_cursor_and_goes_on_live(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    commits = [await rig.happen(f"n-{number}") for number in range(5)]
    after = str(commits[1].events[0].cursor)
    async with following(client, params={"after": after}) as reader:
        assert subjects(await reader.events(3)) == ["n-2", "n-3", "n-4"]
        await rig.happen("live")
        assert subjects(await reader.events(1)) == ["live"]
    resumed = {"Last-Event-ID": after}
    async with following(client, params={"after": "0-0"}, headers=resumed) as reader:
        assert subjects(await reader.events(3)) == ["n-2", "n-3", "n-4"], "the header knows better"


async def test_a_reader_that_fell_out_of_the_ring_gets_the_rest_from_the_log(data: pathlib.Path) -> None:
    async with http_rig(data, ring_events=4) as rig, rig.client() as client:
        for number in range(700):
            await rig.happen(f"n-{number}")
        wanted = {"after": "0-0", "types": "NODE_ERROR_REPORTED"}
        async with following(client, params=wanted) as reader:
            assert subjects(await reader.events(700)) == [f"n-{number}" for number in range(700)]
            await rig.happen("live")
            assert subjects(await reader.events(1)) == ["live"]


async def test_a_ring_is_bounded_by_bytes_too(data: pathlib.Path) -> None:
    async with http_rig(data, ring_bytes=4096) as rig, rig.client() as client:
        for number in range(20):
            await rig.happen(f"n-{number}", context="x" * 1000)
        assert rig.hub.ring.bytes <= 4096
        assert 1 <= len(rig.hub.ring) <= 3
        await rig.happen("huge", context="x" * 10_000)
        async with following(client, params={"after": "0-0", "subject": "huge"}) as reader:
            assert subjects(await reader.events(1)) == ["huge"]


async def trim(rig: Rig, through: int) -> None:
    epoch = rig.writer.epoch
    while await rig.store.commits.trim(
        epoch=epoch, events_through=through, tombstones_through=0, journals=()
    ):
        pass


@pytest.mark.trap("T85")
@pytest.mark.parametrize("types", [None, "MODULE_EVENT,NODE_ERROR_REPORTED", "NODE_ERROR_REPORTED"])
async def test_a_reader_who_wants_events_of_modules_is_told_where_some_were_dropped(
    data: pathlib.Path, types: str | None
) -> None:
    async with http_rig(data, ring_events=2) as rig, rig.client() as client:
        first = (await rig.happen("first")).events[0].cursor
        told = Draft(type=EventType.MODULE_EVENT, subject="loud/X", data={})
        await rig.ledger.commit(*[told] * 5)
        await rig.happen("second")
        await rig.happen("third")
        policy = RetentionPolicy(module_events=1)
        await Retention(rig.store, epoch=rig.writer.epoch, policy=policy).apply()
        query = {"after": str(first), **({"types": types} if types else {})}
        async with following(client, params=query) as reader:
            frames = await reader.events(4 if types != "NODE_ERROR_REPORTED" else 2)
        shown = [frame.event for frame in frames]
        if types == "NODE_ERROR_REPORTED":
            assert shown == ["NODE_ERROR_REPORTED"] * 2
        else:
            assert shown == ["RESYNC_REQUIRED", "MODULE_EVENT", *["NODE_ERROR_REPORTED"] * 2]


async def test_a_cursor_the_log_no_longer_holds_is_told_to_resync_once_and_goes_on_live(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, ring_events=4) as rig, rig.client() as client:
        first = (await rig.happen("first")).events[0].cursor
        for number in range(20):
            await rig.happen(f"n-{number}")
        await trim(rig, through=rig.hub.head.sequence - 2)
        async with following(client, params={"after": str(first)}) as reader:
            frame = await reader.event()
            assert (frame.event, frame.id) == ("RESYNC_REQUIRED", str(rig.hub.head))
            assert frame.data is not None
            assert frame.data["data"] == {"after": str(first)}
            await rig.happen("live")
            assert subjects(await reader.events(1)) == ["live"]


@pytest.mark.parametrize("shift", [Cursor(0, 100_000), Cursor(7, 0)], ids=["ahead", "another epoch"])
async def test_a_cursor_of_another_log_is_told_to_resync(
    client: httpx.AsyncClient, rig: Rig, shift: Cursor
) -> None:
    await rig.happen("n")
    head = rig.hub.head
    strange = Cursor(head.epoch + shift.epoch, head.sequence + shift.sequence)
    async with following(client, params={"after": str(strange)}) as reader:
        assert (await reader.event()).event == "RESYNC_REQUIRED"


async def test_a_stream_is_filtered_by_type_and_subject(client: httpx.AsyncClient, rig: Rig) -> None:
    wanted = {"types": "NODE_CORDONED,NODE_UNCORDONED", "subject": "b"}
    for name in ("a", "b"):
        await rig.node(name)
    async with following(client, params=wanted) as reader:
        await rig.happen("b")
        for name in ("a", "b"):
            await client.post(f"/api/v1/nodes/{name}/cordon")
        frame = await reader.event()
        assert (frame.event, frame.data and frame.data["subject"]) == ("NODE_CORDONED", "b")


async def test_a_quiet_stream_has_a_heartbeat_that_moves_the_position(data: pathlib.Path) -> None:
    async with (
        http_rig(data, heartbeat_seconds=0.05) as rig,
        rig.client() as client,
        following(client, params={"subject": "nothing-of-this"}) as reader,
    ):
        await rig.happen("other")
        frame = await reader.frame()
        while frame.id != str(rig.hub.head):
            frame = await reader.frame()
        assert (frame.comment, frame.data) == ("heartbeat", None)


WRONG_STREAMS = [
    ("types=NODE_ONLIN", "UNKNOWN_EVENT_TYPE", "types"),
    ("types=NODE_ONLINE,,", "UNKNOWN_EVENT_TYPE", "types"),
    ("after=5", "INVALID_CURSOR", "after"),
    ("after=01-1", "INVALID_CURSOR", "after"),
    ("after=1-9999999999999999999", "INVALID_CURSOR", "after"),
    ("typos=x", "UNKNOWN_FIELD", "typos"),
]


async def test_a_wrong_stream_is_refused_before_it_begins(client: httpx.AsyncClient) -> None:
    for query, code, field in WRONG_STREAMS:
        for path in (STREAM, "/api/v1/events"):
            error = (await client.get(f"{path}?{query}")).json()["error"]
            assert (error["code"], error["field"]) == (code, field), query
        assert "NODE_ONLINE" in (await client.get(f"{STREAM}?types=NODE_ONLIN")).json()["error"]["hint"], (
            query
        )


async def test_a_wrong_last_event_id_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get(STREAM, headers={"Last-Event-ID": "x"})
    assert answer.json()["error"]["code"] == "INVALID_CURSOR"


# lists


async def test_events_are_listed_oldest_first_in_pages(client: httpx.AsyncClient, rig: Rig) -> None:
    for number in range(7):
        await rig.happen(f"n-{number}")
    seen: list[str] = []
    after = ""
    while True:
        query = {"types": "NODE_ERROR_REPORTED", "limit": 3, "after": after}
        page = (await client.get("/api/v1/events", params=query)).json()
        seen += [item["subject"] for item in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]
    assert seen == [f"n-{number}" for number in range(7)]


async def test_a_list_from_a_cursor_that_is_gone_says_so_and_without_one_begins_with_what_is_left(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, ring_events=4) as rig, rig.client() as client:
        first = (await rig.happen("first")).events[0].cursor
        for number in range(10):
            await rig.happen(f"n-{number}")
        await trim(rig, through=rig.hub.head.sequence - 4)
        answer = await client.get("/api/v1/events", params={"after": str(first)})
        assert (answer.status_code, answer.json()["error"]["code"]) == (410, "RESYNC_REQUIRED")
        items = (await client.get("/api/v1/events")).json()["items"]
        assert [item["subject"] for item in items] == ["n-6", "n-7", "n-8", "n-9"]


# tickets


async def test_a_ticket_opens_one_stream(client: httpx.AsyncClient, rig: Rig) -> None:
    ticket = (await client.post("/api/v1/events/tickets")).json()["ticket"]
    async with rig.client("") as browser:
        async with following(browser, params={"ticket": ticket}) as reader:
            await reader.frame()
            await rig.happen("seen")
            assert subjects(await reader.events(1)) == ["seen"]
        again = await browser.get(STREAM, params={"ticket": ticket})
        assert (again.status_code, again.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
        other = await browser.get("/api/v1/nodes", params={"ticket": "x"})
        assert other.status_code == 401


async def test_a_ticket_dies_with_its_token(client: httpx.AsyncClient, rig: Rig) -> None:
    id, text = await rig.token(Role.VIEWER)
    async with rig.client(text) as viewer:
        ticket = (await viewer.post("/api/v1/events/tickets")).json()["ticket"]
    await client.delete(f"/api/v1/tokens/{id}")
    async with rig.client("") as browser:
        answer = await browser.get(STREAM, params={"ticket": ticket})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")


async def test_a_wrong_ticket_is_refused(rig: Rig) -> None:
    async with rig.client("") as browser:
        for ticket in ("x", "é"):
            answer = await browser.get(STREAM, params={"ticket": ticket})
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")


async def _poisoned(data: pathlib.Path) -> None:
    """A log with rows of another version: one as deep as a parser goes, one that is no JSON, one of a type
    that nobody knows; and good ones around them."""
    deep: list[Any] = []
    for _ in range(900):
        deep = [deep]
    drafts = [
        Draft(type=EventType.MODULE_EVENT, subject=subject, data={"a": deep if subject == "deep" else 1})
        for subject in ("first", "deep", "garbage", "newer", "last")
    ]
    store = await open_store("sqlite", data=data)
    term = await Leadership(store.leases, clock=SystemClock(), holder="poison", uncontested=True).acquire()
    await store.commits.commit_batch(
        epoch=term.epoch,
        batch="poison",
        at=SystemClock().now(),
        transactions=[Transaction(events=tuple(drafts))],
    )
    await store.close()
    with sqlite3.connect(data / "corral.db") as database:
        database.execute("UPDATE event SET data = ? WHERE subject = 'garbage'", (b'{"a": \xff',))
        database.execute("UPDATE event SET type = 'FROM_THE_FUTURE' WHERE subject = 'newer'")
    database.close()


async def test_events_under_names_that_their_types_had_are_found_by_either_name(data: pathlib.Path) -> None:
    rebound = {"id": "demo.x", "version": "1.0.0", "provider": "base"}
    async with http_rig(data) as rig:
        for subject in ("older", "newer"):
            await rig.ledger.commit(Draft(type=EventType.CAPABILITY_REBOUND, subject=subject, data=rebound))
    with sqlite3.connect(data / "corral.db") as database:
        database.execute("UPDATE event SET type = 'CAPABILITY_SWAPPED' WHERE subject = 'older'")
    database.close()
    async with http_rig(data) as rig, rig.client() as client:
        for name in ("CAPABILITY_REBOUND", "CAPABILITY_SWAPPED"):
            found = (await client.get("/api/v1/events", params={"types": name})).json()["items"]
            assert [(each["subject"], each["type"]) for each in found] == [
                ("older", "CAPABILITY_REBOUND"),
                ("newer", "CAPABILITY_REBOUND"),
            ]


@pytest.mark.trap("T81")
async def test_poisoned_rows_of_the_log_are_served_with_stand_ins_in_lists_and_streams(
    data: pathlib.Path,
) -> None:
    await _poisoned(data)
    async with http_rig(data) as rig, rig.client() as client:
        listed = (await client.get("/api/v1/events")).raise_for_status().json()["items"][:5]
        newest = (
            (await client.get("/api/v1/events", params={"newest": True})).raise_for_status().json()["items"]
        )
        async with following(client, params={"after": "0-0"}) as reader:
            streamed = [frame.data for frame in await reader.events(5)]
        assert listed == streamed == newest[:5]
    assert [item["subject"] for item in listed] == ["first", "deep", "garbage", "newer", "last"]
    assert [OMITTED in item["data"] for item in listed] == [False, True, True, True, False]
    assert (listed[3]["type"], listed[3]["data"]["type"]) == ("EVENT_UNREADABLE", "FROM_THE_FUTURE")
