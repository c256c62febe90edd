"""The one reader of the event log: whatever happens to the log, nothing is skipped, doubled or told too early."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec
import pytest
from event_cases import commit, event
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.controller.events.frames import RESYNC_REQUIRED
from corral.controller.events.hub import EventHub
from corral.controller.events.reader import ATTEMPTS
from corral.controller.events.ring import EventSelection
from corral.domain.events import OMITTED, START, Cursor, Event, EventType, MissedEvents
from corral.store.rows import check_cursor
from corral.system.clock import SystemClock

T = TypeVar("T")
ALL = EventSelection()
PLAIN = EventSelection(types=frozenset({EventType.NODE_ONLINE}))


class MemoryLog:
    """A store's log in memory, with its rules for cursors. `meanwhile` happens while it is asked."""

    def __init__(self) -> None:
        self.rows: dict[int, Event] = {}
        self.last = START
        self.trimmed = START
        self.meanwhile: Callable[[], None] = lambda: None

    def append(self, *, epoch: int, of_module: bool) -> Event:
        type = EventType.MODULE_EVENT if of_module else EventType.NODE_ONLINE
        made = msgspec.structs.replace(event(self.last.sequence + 1, epoch=epoch), type=type)
        self.rows[made.cursor.sequence] = made
        self.last = made.cursor
        return made

    def trim(self, through: int) -> None:
        for sequence in [each for each in self.rows if each <= through]:
            self.trimmed = self.rows.pop(sequence).cursor

    def drop_of_modules(self, through: int) -> None:
        """From among the others; they leave holes."""
        for sequence, row in list(self.rows.items()):
            if sequence <= through and row.type is EventType.MODULE_EVENT:
                del self.rows[sequence]

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        assert max(after.epoch, after.sequence) < 2**63, "no database takes such numbers"
        before = [row.cursor.epoch for number, row in sorted(self.rows.items()) if number <= after.sequence]
        behind = [row.cursor.epoch for number, row in sorted(self.rows.items()) if number >= after.sequence]
        check_cursor(
            after,
            trimmed=self.trimmed,
            last=self.last.sequence,
            epoch_before=before[-1] if before else None,
            epoch_behind=behind[0] if behind else None,
        )
        page = [row for number, row in sorted(self.rows.items()) if number > after.sequence][:limit]
        self.meanwhile()
        return page


class Cluster:
    """A log and a hub, of one term after the other."""

    def __init__(self, *, ring_events: int) -> None:
        self.log = MemoryLog()
        self.epoch = 0
        self.hub: EventHub
        self._ring_events = ring_events
        self.lead()

    def lead(self) -> None:
        """What was stored and not published is in the head that the next term begins with."""
        self.epoch += 1
        clock = SystemClock()
        self.hub = EventHub(log=self.log, clock=clock, head=self.log.last, ring_events=self._ring_events)

    def store(self, *, of_module: bool = False) -> Event:
        return self.log.append(epoch=self.epoch, of_module=of_module)

    def publish(self) -> None:
        """All that is stored."""
        for sequence in range(self.hub.head.sequence + 1, self.log.last.sequence + 1):
            self.hub.publish(commit(self.log.rows[sequence]))

    def happen(self, count: int = 1, *, of_module: bool = False) -> list[Event]:
        made = [self.store(of_module=of_module) for _ in range(count)]
        self.publish()
        return made


def run(work: Coroutine[Any, Any, T]) -> T:
    """To its end: nothing here waits for anything."""
    with pytest.raises(StopIteration) as ended:
        work.send(None)
    result: T = ended.value.value
    return result


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("happen"), st.integers(1, 6), st.booleans()),
        st.tuples(st.just("store"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("read"), st.integers(1, 6), st.booleans()),
        st.tuples(st.just("drop"), st.integers(0, 30), st.just(False)),
        st.tuples(st.just("trim"), st.integers(0, 30), st.just(False)),
        st.tuples(st.just("lead"), st.just(0), st.just(False)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(
    steps=STEPS,
    ring_events=st.integers(1, 6),
    selection=st.sampled_from([ALL, PLAIN]),
    before=st.integers(0, 8),
    first=st.integers(0, 8),
)
def test_each_event_comes_once_or_is_missed_and_nothing_comes_before_it_is_published(
    steps: list[tuple[str, int, bool]], ring_events: int, selection: EventSelection, before: int, first: int
) -> None:
    cluster = Cluster(ring_events=ring_events)
    made = {each.cursor.sequence: each for each in cluster.happen(before)}
    place = made[first].cursor if first in made else None
    reader = cluster.hub.reader("test", after=place)
    gone: set[int] = set()

    def read(limit: int, *, interrupted: bool) -> None:
        """Interrupted: as much is published while the store is asked as the ring holds."""
        begin, head = reader.cursor.sequence, cluster.hub.head.sequence
        if interrupted:
            cluster.log.meanwhile = lambda: made.update(
                (each.cursor.sequence, each) for each in cluster.happen(ring_events + 1)
            )
        there = set(cluster.log.rows)
        result = run(reader.read(selection, limit=limit))
        cluster.log.meanwhile = lambda: None
        at = begin
        missed: set[int] = set()
        came: list[int] = []
        for item in result.items:
            if isinstance(item, MissedEvents):
                assert at <= item.after.sequence <= item.until.sequence
                missed |= set(range(item.after.sequence + 1, item.until.sequence + 1))
                at = item.until.sequence
            else:
                assert at < item.cursor.sequence
                assert item == made[item.cursor.sequence]
                came.append(item.cursor.sequence)
                at = item.cursor.sequence
        assert at <= result.until.sequence
        assert result.until.sequence <= max(head, begin), "nothing that is not published"
        passed = range(begin + 1, result.until.sequence + 1)
        assert came == [
            number for number in passed if number not in missed and selection.accepts(made[number])
        ]
        if missed:
            assert missed & (gone | (set(made) - there)), "nothing is said to be missed that was there"
        reader.advance(result.until)

    for step, number, flag in steps:
        match step:
            case "happen":
                made |= {each.cursor.sequence: each for each in cluster.happen(number, of_module=flag)}
            case "store":
                stored = [cluster.store(of_module=flag) for _ in range(number)]
                made |= {each.cursor.sequence: each for each in stored}
            case "read":
                read(number, interrupted=flag)
            case "drop":
                cluster.publish()
                cluster.log.drop_of_modules(min(number, cluster.hub.head.sequence))
                gone = set(made) - set(cluster.log.rows)
            case "trim":
                cluster.publish()
                cluster.log.trim(min(number, cluster.hub.head.sequence))
                gone = set(made) - set(cluster.log.rows)
            case "lead":
                cluster.lead()
                reader = cluster.hub.reader("test", after=reader.cursor)
    cluster.publish()
    for _ in range(len(made) + 1):
        read(4, interrupted=False)
    assert reader.at_head
    assert reader.cursor.sequence == cluster.hub.head.sequence


@pytest.mark.parametrize(
    "strange",
    [Cursor(1, 100), Cursor(9, 3), Cursor(9, 6), Cursor(0, 3), Cursor(2**63, 2**63)],
    ids=[
        "beyond the head",
        "of a later epoch",
        "of a later epoch at the head",
        "of an older epoch",
        "absurd",
    ],
)
def test_a_cursor_of_another_history_is_answered_by_what_was_missed_up_to_the_head(strange: Cursor) -> None:
    cluster = Cluster(ring_events=2)
    cluster.happen(6)
    reader = cluster.hub.reader("test", after=strange)
    assert not reader.at_head
    result = run(reader.read(PLAIN, limit=10))
    assert result.items == (MissedEvents(after=strange, until=cluster.hub.head),)
    reader.advance(result.until)
    later = cluster.happen(1)
    assert list(run(reader.read(PLAIN, limit=10)).items) == later


def test_a_cursor_of_a_later_epoch_is_strange_also_where_the_log_ends_with_a_hole() -> None:
    cluster = Cluster(ring_events=1)
    cluster.happen(3)
    cluster.happen(3, of_module=True)
    cluster.log.drop_of_modules(through=6)
    strange = Cursor(9, 5)
    result = run(cluster.hub.reader("test", after=strange).read(PLAIN, limit=10))
    assert result.items == (MissedEvents(after=strange, until=cluster.hub.head),)


def test_a_cursor_beyond_the_head_that_the_store_knows_waits_until_the_head_has_passed_it() -> None:
    """Whoever lists events may see one that is stored and on its way."""
    cluster = Cluster(ring_events=4)
    cluster.happen(2)
    early = [cluster.store() for _ in range(3)]
    reader = cluster.hub.reader("test", after=early[1].cursor)
    result = run(reader.read(ALL, limit=10))
    assert (list(result.items), result.until) == ([], early[1].cursor)
    reader.advance(result.until)
    assert reader.at_head
    cluster.publish()
    assert list(run(reader.read(ALL, limit=10)).items) == early[2:]


def test_a_place_at_the_head_is_not_lost_by_what_happens_while_the_store_is_asked_about_it() -> None:
    cluster = Cluster(ring_events=2)
    cluster.happen(3)
    cluster.lead()
    stream = cluster.hub.follow(after=cluster.hub.head, selection=ALL)
    assert stream.take() is None
    cluster.log.meanwhile = lambda: cluster.happen(10) and None
    assert run(stream.page()) == b""
    cluster.log.meanwhile = lambda: None
    frames = run(stream.page())
    assert frames.count(b"event: NODE_ONLINE") == 10
    assert RESYNC_REQUIRED.encode() not in frames


def test_a_reader_of_the_ring_alone_misses_what_the_ring_has_dropped() -> None:
    cluster = Cluster(ring_events=2)
    reader = cluster.hub.reader("test", ring_only=True)
    cluster.happen(5)
    result = run(reader.read(ALL, limit=10))
    assert result.items == (MissedEvents(after=START, until=cluster.hub.head),)


def test_holes_that_events_of_modules_left_are_told_in_their_places_and_only_to_those_who_want_them() -> None:
    cluster = Cluster(ring_events=1)
    for of_module in (False, True, True, False, True, False, True):
        cluster.happen(of_module=of_module)
    cluster.log.drop_of_modules(through=7)

    def read(selection: EventSelection) -> list[int | tuple[int, int]]:
        items = run(cluster.hub.reader("test", after=START).read(selection, limit=10)).items
        return [
            item.cursor.sequence if isinstance(item, Event) else (item.after.sequence, item.until.sequence)
            for item in items
        ]

    assert read(ALL) == [1, (1, 3), 4, (4, 5), 6, (6, 7)]
    assert read(PLAIN) == [1, 4, 6]


def test_an_event_that_cannot_be_encoded_is_missed_alone_and_counted() -> None:
    cluster = Cluster(ring_events=4)
    made = cluster.happen(3)
    reader = cluster.hub.reader("test", after=START)

    def encode(each: Event) -> str:
        return str(1 // (each.cursor.sequence - 2))

    encoded = [reader.encoded(each, encode) for each in made]
    assert encoded == ["-1", MissedEvents(after=made[0].cursor, until=made[1].cursor), "1"]
    assert cluster.hub.skipped == 1


def test_a_place_that_fails_again_and_again_is_given_up_and_one_that_moved_on_begins_anew() -> None:
    cluster = Cluster(ring_events=4)
    made = cluster.happen(6)
    reader = cluster.hub.reader("test", after=made[0].cursor)
    for _ in range(ATTEMPTS - 1):
        assert reader.passed_over() is None
    reader.advance(made[1].cursor)
    for _ in range(ATTEMPTS - 1):
        assert reader.passed_over() is None
    assert reader.passed_over() == MissedEvents(after=made[1].cursor, until=made[5].cursor)
    assert reader.cursor == made[1].cursor, "until the caller has told of it"
    assert cluster.hub.skipped == 1


async def test_a_stream_passes_a_log_that_cannot_be_read_with_one_word() -> None:
    cluster = Cluster(ring_events=2)
    cluster.happen(6)
    stream = cluster.hub.follow(after=START, selection=ALL)

    def damaged() -> None:
        raise ZeroDivisionError("nobody foresaw it")

    cluster.log.meanwhile = damaged
    frames = b""
    while not frames:
        assert stream.take() is None
        frames = await stream.page()
    assert frames.startswith(b"id: 1-6\nevent: RESYNC_REQUIRED\n")
    assert stream.take() == b""
    assert cluster.hub.skipped == 1


def test_of_several_holes_in_one_page_a_stream_tells_the_first() -> None:
    cluster = Cluster(ring_events=1)
    for of_module in (False, True, False, True, False):
        cluster.happen(of_module=of_module)
    cluster.log.drop_of_modules(through=5)
    frames = run(cluster.hub.follow(after=START, selection=ALL).page())
    types = [line for line in frames.decode().splitlines() if line.startswith(("id", "event"))]
    assert types == [
        *("id: 1-1", "event: NODE_ONLINE"),
        *("id: 1-2", "event: RESYNC_REQUIRED"),
        *("id: 1-3", "event: NODE_ONLINE"),
        *("id: 1-5", "event: NODE_ONLINE"),
    ]


def test_an_event_that_cannot_be_redacted_comes_without_its_data() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep, ""]
    odd = msgspec.structs.replace(event(1, url=deep), type=EventType.CATALOG_UPDATED)
    shown = EventSelection(redacted=True).shown(odd)
    assert list(shown.data) == [OMITTED]
    assert (shown.cursor, shown.type) == (odd.cursor, odd.type)
