"""The ring: numbered, bounded, and awake."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading

import pytest

from corral.domain.records import LogRecord
from corral.system.log_ring import LogRing

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def record(message: str) -> LogRecord:
    return LogRecord(at=NOW, level="INFO", logger="t", message=message)


def filled(count: int, *, capacity: int = 100) -> LogRing:
    ring = LogRing(capacity=capacity)
    for number in range(1, count + 1):
        ring.append(record(str(number)))
    return ring


def numbers(found: list[tuple[int, LogRecord]]) -> list[int]:
    assert all(found_record.message == str(number) for number, found_record in found)
    return [number for number, _ in found]


def test_records_are_numbered_from_one_and_read_oldest_first() -> None:
    ring = filled(5)
    assert ring.last == 5
    assert numbers(ring.read(0, 10)) == [1, 2, 3, 4, 5]
    assert numbers(ring.read(2, 2)) == [3, 4]
    assert numbers(ring.tail(2)) == [4, 5]


@pytest.mark.parametrize(("after", "limit"), [(5, 10), (99, 10), (0, 0), (0, -1)])
def test_reading_past_the_end_or_nothing_yields_nothing(after: int, limit: int) -> None:
    assert filled(5).read(after, limit) == []


def test_the_oldest_leave_first_and_the_gap_shows_in_the_numbers() -> None:
    ring = filled(10, capacity=3)
    assert numbers(ring.read(0, 100)) == [8, 9, 10]
    assert numbers(ring.read(4, 1)) == [8]


async def test_a_waiter_wakes_when_another_thread_logs() -> None:
    ring = LogRing(capacity=3)
    waiting = ring.wake(0)
    assert not waiting.done()
    thread = threading.Thread(target=ring.append, args=(record("1"),))
    thread.start()
    await asyncio.wait_for(waiting, 10)
    thread.join()
    assert numbers(ring.read(0, 1)) == [1]


async def test_what_came_between_reading_and_waiting_is_not_slept_through() -> None:
    ring = filled(1)
    assert ring.wake(0).done()
    later = ring.wake(1)
    assert not later.done()
    later.cancel()


async def test_a_waiter_that_gave_up_is_forgotten_and_harms_nobody() -> None:
    ring = LogRing(capacity=3)
    gone, stays = ring.wake(), ring.wake()
    gone.cancel()
    await asyncio.sleep(0)
    ring.append(record("1"))
    await asyncio.wait_for(stays, 10)
    assert ring._waiters == set()


def test_a_waiter_of_a_closed_loop_does_not_break_the_one_who_logs() -> None:
    ring = LogRing(capacity=3)

    async def leave() -> None:
        ring.wake()

    asyncio.run(leave())
    ring.append(record("1"))
    assert ring.last == 1


def test_many_threads_leave_no_hole_and_no_double() -> None:
    ring = LogRing(capacity=10_000)
    threads = [
        threading.Thread(target=lambda: [ring.append(record("x")) for _ in range(500)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [number for number, _ in ring.read(0, 10_000)] == list(range(1, 4001))
