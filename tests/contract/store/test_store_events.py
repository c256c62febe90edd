"""The event log and the journals: order, cursors, and what is left after trimming."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import Any

import pytest
from store_cases import Desk, House, at_work, drop, happened, put, transaction

from corral.domain.events import DATA_DEPTH, OMITTED, START, Cursor
from corral.errors import Code, Rejected
from corral.store.port import Append
from corral.store.sqlite.engine import DATABASE
from corral.system.clock import SystemClock


async def _refused(desk: Desk, cursor: Cursor) -> None:
    with pytest.raises(Rejected) as refused:
        await desk.store.reads.events(cursor, limit=10)
    assert refused.value.code is Code.RESYNC_REQUIRED
    assert refused.value.hint


async def test_events_are_read_in_pages_from_any_cursor(desk: Desk) -> None:
    written = []
    for n in range(7):
        written += (await desk.commit(happened(f"s{n}", n=n, text="ü\0"))).events
    assert await desk.store.reads.events(START, limit=3) == written[:3]
    assert await desk.store.reads.events(written[2].cursor, limit=100) == written[3:]
    assert await desk.store.reads.events(written[-1].cursor, limit=100) == []


async def test_sequences_go_on_across_epochs_and_the_head_names_the_last_event(desk: Desk) -> None:
    old = await desk.commit(happened("old"))
    async with at_work(desk.store) as successor:
        assert (await successor.store.reads.head()).cursor == old.events[-1].cursor
        new = await successor.commit(happened("new"))
        assert successor.epoch > desk.epoch
    assert new.events[0].cursor == Cursor(successor.epoch, old.events[0].cursor.sequence + 1)
    assert await desk.store.reads.events(old.events[0].cursor, limit=10) == list(new.events)


async def test_a_cursor_that_is_not_of_this_log_asks_for_a_resync(desk: Desk) -> None:
    (event,) = (await desk.commit(happened("a"))).events
    await _refused(desk, Cursor(event.cursor.epoch + 1, event.cursor.sequence))
    await _refused(desk, Cursor(event.cursor.epoch, event.cursor.sequence + 1))
    await _refused(desk, Cursor(event.cursor.epoch, 0))


async def test_the_start_of_an_empty_log_is_a_fine_cursor(desk: Desk) -> None:
    assert await desk.store.reads.events(START, limit=10) == []
    assert (await desk.store.reads.head()).cursor == START


async def test_a_cursor_exactly_where_the_log_was_trimmed_still_works(desk: Desk) -> None:
    events = [(await desk.commit(happened(f"s{n}"))).events[0] for n in range(5)]
    cut = events[2].cursor
    dropped = await desk.store.commits.trim(
        epoch=desk.epoch, events_through=cut.sequence, tombstones_through=0, journals=[]
    )
    assert dropped == 3
    assert await desk.store.reads.events(cut, limit=10) == events[3:]
    await _refused(desk, events[1].cursor)
    await _refused(desk, START)
    await _refused(desk, Cursor(cut.epoch + 1, cut.sequence))


async def test_a_log_trimmed_to_nothing_goes_on_with_the_next_number(desk: Desk) -> None:
    (first,) = (await desk.commit(happened("a"))).events
    await desk.store.commits.trim(epoch=desk.epoch, events_through=99, tombstones_through=0, journals=[])
    assert await desk.store.reads.events(first.cursor, limit=10) == []
    (second,) = (await desk.commit(happened("b"))).events
    assert second.cursor.sequence == first.cursor.sequence + 1
    assert await desk.store.reads.events(first.cursor, limit=10) == [second]


async def test_dropped_tombstones_make_older_followers_resync_and_no_others(desk: Desk) -> None:
    created = await desk.commit(put("a"), put("b"))
    deleted = await desk.commit(drop("a"))
    last = await desk.commit(put("c"))
    dropped = await desk.store.commits.trim(
        epoch=desk.epoch, events_through=0, tombstones_through=last.number, journals=[]
    )
    assert dropped == 1
    with pytest.raises(Rejected) as refused:
        await desk.store.reads.changes(created.number, limit=10)
    assert refused.value.code is Code.RESYNC_REQUIRED
    assert [change.id for change in await desk.store.reads.changes(deleted.number, limit=10)] == ["c"]
    assert await desk.stored() == desk.memory


async def test_a_journal_is_read_from_either_end_and_between_two_numbers(desk: Desk) -> None:
    numbers = []
    for n in range(6):
        commit = await desk.commit(
            Append(journal="audit", body=b"%d" % n), Append(journal="noise", body=b"-")
        )
        numbers.append(commit.entries[0].number)
    oldest = await desk.store.reads.entries("audit", limit=2)
    assert [entry.body for entry in oldest] == [b"0", b"1"]
    newest = await desk.store.reads.entries("audit", limit=2, newest=True)
    assert [entry.body for entry in newest] == [b"4", b"5"]
    between = await desk.store.reads.entries("audit", after=numbers[0], before=numbers[3], limit=10)
    assert [entry.number for entry in between] == numbers[1:3]
    assert await desk.store.reads.entries("nothing", limit=10) == []
    assert await desk.store.reads.entries("aud", limit=10) == []
    under = await desk.store.reads.entries("aud", limit=3, newest=True, prefix=True)
    assert [entry.number for entry in under] == numbers[-3:]


async def test_journals_are_listed_by_prefix_with_their_oldest_number_and_length(desk: Desk) -> None:
    for journal in ("node/a", "node/a", "node/ab", "node%", "audit"):
        await desk.commit(Append(journal=journal, body=b""))
    assert await desk.store.reads.journals("node/") == {"node/a": (1, 2), "node/ab": (3, 1)}
    assert await desk.store.reads.journals("node/a") == {"node/a": (1, 2), "node/ab": (3, 1)}
    assert await desk.store.reads.journals("node%") == {"node%": (4, 1)}
    assert set(await desk.store.reads.journals()) == {"node/a", "node/ab", "node%", "audit"}


async def test_trimming_one_journal_leaves_its_namesakes_alone(desk: Desk) -> None:
    for journal in ("a", "a-b", "a", "a-b"):
        await desk.commit(Append(journal=journal, body=b""))
    await desk.store.commits.trim(
        epoch=desk.epoch, events_through=0, tombstones_through=0, journals=[("a", 99)]
    )
    assert await desk.store.reads.journals() == {"a-b": (2, 2)}


async def test_a_cursor_can_be_had_for_any_number_and_is_one_that_is_accepted(desk: Desk) -> None:
    assert await desk.store.reads.cursor_at(0) == START
    assert await desk.store.reads.cursor_at(99) == START
    events = [(await desk.commit(happened(f"s{n}"))).events[0] for n in range(5)]
    assert await desk.store.reads.cursor_at(0) == START
    assert await desk.store.reads.cursor_at(3) == events[2].cursor
    assert await desk.store.reads.cursor_at(99) == events[4].cursor
    await desk.store.commits.trim(epoch=desk.epoch, events_through=3, tombstones_through=0, journals=[])
    async with at_work(desk.store) as successor:
        (later,) = (await successor.commit(happened("later"))).events
        assert await desk.store.reads.cursor_at(0) == events[2].cursor
        assert await desk.store.reads.cursor_at(99) == later.cursor
        assert await desk.store.reads.events(await desk.store.reads.cursor_at(0), limit=10) == [
            *events[3:],
            later,
        ]


def _nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.trap("T81")
async def test_a_row_that_is_nested_too_deeply_is_served_without_its_data(desk: Desk) -> None:
    """Put there past the writer, as by a version that had no limit."""
    (first,) = (await desk.commit(happened("before"))).events
    await desk.store.commits.commit_batch(
        epoch=desk.epoch,
        batch="poison",
        at=SystemClock().now(),
        transactions=[transaction(happened("deep", a=_nested(500)), happened("after", n=1))],
    )
    deep, after = await desk.store.reads.events(first.cursor, limit=10)
    assert (deep.subject, list(deep.data), deep.cursor.sequence) == (
        "deep",
        [OMITTED],
        first.cursor.sequence + 1,
    )
    assert (after.subject, after.data) == ("after", {"n": 1})


@pytest.mark.trap("T81")
@pytest.mark.parametrize("time", [2**62, "yesterday"])
async def test_a_row_whose_time_is_none_is_served_with_another(sqlite_house: House, time: int | str) -> None:
    """PostgreSQL keeps nothing but times in that column."""
    async with at_work(await sqlite_house.open()) as desk:
        made = [(await desk.commit(happened(subject))).events[0] for subject in ("before", "odd", "after")]
        with contextlib.closing(sqlite3.connect(sqlite_house.data / DATABASE)) as database, database:
            database.execute("UPDATE event SET at = ? WHERE subject = 'odd'", (time,))
        before, odd, after = await desk.store.reads.events(START, limit=10)
    assert [before, after] == [made[0], made[2]]
    assert (odd.cursor, odd.subject, odd.at.year) == (made[1].cursor, "odd", 1970)


@pytest.mark.trap("T81")
@pytest.mark.parametrize(
    "told", [{"a": _nested(DATA_DEPTH)}, {"a": _nested(974)}, {"a": _nested(5000)}, {"a": object()}]
)
async def test_what_not_everybody_could_encode_is_refused_to_its_caller_alone(
    desk: Desk, told: dict[str, Any]
) -> None:
    with pytest.raises(Rejected) as refused:
        await desk.commit(happened("deep", **told))
    assert refused.value.code is Code.INVALID_FIELD
    assert not desk.fatal
    deepest = {"a": _nested(DATA_DEPTH - 1)}
    (event,) = (await desk.commit(happened("fine", **deepest))).events
    assert await desk.store.reads.events(START, limit=10) == [event]
