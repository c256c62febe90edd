"""The spool's thread: it survives its jobs, its callers and its disk, and counts what it cannot keep."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sqlite3
import threading

import pytest
import structlog

from corral.daemon.link.spool import Spool
from corral.daemon.link.spool_file import open_table
from corral.daemon.link.spool_table import SpoolTable
from corral.daemon.link.spool_worker import SpoolWorker
from corral.errors import Bug, Code, CorralError, Rejected, Retryable
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually


def open_spool(directory: pathlib.Path) -> Spool:
    return Spool.open(directory, entropy=SystemEntropy(), log_bytes=10**7, max_bytes=10**7)


def own_table(directory: pathlib.Path) -> tuple[SpoolTable, sqlite3.Connection]:
    """A table over a connection that the test can limit; it does not wait for locks."""
    open_table(directory, entropy=SystemEntropy(), log_bytes=10**7, max_bytes=10**7).close()
    database = sqlite3.connect(
        directory / "spool.db", isolation_level=None, check_same_thread=False, timeout=0
    )
    return SpoolTable(database, log_bytes=10**7, max_bytes=10**7), database


@pytest.fixture
def worker(tmp_path):
    table = open_table(tmp_path, entropy=SystemEntropy(), log_bytes=10**7, max_bytes=10**7)
    worker = SpoolWorker(table, on_growth=lambda: None)
    worker.start()
    yield worker
    worker.close()


class Gate:
    """A job that keeps the thread busy, so that what is asked meanwhile becomes one group."""

    def __init__(self, worker: SpoolWorker) -> None:
        self._entered, self._open = threading.Event(), threading.Event()
        worker.ask(lambda _: self._entered.set() or self._open.wait())
        self._entered.wait()

    def release(self) -> None:
        self._open.set()


@pytest.mark.parametrize("number", [2**64 - 1, 2**63, 2**200, -1])
async def test_a_number_from_a_peer_that_no_database_holds_does_no_harm(tmp_path, number):
    spool = open_spool(tmp_path)
    await spool.put(b"first")
    await asyncio.wait_for(spool.take(number, limit=1), 20)
    spool.confirm(number)
    assert await asyncio.wait_for(spool.put(b"second"), 20) == 2
    await spool.close()


def test_a_job_that_fails_takes_no_other_with_it(worker):
    gate = Gate(worker)
    asked = [
        worker.ask(lambda table: table.add_state(b"one")),
        worker.ask(lambda table: table.add_state(b"half") and [][0]),
        worker.ask(lambda table: table.add_state(b"two")),
    ]
    gate.release()
    assert asked[0].result(20) == 1
    assert isinstance(asked[1].exception(20), Bug)
    asked[2].result(20)
    kept = worker.ask(lambda table: table.take(0, 10)).result(20)
    assert [record.body for record in kept] == [b"one", b"two"], "nothing of the one that failed stays"


def test_a_caller_may_give_up_before_its_job_begins_and_not_after(worker):
    gate = Gate(worker)
    early = worker.ask(lambda table: table.add_state(b"never"))
    assert early.cancel()
    given_up_inside = []
    late = worker.ask(lambda _: given_up_inside.append(late.cancel()))
    gate.release()
    late.result(20)
    assert given_up_inside == [False]
    assert worker.ask(lambda table: table.take(0, 10)).result(20) == []


async def test_a_callback_that_fails_is_logged_and_the_spool_goes_on(tmp_path):
    spool = open_spool(tmp_path)
    spool.on_growth(lambda: [][0])
    with structlog.testing.capture_logs() as logged:
        await spool.put(b"one")
        assert await asyncio.wait_for(spool.put(b"two"), 20) == 2
        await eventually(lambda: any(line["event"] == "spool_callback.failed" for line in logged))
    await spool.close()


def test_if_the_thread_ends_all_the_same_whoever_waits_or_comes_is_told(worker):
    def end(_: SpoolTable) -> None:
        raise SystemExit("on request")

    with structlog.testing.capture_logs() as logged:
        gate = Gate(worker)
        with_it = worker.ask(end)
        beside = [worker.ask(lambda table: table.add_state(b"x")) for _ in range(600)]
        gate.release()
        errors = [future.exception(20) for future in (with_it, *beside)]
        assert all(isinstance(error, Rejected) for error in errors)
        assert "does not run any more: SystemExit('on request')" in str(errors[-1])
        worker.post(lambda table: table.add_log(b"x"))
        for _ in range(2):
            with pytest.raises(CorralError, match="does not run any more"):
                worker.ask(lambda table: table.take(0, 1))
    assert [line["event"] for line in logged if line["log_level"] == "critical"] == ["spool_thread.failed"]


async def test_a_closed_spool_refuses_instead_of_keeping_its_callers_waiting(tmp_path):
    spool = open_spool(tmp_path)
    spool.log(b"written before it closes")
    await spool.close()
    spool.log(b"too late, and no harm")
    with pytest.raises(Retryable) as caught:
        await asyncio.wait_for(spool.put(b"x"), 20)
    assert caught.value.code is Code.SHUTTING_DOWN
    await spool.close()
    again = open_spool(tmp_path)
    assert [record.body for record in await again.take(0, limit=10)] == [b"written before it closes"]
    await again.close()


async def settled(spool: Spool) -> None:
    """Everything that was asked so far is done, or refused."""
    with contextlib.suppress(Retryable):
        await spool._ask(lambda _: None)


async def test_log_records_that_a_full_disk_refused_are_counted_by_the_next_that_is_kept(tmp_path):
    table, database = own_table(tmp_path)
    spool = Spool(table, entropy=SystemEntropy())
    (pages,) = database.execute("pragma page_count").fetchone()
    database.execute(f"pragma max_page_count = {pages + 30}")
    with structlog.testing.capture_logs() as logged:
        for index in range(500):
            spool.log(b"%04d" % index + b"x" * 500)
            if index % 7 == 0:
                await settled(spool)
        with pytest.raises(Retryable) as caught:
            await spool.put(b"x" * 5000)
        assert caught.value.code is Code.STORE_UNAVAILABLE
        database.execute("pragma max_page_count = 1000000")
        spool.log(b"there is room again")
        await settled(spool)
    records = await spool.take(0, limit=5000)
    assert records[-1].body == b"there is room again"
    assert records[-1].dropped > 100
    assert len(records) + sum(record.dropped for record in records) == 501
    assert [line["event"] for line in logged] == ["spool_write.failed", "spool.recovered"]
    await spool.close()


def test_log_records_that_found_no_room_in_the_queue_are_counted_by_the_next(worker):
    gate = Gate(worker)
    for index in range(20_100):
        worker.post(lambda table, index=index: table.add_log(b"%d" % index))
    with pytest.raises(Retryable, match="does not keep up"):
        worker.ask(lambda table: table.take(0, 1))
    gate.release()
    kept = []
    while len(kept) < 20_000:
        with contextlib.suppress(Retryable):
            kept = worker.ask(lambda table: table.take(0, 30_000)).result(20)
    worker.post(lambda table: table.add_log(b"next"))
    kept = worker.ask(lambda table: table.take(0, 30_000)).result(20)
    assert len(kept) + sum(record.dropped for record in kept) == 20_101


def test_whoever_reads_waits_for_no_log_record_and_whoever_writes_comes_after_it(worker):
    gate = Gate(worker)
    worker.post(lambda table: table.add_log(b"log"))
    written = worker.ask(lambda table: table.add_state(b"state"))
    read = worker.look(lambda table: table.take(0, 10))
    gate.release()
    assert read.result(20) == []
    assert written.result(20) == 2


def test_reads_without_end_keep_nobody_from_writing(worker):
    gate, over = Gate(worker), threading.Event()

    def read_on(_: SpoolTable) -> None:
        if not over.is_set():
            worker.look(read_on)  # so there is always one that waits

    worker.look(read_on)
    written = worker.ask(lambda table: table.add_state(b"state"))
    gate.release()
    try:
        assert written.result(20) == 1
    finally:
        over.set()


def test_whoever_reads_when_the_spool_is_closed_is_answered(worker):
    gate = Gate(worker)
    reads = [worker.look(lambda table: table.take(0, 10)) for _ in range(3)]
    written = worker.ask(lambda table: table.add_state(b"state"))
    closing = threading.Thread(target=worker.close)
    closing.start()
    gate.release()
    closing.join(20)
    assert [read.result(20) for read in reads] == [[], [], []]
    assert written.result(20) == 1


async def test_what_a_disk_refused_to_drop_is_dropped_when_it_lets_us(tmp_path):
    table, _ = own_table(tmp_path)
    spool = Spool(table, entropy=SystemEntropy())
    number = await spool.put(b"x")
    other = sqlite3.connect(tmp_path / "spool.db", isolation_level=None)
    other.execute("begin immediate")
    with structlog.testing.capture_logs() as logged:
        spool.confirm(number)
        await eventually(lambda: any(line["event"] == "spool_write.failed" for line in logged))
    other.execute("rollback")
    other.close()
    await eventually(lambda: table.committed.forgotten == number)
    await spool.close()


def test_a_spool_whose_disk_refuses_to_drop_anything_closes_all_the_same(tmp_path):
    table, _ = own_table(tmp_path)
    worker = SpoolWorker(table, on_growth=lambda: None)
    worker.start()
    number = worker.ask(lambda table: table.add_state(b"x")).result(20)
    other = sqlite3.connect(tmp_path / "spool.db", isolation_level=None)
    other.execute("begin immediate")
    worker.drop(number)
    worker.close()
    other.execute("rollback")
    other.close()


async def test_a_lock_held_by_somebody_else_delays_and_ends_nothing(tmp_path):
    table, _ = own_table(tmp_path)
    spool = Spool(table, entropy=SystemEntropy())
    other = sqlite3.connect(tmp_path / "spool.db", isolation_level=None)
    other.execute("begin immediate")
    for _ in range(3):
        with pytest.raises(Retryable, match="cannot be written"):
            await spool.put(b"x")
    other.execute("rollback")
    other.close()
    assert await spool.put(b"x") == 1
    await spool.close()
