"""The spool: durable, numbered once, in order, bounded."""

from __future__ import annotations

import pathlib
import signal
import sqlite3
import subprocess
import sys

import pytest

from corral.daemon.link.spool import Spool
from corral.daemon.link.spool_file import open_table
from corral.daemon.link.spool_table import (
    BACKGROUND_AT_ONCE,
    BACKGROUND_BYTES,
    BACKGROUND_RECORDS,
    Kind,
    SpoolTable,
)
from corral.errors import Code, CorralError, Rejected
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually


def open_spool(directory: pathlib.Path, *, log_bytes: int = 10_000, max_bytes: int = 100_000) -> Spool:
    return Spool.open(directory, entropy=SystemEntropy(), log_bytes=log_bytes, max_bytes=max_bytes)


def bare_table(directory: pathlib.Path, *, log_bytes: int = 10_000) -> tuple[SpoolTable, sqlite3.Connection]:
    """A table over a connection of our own, which can be looked into."""
    open_table(directory, entropy=SystemEntropy(), log_bytes=log_bytes, max_bytes=10**6).close()
    database = sqlite3.connect(
        directory / "spool.db", isolation_level=None, check_same_thread=False, timeout=0
    )
    return SpoolTable(database, log_bytes=log_bytes, max_bytes=10**6), database


async def test_records_keep_their_order_and_numbers_across_a_restart(tmp_path):
    spool = open_spool(tmp_path)
    numbers = [await spool.put(b"state %d" % index) for index in range(5)]
    spool.log(b"log")
    name = spool.spool_id
    await spool.close()
    again = open_spool(tmp_path)
    assert again.spool_id == name
    waiting = await again.take(0, limit=100)
    assert [record.body for record in waiting] == [
        b"state 0",
        b"state 1",
        b"state 2",
        b"state 3",
        b"state 4",
        b"log",
    ]
    assert [record.sequence for record in waiting][:5] == numbers
    await again.close()


async def test_confirmed_records_are_gone_and_their_numbers_are_never_used_again(tmp_path):
    spool = open_spool(tmp_path)
    last = [await spool.put(b"x") for _ in range(3)][-1]
    spool.confirm(last)
    assert await spool.take(0, limit=10) == []
    await spool.close()
    spool = open_spool(tmp_path)
    assert spool.confirmed(last)
    assert await spool.take(0, limit=10) == []
    assert await spool.put(b"y") > last
    await spool.close()


async def test_old_log_records_make_room_and_the_oldest_survivor_counts_them(tmp_path):
    spool = open_spool(tmp_path, log_bytes=1000)
    await spool.put(b"must stay")
    for index in range(100):
        spool.log(b"%03d" % index + b"x" * 97)
    await eventually(lambda: spool.head == 101)
    waiting = await spool.take(0, limit=1000)
    logs = [record for record in waiting if record.kind is Kind.LOG]
    assert waiting[0].body == b"must stay"
    assert logs[0].dropped == 100 - len(logs)
    assert all(record.dropped == 0 for record in logs[1:])
    assert logs[-1].body.startswith(b"099")
    assert sum(len(record.body) for record in logs) <= 1000
    await spool.close()


async def test_what_must_not_be_lost_is_refused_when_full_and_taken_again_after_confirmation(tmp_path):
    spool = open_spool(tmp_path, log_bytes=100, max_bytes=1000)
    first = await spool.put(b"x" * 900)
    with pytest.raises(CorralError) as caught:
        await spool.put(b"y" * 200)
    assert caught.value.code is Code.STORE_UNAVAILABLE
    spool.confirm(first)
    assert await spool.put(b"y" * 200) > first
    await spool.close()


async def test_confirming_costs_the_same_however_much_waits(tmp_path):
    steps = {}
    for waiting in (50, 5000):
        table, database = bare_table(tmp_path / str(waiting))
        table.begin()
        for _ in range(waiting):
            table.add_state(b"x" * 10)
        table.commit()
        counted = []
        database.set_progress_handler(lambda c=counted: c.append(1), 10)
        table.begin()
        table.forget(10)
        table.commit()
        steps[waiting] = len(counted)
        table.close()
    assert steps[5000] <= steps[50] + 5, steps


async def test_the_bounds_are_right_after_confirmations_and_refusals(tmp_path):
    spool = open_spool(tmp_path, max_bytes=1000)
    numbers = [await spool.put(b"x" * 200) for _ in range(5)]
    for round in range(20):
        with pytest.raises(Rejected):
            await spool.put(b"y" * 201)
        spool.confirm(numbers[round])
        numbers.append(await spool.put(b"x" * 200))
    await spool.close()


async def test_a_log_record_that_is_larger_than_its_bound_is_counted_by_the_next(tmp_path):
    spool = open_spool(tmp_path, log_bytes=100)
    spool.log(b"x" * 200)
    spool.log(b"small")
    await eventually(lambda: spool.head == 2)
    (record,) = await spool.take(0, limit=10)
    assert (record.body, record.dropped) == (b"small", 1)
    await spool.close()


async def test_what_was_sent_is_remembered_across_a_restart(tmp_path):
    spool = open_spool(tmp_path)
    for index in range(5):
        await spool.put(b"%d" % index)
    assert spool.sent == 0
    await spool.take(0, limit=3)
    assert spool.sent == 3
    await spool.close()
    again = open_spool(tmp_path)
    assert again.sent == 3
    await again.close()


async def test_a_spool_that_starts_over_keeps_what_it_never_sent_and_numbers_on(tmp_path):
    spool = open_spool(tmp_path)
    name = spool.spool_id
    for index in range(5):
        await spool.put(b"%d" % index)
    await spool.take(0, limit=2)
    await spool.start_over(confirmed=2**64 - 1)
    assert spool.spool_id != name
    assert spool.sent == 0
    kept = [(3, b"2"), (4, b"3"), (5, b"4")]
    assert [(record.sequence, record.body) for record in await spool.take(0, limit=10)] == kept
    assert await spool.put(b"next") == 6
    fresh = spool.spool_id
    await spool.close()
    again = open_spool(tmp_path)
    assert again.spool_id == fresh
    await again.close()


async def test_while_it_is_streamed_a_record_counts_as_sent_with_its_own_commit(tmp_path):
    spool = open_spool(tmp_path)
    spool.stream(True)
    assert await spool.put(b"one") == spool.sent == 1
    spool.log(b"two")
    assert await spool.put(b"three") == spool.sent == 3
    spool.stream(False)
    assert await spool.put(b"four") == 4
    assert spool.sent == 3
    await spool.close()
    again = open_spool(tmp_path)
    assert again.sent == 3
    await again.close()


async def test_streaming_does_not_pass_over_what_was_added_before_and_never_taken(tmp_path):
    spool = open_spool(tmp_path)
    for _ in range(3):
        await spool.put(b"while nobody was there")
    spool.stream(True)
    await spool.put(b"behind them")
    assert spool.sent == 0
    await spool.take(0, limit=2)
    await spool.put(b"behind them")
    assert spool.sent == 2
    await spool.take(2, limit=100)
    assert await spool.put(b"everything before is taken") == spool.sent == 6
    await spool.start_over(confirmed=2**64 - 1)
    await spool.put(b"under the new name")
    assert spool.sent == 0
    await spool.take(0, limit=100)
    assert await spool.put(b"everything before is taken") == spool.sent == 8
    await spool.close()


WRITER = """
import asyncio, pathlib, sys
from corral.daemon.link.spool import Spool
from corral.system.entropy import SystemEntropy
async def main():
    spool = Spool.open(pathlib.Path(sys.argv[1]), entropy=SystemEntropy(), log_bytes=10**8, max_bytes=10**8)
    index = 0
    while True:
        await spool.put(b"%d" % index)
        print(index, flush=True)
        index += 1
asyncio.run(main())
"""


STREAMER = """
import asyncio, pathlib, sys
from corral.daemon.link.spool import Spool
from corral.system.entropy import SystemEntropy
async def main():
    spool = Spool.open(pathlib.Path(sys.argv[1]), entropy=SystemEntropy(), log_bytes=10**8, max_bytes=10**8)
    await spool.put(b"while nobody was there")
    spool.stream(True)
    handed_out = 0
    while True:
        spool.log(b"a log record")
        await spool.put(b"a state")
        handed_out = (await spool.take(handed_out, limit=100))[-1].sequence
        confirmed = max(0, handed_out - 10)
        spool.confirm(confirmed)
        print(handed_out, confirmed, flush=True)
asyncio.run(main())
"""


async def test_a_kill_takes_back_neither_that_a_record_was_sent_nor_one_that_nobody_confirmed(tmp_path):
    streamer = subprocess.Popen(
        [sys.executable, "-c", STREAMER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert streamer.stdout is not None
    handed_out, confirmed = [map(int, streamer.stdout.readline().split()) for _ in range(200)][-1]
    streamer.send_signal(signal.SIGKILL)
    *_, (final, dropped) = [(handed_out, confirmed), *(map(int, line.split()) for line in streamer.stdout)]
    streamer.stdout.close()
    streamer.wait()
    spool = open_spool(tmp_path)
    assert spool.sent >= final
    numbers = [record.sequence for record in await spool.take(0, limit=100_000)]
    assert numbers == list(range(numbers[0], spool.head + 1))
    assert numbers[0] <= dropped + 1
    await spool.close()


async def test_whatever_was_acknowledged_survives_a_kill(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(300)][-1]
    writer.send_signal(signal.SIGKILL)
    writer.stdout.close()
    writer.wait()
    spool = open_spool(tmp_path)
    bodies = [int(record.body) for record in await spool.take(0, limit=100_000)]
    assert bodies == list(range(len(bodies)))
    assert len(bodies) > acknowledged
    await spool.close()


# --- what may wait ----------------------------------------------------------------------------------------


async def drained(spool: Spool, *, after: int = 0) -> list[bytes]:
    """All there is, taken and confirmed as a controller does it."""
    found: list[bytes] = []
    while spool.head > after or spool._table.committed.background_bytes:
        await eventually(lambda past=after: spool.head > past)
        records = await spool.take(after, limit=50)
        found += [record.body for record in records]
        after = records[-1].sequence
        spool.confirm(after)
    return found


@pytest.mark.trap("T85")
@pytest.mark.parametrize("size", [10, 2_000, 60_000])
async def test_a_report_waits_behind_little_of_what_may_wait(tmp_path, size):
    spool = open_spool(tmp_path, max_bytes=40_000_000)
    events = [b"event %06d" % number + b"x" * size for number in range(300 if size < 100 else 100)]
    for event in events:
        await spool.put_background(event)
    report = await spool.put(b"ended")
    before = [record for record in await spool.take(0, limit=5000) if record.sequence < report]
    assert len(before) <= BACKGROUND_RECORDS
    assert sum(len(record.body) for record in before) < BACKGROUND_BYTES + max(map(len, events))
    spool.confirm(before[-1].sequence)
    second = await spool.put(b"running")  # also while they go on
    assert second - report <= BACKGROUND_RECORDS + 1
    bodies = [record.body for record in before] + await drained(spool, after=before[-1].sequence)
    assert [body for body in bodies if body.startswith(b"event")] == events
    assert [body for body in bodies if not body.startswith(b"event")] == [b"ended", b"running"]
    await spool.close()


@pytest.mark.trap("T85")
async def test_what_waits_survives_restarts_in_order_and_once_and_goes_on_by_itself(tmp_path):
    spool = open_spool(tmp_path, max_bytes=10_000_000)
    events = [b"event %d" % number for number in range(300)]
    ids = [await spool.put_background(event) for event in events]
    first = await spool.take(0, limit=10_000)
    assert not spool.background_confirmed(ids[0])
    spool.confirm(first[-1].sequence)
    await eventually(lambda: spool.background_confirmed(ids[len(first) - 1]))
    assert not spool.background_confirmed(ids[len(first)])
    await spool.close()
    again = open_spool(tmp_path)
    rest = await drained(again)
    assert [record.body for record in first] + rest == events
    assert await again.take(0, limit=10) == []
    await again.close()


@pytest.mark.trap("T85")
async def test_more_than_may_become_records_at_once_goes_on_by_itself(tmp_path):
    time = [0.0]
    open_table(tmp_path, entropy=SystemEntropy(), log_bytes=1, max_bytes=1).close()
    database = sqlite3.connect(tmp_path / "spool.db", isolation_level=None, check_same_thread=False)
    table = SpoolTable(database, log_bytes=1, max_bytes=10**7, monotonic=lambda: time[0])
    table.begin()
    for number in range(1, BACKGROUND_AT_ONCE + 101):
        table.add_background(b"event")
        table.forget(number)
    table.commit()
    allowed = table.committed.highest
    assert BACKGROUND_AT_ONCE <= allowed <= BACKGROUND_AT_ONCE + 1
    spool = Spool(table, entropy=SystemEntropy())
    assert await spool.put(b"report") == allowed + 1  # not paced
    time[0] = 1.0
    await eventually(lambda: spool.head == BACKGROUND_AT_ONCE + 101)  # nobody adds or confirms anything
    await spool.close()


async def test_what_may_wait_is_bounded_and_takes_nothing_from_reports(tmp_path):
    spool = open_spool(tmp_path, max_bytes=400_000)
    with pytest.raises(CorralError) as refused:
        for _ in range(1_000):
            await spool.put_background(b"x" * 1_000)
    assert refused.value.code is Code.STORE_UNAVAILABLE
    for _ in range(300):
        await spool.put(b"y" * 1_000)
    await spool.close()


async def test_a_spool_of_an_earlier_version_gets_what_it_lacks(tmp_path):
    spool = open_spool(tmp_path)
    await spool.put(b"old")
    await spool.close()
    with sqlite3.connect(tmp_path / "spool.db") as database:
        database.execute("drop table background")
    database.close()
    again = open_spool(tmp_path)
    await again.put_background(b"new")
    assert await drained(again) == [b"old", b"new"]
    await again.close()
