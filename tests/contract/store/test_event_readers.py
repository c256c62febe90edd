"""The reader of events over each store: the cursors that the store judges, and what retention took away."""

from __future__ import annotations

import pytest
from store_cases import Desk, happened

from corral.controller.events.hub import EventHub
from corral.controller.events.ring import EventSelection
from corral.domain.events import Cursor, Draft, Event, EventType, MissedEvents
from corral.store.retention import Retention, RetentionPolicy
from corral.system.clock import SystemClock

ALL = EventSelection()
SPEAKS = Draft(type=EventType.MODULE_EVENT, subject="loud/X", data={})


async def hub_of(desk: Desk, *drafts: Draft) -> tuple[EventHub, list[Event]]:
    """A hub that published these, and holds the last of them alone."""
    head = (await desk.store.reads.head()).cursor
    hub = EventHub(log=desk.store.reads, clock=SystemClock(), head=head, ring_events=1)
    made: list[Event] = []
    for draft in drafts:
        commit = await desk.commit(draft)
        hub.publish(commit)
        made += commit.events
    return hub, made


async def read_all(hub: EventHub, after: Cursor) -> list[Event | MissedEvents]:
    reader = hub.reader("test", after=after)
    found: list[Event | MissedEvents] = []
    while not reader.at_head:
        read = await reader.read(ALL, limit=3)
        found += read.items
        reader.advance(read.until)
    return found


async def test_a_reader_goes_on_in_the_store_and_then_in_the_ring(desk: Desk) -> None:
    hub, made = await hub_of(desk, *(happened(str(n)) for n in range(10)))
    assert await read_all(hub, made[0].cursor) == made[1:]
    assert await read_all(hub, made[-1].cursor) == []
    await hub.close()


@pytest.mark.parametrize("strange", [Cursor(0, 100_000), Cursor(7, 0), Cursor(7, -3)])
async def test_a_cursor_of_another_history_is_answered_by_one_gap(desk: Desk, strange: Cursor) -> None:
    hub, made = await hub_of(desk, *(happened(str(n)) for n in range(6)))
    last = made[-1].cursor
    place = Cursor(last.epoch + strange.epoch, last.sequence + strange.sequence)
    assert await read_all(hub, place) == [MissedEvents(after=place, until=last)]
    await hub.close()


async def test_what_retention_trimmed_is_one_gap_up_to_the_head(desk: Desk) -> None:
    hub, made = await hub_of(desk, *(happened(str(n)) for n in range(6)))
    through = made[3].cursor.sequence
    while await desk.store.commits.trim(
        epoch=desk.epoch, events_through=through, tombstones_through=0, journals=()
    ):
        pass
    assert await read_all(hub, made[1].cursor) == [MissedEvents(after=made[1].cursor, until=made[-1].cursor)]
    assert await read_all(hub, made[3].cursor) == made[4:]
    await hub.close()


async def test_what_was_dropped_of_modules_is_a_gap_in_its_place(desk: Desk) -> None:
    hub, made = await hub_of(desk, happened("a"), SPEAKS, SPEAKS, happened("b"), SPEAKS, happened("c"))
    policy = RetentionPolicy(module_events=1)
    await Retention(desk.store, epoch=desk.epoch, policy=policy).apply()
    gap = MissedEvents(after=made[0].cursor, until=made[2].cursor)
    assert await read_all(hub, made[0].cursor) == [gap, *made[3:]]
    await hub.close()


async def test_a_cursor_that_is_stored_and_not_yet_published_waits_for_the_head(desk: Desk) -> None:
    hub, _ = await hub_of(desk, happened("a"))
    early = (await desk.commit(happened("b"), happened("c"))).events
    assert await read_all(hub, early[0].cursor) == []
    await hub.close()
