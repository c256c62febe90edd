"""A deposed leader cannot write, whatever it was doing when it was deposed."""

from __future__ import annotations

import asyncio
import pathlib
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

import asyncpg
import pytest
from store_cases import SHORT, House, at_work, put

from corral.domain.ids import Epoch
from corral.store.commit_batches import BatchLimits
from corral.store.leadership import Leadership
from corral.store.port import LEADER, Commit, LeaseRow, Store
from corral.store.store_errors import Fenced, StoreUnavailable
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually

HERE = pathlib.Path(__file__).parent


async def _take(store: Store, holder: str) -> LeaseRow:
    row = await store.leases.take_lease(LEADER, holder=holder, seen=await store.leases.read_lease(LEADER))
    assert row is not None
    return row


class Told(NamedTuple):
    """What callers heard. `Fenced` is in neither: a batch cut off right after its commit is stored,
    seen by the successor, and told as fenced."""

    accepted: set[str]
    refused: set[str]


def _told(names: list[str], results: Sequence[object]) -> Told:
    told = Told(set(), set())
    for name, result in zip(names, results, strict=True):
        if isinstance(result, Commit):
            told.accepted.add(name)
        elif isinstance(result, StoreUnavailable):
            assert not result.in_doubt
            told.refused.add(name)
        else:
            assert isinstance(result, Fenced), result
    return told


@pytest.mark.trap("T15")
async def test_writes_of_a_deposed_leader_are_refused_for_good(house: House) -> None:
    store = await house.open()
    async with at_work(store) as old:
        await old.commit(put("a", b"old"))
        rival = await house.another(store)
        async with at_work(rival) as new:
            with pytest.raises(Fenced) as fenced:
                await old.commit(put("a", b"too late"))
            assert (fenced.value.held, fenced.value.current) == (old.epoch, new.epoch)
            with pytest.raises(Fenced):
                await old.commit(put("b"))
            with pytest.raises(Fenced):
                await store.commits.trim(epoch=old.epoch, events_through=9, tombstones_through=9, journals=[])
            assert len(old.fenced) == 1
            await new.commit(put("a", b"new"))
            assert [d.body for d in (await rival.reads.snapshot()).documents] == [b"new"]


@pytest.mark.trap("T15")
async def test_a_raised_epoch_fences_the_writer_that_works_under_the_old_one(store: Store) -> None:
    row = await _take(store, "a")
    raised = await store.leases.raise_epoch(row, by=2**32)
    assert raised is not None
    async with at_work(store, epoch=row.epoch) as old:
        with pytest.raises(Fenced):
            await old.commit(put("a"))
    async with at_work(store, epoch=raised.epoch) as new:
        await new.commit(put("a"))


@pytest.mark.trap("T51")
async def test_sqlite_refuses_a_batch_that_a_take_over_overtook(sqlite_house: House) -> None:
    store = await sqlite_house.open()
    async with at_work(store) as old:
        await old.commit(put("a"))
        rival = sqlite3.connect(sqlite_house.data / "corral.db", isolation_level=None)
        rival.execute("begin immediate")
        rival.execute("update leader set epoch = epoch + 1")
        write = asyncio.create_task(old.commit(put("late")))
        # The writer's thread stands in BEGIN IMMEDIATE now, or soon will: both must be refused.
        await eventually(lambda: old.writer.pending == 1)
        rival.execute("commit")
        rival.close()
        with pytest.raises(Fenced):
            await write
        assert await store.reads.get("things", "late") is None


@pytest.mark.trap("T51")
async def test_a_successor_sees_every_batch_accepted_before_it_and_there_is_none_after(
    store: Store,
) -> None:
    # Small batches, so that the take-over falls between two of them.
    async with at_work(store, limits=BatchLimits(transactions=2)) as old:
        writes = [asyncio.create_task(old.commit(put(f"d{n}"))) for n in range(400)]
        await asyncio.sleep(0)  # every call has its place in line now
        await _take(store, "successor")
        seen = {d.id for d in (await store.reads.snapshot()).documents}
        results = await asyncio.gather(*writes, return_exceptions=True)
        told = _told([f"d{n}" for n in range(400)], results)
        assert told.accepted <= seen
        assert told.refused.isdisjoint(seen)
        assert len(told.accepted) < 400
        assert seen == {d.id for d in (await store.reads.snapshot()).documents}


async def _waits_for_a_lock(connection: asyncpg.Connection, name: str) -> bool:
    return bool(
        await connection.fetchval(
            """select count(*) > 0 from pg_stat_activity where datname = current_database()
            and application_name like $1 and wait_event_type = 'Lock'""",
            f"{name}%",
        )
    )


@pytest.mark.trap("T51")
async def test_postgres_cuts_off_a_batch_between_its_fence_check_and_its_commit(
    postgres_house: House,
) -> None:
    store = await postgres_house.open()
    rival = await postgres_house.open()
    blocker = await asyncpg.connect(postgres_house.url)
    async with at_work(store) as old:
        await old.commit(put("a", b"before"))
        async with blocker.transaction():
            # The batch passes the fence, then waits for this row: deposed in the very gap.
            await blocker.execute("select from document where id = 'a' for update")
            write = asyncio.create_task(old.commit(put("a", b"late")))
            await eventually(lambda: _waits_for_a_lock(blocker, "corral-writer"))
            taken = await _take(rival, "rival")
            seen = await rival.reads.get("things", "a")
        # It is cut off before the rival's epoch is stored: asked in between, the store knows only that nothing was.
        with pytest.raises((Fenced, StoreUnavailable)) as caught:
            await write
        assert isinstance(caught.value, Fenced) or not caught.value.in_doubt
        assert seen is not None
        assert seen.body == b"before"
        assert await rival.reads.get("things", "a") == seen
        assert (await rival.reads.head()).epoch == taken.epoch
        assert [commit.number for commit in old.commits] == [1]
    await blocker.close()


@pytest.mark.trap("T51")
async def test_postgres_makes_a_take_over_wait_for_a_write_it_cannot_cut_off(
    postgres_house: House,
) -> None:
    store = await postgres_house.open()
    row = await _take(store, "old")
    # Not named like a writer, so it is not terminated: the share lock alone must hold.
    stranger = await asyncpg.connect(postgres_house.url, server_settings={"application_name": "psql"})
    watcher = await asyncpg.connect(postgres_house.url)
    rival = await postgres_house.open()
    writing = stranger.transaction()
    await writing.start()
    await stranger.execute("select corral_check_fence($1)", row.epoch)
    await stranger.execute("insert into document values ('things', 'late', 1, 'accepted')")
    taking = asyncio.create_task(_take(rival, "rival"))
    await eventually(lambda: _waits_for_a_lock(watcher, "corral-lease"))
    assert not taking.done()
    await writing.commit()
    assert (await taking).epoch > row.epoch
    found = await rival.reads.get("things", "late")
    assert found is not None
    assert found.body == b"accepted"
    with pytest.raises(asyncpg.PostgresError, match="fenced"):
        await stranger.execute("select corral_check_fence($1)", row.epoch)
    await stranger.close()
    await watcher.close()


@pytest.mark.trap("T51")
async def test_every_accepted_write_is_seen_by_the_successor_under_a_storm_of_take_overs(
    postgres_house: House,
) -> None:
    store = await postgres_house.open()
    rival = await postgres_house.open()
    for turn in range(5):
        async with at_work(store, limits=BatchLimits(transactions=4)) as old:
            writes = [asyncio.create_task(old.commit(put(f"{turn}-{n}"))) for n in range(40)]
            await asyncio.sleep(0)
            await _take(rival, "rival")
            seen = {d.id for d in (await rival.reads.snapshot()).documents if d.id.startswith(f"{turn}-")}
            results = await asyncio.gather(*writes, return_exceptions=True)
        told = _told([f"{turn}-{n}" for n in range(40)], results)
        assert told.accepted <= seen
        assert told.refused.isdisjoint(seen)
        assert seen == {d.id for d in (await rival.reads.snapshot()).documents if d.id.startswith(f"{turn}-")}


@pytest.mark.trap("T52")
async def test_a_take_over_succeeds_while_the_leader_is_stopped_inside_a_transaction(
    postgres_house: House,
) -> None:
    store = await postgres_house.open()
    leader = subprocess.Popen(
        [sys.executable, HERE / "stopped_leader.py", postgres_house.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with leader:
        try:
            assert leader.stdout is not None
            assert leader.stdin is not None
            assert await asyncio.to_thread(leader.stdout.readline) == "inside\n"
            leader.send_signal(signal.SIGSTOP)
            candidate = Leadership(store.leases, clock=SystemClock(), holder="candidate", timing=SHORT)
            async with asyncio.timeout(SHORT.ttl + 5 + 10):  # 10 s for a busy machine
                term = await candidate.acquire()
            async with at_work(store, epoch=Epoch(term.epoch)) as desk:
                await desk.commit(put("new"))
                leader.send_signal(signal.SIGCONT)
                leader.stdin.write("\n")
                leader.stdin.flush()
                assert await asyncio.to_thread(leader.stdout.readline) == "refused\n"
                assert set(await desk.stored()) == set(desk.memory) == {("things", "new")}
        finally:
            leader.kill()


async def test_only_writers_of_older_epochs_are_cut_off(postgres_house: House) -> None:
    store = await postgres_house.open()
    async with at_work(store) as desk:
        await desk.commit(put("a"))
        # A lease of another name is taken: the writer must not notice.
        assert await store.leases.take_lease("job", holder="x", seen=None) is not None
        before = desk.writer.healthy
        await desk.commit(put("b"))
        assert before
        assert desk.writer.healthy
