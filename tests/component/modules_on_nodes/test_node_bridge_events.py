"""Events to and from modules of a node: asked for once a type, delivered in order, resumed where they stopped."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from bridge_rig import EventBench, PlayedProcess, cursor, event_bench, event_frame, played, wish

from corral.controller.modules_on_nodes.event_frames import EventFrames
from corral.daemon.modules.event_publisher import EventPublisher
from corral.daemon.modules.subscriptions import NodeEventRing
from corral.domain.events import Cursor, Event, EventType
from corral.domain.modules.manifest import EventsPart
from corral.errors import Code, CorralError
from corral.modules.process.call_failures import ModuleRaised
from corral.modules.scope import Scope
from corral.modules.services.event_rules import (
    BURST_SECONDS,
    BYTES_PER_SECOND,
    EVENTS_MISSED,
    MAX_NODE_TYPES,
    EventPace,
)
from corral.modules.services.subscription_delivery import MAX_SUBSCRIPTIONS, event_body
from corral.sdk.protocol.messages import Nothing, Publish
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually
from corral.wire import features
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import ModuleEvent


class LeapingClock(SystemClock):
    leap = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.leap


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)


@pytest.fixture
async def bench(scratch: Any) -> AsyncIterator[EventBench]:
    async with event_bench(scratch) as bench:
        yield bench


@contextlib.asynccontextmanager
async def playing(module_id: str = "played", **options: Any) -> AsyncIterator[tuple[Scope, PlayedProcess]]:
    scope, process = played(module_id, **options)
    try:
        yield scope, process
    finally:
        await scope.close()


async def refused(call: Any) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await call
    return caught.value


# --- what they see --------------------------------------------------------------------------------------------
async def test_an_event_names_the_node_that_published_it_on_other_nodes_too(bench: EventBench) -> None:
    """As the controller stores and forwards it; a module on the controller sees the same."""
    stamped = {"module": "shop", "type": "SOLD", "subject": "lobby-1", "data": {"price": 3}}
    of_the_controller = Event(
        cursor=Cursor(1, 2), type=EventType.MODULE_EVENT, subject="shop/SOLD", at=NOON, data=stamped
    )
    of_a_node = msgspec.structs.replace(
        of_the_controller, cursor=Cursor(1, 1), data={**stamped, "node": "n2"}
    )
    bench.connect()
    async with playing() as (scope, process):
        await bench.subscribe(scope, "shop/SOLD")
        for event in (of_a_node, of_the_controller):
            bench.receive(EventFrames().of(event).module_event)
        await eventually(lambda: len(process.events) == 2)
        assert process.events == [event_body(event)[0] for event in (of_a_node, of_the_controller)]
        assert [event.node for event in process.events] == ["n2", ""]


# --- what is asked for ------------------------------------------------------------------------------------
async def test_only_the_first_one_who_wants_a_type_and_the_last_one_are_told(bench: EventBench) -> None:
    bench.connect()
    async with playing("a") as (first, _), playing("b") as (second, _):
        await bench.subscribe(first, "GROUP_CREATED", "GROUP_DELETED")
        assert bench.told() == [("subscribe", ["GROUP_CREATED", "GROUP_DELETED"], None)]
        await bench.subscribe(second, "GROUP_CREATED", "NODE_ONLINE")
        await bench.subscribe(second, "GROUP_CREATED", number=2)
        assert bench.told() == [("subscribe", ["NODE_ONLINE"], None)]
        await bench.unsubscribe(first)
        await bench.unsubscribe(first)  # again, harmless
        assert bench.told() == [("unsubscribe", ["GROUP_DELETED"], None)]
        await bench.unsubscribe(second, 2)
        assert bench.told() == []
        await second.close()
        assert bench.told() == [("unsubscribe", ["GROUP_CREATED", "NODE_ONLINE"], None)]


async def test_a_module_that_changes_its_mind_without_end_does_not_flood_the_link(bench: EventBench) -> None:
    bench.connect()
    async with playing("fickle") as (fickle, _), playing("steady") as (steady, _):
        for _ in range(500):
            await bench.subscribe(fickle, "NODE_ONLINE")
            await bench.unsubscribe(fickle)
        await bench.subscribe(steady, "GROUP_CREATED")
        assert 200 < len(bench.sent) < 400

        def wanted() -> set[str]:
            types: set[str] = set()
            for kind, named, _ in map(wish, bench.sent):
                types = types | set(named) if kind == "subscribe" else types - set(named)
            return types

        await eventually(lambda: wanted() == {"GROUP_CREATED"}, state=wanted)
        assert len(bench.sent) < 400


async def test_a_scope_that_closes_takes_its_subscriptions_with_it(bench: EventBench) -> None:
    bench.connect()
    async with playing("stays") as (stays, witness):
        gone, silent = played("gone")
        await bench.subscribe(stays, "GROUP_CREATED")
        await bench.subscribe(gone, "GROUP_CREATED", "NODE_ONLINE")
        assert gone.registrations() == [("subscription", "GROUP_CREATED,NODE_ONLINE")]
        bench.told()
        await gone.close()
        assert bench.told() == [("unsubscribe", ["NODE_ONLINE"], None)]
        bench.tell(1)
        await eventually(lambda: witness.subjects == ["1"])
        assert silent.calls == []


async def test_nothing_is_sent_without_a_connection_and_everything_at_the_next_one(bench: EventBench) -> None:
    async with playing() as (scope, _):
        await bench.subscribe(scope, "GROUP_CREATED")
        await bench.subscribe(scope, "NODE_ONLINE", number=2)
        await bench.unsubscribe(scope, 2)
        assert bench.told() == []
        bench.connect()
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], None)]


async def test_a_reconnect_resumes_all_types_after_the_last_cursor_seen(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(7)
        bench.receive(ModuleEvent(cursor=cursor(20)))  # a bare one: only the position moves
        bench.disconnect()
        await bench.subscribe(scope, "NODE_ONLINE", number=2)
        bench.told()
        bench.connect()
        assert bench.told() == [("subscribe", ["GROUP_CREATED", "NODE_ONLINE"], 20)]
        bench.tell(21)
        await eventually(lambda: process.subjects == ["7", "21"])


async def test_a_bare_cursor_is_a_position_before_the_first_event(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, _):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.receive(ModuleEvent(cursor=cursor(5)))
        bench.disconnect()
        bench.told()
        bench.connect()
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], 5)]


async def test_who_subscribed_without_a_connection_begins_where_the_log_ends_when_there_is_one(
    bench: EventBench,
) -> None:
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.connect(head=5)
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], 5)]
        bench.disconnect()  # before any answer
        bench.connect(head=9)
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], 5)]
        bench.tell(6, 10)
        await eventually(lambda: process.subjects == ["6", "10"])


async def test_a_connection_lost_before_the_answer_to_a_subscription_is_a_gap_that_is_told_once(
    bench: EventBench,
) -> None:
    bench.connect(head=5)
    async with playing("a") as (scope, process), playing("b") as (other, later):
        await bench.subscribe(scope, "GROUP_CREATED")
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], None)]
        bench.disconnect()
        bench.connect(head=30)
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], 30)]
        bench.disconnect()  # again before any answer: now it has a position
        await bench.subscribe(other, "GROUP_CREATED")
        bench.connect(head=40)
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], 30)]
        bench.tell(31)
        await eventually(lambda: later.subjects == ["31"] and len(process.events) == 2)
        assert [(event.type, event.data) for event in process.events] == [
            (EVENTS_MISSED, {"after": "", "until": "1-30"}),
            ("GROUP_CREATED", {}),
        ]


async def test_one_that_came_while_there_was_no_connection_is_told_of_no_gap_of_those_before(
    bench: EventBench,
) -> None:
    bench.connect(head=5)
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.disconnect()
        await bench.unsubscribe(scope)
        await bench.subscribe(scope, "NODE_ONLINE", number=2)
        bench.told()
        bench.connect(head=9)
        assert bench.told() == [("subscribe", ["NODE_ONLINE"], 9)]
        bench.tell(10, type="NODE_ONLINE")
        await eventually(lambda: process.subjects == ["10"])


async def test_a_position_that_nobody_needs_is_not_kept_for_those_who_come_later(bench: EventBench) -> None:
    bench.connect(head=1)
    async with playing() as (scope, _):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(7)
        bench.disconnect()
        await bench.unsubscribe(scope)
        bench.connect(head=1000)
        bench.told()
        await bench.subscribe(scope, "GROUP_CREATED")
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], None)]
        bench.receive(ModuleEvent(cursor=cursor(3)))  # of a log that was put back meanwhile
        bench.disconnect()
        bench.connect(head=3)
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], 3)]


async def test_who_subscribes_after_all_were_gone_begins_anew(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, _):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(7)
        await bench.unsubscribe(scope)
        await bench.subscribe(scope, "NODE_ONLINE")
        bench.disconnect()
        bench.told()
        bench.connect()
        assert bench.told() == [("subscribe", ["NODE_ONLINE"], None)]


# --- what comes -------------------------------------------------------------------------------------------
async def test_events_come_in_order_filtered_by_type_and_subject(bench: EventBench) -> None:
    bench.connect()
    async with playing("a") as (plain, every), playing("b") as (narrow, some):
        await bench.subscribe(plain, "GROUP_CREATED")
        await bench.subscribe(narrow, "GROUP_CREATED", "NODE_ONLINE", subjects=("2", "4"))
        bench.tell(1, 2, 3)
        bench.tell(4, type="NODE_ONLINE")
        bench.tell(5)
        await eventually(lambda: len(every.subjects) == 4 and len(some.subjects) == 2)
        assert every.subjects == ["1", "2", "3", "5"]
        assert some.subjects == ["2", "4"]
        assert [event.cursor for event in some.events] == ["1-2", "1-4"]


async def test_what_modules_told_is_known_by_its_name_and_as_a_module_event(bench: EventBench) -> None:
    bench.connect()
    async with playing("a") as (named, one), playing("b") as (all_of_them, every):
        await bench.subscribe(named, "speaker/SCORE", subjects=("alice",))
        await bench.subscribe(all_of_them, "MODULE_EVENT")
        bench.receive(event_frame(1, type="speaker/SCORE", subject="alice", data={"n": 1}))
        bench.receive(event_frame(2, type="speaker/OTHER", subject="bob"))
        await eventually(lambda: len(every.events) == 2)
        assert [(event.type, event.subject, event.data) for event in one.events] == [
            ("speaker/SCORE", "alice", {"n": 1})
        ]
        assert [event.type for event in every.events] == ["speaker/SCORE", "speaker/OTHER"]


async def test_what_comes_twice_is_taken_once(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(1, 2, 2, 1, 3)
        bench.tell(2, 3, 4, epoch=2)  # another leader's numbers: later, whatever they are
        bench.tell(9, epoch=1)
        await eventually(lambda: len(process.subjects) == 6)
        assert [event.cursor for event in process.events] == ["1-1", "1-2", "1-3", "2-2", "2-3", "2-4"]


@pytest.mark.trap("T40")
async def test_a_late_frame_of_an_old_stream_changes_nothing(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(1)
        bench.disconnect()
        bench.tell(3)  # still in the old stream's reader
        bench.receive(ModuleEvent(cursor=cursor(9)))
        bench.told()
        bench.connect()
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], 1)]
        bench.tell(2, 3)
        await eventually(lambda: process.subjects == ["1", "2", "3"])


async def test_a_slow_module_delays_nobody_and_events_wait_until_one_serves(bench: EventBench) -> None:
    bench.connect()
    async with (
        playing("stuck") as (stuck, silent),
        playing("rests", serving=False) as (rests, resting),
        playing("other") as (other, process),
    ):

        async def hang(method: str, body: Any) -> Nothing:
            await asyncio.Event().wait()
            return Nothing()

        silent.answering = hang
        for scope in (stuck, rests, other):
            await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(1)
        await eventually(lambda: silent.subjects == ["1"])
        bench.tell(2, 3)
        await eventually(lambda: process.subjects == ["1", "2", "3"])
        assert (silent.subjects, resting.subjects) == (["1"], [])
        rests.serve()
        await eventually(lambda: resting.subjects == ["1", "2", "3"])


async def test_a_handler_that_raises_loses_nothing_that_comes_after(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, process):

        async def raising(method: str, body: Any) -> Nothing:
            raise ModuleRaised("played", method, kind="ValueError", message="no")

        process.answering = raising
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(1)
        await eventually(lambda: process.subjects == ["1"])
        bench.tell(2)
        await eventually(lambda: process.subjects == ["1", "2"])


async def test_one_that_fell_behind_is_told_once_and_goes_on_from_the_head(scratch: Any) -> None:
    ring = NodeEventRing(capacity=8, capacity_bytes=10**6)
    async with event_bench(scratch, ring=ring) as bench, playing() as (scope, process):
        go = asyncio.Event()

        async def slow(method: str, body: Any) -> Nothing:
            await go.wait()
            return Nothing()

        process.answering = slow
        bench.connect()
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(1)
        await eventually(lambda: process.subjects == ["1"])
        bench.tell(*range(2, 40))
        go.set()
        await eventually(lambda: len(process.events) == 2)
        bench.tell(40)
        await eventually(lambda: len(process.events) == 3)
        assert [event.type for event in process.events] == ["GROUP_CREATED", EVENTS_MISSED, "GROUP_CREATED"]
        assert process.events[1].data == {"after": "1-1", "until": "1-39"}


async def test_what_the_controller_cannot_tell_any_more_is_missed_once_by_each(bench: EventBench) -> None:
    bench.connect()
    async with playing("a") as (first, one), playing("b") as (second, two):
        await bench.subscribe(first, "GROUP_CREATED")
        await bench.subscribe(second, "NODE_ONLINE", subjects=("x",))
        bench.tell(3)
        bench.disconnect()
        bench.connect()
        bench.receive(ModuleEvent(event_type=EVENTS_MISSED, missed=True, cursor=cursor(90)))
        async with playing("c") as (later, three):
            await bench.subscribe(later, "GROUP_CREATED")
            bench.tell(91)
            await eventually(lambda: one.subjects == ["3", "", "91"] and three.subjects == ["91"])
        await eventually(lambda: two.events)
        assert [(event.type, event.data) for event in two.events] == [
            (EVENTS_MISSED, {"after": "1-3", "until": "1-90"})
        ]
        bench.disconnect()
        bench.told()
        bench.connect()
        assert bench.told() == [("subscribe", ["GROUP_CREATED", "NODE_ONLINE"], 91)]


async def test_a_log_that_was_put_back_is_followed_from_where_it_is_now(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED")
        bench.tell(50)
        bench.receive(ModuleEvent(event_type=EVENTS_MISSED, missed=True, cursor=cursor(10)))
        bench.tell(11)
        await eventually(lambda: process.subjects == ["50", "", "11"])


async def test_a_controller_that_repeats_nothing_leaves_a_gap_that_is_told(bench: EventBench) -> None:
    bench.connect(features.BATCH)
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED")
        plain = event_frame(1)
        plain.ClearField("cursor")
        bench.receive(plain)
        bench.receive(plain)
        bench.disconnect()
        bench.connect(features.BATCH)
        await eventually(lambda: len(process.events) == 3)
        assert [event.type for event in process.events] == ["GROUP_CREATED", "GROUP_CREATED", EVENTS_MISSED]


async def test_frames_that_nobody_understands_are_left_out_and_the_rest_comes(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED")
        for number, payload in enumerate(
            [b"", b"{", b"[1]", b'{"type": "GROUP_CREATED"}', b"[" * 5000, b"\xff"]
        ):
            bad = ModuleEvent(event_type="GROUP_CREATED", payload_json=payload, cursor=cursor(number + 1))
            bench.receive(bad)
        bench.receive(event_frame(20, type="NOT_YET_KNOWN"))
        bench.tell(21)
        await eventually(lambda: process.subjects == ["21"])


# --- what may be asked ------------------------------------------------------------------------------------
async def test_what_a_node_cannot_give_is_refused(bench: EventBench) -> None:
    bench.connect()
    async with playing() as (scope, _):
        assert (
            await refused(bench.subscribe(scope, "GROUP_CREATED", durable="x"))
        ).code is Code.NOT_SUPPORTED
        assert (await refused(bench.subscribe(scope, "GROUP_CREATE"))).code is Code.UNKNOWN_EVENT_TYPE
        assert scope.registrations() == []
        await bench.subscribe(scope, "GROUP_CREATED")
        assert (await refused(bench.subscribe(scope, "NODE_ONLINE"))).code is Code.ALREADY_EXISTS
        for number in range(2, MAX_SUBSCRIPTIONS + 1):
            await bench.subscribe(scope, "GROUP_CREATED", number=number)
        assert (await refused(bench.subscribe(scope, "GROUP_CREATED", number=99))).code is Code.RATE_LIMITED
        assert bench.told() == [("subscribe", ["GROUP_CREATED"], None)]


async def test_a_node_wants_no_more_types_than_a_controller_forwards(bench: EventBench) -> None:
    async with playing() as (scope, _):
        names = [f"speaker/T{number}" for number in range(MAX_NODE_TYPES + 1)]
        for number in range(0, MAX_NODE_TYPES, 100):
            await bench.subscribe(scope, *names[number : number + 100], number=number)
        assert (await refused(bench.subscribe(scope, names[-1], number=1))).code is Code.RATE_LIMITED
        await bench.subscribe(scope, names[0], number=1)


async def test_the_manifest_s_list_is_all_that_may_be_subscribed_to(bench: EventBench) -> None:
    bench.connect()
    listed = EventsPart(subscribes=("GROUP_CREATED", "speaker/SCORE"))
    async with playing(events=listed) as (scope, _):
        assert (await refused(bench.subscribe(scope, "NODE_ONLINE"))).code is Code.FORBIDDEN
        await bench.subscribe(scope)  # all that it may
        assert bench.told() == [("subscribe", ["GROUP_CREATED", "speaker/SCORE"], None)]


async def test_who_lists_nothing_or_what_never_travels_is_told_which_key_of_the_manifest_it_is(
    bench: EventBench,
) -> None:
    bench.connect()
    never = EventsPart(subscribes=("GROUP_CREATED", "INSTANCE_COMMAND", "TOKEN_CREATED"))
    async with playing(events=never) as (scope, _):
        for types in (("INSTANCE_COMMAND",), ("TOKEN_CREATED",), ()):
            error = await refused(bench.subscribe(scope, *types))
            assert error.code is Code.FORBIDDEN
            assert "events.subscribes" in str(error)
        await bench.subscribe(scope, "GROUP_CREATED")
    async with playing() as (scope, _):
        scope.manifest = msgspec.structs.replace(scope.manifest, events=EventsPart())
        for types in ((), ("GROUP_CREATED", "INSTANCE_CRASHED"), ("TOKEN_CREATED",), ("speaker/SCORE",)):
            error = await refused(bench.subscribe(scope, *types))
            assert error.code is Code.FORBIDDEN
            assert "events.subscribes" in str(error)
        await bench.subscribe(scope, "GROUP_CREATED", "CAPABILITY_REGISTERED")  # all of their fields are open


# --- what is told -----------------------------------------------------------------------------------------
async def test_what_a_module_publishes_is_in_the_spool_when_it_is_answered(bench: EventBench) -> None:
    async with playing("speaker", events=EventsPart(publishes=("SCORE",))) as (scope, _):
        for number in range(3):
            await bench.publish(scope, "SCORE", {"n": number}, subject="alice")
        kept = [DaemonMessage.FromString(r.body).event_publish for r in await bench.spool.take(0, limit=9)]
        assert [event.payload_json for event in kept] == [b'{"n":0}', b'{"n":1}', b'{"n":2}']
        assert {(e.event_type, e.module_id, e.subject) for e in kept} == {("SCORE", "speaker", "alice")}
        assert all(event.published_at_ms for event in kept)


@pytest.mark.parametrize(
    ("type", "data", "subject", "code"),
    [
        ("SCORES", {}, "", Code.UNKNOWN_EVENT_TYPE),
        ("SCORE", {"x": "y" * 70_000}, "", Code.INVALID_FIELD),
        ("SCORE", {}, "s" * 201, Code.INVALID_FIELD),
    ],
)
async def test_what_may_not_be_told_is_refused_and_nothing_is_kept(
    bench: EventBench, type: str, data: Any, subject: str, code: Code
) -> None:
    async with playing(events=EventsPart(publishes=("SCORE",))) as (scope, _):
        assert (await refused(bench.publish(scope, type, data, subject=subject))).code is code
        assert await bench.spool.take(0, limit=9) == []


async def test_a_spool_that_is_full_refuses_and_takes_again_when_there_is_room(scratch: Any) -> None:
    speaks = EventsPart(publishes=("SCORE",))
    async with event_bench(scratch, max_bytes=400_000) as bench, playing(events=speaks) as (scope, _):

        async def fill() -> None:
            for _ in range(400):
                await bench.publish(scope, "SCORE", {"x": "y" * 800})

        assert (await refused(fill())).code is Code.STORE_UNAVAILABLE
        await bench.spool.take(0, limit=500)
        bench.spool.confirm(bench.spool.head)
        await bench.publish(scope, "SCORE", {"x": "y" * 800})


async def test_one_module_cannot_fill_the_spool_that_others_report_through(bench: EventBench) -> None:
    speaks = EventsPart(publishes=("SCORE",))
    publishing = EventPublisher(
        bench.spool,
        pace=EventPace(per_second=100_000, clock=SystemClock()),
        clock=SystemClock(),
        module_bytes=500_000,
    )
    async with playing("loud", events=speaks) as (loud, _), playing("calm", events=speaks) as (calm, _):
        event = Publish(type="SCORE", data={"x": "y" * 60_000})
        for _ in range(8):
            await publishing.publish(loud, event)
        error = await refused(publishing.publish(loud, event))
        assert (error.code, error.retry_after) == (Code.STORE_UNAVAILABLE, 1.0)
        await publishing.publish(calm, event)
        first = await bench.spool.take(0, limit=9)
        bench.spool.confirm(first[-1].sequence)
        await bench.spool.put(b"")  # the confirmation is on disk with it
        await publishing.publish(loud, event)


@pytest.mark.trap("T85")
async def test_a_module_that_publishes_too_fast_waits_and_no_other_does() -> None:
    clock = LeapingClock()
    pace = EventPace(per_second=10, clock=clock)
    for _ in range(10 * BURST_SECONDS + 1):
        await pace.turn("loud", 100)
    waiting = asyncio.create_task(pace.turn("loud", 100))
    await pace.turn("calm", 100)
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.leap += 1.0
    await waiting
    for _ in range(6):
        await pace.turn("large", BYTES_PER_SECOND)
    waiting = asyncio.create_task(pace.turn("large", 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    clock.leap += 2.0
    await waiting
