"""Events to and from modules: in order, isolated, never lost in silence."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from event_bench import EventBench, delivered, event_bench, subjects, term_on
from scripted_module import played_scope
from structlog.testing import capture_logs

from corral.domain.events import OMITTED, Draft, EventType
from corral.domain.json_limits import MAX_DEPTH
from corral.domain.modules.manifest import EventsPart
from corral.errors import Code, CorralError
from corral.modules.process.call_failures import ModuleBusy, ModuleRaised
from corral.modules.services.event_rules import EVENTS_MISSED
from corral.modules.services.subscription_delivery import ATTEMPTS, BATCH, MAX_SUBSCRIPTIONS
from corral.sdk.protocol.messages import Nothing
from corral.store.commit_batches import commits_of
from corral.store.engine_selection import open_store
from corral.store.port import Commit, Transaction
from corral.store.retention import Retention, RetentionPolicy
from corral.store.store_errors import Fenced
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually


@pytest.fixture
async def bench(scratch: Any) -> Any:
    async with event_bench(scratch) as bench:
        yield bench


@contextlib.asynccontextmanager
async def playing(module_id: str = "played", **options: Any) -> Any:
    scope, process = played_scope(module_id, **options)
    try:
        yield scope, process
    finally:
        await scope.close()


async def refused(call: Any) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await call
    return caught.value


async def test_events_come_in_order_and_only_those_asked_for(bench: EventBench) -> None:
    async with playing() as (scope, process):
        await bench.tell("before")
        await bench.subscribe(scope, "GROUP_CREATED", "GROUP_DELETED")
        await bench.tell("a", "b")
        await bench.tell("x", type=EventType.NODE_ONLINE)
        await bench.tell("c", type=EventType.GROUP_DELETED)
        await eventually(lambda: len(delivered(process.calls)) == 3)
        assert subjects(process.calls) == ["a", "b", "c"]
        first = delivered(process.calls)[0]
        assert (first.type, first.data) == ("GROUP_CREATED", {"min": 7, "max": None})
        assert first.cursor


async def test_subjects_narrow_a_subscription_and_no_types_mean_all(bench: EventBench) -> None:
    async with playing() as (scope, process):
        await bench.subscribe(scope, subjects=("b", "d"))
        await bench.tell("a", "b", "c")
        await bench.tell("d", type=EventType.NODE_ONLINE)
        await eventually(lambda: subjects(process.calls) == ["b", "d"])


@pytest.mark.trap("T91")
async def test_events_about_accounts_go_to_modules_whose_manifest_names_them_only(bench: EventBench) -> None:
    listed = EventsPart(subscribes=("TOKEN_CREATED", "GROUP_CREATED"))
    async with playing("all") as (scope, process), playing("named", events=listed) as (named, heard):
        await bench.subscribe(scope)
        await bench.subscribe(scope, durable="kept", number=2)
        await bench.subscribe(named)
        await bench.tell("t", type=EventType.TOKEN_CREATED)
        await bench.tell("g")
        await eventually(lambda: subjects(heard.calls) == ["t", "g"])
        await eventually(lambda: subjects(process.calls) == ["g", "g"])
        error = await refused(bench.subscribe(scope, "TOKEN_CREATED", number=3))
        assert (error.code, error.field) == (Code.FORBIDDEN, "types")


@pytest.mark.trap("T91")
async def test_a_manifest_may_name_events_about_accounts_beside_all_others(bench: EventBench) -> None:
    listed = EventsPart(subscribes=("*", "TOKEN_CREATED"))
    async with playing(events=listed) as (scope, process):
        await bench.subscribe(scope)
        await bench.tell("t", type=EventType.TOKEN_CREATED)
        await bench.tell("u", type=EventType.USER_CREATED)
        await bench.tell("g")
        await eventually(lambda: subjects(process.calls) == ["t", "g"])
        await bench.subscribe(scope, "NODE_ONLINE", number=2)
        error = await refused(bench.subscribe(scope, "USER_CREATED", number=3))
        assert (error.code, error.field) == (Code.FORBIDDEN, "types")


@pytest.mark.trap("T91")
@pytest.mark.parametrize("ring_events", [1000, 2], ids=["in memory", "in the log"])
async def test_events_about_accounts_are_not_made_up_for_to_a_module_that_was_away(
    scratch: Any, ring_events: int
) -> None:
    """A durable subscription goes on where it stopped: by the same rules."""
    async with event_bench(scratch, ring_events=ring_events) as bench:
        async with playing() as (scope, _):
            await bench.subscribe(scope, durable="kept")
        await bench.tell("t", type=EventType.TOKEN_CREATED)
        await bench.tell("u", type=EventType.USER_CREATED)
        await bench.tell("a", "b", "c")
        async with playing() as (scope, process):
            await bench.subscribe(scope, durable="kept")
            await eventually(lambda: subjects(process.calls)[-1:] == ["c"])
            assert subjects(process.calls) == ["a", "b", "c"]


async def test_a_subscription_has_one_delivery_at_a_time_and_what_waits_comes_in_batches(
    bench: EventBench,
) -> None:
    async with playing() as (scope, process):
        go = asyncio.Event()
        inside = most = 0

        async def slow(method: str, body: Any) -> Nothing:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await go.wait()
            inside -= 1
            return Nothing()

        process.answering = slow
        await bench.subscribe(scope, "GROUP_CREATED")
        await bench.tell("first")
        await eventually(lambda: inside == 1)
        await bench.tell(*(str(number) for number in range(BATCH + 5)))
        go.set()
        await eventually(lambda: len(delivered(process.calls)) == BATCH + 6)
        assert most == 1
        assert [len(body.events) for method, body in process.calls] == [1, BATCH, 5]


async def test_a_module_that_hangs_holds_up_neither_the_hub_nor_another_module(bench: EventBench) -> None:
    async with playing("stuck") as (stuck, silent), playing("other") as (other, process):

        async def hang(method: str, body: Any) -> Nothing:
            await asyncio.Event().wait()
            return Nothing()

        silent.answering = hang
        await bench.subscribe(stuck, "GROUP_CREATED")
        await bench.subscribe(other, "GROUP_CREATED")
        await bench.tell("a")
        await eventually(lambda: subjects(silent.calls) == ["a"])
        await bench.tell("b", "c")
        await eventually(lambda: subjects(process.calls) == ["a", "b", "c"])
        assert subjects(silent.calls) == ["a"]


async def test_one_that_fell_behind_is_told_once_and_goes_on_from_the_head(scratch: Any) -> None:
    async with event_bench(scratch, ring_events=16) as bench, playing() as (scope, process):
        go = asyncio.Event()

        async def slow(method: str, body: Any) -> Nothing:
            await go.wait()
            return Nothing()

        process.answering = slow
        await bench.subscribe(scope, "GROUP_CREATED")
        (first,) = await bench.tell("first")
        await eventually(lambda: subjects(process.calls) == ["first"])
        told = await bench.tell(*(f"lost-{number}" for number in range(40)))
        go.set()
        await eventually(lambda: any(event.type == EVENTS_MISSED for event in delivered(process.calls)))
        await bench.tell("after")
        await eventually(lambda: subjects(process.calls)[-1] == "after")
        seen = delivered(process.calls)
        assert [event.type for event in seen] == ["GROUP_CREATED", EVENTS_MISSED, "GROUP_CREATED"]
        assert seen[1].data == {"after": str(first.cursor), "until": str(told[-1].cursor)}


async def test_a_handler_that_raises_loses_nothing_that_comes_after(bench: EventBench) -> None:
    async with playing() as (scope, process):

        async def raising(method: str, body: Any) -> Nothing:
            raise ModuleRaised("played", method, kind="ValueError", message="no")

        process.answering = raising
        await bench.subscribe(scope, "GROUP_CREATED")
        await bench.tell("a")
        await eventually(lambda: subjects(process.calls) == ["a"])
        await bench.tell("b")
        await eventually(lambda: subjects(process.calls) == ["a", "b"])


async def test_a_busy_module_gets_its_events_when_it_has_time(bench: EventBench) -> None:
    async with playing() as (scope, process):
        busy = True

        async def answering(method: str, body: Any) -> Nothing:
            if busy:
                raise ModuleBusy("played")
            return Nothing()

        process.answering = answering
        await bench.subscribe(scope, "GROUP_CREATED")
        await bench.tell("a")
        await eventually(lambda: len(process.calls) >= 2)
        busy = False
        await bench.tell("b")
        await eventually(lambda: subjects(process.calls)[-1] == "b")
        assert set(subjects(process.calls[:-1])) == {"a"}


async def test_events_wait_until_the_module_serves(bench: EventBench) -> None:
    async with playing("resting", serving=False) as (resting, silent), playing("other") as (other, process):
        await bench.subscribe(resting, "GROUP_CREATED")
        await bench.subscribe(other, "GROUP_CREATED")
        await bench.tell("a", "b")
        await eventually(lambda: subjects(process.calls) == ["a", "b"])
        assert silent.calls == []
        resting.serve()
        await eventually(lambda: subjects(silent.calls) == ["a", "b"])


async def test_nothing_is_delivered_after_an_unsubscription_or_the_end_of_the_scope(
    bench: EventBench,
) -> None:
    async with playing("watch") as (watch, witness), playing("left") as (left, process):
        gone, silent = played_scope("gone")
        for scope in (watch, left, gone):
            await bench.subscribe(scope, "GROUP_CREATED")
        assert gone.registrations() == [("subscription", "GROUP_CREATED")]
        await bench.unsubscribe(left)
        assert left.registrations() == []
        await gone.close()
        await bench.tell("a")
        await eventually(lambda: subjects(witness.calls) == ["a"])
        assert process.calls == silent.calls == []
        await bench.unsubscribe(left)  # again, harmless


# --- what modules tell ---------------------------------------------------------------------------------


async def test_a_module_hears_what_another_one_tells_by_its_name(bench: EventBench) -> None:
    speaks = EventsPart(publishes=("SCORE", "OTHER"))
    async with playing("speaker", events=speaks) as (speaker, _), playing("hearer") as (hearer, process):
        await bench.subscribe(hearer, "speaker/SCORE")
        await bench.publish(speaker, "OTHER", {"n": 0})
        cursor = await bench.publish(speaker, "SCORE", {"n": 1}, subject="alice")
        await eventually(lambda: delivered(process.calls))
        (event,) = delivered(process.calls)
        assert (event.type, event.subject, event.data) == ("speaker/SCORE", "alice", {"n": 1})
        assert event.cursor == cursor


async def test_what_a_module_tells_is_an_event_of_the_log(bench: EventBench) -> None:
    async with playing("speaker", events=EventsPart(publishes=("SCORE",))) as (speaker, _):
        before = bench.hub.head
        await bench.publish(speaker, "SCORE", {"n": 1}, subject="alice")
        (event,) = await bench.store.reads.events(before, limit=10)
        assert (event.type, event.subject) == (EventType.MODULE_EVENT, "speaker/SCORE")
        assert event.data == {"module": "speaker", "type": "SCORE", "subject": "alice", "data": {"n": 1}}


@pytest.mark.parametrize(
    ("publishes", "type", "data", "code"),
    [
        ((), "SCORE", {}, Code.UNKNOWN_EVENT_TYPE),
        (("SCORE",), "SCORES", {}, Code.UNKNOWN_EVENT_TYPE),
        (("SCORE",), "GROUP_CREATED", {}, Code.UNKNOWN_EVENT_TYPE),
        (("SCORE",), "", {}, Code.UNKNOWN_EVENT_TYPE),
        (("SCORE",), "SCORE", {"x": "y" * 70_000}, Code.INVALID_FIELD),
    ],
)
async def test_what_may_not_be_told_is_refused_and_nothing_is_stored(
    bench: EventBench, publishes: tuple[str, ...], type: str, data: Any, code: Code
) -> None:
    async with playing(events=EventsPart(publishes=publishes)) as (scope, _):
        before = bench.hub.head
        assert (await refused(bench.publish(scope, type, data))).code is code
        assert bench.hub.head == before


def nested(levels: int) -> Any:
    """A list of lists, so many inside each other."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.trap("T81")
@pytest.mark.parametrize("levels", [MAX_DEPTH, 500, 971, 972, 973, 974, 1000])
async def test_data_that_is_nested_too_deeply_is_refused_and_the_controller_goes_on(
    bench: EventBench, levels: int
) -> None:
    speaks = EventsPart(publishes=("SCORE",))
    async with playing("speaker", events=speaks) as (speaker, _), playing("hearer") as (hearer, process):
        await bench.subscribe(hearer, "speaker/SCORE")
        error = await refused(bench.publish_nested(speaker, "SCORE", levels))
        assert error.code in (Code.INVALID_FIELD, Code.BAD_REQUEST)  # the latter: no parser goes so deep
        deepest = {"a": nested(MAX_DEPTH - 1)}
        await bench.publish(speaker, "SCORE", deepest)
        await eventually(lambda: delivered(process.calls))
        assert [event.data for event in delivered(process.calls)] == [deepest]
        assert bench.writer.healthy


@pytest.mark.trap("T81")
async def test_a_poisoned_event_is_delivered_without_its_data_and_the_next_ones_come(scratch: Any) -> None:
    """Live, past the writer's checks, and from rows that lie in the store."""
    deep = {"module": "speaker", "type": "SCORE", "subject": "alice", "data": {"a": nested(900)}}
    poison = Transaction(
        events=(
            Draft(type=EventType.MODULE_EVENT, subject="speaker/SCORE", data=deep),
            Draft(type=EventType.GROUP_CREATED, subject="huge number", data={"min": 2**80}),
            Draft(type=EventType.GROUP_CREATED, subject="fine", data={}),
        )
    )
    types = ("GROUP_CREATED", "speaker/SCORE")
    store = await open_store("sqlite", data=scratch)
    try:
        async with term_on(store) as first, playing() as (scope, process), playing() as (durable, _):
            await first.subscribe(durable, *types, durable="mine")
            await durable.close()
            await first.subscribe(scope, *types)
            at = SystemClock().now()
            outcome = await store.commits.commit_batch(
                epoch=first.epoch, batch="b", at=at, transactions=[poison]
            )
            for commit in commits_of(outcome, [poison], epoch=first.epoch, at=at):
                assert isinstance(commit, Commit)
                first.hub.publish(commit)
            await eventually(lambda: "fine" in subjects(process.calls), state=lambda: process.calls)
            live = delivered(process.calls)
        async with term_on(store) as second, playing() as (again, process):
            await second.subscribe(again, *types, durable="mine")
            await eventually(lambda: "fine" in subjects(process.calls), state=lambda: process.calls)
            stored = delivered(process.calls)
    finally:
        await store.close()
    for events in (live, stored):
        assert [event.type for event in events] == ["speaker/SCORE", "GROUP_CREATED", "GROUP_CREATED"]
        assert [OMITTED in event.data for event in events] == [True, True, False]


@pytest.mark.parametrize(
    "name", ["GROUP_CREATE", "", "corral.GroupCreated", "Speaker/SCORE", "a/b/c", EVENTS_MISSED]
)
async def test_a_type_that_is_none_is_refused(bench: EventBench, name: str) -> None:
    async with playing() as (scope, _):
        assert (await refused(bench.subscribe(scope, name))).code is Code.UNKNOWN_EVENT_TYPE
        assert scope.registrations() == []


async def test_the_manifest_s_list_is_all_that_may_be_subscribed_to(bench: EventBench) -> None:
    listed = EventsPart(subscribes=("GROUP_CREATED", "speaker/SCORE"))
    async with playing(events=listed) as (scope, process):
        assert (await refused(bench.subscribe(scope, "NODE_ONLINE"))).code is Code.FORBIDDEN
        await bench.subscribe(scope)  # all that it may
        await bench.tell("x", type=EventType.NODE_ONLINE)
        await bench.tell("a")
        await eventually(lambda: subjects(process.calls) == ["a"])


async def test_a_number_twice_and_a_durable_name_twice_are_refused(bench: EventBench) -> None:
    async with playing() as (scope, _):
        await bench.subscribe(scope, durable="mine")
        assert (await refused(bench.subscribe(scope))).code is Code.ALREADY_EXISTS
        assert (await refused(bench.subscribe(scope, number=2, durable="mine"))).code is Code.ALREADY_EXISTS
        assert (await refused(bench.subscribe(scope, number=2, durable="a/b"))).code is Code.INVALID_FIELD


async def test_durable_subscriptions_asked_for_all_at_once_keep_to_the_limit(bench: EventBench) -> None:
    """And those that are refused leave no cursor behind."""
    async with playing() as (scope, _):
        asked = [
            bench.subscribe(scope, number=number, durable=f"d{number}")
            for number in range(1, 2 * MAX_SUBSCRIPTIONS)
        ]
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert [each.code for each in done if isinstance(each, CorralError)] == [Code.RATE_LIMITED] * (
            MAX_SUBSCRIPTIONS - 1
        )
        assert done.count(None) == len(scope.registrations()) == MAX_SUBSCRIPTIONS
        assert len(list(bench.state.module_cursors)) == MAX_SUBSCRIPTIONS


async def test_a_durable_name_is_taken_while_its_cursor_is_being_stored(bench: EventBench) -> None:
    async with playing() as (scope, _):
        asked = [bench.subscribe(scope, number=number, durable="mine") for number in (1, 2)]
        done = await asyncio.gather(*asked, return_exceptions=True)
        assert done.count(None) == 1
        assert [each.code for each in done if isinstance(each, CorralError)] == [Code.ALREADY_EXISTS]


# --- durable ones --------------------------------------------------------------------------------------


async def test_a_version_at_rest_leaves_its_durable_name_to_its_successor(bench: EventBench) -> None:
    async with playing() as (old, before), playing() as (new, after):
        await bench.subscribe(old, "GROUP_CREATED", durable="mine")
        await bench.tell("a")
        await eventually(lambda: subjects(before.calls) == ["a"])
        assert (await refused(bench.subscribe(new, durable="mine"))).code is Code.ALREADY_EXISTS
        old.rest()
        await bench.subscribe(new, "GROUP_CREATED", durable="mine")
        (told,) = await bench.tell("b")
        await eventually(lambda: subjects(after.calls)[-1:] == ["b"])
        await eventually(lambda: _stored(bench) == str(told.cursor))
        await bench.unsubscribe(old)
        await old.close()
        assert _stored(bench) == str(told.cursor)
        assert subjects(before.calls) == ["a"]


async def test_a_version_that_is_brought_back_has_its_durable_name_again(bench: EventBench) -> None:
    async with playing() as (old, process):
        await bench.subscribe(old, "GROUP_CREATED", durable="mine")
        old.rest()
        async with playing(serving=False) as (new, _):
            await bench.subscribe(new, "GROUP_CREATED", durable="mine")
            await bench.tell("a")
        old.serve()
        (told,) = await bench.tell("b")
        await eventually(lambda: subjects(process.calls) == ["a", "b"])
        await eventually(lambda: _stored(bench) == str(told.cursor))


def _stored(bench: EventBench) -> str:
    return bench.state.module_cursors.require("played/mine").record.cursor


async def test_a_durable_subscription_goes_on_where_it_stopped(bench: EventBench) -> None:
    async with playing() as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED", durable="mine")
        await bench.tell("a")
        await eventually(lambda: subjects(process.calls) == ["a"])
    await bench.tell("b", "c")
    async with playing() as (again, second):
        await bench.subscribe(again, "GROUP_CREATED", durable="mine")
        await eventually(lambda: subjects(second.calls) == ["b", "c"])
        await bench.tell("d")
        await eventually(lambda: subjects(second.calls) == ["b", "c", "d"])


async def test_what_was_not_confirmed_comes_again(bench: EventBench) -> None:
    async with playing() as (scope, process):

        async def hang(method: str, body: Any) -> Nothing:
            await asyncio.Event().wait()
            return Nothing()

        process.answering = hang
        await bench.subscribe(scope, "GROUP_CREATED", durable="mine")
        await bench.tell("a", "b")
        await eventually(lambda: process.calls)
    async with playing() as (again, second):
        await bench.subscribe(again, "GROUP_CREATED", durable="mine")
        await eventually(lambda: subjects(second.calls) == ["a", "b"])


async def test_a_durable_subscription_survives_the_term_and_the_store(scratch: Any) -> None:
    store = await open_store("sqlite", data=scratch)
    try:
        async with term_on(store) as first, playing() as (scope, process):
            await first.subscribe(scope, "GROUP_CREATED", durable="mine")
            await first.tell("a")
            await eventually(lambda: subjects(process.calls) == ["a"])
            await scope.close()
            await first.tell("b")
    finally:
        await store.close()
    store = await open_store("sqlite", data=scratch)
    try:
        async with term_on(store) as second, playing() as (again, process):
            await second.tell("c")
            await second.subscribe(again, "GROUP_CREATED", durable="mine")
            await eventually(lambda: subjects(process.calls) == ["b", "c"])
            await again.close()
    finally:
        await store.close()


async def test_a_durable_subscription_reads_the_log_where_the_ring_has_moved_on(scratch: Any) -> None:
    async with event_bench(scratch, ring_events=16) as bench:
        async with playing() as (scope, _):
            await bench.subscribe(scope, "GROUP_CREATED", durable="mine")
        names = [str(number) for number in range(100)]
        await bench.tell(*names)
        async with playing() as (again, process):
            await bench.subscribe(again, "GROUP_CREATED", durable="mine")
            await eventually(lambda: len(delivered(process.calls)) == 100)
            assert subjects(process.calls) == names


async def test_a_durable_subscription_is_told_when_the_log_has_moved_on_too(scratch: Any) -> None:
    store = await open_store("sqlite", data=scratch)
    try:
        async with term_on(store) as first, playing() as (scope, _):
            await first.subscribe(scope, "GROUP_CREATED", durable="mine")
            await scope.close()
            told = await first.tell("a", "b", "c")
            last = told[1].cursor.sequence
            await store.commits.trim(
                epoch=first.epoch, events_through=last, tombstones_through=0, journals=[]
            )
        async with term_on(store) as second, playing() as (again, process):
            await second.subscribe(again, "GROUP_CREATED", durable="mine")
            await eventually(lambda: delivered(process.calls))
            await second.tell("d")
            await eventually(lambda: len(delivered(process.calls)) == 2)
            assert [event.type for event in delivered(process.calls)] == [EVENTS_MISSED, "GROUP_CREATED"]
            assert subjects(process.calls)[1] == "d"
            await again.close()
    finally:
        await store.close()


@pytest.mark.trap("T85")
async def test_a_durable_subscription_is_told_of_module_events_that_were_dropped(scratch: Any) -> None:
    speaks = EventsPart(publishes=("SCORE",))
    async with event_bench(scratch, ring_events=2) as bench:
        async with playing() as (scope, _):
            await bench.subscribe(scope, "GROUP_CREATED", "speaker/SCORE", durable="mine")
        async with playing("speaker", events=speaks) as (speaker, _):
            await bench.tell("a")
            for _ in range(4):
                await bench.publish(speaker, "SCORE")
        await bench.tell("b", "c", "d")
        policy = RetentionPolicy(module_events=1)
        await Retention(bench.store, epoch=bench.epoch, policy=policy).apply()
        async with playing() as (again, process):
            await bench.subscribe(again, "GROUP_CREATED", "speaker/SCORE", durable="mine")
            await eventually(lambda: subjects(process.calls)[-1:] == ["d"])
            types = [event.type for event in delivered(process.calls)]
            assert types == ["GROUP_CREATED", EVENTS_MISSED, "speaker/SCORE", *["GROUP_CREATED"] * 3]


async def test_a_module_that_fails_at_every_event_is_said_once_a_second(bench: EventBench) -> None:
    async with playing() as (scope, process):

        async def refuse(method: str, body: Any) -> Nothing:
            raise ModuleRaised("played", method, kind="ValueError", message="no")

        process.answering = refuse
        await bench.subscribe(scope, "GROUP_CREATED")
        with capture_logs() as logs:
            for number in range(100):
                await bench.tell(str(number))
                await eventually(lambda seen=number: str(seen) in subjects(process.calls))
        said = [log["event"] for log in logs]
        assert 1 <= said.count("module_event.failed") < 50
        assert 1 <= said.count("module_call.failed") < 50


@pytest.mark.system
async def test_a_durable_event_that_always_fails_is_given_up_and_the_next_one_comes(
    bench: EventBench,
) -> None:
    async with playing() as (scope, process):

        async def picky(method: str, body: Any) -> Nothing:
            if any(event.subject == "poison" for event in body.events):
                raise ModuleRaised("played", method, kind="ValueError", message="no")
            return Nothing()

        process.answering = picky
        await bench.subscribe(scope, "GROUP_CREATED", durable="mine")
        await bench.tell("poison", "good")
        await eventually(
            lambda: subjects(process.calls)[-1:] == ["good"] and len(process.calls[-1][1].events) == 1
        )
        assert subjects(process.calls).count("poison") >= ATTEMPTS


async def test_an_unsubscription_ends_a_durable_one_for_good(bench: EventBench) -> None:
    async with playing() as (scope, _):
        await bench.subscribe(scope, "GROUP_CREATED", durable="mine")
        assert bench.state.module_cursors.find("played/mine") is not None
        await bench.unsubscribe(scope)
        assert bench.state.module_cursors.find("played/mine") is None
    await bench.tell("a")
    async with playing() as (again, process):
        await bench.subscribe(again, "GROUP_CREATED", durable="mine")
        await bench.tell("b")
        await eventually(lambda: subjects(process.calls) == ["b"])


async def test_a_cursor_moves_past_events_that_nobody_wanted(bench: EventBench) -> None:
    async with playing() as (scope, _):
        await bench.subscribe(scope, "NODE_REVOKED", durable="rare")
        told = await bench.tell("a", "b")

        def stored() -> str:
            found = bench.state.module_cursors.find("played/rare")
            return found.record.cursor if found else ""

        await eventually(lambda: stored() == str(told[-1].cursor))


@pytest.mark.trap("T15")
async def test_a_deposed_leader_neither_publishes_nor_touches_cursors(bench: EventBench) -> None:
    async with playing(events=EventsPart(publishes=("SCORE",))) as (scope, process):
        await bench.subscribe(scope, "GROUP_CREATED", durable="mine")
        row = await bench.store.leases.read_lease("leader")
        assert await bench.store.leases.take_lease("leader", holder="successor", seen=row) is not None
        before = await bench.store.reads.head()
        with pytest.raises(Fenced):
            await bench.publish(scope, "SCORE", {"n": 1})
        with pytest.raises(Fenced):
            await bench.unsubscribe(scope)
        with pytest.raises(Fenced):
            await bench.subscribe(scope, "GROUP_CREATED", number=2, durable="other")
        assert await bench.store.reads.get("module_cursors", "played/mine") is not None
        assert await bench.store.reads.get("module_cursors", "played/other") is None
        after = await bench.store.reads.head()
        assert (after.commit, after.sequence) == (before.commit, before.sequence)
        assert process.calls == []
