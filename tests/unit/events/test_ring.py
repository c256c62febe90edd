"""The ring: bounded, without holes, and the same bytes for everybody."""

from __future__ import annotations

import msgspec
import pytest
from event_cases import AT, event
from hypothesis import given
from hypothesis import strategies as st

from corral.controller.events.frames import MAX_FRAME, event_frame
from corral.controller.events.ring import EventRing, EventSelection
from corral.domain.events import OMITTED, START, Cursor, EventType

ALL = EventSelection()


def ring(*, capacity: int = 100, capacity_bytes: int = 10**6, head: Cursor = START) -> EventRing:
    return EventRing(head=head, capacity=capacity, capacity_bytes=capacity_bytes)


def test_a_frame_is_one_server_sent_event_with_the_whole_event_as_one_line_of_json() -> None:
    frame = event_frame(event(7, epoch=3, subject="node-1", text="a\nb\r\n\u2028"))
    head, data, *rest = frame.decode().split("\ndata: ")[0], *frame.decode().split("\ndata: ")[1:]
    assert head == "id: 3-7\nevent: NODE_ONLINE"
    assert not rest
    assert data.endswith("\n\n")
    assert "\n" not in data.rstrip("\n")
    assert msgspec.json.decode(data) == {
        "id": "3-7",
        "type": "NODE_ONLINE",
        "subject": "node-1",
        "at": AT.isoformat().replace("+00:00", "Z"),
        "data": {"text": "a\nb\r\n\u2028"},
    }


@given(
    sizes=st.lists(st.integers(0, 300), max_size=60),
    capacity=st.integers(1, 20),
    capacity_bytes=st.integers(1, 3000),
    start=st.integers(0, 50),
)
def test_whatever_is_appended_the_ring_keeps_its_bounds_and_its_newest_event(
    sizes: list[int], capacity: int, capacity_bytes: int, start: int
) -> None:
    made = ring(capacity=capacity, capacity_bytes=capacity_bytes, head=Cursor(1, start))
    events = [event(start + 1 + index, text="x" * size) for index, size in enumerate(sizes)]
    for each in events:
        made.append(each)
        assert len(made) <= capacity
        assert made.bytes <= capacity_bytes or len(made) == 1
        assert made.head == each.cursor
        assert made.knows(each.cursor)
    for after in range(made.floor.sequence, made.head.sequence + 1):
        found, cursor = made.events(after, ALL, limit=1000)
        assert found == events[after - start :]
        assert cursor == made.head
        assert made.chunk(after, ALL).body == b"".join(event_frame(each) for each in found)


def test_readers_at_the_same_place_share_one_chunk_until_something_new_comes() -> None:
    made = ring()
    made.append(event(1))
    first = made.chunk(0, ALL)
    assert made.chunk(0, EventSelection()) is first
    made.append(event(2))
    assert made.chunk(0, ALL) is not first


def test_a_chunk_is_cut_near_64_kib_and_says_how_far_it_went() -> None:
    made = ring()
    for sequence in range(1, 21):
        made.append(event(sequence, text="x" * 10_000))
    seen, after = 0, 0
    while after < 20:
        chunk = made.chunk(after, ALL)
        assert len(chunk.body) < 65_536 + 11_000
        seen += chunk.body.count(b"\nevent: ")
        after = chunk.cursor.sequence
    assert seen == 20


def test_a_filter_skips_events_and_moves_on() -> None:
    made = ring()
    for sequence in range(1, 11):
        made.append(event(sequence, subject="even" if sequence % 2 == 0 else "odd"))
    chunk = made.chunk(0, EventSelection(subject="even"))
    assert chunk.body.count(b"event: ") == 5
    assert chunk.cursor == made.head
    nothing = made.chunk(0, EventSelection(types=frozenset({EventType.NODE_REVOKED})))
    assert (nothing.body, nothing.cursor) == (b"", made.head)


def test_a_cursor_of_another_epoch_is_not_known() -> None:
    made = ring(head=Cursor(1, 4))
    made.append(event(5, epoch=2))
    assert made.knows(Cursor(2, 5))
    assert not made.knows(Cursor(1, 5))
    assert not made.knows(Cursor(1, 4)), "only the store can tell"
    assert not made.knows(Cursor(2, 6))


def test_after_a_hole_the_ring_begins_anew_rather_than_to_lie() -> None:
    made = ring()
    for sequence in (1, 2, 9):
        made.append(event(sequence))
    assert (made.floor.sequence, made.head.sequence, len(made)) == (8, 9, 1)
    assert not made.reaches(2)


def _deep() -> list[object]:
    value: list[object] = []
    for _ in range(974):
        value = [value]
    return value


@pytest.mark.trap("T81")
@pytest.mark.parametrize(
    "data", [{"a": _deep()}, {"a": object()}, {"a": "x" * MAX_FRAME}, {"a": {1j: 2}}, {"a": "\ud800"}]
)
def test_an_event_that_cannot_be_encoded_or_is_too_large_is_kept_without_its_data(
    data: dict[str, object],
) -> None:
    held = ring()
    held.append(event(1))
    held.append(event(2, subject="\udfff", **data))
    held.append(event(3))
    events, cursor = held.events(0, ALL, limit=10)
    assert [each.cursor.sequence for each in events] == [1, 2, 3]
    assert cursor == held.head == Cursor(1, 3)
    assert list(events[1].data) == [OMITTED]
    assert held.chunk(0, ALL).body == b"".join(map(event_frame, events))
