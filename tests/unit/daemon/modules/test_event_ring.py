"""The ring of a node's newest events, and who wants which types."""

from __future__ import annotations

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.daemon.modules.event_ring import EventRing, Gap
from corral.daemon.modules.subscriptions import Interests
from corral.domain.events import Cursor, Event, EventType
from corral.modules.event_names import EventFilter

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ALL = EventFilter()


def event(number: int, type: EventType = EventType.GROUP_CREATED) -> Event:
    return Event(cursor=Cursor(1, number), type=type, subject=str(number), at=NOW, data={})


def numbers(ring: EventRing, after: int, wanted: EventFilter = ALL, limit: int = 1000) -> list[int]:
    found, _ = ring.after(after, wanted, limit=limit)
    return [content.cursor.sequence for content in found if isinstance(content, Event)]


def test_a_reader_finds_what_it_has_not_seen_and_how_far_was_looked() -> None:
    ring = EventRing(capacity=4)
    for number in (10, 20, 30):
        ring.append(event(number), 1)
    assert numbers(ring, 0) == [10, 20, 30]
    found, looked = ring.after(0, ALL, limit=2)
    assert (len(found), looked) == (2, 2)
    assert numbers(ring, looked) == [30]
    none, looked = ring.after(0, EventFilter(types=frozenset({"NODE_ONLINE"})), limit=2)
    assert (none, looked) == ([], 3)


def test_a_gap_is_everybody_s() -> None:
    ring = EventRing()
    ring.append(event(1), 1)
    ring.append(Gap("1-1", "1-9"), 0)
    found, looked = ring.after(0, EventFilter(types=frozenset({"NODE_ONLINE"})), limit=5)
    assert (found, looked) == ([Gap("1-1", "1-9")], 2)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 50), max_size=60), st.integers(1, 12), st.integers(20, 120), st.integers(0, 10)
)
def test_it_holds_the_newest_within_both_bounds(
    sizes: list[int], capacity: int, room: int, clear: int
) -> None:
    ring = EventRing(capacity=capacity, capacity_bytes=room)
    for number, size in enumerate(sizes, start=1):
        ring.append(event(number), size)
        assert 1 <= len(ring) <= capacity
        assert ring.bytes <= room or len(ring) == 1
        assert ring.bytes == sum(sizes[ring.floor : number])
        assert numbers(ring, ring.floor) == list(range(ring.floor + 1, number + 1))
        assert ring.last == event(number)
        if number == clear:
            ring.clear()
            assert (len(ring), ring.bytes, ring.floor) == (0, 0, number)


@settings(deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcde"), min_size=1), max_size=8), st.randoms(use_true_random=False))
def test_a_type_is_wanted_as_long_as_somebody_wants_it(wishes: list[set[str]], random) -> None:
    interests, left = Interests(), list(wishes)
    for wish in wishes:
        interests.add(wish)
    random.shuffle(wishes)
    for wish in wishes:
        assert interests.all() == sorted(set().union(*left))
        assert all(type in interests for type in wish)
        interests.remove(wish)
        left.remove(wish)
    assert interests.all() == []
