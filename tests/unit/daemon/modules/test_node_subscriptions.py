"""What a subscription of a node finds in the ring of the newest events, and who wants which types."""

from __future__ import annotations

import datetime as dt

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.daemon.modules.subscriptions import NodeEventRing, TypeCounts, items_after
from corral.domain.events import Cursor, Event, EventType, MissedEvents
from corral.modules.services.event_rules import EventFilter

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ALL = EventFilter()
NODES = EventFilter(types=frozenset({"NODE_ONLINE"}))


def event(number: int, type: EventType = EventType.GROUP_CREATED) -> Event:
    return Event(cursor=Cursor(1, number), type=type, subject=str(number), at=NOW, data={})


def test_a_reader_finds_what_it_has_not_seen_and_how_far_was_looked() -> None:
    ring = NodeEventRing(capacity=4, capacity_bytes=100)
    events = [event(number) for number in (10, 20, 30)]
    for each in events:
        ring.append(each, 1)
    assert items_after(ring, 0, ALL, limit=1000) == (events, 3)
    assert items_after(ring, 0, ALL, limit=2) == (events[:2], 2)
    assert items_after(ring, 2, ALL, limit=2) == (events[2:], 3)
    assert items_after(ring, 0, NODES, limit=2) == ([], 3)


def test_what_was_missed_concerns_everybody() -> None:
    ring = NodeEventRing(capacity=4, capacity_bytes=100)
    missed = MissedEvents(after=Cursor(1, 1), until=Cursor(1, 9))
    ring.append(event(1), 1)
    ring.append(missed, 0)
    assert items_after(ring, 0, NODES, limit=5) == ([missed], 2)


@settings(deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcde"), min_size=1), max_size=8), st.randoms(use_true_random=False))
def test_a_type_is_wanted_as_long_as_somebody_wants_it(wishes: list[set[str]], random) -> None:
    interests, left = TypeCounts(), list(wishes)
    for wish in wishes:
        interests.add(wish)
    random.shuffle(wishes)
    for wish in wishes:
        assert interests.all() == sorted(set().union(*left))
        assert all(type in interests for type in wish)
        interests.remove(wish)
        left.remove(wish)
    assert interests.all() == []
