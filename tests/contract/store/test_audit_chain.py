"""The hash chain of the audit: whatever happens to writers, every stored entry follows the one before it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import pathlib
import sqlite3
import subprocess
import sys

import asyncpg
import pytest
from store_cases import Desk, House, at_work, happened, put

from corral.domain.audit_chain import GENESIS, ChainCheck, ChainedEntry, ChainFault, ChainState
from corral.domain.ids import Epoch
from corral.errors import CorralError
from corral.store.leadership import Leadership
from corral.store.port import ABSENT, Append, Store
from corral.store.retention import ChainRetention, Retention, RetentionPolicy
from corral.store.store_errors import Conflict, StoreUnavailable
from corral.system.clock import SystemClock
from corral.testing.failing_store import FailingStore, StoreFault
from corral.testing.stepped_clock import SteppedClock
from corral.testing.waiting import eventually

HERE = pathlib.Path(__file__).parent


def noted(text: str) -> Append:
    return Append(journal="audit", body=text.encode())


async def examine(store: Store) -> tuple[list[ChainFault], ChainCheck, ChainState]:
    """Everything that is wrong with the stored chain, its head included."""
    chain = await store.reads.chain()
    check = ChainCheck(after=chain.removed, first=chain.first)
    faults = []
    while page := await store.reads.chained_entries(after=check.last.number, limit=100):
        faults += [fault for entry in page if (fault := check.add(entry)) is not None]
    if check.last.hash != chain.head.hash:
        faults.append(ChainFault(number=chain.head.number, what="the head is another one"))
    return faults, check, chain


async def tamper(house: House, statement: str) -> None:
    """Change the database behind the back of its store, which is closed."""
    if house.kind == "postgres":
        connection = await asyncpg.connect(house.url)
        await connection.execute(statement)
        await connection.close()
    else:
        with contextlib.closing(sqlite3.connect(house.data / "corral.db")) as db:
            db.executescript(statement)


async def test_entries_of_many_callers_form_one_chain_and_refused_ones_leave_no_gap(desk: Desk) -> None:
    def change(n: int) -> tuple[object, ...]:
        log = Append(journal="log", body=b"-")
        return put(f"d{n % 7}", expect=ABSENT), happened(f"d{n}"), log, noted(f"{n}"), noted(f"{n} more")

    asked = (desk.commit(*change(n)) for n in range(60))
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 60 - 7
    faults, check, chain = await examine(desk.store)
    assert faults == []
    assert check.entries == 14
    assert check.unchained == 0
    first, second = await desk.store.reads.chained_entries(limit=2)
    assert (first.number, first.previous) == (chain.first, GENESIS)
    assert second.previous == first.hash


async def test_a_commit_without_audit_entries_leaves_the_chain_as_it_was(desk: Desk) -> None:
    await desk.commit(noted("one"))
    before = await desk.store.reads.chain()
    await desk.commit(put("a"), happened("a"), Append(journal="log", body=b"-"))
    assert await desk.store.reads.chain() == before


async def test_the_chain_goes_on_after_a_restart(real_house: House) -> None:
    for n in range(3):
        store = await real_house.open()
        async with at_work(store) as desk:
            await asyncio.gather(*(desk.commit(noted(f"{n}-{each}")) for each in range(5)))
        faults, check, _ = await examine(store)
        assert (faults, check.entries) == ([], 5 * (n + 1))
        await real_house.close()


async def test_the_chain_goes_on_under_the_next_leader_and_a_deposed_one_adds_nothing(house: House) -> None:
    former = await house.open()
    async with at_work(former) as deposed:
        await deposed.commit(noted("former"))
        successor = await house.another(former)
        term = await Leadership(
            successor.leases, clock=SystemClock(), holder="next", uncontested=True
        ).acquire()
        async with at_work(successor, epoch=term.epoch) as desk:
            await desk.commit(noted("next"))
            with pytest.raises(CorralError):
                await deposed.commit(noted("too late"))
            await desk.commit(noted("next again"))
            faults, check, _ = await examine(successor)
    assert (faults, check.entries) == ([], 3)


@pytest.mark.parametrize("fault", [StoreFault.BEFORE, StoreFault.AFTER, StoreFault.LOST])
async def test_a_batch_that_fails_or_is_in_doubt_leaves_a_whole_chain(
    real_house: House, fault: StoreFault
) -> None:
    store = FailingStore(await real_house.open())
    async with at_work(store) as desk:
        await desk.commit(noted("before"))
        store.commits.fail(fault)
        with contextlib.suppress(CorralError):
            await desk.commit(noted("in doubt"))
        await eventually(lambda: desk.writer.healthy, state=lambda: desk.writer.reason)
        await desk.commit(noted("after"))
        faults, check, _ = await examine(store)
    stored = 3 if fault is StoreFault.AFTER else 2
    assert (faults, check.entries) == ([], stored)


async def test_a_writer_that_is_killed_leaves_a_whole_chain(real_house: House) -> None:
    for acknowledged in (1, 150):
        process = subprocess.Popen(
            [sys.executable, HERE / "busy_writer.py", real_house.url, str(real_house.data), "audit"],
            stdout=subprocess.PIPE,
            text=True,
        )
        with process:
            assert process.stdout is not None
            try:
                for _ in range(acknowledged):
                    await asyncio.to_thread(process.stdout.readline)
            finally:
                process.kill()
            await asyncio.to_thread(process.stdout.read)
        store = await real_house.open()
        async with at_work(store) as desk:
            await desk.commit(noted("the successor's"))
            faults, check, _ = await examine(store)
        assert faults == []
        assert check.entries > acknowledged
        await real_house.close()


async def test_entries_from_before_the_chain_are_its_unchained_prefix(real_house: House) -> None:
    store = await real_house.open()
    async with at_work(store) as desk:
        for n in range(3):
            await desk.commit(noted(f"old {n}"))
    await real_house.close()
    await tamper(real_house, "delete from chain_link; update chain set first = 0, number = 0, hash = null")
    store = await real_house.open()
    async with at_work(store) as desk:
        await desk.commit(noted("new"))
        faults, check, chain = await examine(store)
        assert (faults, check.entries, check.unchained) == ([], 4, 3)
        assert chain.first == chain.head.number
        await Retention(store, epoch=desk.epoch, policy=RetentionPolicy(other_journals=2)).apply()
        faults, check, _ = await examine(store)
        assert (faults, check.entries, check.unchained) == ([], 2, 1)


async def test_retention_removes_from_the_start_and_the_rest_still_follows_what_was_removed(
    desk: Desk,
) -> None:
    for n in range(12):
        await desk.commit(noted(f"{n}"), Append(journal="log", body=b"-"))
    entries = await desk.store.reads.chained_entries(limit=100)
    await Retention(desk.store, epoch=desk.epoch, policy=RetentionPolicy(other_journals=5)).apply()
    faults, check, chain = await examine(desk.store)
    assert (faults, check.entries) == ([], 5)
    assert (chain.removed.number, chain.removed.hash) == (entries[6].number, entries[6].hash)
    await Retention(desk.store, epoch=desk.epoch, policy=RetentionPolicy(journals={"audit": 0})).apply()
    faults, check, chain = await examine(desk.store)
    assert (faults, check.entries) == ([], 0)
    assert chain.removed == chain.head
    await desk.commit(noted("after all of it is gone"))
    faults, check, _ = await examine(desk.store)
    assert (faults, check.entries) == ([], 1)


async def test_what_is_to_go_is_recorded_first_at_most_once_a_day_or_a_hundredth(desk: Desk) -> None:
    for n in range(12):
        await desk.commit(noted(f"{n}"))
    entries = await desk.store.reads.chained_entries(limit=100)
    recorded: list[tuple[int, int]] = []
    fails = [True]

    async def record(last: ChainedEntry, count: int) -> None:
        if fails:
            raise StoreUnavailable("full")
        recorded.append((last.number, count))
        await desk.commit(noted(f"removed {last.number}"))

    async def apply(*, rows: int = 1000, age: dt.timedelta = dt.timedelta(days=2), later: float = 0) -> int:
        clock = SteppedClock()
        clock.pass_time(later * 86400)
        chain = ChainRetention(rows=rows, age=age, record=record)
        return await Retention(
            desk.store, epoch=desk.epoch, policy=RetentionPolicy(other_journals=1, chain=chain), clock=clock
        ).apply()

    with pytest.raises(StoreUnavailable):
        await apply(rows=10)
    assert len(await desk.store.reads.chained_entries(limit=100)) == 12, "nothing goes unrecorded"
    fails.clear()
    assert (await apply(rows=12), await apply(later=2.5)) == (0, 0)
    assert await apply(rows=10) == 3
    assert recorded == [(entries[2].number, 3)]
    assert await apply(rows=10) == 0, "its own record pushes nothing out"
    assert await apply(later=3.5) == 10
    assert [count for _, count in recorded] == [3, 10]
    faults, check, chain = await examine(desk.store)
    assert (faults, check.entries, chain.removed.number) == ([], 1, recorded[1][0])


async def test_a_fenced_purge_removes_nothing(desk: Desk) -> None:
    await desk.commit(noted("one"))
    with pytest.raises(CorralError):
        await desk.store.commits.trim(
            epoch=Epoch(desk.epoch - 1), events_through=0, tombstones_through=0, journals=[("audit", 99)]
        )
    faults, check, chain = await examine(desk.store)
    assert (faults, check.entries, chain.removed.number) == ([], 1, 0)


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("update entry set body = 'x' where number = 3", 3),
        ("delete from entry where number = 3", 4),
        ("delete from entry where number = 6", 6),
        ("delete from chain_link where number = 3", 3),
        ("insert into entry (number, journal, at, body) select 9, journal, at, body from entry where number = 2", 9),
    ],
)  # fmt: skip
async def test_a_change_behind_the_stores_back_is_found_with_its_number(
    real_house: House, statement: str, named: int
) -> None:
    store = await real_house.open()
    async with at_work(store) as desk:
        for n in range(6):
            await desk.commit(noted(f"{n}"))
    await real_house.close()
    await tamper(real_house, statement)
    faults, _, _ = await examine(await real_house.open())
    assert next(fault.number for fault in faults) == named
