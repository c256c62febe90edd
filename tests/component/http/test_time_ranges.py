"""`since` and `until`: lists of what happened, by time."""

from __future__ import annotations

import datetime as dt
from typing import Any

import httpx
import pytest
from http_rig import Rig

from corral.controller.http.messages.paging import MOST_MISPLACED, TimeRange
from corral.domain.events import Draft, EventType
from corral.domain.permissions import Role


async def _times(client: httpx.AsyncClient, path: str, **params: Any) -> list[str]:
    """Of every page, in the order in which they come."""
    found: list[str] = []
    position = "after" if path == "/api/v1/events" else "cursor"
    while True:
        page = (await client.get(path, params=params)).json()
        found += [item["at"] for item in page["items"]]
        if not page["next"]:
            return found
        params[position] = page["next"]


@pytest.mark.parametrize("path", ["/api/v1/events", "/api/v1/audit"])
async def test_a_range_of_time_holds_exactly_what_lies_in_it(
    client: httpx.AsyncClient, rig: Rig, path: str
) -> None:
    for number in range(12):
        await client.post("/api/v1/tokens", json={"name": f"t{number}", "role": "VIEWER"})
    everything = await _times(client, path)
    moments = sorted(set(everything))
    since, until = moments[3], moments[8]
    expected = [at for at in everything if since <= at < until]
    assert await _times(client, path, since=since, until=until, limit=2) == expected
    assert await _times(client, path, since=since) == [at for at in everything if at >= since]
    assert await _times(client, path, until=until, limit=3) == [at for at in everything if at < until]
    assert await _times(client, path, since="9000-01-01T00:00:00Z") == []
    refused = await client.get(path, params={"since": "yesterday"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "since")


async def test_the_newest_events_before_a_time(client: httpx.AsyncClient, rig: Rig) -> None:
    for number in range(8):
        await rig.happen(f"node-{number}")
    everything = await _times(client, "/api/v1/events")
    until = everything[-2]
    newest = await client.get("/api/v1/events", params={"newest": "true", "until": until, "limit": 3})
    assert [item["at"] for item in newest.json()["items"]] == [at for at in everything if at < until][-3:]


async def test_the_newest_events_before_a_time_are_found_however_many_came_right_behind_it(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    for number in range(3):
        await rig.happen(f"node-{number}")
    everything = await _times(client, "/api/v1/events")
    await rig.happen("node-3")
    until = (await _times(client, "/api/v1/events"))[-1]
    many = [Draft(type=EventType.NODE_ERROR_REPORTED, subject="node-3") for _ in range(5000)]
    await rig.ledger.commit(*many)
    newest = await client.get("/api/v1/events", params={"newest": "true", "until": until, "limit": 3})
    assert [item["at"] for item in newest.json()["items"]] == everything[-3:]


async def test_the_audit_names_the_token_also_when_it_is_gone(client: httpx.AsyncClient, rig: Rig) -> None:
    id, text = await rig.token(Role.ADMIN, name="night shift")
    async with rig.client(text) as other:
        await other.post("/api/v1/tokens", json={"name": "made", "role": "VIEWER"})
    await client.delete(f"/api/v1/tokens/{id}")
    entries = (await client.get("/api/v1/audit")).json()["items"]
    (made,) = [each for each in entries if (each["after"] or {}).get("name") == "made"]
    assert made["actor_name"] == "night shift"


async def test_decisions_of_everything_come_in_one_list(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    for name in ("lobby", "arena"):
        await rig.group(name)
        await client.post("/api/v1/instances", json={"group": name})
    page = (await client.get("/api/v1/decisions", params={"limit": 50})).json()
    subjects = {item["subject"] for item in page["items"]}
    assert any("lobby" in subject for subject in subjects)
    assert any("arena" in subject for subject in subjects)
    numbers = [item["number"] for item in page["items"]]
    assert numbers == sorted(numbers, reverse=True)


async def test_only_living_instances_are_listed_on_request(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online()
    await rig.group()
    running = await rig.instance()
    ended = await rig.instance(state="STOPPED")
    every = (await client.get("/api/v1/instances")).json()["items"]
    living = (await client.get("/api/v1/instances", params={"live": "true"})).json()["items"]
    assert {each["id"] for each in every} == {running.id, ended.id}
    assert [each["id"] for each in living] == [running.id]


async def test_a_search_by_time_survives_a_clock_that_was_set_back() -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    times = [start + dt.timedelta(minutes=minute) for minute in (0, 60, 61, 58, 59, 62, 120)]

    async def time_at(number: int) -> dt.datetime | None:
        return times[number - 1] if number <= len(times) else None

    span = TimeRange(start + dt.timedelta(minutes=58), start + dt.timedelta(minutes=60))
    first = await span.first_number(time_at, oldest=1, newest=len(times))
    end = await span.end_number(time_at, oldest=1, newest=len(times))
    assert [number for number in range(first, end) if span.holds(times[number - 1])] == [4, 5]


async def test_a_search_by_time_looks_at_a_bounded_number_of_entries_behind_it() -> None:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    async def time_at(number: int) -> dt.datetime | None:
        return start + dt.timedelta(milliseconds=number)

    span = TimeRange(None, start + dt.timedelta(milliseconds=1000))
    assert await span.end_number(time_at, oldest=1, newest=100_000) == 1000 + MOST_MISPLACED
