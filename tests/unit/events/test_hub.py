"""The hub: wake-ups for those who wait, and subscribers that cannot harm each other."""

from __future__ import annotations

import asyncio

import pytest
from event_cases import commit, event, hub

from corral.controller.events.ring import EventSelection
from corral.controller.events.wakeup import Wakeup
from corral.domain.events import Cursor, Event, EventType
from corral.errors import Retryable
from corral.testing.waiting import eventually


class Recorder:
    """A subscriber that remembers, and can be told to hang or to fail."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.resyncs: list[Cursor] = []
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.fails = False

    async def on_event(self, event: Event) -> None:
        self.entered.set()
        await self.go.wait()
        self.seen.append(event.cursor.sequence)
        if self.fails:
            raise RuntimeError("on request")

    async def on_resync(self, head: Cursor) -> None:
        self.resyncs.append(head)


async def test_a_waiter_is_woken_and_a_later_one_is_not() -> None:
    wakeup = Wakeup()
    waiting = [asyncio.create_task(wakeup.wait(timeout=10)) for _ in range(3)]
    await eventually(lambda: len(wakeup) == 3)
    wakeup.wake()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await wakeup.wait(timeout=0.001) is False
    assert len(wakeup) == 0


async def test_a_wakeup_between_looking_and_waiting_is_not_missed() -> None:
    wakeup = Wakeup()
    seen = wakeup.turn
    wakeup.wake()
    assert await wakeup.wait(timeout=10, since=seen) is True


async def test_a_waiter_that_is_cancelled_takes_nobody_with_it() -> None:
    wakeup = Wakeup()
    doomed, other = (asyncio.create_task(wakeup.wait(timeout=10)) for _ in range(2))
    await eventually(lambda: len(wakeup) == 2)
    doomed.cancel()
    await asyncio.gather(doomed, return_exceptions=True)
    assert len(wakeup) == 1
    wakeup.wake()
    assert await other is True


async def test_a_subscriber_gets_the_events_of_its_types_in_order() -> None:
    made = hub()
    all_of_them, none_of_them = Recorder(), Recorder()
    made.subscribe(name="all", types=None, on_event=all_of_them.on_event, on_resync=all_of_them.on_resync)
    made.subscribe(
        name="none",
        types=frozenset({EventType.NODE_REVOKED}),
        on_event=none_of_them.on_event,
        on_resync=none_of_them.on_resync,
    )
    made.publish(commit(event(1), event(2)))
    for sequence in range(3, 300):
        made.publish(commit(event(sequence)))
    await eventually(lambda: len(all_of_them.seen) == 299)
    assert all_of_them.seen == list(range(1, 300))
    assert none_of_them.seen == []
    assert made.published == {EventType.NODE_ONLINE: 299}
    await made.close()


async def test_a_subscriber_that_hangs_or_fails_delays_nobody() -> None:
    made = hub()
    hanging, failing, well = Recorder(), Recorder(), Recorder()
    hanging.go.clear()
    failing.fails = True
    for name, recorder in (("hanging", hanging), ("failing", failing), ("well", well)):
        made.subscribe(name=name, types=None, on_event=recorder.on_event, on_resync=recorder.on_resync)
    for sequence in range(1, 11):
        made.publish(commit(event(sequence)))
    await eventually(lambda: len(well.seen) == 10 and len(failing.seen) == 10)
    assert hanging.seen == []
    hanging.go.set()
    await eventually(lambda: len(hanging.seen) == 10)
    await made.close()


async def test_a_subscriber_that_falls_out_of_the_ring_is_told_to_resync() -> None:
    made = hub(ring_events=8)
    slow = Recorder()
    slow.go.clear()
    made.subscribe(name="slow", types=None, on_event=slow.on_event, on_resync=slow.on_resync)
    made.publish(commit(event(1)))
    await asyncio.wait_for(slow.entered.wait(), 10)
    for sequence in range(2, 101):
        made.publish(commit(event(sequence)))
    slow.go.set()
    await eventually(lambda: slow.resyncs == [Cursor(1, 100)])
    assert slow.seen == [1]
    made.publish(commit(event(101)))
    await eventually(lambda: slow.seen == [1, 101])
    await made.close()


async def test_a_subscriber_that_left_hears_nothing_more() -> None:
    made = hub()
    recorder = Recorder()
    subscription = made.subscribe(
        name="gone", types=None, on_event=recorder.on_event, on_resync=recorder.on_resync
    )
    await made.unsubscribe(subscription)
    made.publish(commit(event(1)))
    await made.close()
    assert recorder.seen == []


async def test_a_journal_wakes_those_who_watch_it_and_costs_nothing_afterwards() -> None:
    made = hub()
    with made.watch_journal("log:node:a") as wakeup, made.watch_journal("log:node:a") as same:
        assert same is wakeup
        made.publish(commit(journals=("log:node:b",)))
        assert wakeup.turn == 0
        made.publish(commit(journals=("log:node:a", "log:node:a")))
        assert wakeup.turn == 1
    with made.watch_journal("log:node:a") as fresh:
        assert fresh is not wakeup
    await made.close()


async def test_a_closed_hub_wakes_everybody_and_takes_no_subscriber() -> None:
    made = hub()
    with made.watch_journal("j") as journal:
        waiting = [
            asyncio.create_task(made.wakeup.wait(timeout=10)),
            asyncio.create_task(journal.wait(timeout=10)),
        ]
        await eventually(lambda: len(made.wakeup) + len(journal) == 2)
        await made.close()
        await made.close()
        assert await asyncio.gather(*waiting) == [True, True]
    recorder = Recorder()
    with pytest.raises(Retryable):
        made.subscribe(name="late", types=None, on_event=recorder.on_event, on_resync=recorder.on_resync)


async def test_a_follower_from_now_on_sees_what_comes_and_nothing_before() -> None:
    made = hub(head=Cursor(1, 4))
    made.publish(commit(event(5)))
    follower = made.follow(after=None, selection=EventSelection())
    assert follower.take() == b""
    made.publish(commit(event(6)))
    frames = follower.take()
    assert frames is not None
    assert b"id: 1-6" in frames
    assert follower.cursor == Cursor(1, 6)
    assert follower.take() == b""
    await made.close()


async def test_a_cursor_that_only_the_store_can_judge_is_not_guessed_at() -> None:
    made = hub(head=Cursor(1, 4))
    assert made.follow(after=Cursor(1, 4), selection=EventSelection()).take() is None
    assert made.follow(after=Cursor(1, 9), selection=EventSelection()).take() is None
    await made.close()


async def test_a_close_that_is_cancelled_leaves_no_subscriber_behind() -> None:
    made = hub()
    recorder = Recorder()
    subscription = made.subscribe(
        name="left", types=None, on_event=recorder.on_event, on_resync=recorder.on_resync
    )
    closing = asyncio.create_task(made.close())
    await asyncio.sleep(0)  # it has begun, and those it waits for have not
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await eventually(lambda: not subscription._tasks)
