"""The event bridge on the controller: what a node asked for, in order, each once, or told that it is gone."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest
from bridge_bench import BridgeBench, HeldLink, bridge_bench, payload, term_on

from corral.controller.events.reader import EventLog
from corral.controller.modules_on_nodes.event_forwarder import MAX_TYPES, POSITION_EVENTS, POSITION_SECONDS
from corral.controller.modules_on_nodes.outbox_room import QUEUED_BYTES, QUEUED_MESSAGES
from corral.domain.events import Cursor, Draft, Event, EventType
from corral.errors import Code
from corral.modules.services.event_rules import EVENTS_MISSED
from corral.store.engine_selection import open_store
from corral.store.retention import Retention, RetentionPolicy
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually
from corral.wire import features


class LeapingClock(SystemClock):
    leap = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.leap


async def arrived(link: HeldLink, *subjects: str) -> None:
    """Exactly these, in this order."""
    await eventually(lambda: len(link.subjects()) >= len(subjects), state=link.subjects)
    assert link.subjects() == list(subjects)


async def caught_up(bench: BridgeBench, link: HeldLink) -> None:
    """The node was told of a place that has all in it."""
    await eventually(lambda: bench.hub.head in link.places(), state=lambda: (bench.hub.head, link.places()))


def module_event(name: str, **data: object) -> Draft:
    module, type = name.split("/")
    inner = {"module": module, "type": type, "subject": "lobby-1", "data": data}
    return Draft(type=EventType.MODULE_EVENT, subject=name, data=inner)


@pytest.mark.parametrize(("known", "told"), [(True, "CAPABILITY_REBOUND"), (False, "CAPABILITY_SWAPPED")])
async def test_a_node_of_an_earlier_version_gets_events_by_the_names_that_it_knows(scratch, known, told):
    async with bridge_bench(scratch) as bench:
        every = [name for name in features.FEATURES if known or name != features.EVENT_NAMES]
        link = bench.join(HeldLink(known=tuple(every)))
        bench.subscribe(link, "CAPABILITY_SWAPPED", "GROUP_CREATED")
        await bench.tell("demo.x", type=EventType.CAPABILITY_REBOUND)
        await bench.tell("a")
        await arrived(link, "demo.x", "a")
        assert [event.event_type for event in link.events()] == [told, "GROUP_CREATED"]
        assert [payload(event)["type"] for event in link.events()] == [told, "GROUP_CREATED"]
        bench.unsubscribe(link, "CAPABILITY_SWAPPED")
        await bench.tell("demo.y", type=EventType.CAPABILITY_REBOUND)
        await bench.tell("b")
        await arrived(link, "demo.x", "a", "b")


async def test_what_was_asked_for_comes_in_order_and_numbered_and_nothing_else(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        await bench.tell("before")
        bench.subscribe(link, "GROUP_CREATED", "shop/SOLD")
        await bench.tell("a", "b")
        await bench.tell("c", type=EventType.GROUP_DELETED)
        await bench.ledger.commit(module_event("shop/SOLD", price=3), module_event("shop/BOUGHT"))
        last = await bench.tell("d")
        await arrived(link, "a", "b", "lobby-1", "d")
        events = link.events()
        assert [event.event_type for event in events] == [
            "GROUP_CREATED",
            "GROUP_CREATED",
            "shop/SOLD",
            "GROUP_CREATED",
        ]
        numbers = [event.cursor.sequence for event in events]
        assert numbers == sorted(set(numbers))
        assert payload(events[2])["data"] == {"price": 3}
        told = payload(events[3])
        at = told.pop("at")
        assert at.startswith("20")
        assert told == {
            "type": "GROUP_CREATED",
            "subject": "d",
            "cursor": str(last[0].cursor),
            "data": {"min": 7},
        }


async def test_an_event_is_in_the_outbox_one_turn_after_it_was_published(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED")
        await caught_up(bench, link)
        before = bench.commits
        committed = asyncio.create_task(bench.tell("a"))
        while bench.commits == before:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert link.subjects() == ["a"]
        await committed


@pytest.mark.trap("T78")
@pytest.mark.parametrize("order", [("wanted", "other"), ("other", "wanted"), ("wanted", "other", "wanted")])
async def test_what_is_wanted_comes_though_others_are_published_in_the_same_step_of_the_loop(scratch, order):
    """Commits of one batch are published one after the other before any task runs."""
    types = {"wanted": EventType.GROUP_CREATED, "other": EventType.GROUP_DELETED}
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED")
        await caught_up(bench, link)
        for _ in range(3):
            await asyncio.gather(*(bench.tell(kind, type=types[kind]) for kind in order))
        await bench.tell("end")
        await eventually(lambda: link.subjects()[-1:] == ["end"], state=link.subjects)
        assert link.subjects() == ["wanted"] * 3 * order.count("wanted") + ["end"]


@pytest.mark.trap("T78")
async def test_a_new_subscription_misses_nothing_that_is_published_in_its_own_step_of_the_loop(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED")
        await caught_up(bench, link)
        before = bench.hub.head
        await bench.tell("gone", type=EventType.GROUP_DELETED)
        bench.subscribe(link, "GROUP_DELETED", after=before)
        await asyncio.gather(
            bench.tell("made"),
            bench.tell("joined", type=EventType.NODE_ONLINE),
            bench.tell("gone too", type=EventType.GROUP_DELETED),
            bench.tell("left", type=EventType.NODE_ONLINE),
        )
        await arrived(link, "gone", "made", "gone too")


@pytest.mark.trap("T85")
async def test_what_was_dropped_from_among_others_is_told_to_those_who_wanted_it_and_to_nobody_else(scratch):
    async with bridge_bench(scratch, ring_events=2) as bench:
        before = bench.hub.head
        await bench.tell("a")
        for n in range(4):
            await bench.ledger.commit(module_event("shop/SOLD", n=n))
        await bench.tell("b")
        await bench.ledger.commit(module_event("shop/SOLD", n=4))
        await bench.tell("c", "d", "e")
        policy = RetentionPolicy(module_events=2)
        await Retention(bench.store, epoch=bench.epoch, policy=policy).apply()
        plain, keen = bench.join(HeldLink("plain")), bench.join(HeldLink("keen"))
        bench.subscribe(plain, "GROUP_CREATED", after=before)
        bench.subscribe(keen, "GROUP_CREATED", "shop/SOLD", after=before)
        for link in (plain, keen):
            await eventually(lambda link=link: link.subjects()[-1:] == ["e"], state=link.subjects)
        assert [event.event_type for event in plain.events()] == ["GROUP_CREATED"] * 5
        assert keen.subjects() == ["a", "lobby-1", "b", "lobby-1", "c", "d", "e"]
        assert [event.missed for event in keen.events()][:3] == [False, True, False]
        assert sum(event.missed for event in keen.events()) == 1


class DamagedLog:
    """A store's log that cannot be read at one place, for a reason that nobody foresaw."""

    def __init__(self, log: EventLog) -> None:
        self.unreadable = 0
        self.untold = 0
        self._log = log

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        if after.sequence < self.unreadable:
            raise ZeroDivisionError(f"page after {after}")
        page = await self._log.events(after, limit=limit)
        return [
            msgspec.structs.replace(event, subject="\ud800", type=EventType.MODULE_EVENT)
            if event.cursor.sequence == self.untold
            else event
            for event in page
        ]


@pytest.mark.trap("T81")
async def test_an_event_that_cannot_be_told_is_passed_with_a_marker_and_the_others_come(scratch):
    async with bridge_bench(scratch, ring_events=2, log=DamagedLog) as bench:
        before = bench.hub.head
        told = [(await bench.tell(str(n)))[0].cursor for n in range(6)]
        bench.log.untold = told[2].sequence
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED", "MODULE_EVENT", after=before)
        await eventually(lambda: link.subjects()[-1:] == ["5"], state=link.subjects)
        assert bench.hub.skipped == 1
        assert link.subjects() == ["0", "1", "3", "4", "5"]
        (marker,) = [event for event in link.events() if event.missed]
        assert marker.event_type == EVENTS_MISSED
        assert payload(marker)["data"] == {"after": str(told[1]), "until": str(told[2])}


@pytest.mark.trap("T81")
async def test_a_log_that_cannot_be_read_is_given_up_with_a_marker_instead_of_tried_for_ever(scratch):
    async with bridge_bench(scratch, ring_events=2, log=DamagedLog) as bench:
        before = bench.hub.head
        for n in range(6):
            await bench.tell(str(n))
        head = bench.hub.head
        bench.log.unreadable = head.sequence
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED", after=before)
        await eventually(lambda: link.events(), state=link.events)
        await bench.tell("next")
        await eventually(lambda: link.subjects() == ["next"], state=link.subjects)
        assert bench.hub.skipped == 1
        assert [event.missed for event in link.events()] == [True, False]
        assert payload(link.events()[0])["data"] == {"after": str(before), "until": str(head)}


async def test_a_module_s_event_that_is_wanted_by_two_names_comes_once(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        bench.subscribe(link, "MODULE_EVENT", "shop/SOLD", "GROUP_CREATED")
        await bench.ledger.commit(module_event("shop/SOLD"), module_event("shop/BOUGHT"))
        await bench.tell("end")
        await arrived(link, "lobby-1", "lobby-1", "end")
        assert [event.event_type for event in link.events()][:2] == ["shop/SOLD", "shop/BOUGHT"]


async def test_a_node_that_subscribed_knows_its_place_before_anything_happens(scratch):
    """Else it could not say after an outage where to go on."""
    async with bridge_bench(scratch) as bench:
        await bench.tell("before")
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED")
        await caught_up(bench, link)
        assert link.events() == []


async def test_a_peer_that_knows_no_places_gets_none(scratch):
    async with bridge_bench(scratch) as bench:
        old = bench.join(HeldLink(known=(features.BATCH,)))
        bench.subscribe(old, "GROUP_CREATED")
        await bench.tell("a")
        await arrived(old, "a")
        assert len(old.places()) == 1


async def test_a_subscription_that_wants_little_is_told_of_its_place_now_and_then(scratch):
    clock = LeapingClock()
    async with bridge_bench(scratch, clock=clock) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_DELETED")
        await caught_up(bench, link)
        await bench.tell(*(f"e{n}" for n in range(POSITION_EVENTS)))
        await caught_up(bench, link)
        assert len(link.places()) == 2, "once at first, once after so many"
        await bench.tell("one")
        clock.leap += POSITION_SECONDS
        await bench.tell("another")
        await caught_up(bench, link)
        assert link.events() == []


@pytest.mark.trap("T10")
async def test_after_an_outage_the_ring_has_what_was_missed(scratch):
    async with bridge_bench(scratch) as bench:
        first = bench.join()
        bench.subscribe(first, "GROUP_CREATED")
        await bench.tell("a")
        await arrived(first, "a")
        seen = first.places()[-1]
        bench.forwarding.left(first)
        await bench.tell("b", "c")
        second = bench.join(HeldLink(session="s2"))
        bench.subscribe(second, "GROUP_CREATED", "GROUP_DELETED", after=seen)
        await bench.tell("d")
        await arrived(second, "b", "c", "d")
        await caught_up(bench, second)
        places = [place.sequence for place in second.places()]
        assert places == sorted(places)
        assert first.subjects() == ["a"]


@pytest.mark.trap("T10")
@pytest.mark.parametrize("missed", [3, 700])
async def test_after_an_outage_of_another_term_the_store_has_what_was_missed(scratch, missed):
    """Nothing of it is in the ring; 700 are more than one page."""
    store = await open_store("sqlite", data=scratch)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        async with term_on(store) as term:
            link = term.join()
            term.subscribe(link, "GROUP_CREATED")
            await term.tell("a")
            await arrived(link, "a")
            seen = link.places()[-1]
            await term.tell(*(f"x{n}" for n in range(missed)))
        bench = await stack.enter_async_context(term_on(store))
        later = bench.join(HeldLink(session="s2"))
        bench.subscribe(later, "GROUP_CREATED", after=seen)
        await bench.tell("new")
        await arrived(later, *(f"x{n}" for n in range(missed)), "new")
        assert not any(event.missed for event in later.events())


async def test_one_that_reads_slowly_goes_on_from_the_store_when_the_ring_has_moved_on(scratch):
    async with bridge_bench(scratch, ring_events=8) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED")
        await bench.tell(*(f"e{n}" for n in range(300)))
        await arrived(link, *(f"e{n}" for n in range(300)))


@pytest.mark.parametrize("after", ["trimmed", "future", "foreign", "absurd"])
async def test_a_place_that_nobody_knows_is_answered_by_one_marker(scratch, after):
    async with bridge_bench(scratch, ring_events=4) as bench:
        told = await bench.tell(*(f"e{n}" for n in range(20)))
        await bench.store.commits.trim(
            epoch=bench.epoch,
            events_through=told[10].cursor.sequence,
            tombstones_through=0,
            journals=[],
        )
        place = {
            "trimmed": told[3].cursor,
            "future": Cursor(told[0].cursor.epoch, 10**6),
            "foreign": Cursor(told[0].cursor.epoch + 7, told[15].cursor.sequence),
            "absurd": Cursor(2**64 - 1, 2**64 - 1),
        }[after]
        head = bench.hub.head
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED", "GROUP_DELETED", after=place)
        await bench.tell("new")
        await arrived(link, "new")
        marker, _ = link.events()
        assert marker.missed
        assert marker.event_type == EVENTS_MISSED
        assert (marker.cursor.epoch, marker.cursor.sequence) == (head.epoch, head.sequence)
        assert payload(marker)["type"] == EVENTS_MISSED
        assert payload(marker)["data"] == {"after": str(place), "until": str(head)}


async def test_an_unknown_name_is_told_of_and_the_known_ones_beside_it_count(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED", "NO_SUCH_TYPE", "", "../../etc", "x" * 5000)
        await bench.tell("a")
        await arrived(link, "a")
        (complaint,) = link.complaints
        assert complaint.code is Code.UNKNOWN_EVENT_TYPE
        assert "NO_SUCH_TYPE" in str(complaint)
        assert len(str(complaint)) < 1000


async def test_a_subscription_to_everything_that_has_no_name_is_none(scratch):
    async with bridge_bench(scratch) as bench:
        link, other = bench.join(), bench.join(HeldLink("south"))
        bench.subscribe(link)
        bench.subscribe(other, "GROUP_CREATED")
        await bench.tell("a")
        await arrived(other, "a")
        assert link.take() == []


async def test_names_are_bounded_and_garbage_without_end_harms_nobody(scratch):
    async with bridge_bench(scratch) as bench:
        link, other = bench.join(), bench.join(HeldLink("south"))
        bench.subscribe(other, "GROUP_CREATED")
        bench.subscribe(link, *(f"shop/E{n}" for n in range(MAX_TYPES - 1)), "GROUP_CREATED", "shop/MORE")
        assert link.complaints[-1].code is Code.RATE_LIMITED
        for turn in range(20):
            bench.subscribe(link, *(f"{turn}/{n}" for n in range(5000)), "GROUP_DELETED")
        assert not link.outbox.overflowed
        await bench.tell("kept")
        await bench.tell("lost", type=EventType.GROUP_DELETED)
        await arrived(link, "kept")
        await arrived(other, "kept")


async def test_what_is_unsubscribed_comes_no_more_and_what_stays_is_not_disturbed(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED", "GROUP_DELETED")
        await bench.tell("a")
        await arrived(link, "a")
        bench.unsubscribe(link, "GROUP_CREATED", "never")
        await bench.tell("b")
        await bench.tell("c", type=EventType.GROUP_DELETED)
        await arrived(link, "a", "c")
        bench.unsubscribe(link, "GROUP_DELETED")
        await bench.tell("d", type=EventType.GROUP_DELETED)
        bench.subscribe(link, "GROUP_DELETED")
        await bench.tell("e", type=EventType.GROUP_DELETED)
        await arrived(link, "a", "c", "e")


async def test_a_name_that_is_subscribed_again_comes_once(scratch):
    async with bridge_bench(scratch) as bench:
        (before,) = await bench.tell("before")
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED")
        bench.subscribe(link, "GROUP_CREATED", after=Cursor(before.cursor.epoch, 0))
        bench.subscribe(link, "GROUP_CREATED", "GROUP_CREATED")
        await bench.tell("a")
        await arrived(link, "a")


async def test_a_name_that_catches_up_repeats_nothing_of_the_others(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        start = bench.hub.head
        bench.subscribe(link, "GROUP_CREATED")
        for n in range(5):
            await bench.tell(f"c{n}")
            await bench.tell(f"d{n}", type=EventType.GROUP_DELETED)
        await arrived(link, *(f"c{n}" for n in range(5)))
        bench.subscribe(link, "GROUP_DELETED", after=start)
        await bench.tell("c5")
        await bench.tell("d5", type=EventType.GROUP_DELETED)
        await arrived(link, *(f"c{n}" for n in range(5)), *(f"d{n}" for n in range(5)), "c5", "d5")


class HeldLog:
    """The store's log, which answers when it may."""

    def __init__(self, log: EventLog) -> None:
        self.asked = asyncio.Event()
        self.may = asyncio.Event()
        self._log = log

    async def events(self, after: Cursor, *, limit: int) -> list[Event]:
        self.asked.set()
        await self.may.wait()
        return await self._log.events(after, limit=limit)


async def test_what_is_subscribed_while_the_store_is_read_misses_nothing(scratch):
    async with bridge_bench(scratch, ring_events=4, log=HeldLog) as bench:
        start = bench.hub.head
        await bench.tell(*(f"c{n}" for n in range(6)))
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED")
        await caught_up(bench, link)
        drafts = [Draft(type=EventType.GROUP_CREATED, subject=f"d{n}") for n in range(6)]
        await bench.ledger.commit(*drafts, Draft(type=EventType.GROUP_UPDATED, subject="u"))
        await bench.log.asked.wait()
        bench.subscribe(link, "GROUP_DELETED")
        bench.subscribe(link, "GROUP_UPDATED", after=start)
        await bench.tell("e", type=EventType.GROUP_DELETED)
        await bench.tell("f", type=EventType.GROUP_UPDATED)
        bench.log.may.set()
        await arrived(link, *(f"d{n}" for n in range(6)), "u", "e", "f")


async def test_what_others_want_costs_a_quiet_subscription_no_look_at_the_store(scratch):
    async with bridge_bench(scratch, ring_events=16, log=HeldLog) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_DELETED")
        await caught_up(bench, link)
        for n in range(40):
            await bench.tell(f"c{n}")
        await bench.tell("d", type=EventType.GROUP_DELETED)
        await arrived(link, "d")
        assert not bench.log.asked.is_set()


async def test_a_place_at_the_head_is_not_lost_by_what_happens_while_the_store_is_asked_about_it(scratch):
    async with bridge_bench(scratch, ring_events=4, log=HeldLog) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED", after=bench.hub.head)
        await bench.log.asked.wait()
        await bench.tell(*(f"c{n}" for n in range(20)))
        bench.log.may.set()
        await arrived(link, *(f"c{n}" for n in range(20)))
        assert not any(event.missed for event in link.events())


@pytest.mark.trap("T40")
async def test_the_late_close_of_an_old_stream_takes_nothing_from_the_new_one(scratch):
    async with bridge_bench(scratch) as bench:
        old = bench.join()
        bench.subscribe(old, "GROUP_CREATED")
        await bench.tell("a")
        await arrived(old, "a")
        new = bench.join(HeldLink(session="s2"))
        bench.subscribe(new, "GROUP_CREATED", after=old.places()[-1])
        bench.unsubscribe(old, "GROUP_CREATED")
        bench.forwarding.left(old)
        bench.forwarding.left(old)
        bench.subscribe(old, "GROUP_CREATED")
        await bench.tell("b")
        await arrived(new, "b")
        assert old.subjects() == ["a"]


async def test_a_node_that_does_not_read_is_waited_for_and_the_others_are_not(scratch):
    """Its outbox stays bounded and never overflows, the hub keeps nothing for it, and all arrives in the end."""
    many = [f"e{n}" for n in range(3000)]
    async with bridge_bench(scratch, ring_events=512) as bench:
        stalled, other = bench.join(), bench.join(HeldLink("south"))
        bench.subscribe(stalled, "GROUP_CREATED")
        bench.subscribe(other, "GROUP_CREATED")
        for at in range(0, len(many), 600):
            await bench.tell(*many[at : at + 600])
            await eventually(lambda told=at + 600: len(other.events()) == told)
            assert len(stalled.outbox) <= QUEUED_MESSAGES + 1
            assert stalled.outbox.waiting_bytes <= QUEUED_BYTES + 1000
        assert other.subjects() == many
        assert not stalled.outbox.overflowed
        assert len(stalled.outbox) < len(many)
        await arrived(stalled, *many)


async def test_a_node_that_does_not_read_for_too_long_is_told_so_when_it_does(scratch):
    async with bridge_bench(scratch, ring_events=4) as bench:
        link = bench.join()
        bench.subscribe(link, "shop/SOLD", "GROUP_CREATED")
        for _ in range(20):
            await bench.ledger.commit(module_event("shop/SOLD", note="y" * 60_000))
        await eventually(lambda: link.outbox.waiting_bytes > QUEUED_BYTES)
        waiting = len(link.outbox)
        told = await bench.tell(*(f"e{n}" for n in range(20)))
        last = told[9].cursor.sequence
        await bench.store.commits.trim(
            epoch=bench.epoch, events_through=last, tombstones_through=0, journals=[]
        )
        link.take()
        await eventually(lambda: any(event.missed for event in link.events()))
        await bench.tell("new")
        await eventually(lambda: link.subjects()[-1] == "new")
        assert [event.missed for event in link.events()].count(True) == 1
        assert len(link.subjects()) == waiting, "places are no events, and nothing came but the new one"


async def test_large_events_wait_for_room_too(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        bench.subscribe(link, "shop/SOLD", "GROUP_UPDATED")
        large = "y" * 60_000
        for _ in range(50):
            await bench.ledger.commit(module_event("shop/SOLD", note=large))
        await eventually(lambda: link.outbox.waiting_bytes > QUEUED_BYTES)
        assert link.outbox.waiting_bytes < QUEUED_BYTES + 70_000
        await bench.ledger.commit(
            Draft(type=EventType.GROUP_UPDATED, subject="huge", data={"changed": ["\x01" * 400_000]})
        )
        await arrived(link, *["lobby-1"] * 50, "huge")
        assert "omitted" in payload(link.events()[-1])["data"], "its JSON would be six times as large"


async def test_a_closed_bridge_sends_nothing_and_leaves_no_task(scratch):
    async with bridge_bench(scratch) as bench:
        link = bench.join()
        bench.subscribe(link, "GROUP_CREATED")
        await caught_up(bench, link)
        await bench.forwarding.close()
        await bench.tell("late")
        assert link.subjects() == []
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("bridge/")]
