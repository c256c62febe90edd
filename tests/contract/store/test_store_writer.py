"""The writer: group commit, order, and what callers hear when a batch goes wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from store_cases import QUICK, Desk, House, at_work, happened, put, transaction

from corral.domain.events import START
from corral.errors import Code, CorralError
from corral.store.commit_batches import BatchLimits, Waiting, WaitingLine, examine
from corral.store.port import ABSENT, Commit, Store, Transaction
from corral.store.store_errors import Conflict, Fenced, StorageFailed, StoreUnavailable
from corral.store.writer import Writer, WriterTiming
from corral.system.clock import SystemClock
from corral.system.entropy import SystemEntropy
from corral.testing.failing_store import FailingStore, StoreFault
from corral.testing.waiting import eventually


async def _failing(house: House) -> FailingStore:
    store = await house.open()
    return store if isinstance(store, FailingStore) else FailingStore(store)


async def test_200_concurrent_callers_leave_gapless_numbers_and_memory_equal_to_the_store(
    desk: Desk,
) -> None:
    chance = random.Random(7)

    async def caller(name: int) -> int:
        wins = 0
        for _ in range(5):
            id = f"d{chance.randrange(40)}"
            known = desk.memory.get(("things", id))
            try:
                await desk.commit(
                    put(id, b"%d" % name, expect=known.revision if known else ABSENT), happened(id)
                )
            except Conflict:
                continue
            wins += 1
        return wins

    wins = sum(await asyncio.gather(*(caller(n) for n in range(200))))
    assert wins == len(desk.commits) > 0
    assert [commit.number for commit in desk.commits] == list(range(1, wins + 1))
    events = await desk.store.reads.events(START, limit=10_000)
    assert [event.cursor.sequence for event in events] == list(range(1, wins + 1))
    assert events == [event for commit in desk.commits for event in commit.events]
    assert await desk.stored() == desk.memory


async def test_transactions_that_arrive_during_a_batch_share_the_next_one(failing_house: House) -> None:
    store = await _failing(failing_house)
    async with at_work(store) as desk:
        store.commits.hold()
        calls = [asyncio.create_task(desk.commit(put("first")))]
        await eventually(lambda: store.commits.batches == [1])
        calls += [asyncio.create_task(desk.commit(put(f"d{n}"))) for n in range(50)]
        await eventually(lambda: desk.writer.pending == 51)
        store.commits.let_go()
        await asyncio.gather(*calls)
    assert store.commits.batches == [1, 50]


async def test_writes_to_one_document_go_in_separate_batches_in_the_order_of_their_calls(
    failing_house: House,
) -> None:
    store = await _failing(failing_house)
    async with at_work(store) as desk:
        store.commits.hold()
        calls = [asyncio.create_task(desk.commit(put("other")))]
        await eventually(lambda: store.commits.batches == [1])
        calls += [asyncio.create_task(desk.commit(put("same", b"%d" % n))) for n in range(5)]
        calls.append(asyncio.create_task(desk.commit(put("free"))))
        await eventually(lambda: desk.writer.pending == 7)
        store.commits.let_go()
        commits = await asyncio.gather(*calls)
    assert store.commits.batches == [1, 2, 1, 1, 1, 1]
    assert [commit.number for commit in commits[1:6]] == sorted(c.number for c in commits[1:6])
    assert desk.memory["things", "same"].body == b"4"


async def test_a_batch_is_bounded_in_transactions_and_in_bytes(failing_house: House) -> None:
    store = await _failing(failing_house)
    async with at_work(store, limits=BatchLimits(transactions=4, bytes=10_000)) as desk:
        store.commits.hold()
        calls = [asyncio.create_task(desk.commit(put("first")))]
        await eventually(lambda: store.commits.batches == [1])
        calls += [asyncio.create_task(desk.commit(put(f"s{n}"))) for n in range(6)]
        calls += [asyncio.create_task(desk.commit(put(f"big{n}", bytes(6_000)))) for n in range(2)]
        calls.append(asyncio.create_task(desk.commit(put("huge", bytes(50_000)))))
        await eventually(lambda: desk.writer.pending == 10)
        store.commits.let_go()
        await asyncio.gather(*calls)
    assert store.commits.batches == [1, 4, 3, 1, 1]


async def test_a_long_line_for_one_document_is_looked_at_only_so_far() -> None:
    limits = BatchLimits(transactions=4)
    line = WaitingLine(limits)
    loop = asyncio.get_running_loop()
    for name in ["hot"] * 20 + ["cold"]:
        one = transaction(put(name))
        keys, weight = examine(one, limits)
        line.join(Waiting(one, keys=keys, weight=weight, answer=loop.create_future()))
    assert [w.keys for w in line.cut()] == [(("things", "hot"),)]
    assert len(line) == 20


async def test_a_conflict_fails_its_caller_and_none_of_its_neighbours(desk: Desk) -> None:
    await desk.commit(put("taken"))
    calls = [desk.commit(put(f"d{n}"), happened(f"d{n}")) for n in range(20)]
    calls.insert(10, desk.commit(put("taken", expect=ABSENT), happened("never")))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results.pop(10), Conflict)
    assert all(isinstance(result, Commit) for result in results)
    subjects = [event.subject for event in await desk.store.reads.events(START, limit=100)]
    assert subjects == [f"d{n}" for n in range(20)]


async def test_more_waiting_than_allowed_is_refused_at_once(failing_house: House) -> None:
    store = await _failing(failing_house)
    async with at_work(store, limits=BatchLimits(waiting=3)) as desk:
        store.commits.hold()
        calls = [asyncio.create_task(desk.commit(put("under way")))]
        await eventually(lambda: store.commits.batches == [1])
        calls += [asyncio.create_task(desk.commit(put(f"d{n}"))) for n in range(3)]
        await eventually(lambda: desk.writer.pending == 4)
        with pytest.raises(StoreUnavailable, match="overloaded"):
            await desk.commit(put("too much"))
        store.commits.let_go()
        await asyncio.gather(*calls)


async def test_a_batch_the_store_does_not_take_changes_nothing_and_the_writer_recovers(
    real_house: House,
) -> None:
    store = await _failing(real_house)
    slow = WriterTiming(first_probe=0.01, slowest_probe=0.02)
    async with at_work(store, timing=slow) as desk:
        await desk.commit(put("a"))
        store.commits.fail(StoreFault.BEFORE, StoreFault.BEFORE, StoreFault.BEFORE)
        with pytest.raises(StoreUnavailable) as failed:
            await desk.commit(put("b"))
        assert not failed.value.in_doubt
        assert failed.value.code is Code.STORE_UNAVAILABLE
        assert not desk.writer.healthy
        assert "no space" in desk.writer.reason
        with pytest.raises(StoreUnavailable):
            await desk.commit(put("refused while unhealthy"))
        await eventually(lambda: desk.writer.healthy, state=lambda: desk.writer.reason)
        await desk.commit(put("c"))
        assert set(desk.memory) == set(await desk.stored()) == {("things", "a"), ("things", "c")}
    assert store.commits.batches == [1, 1, 0, 0, 0, 1]


async def test_a_stored_batch_whose_answer_was_lost_is_told_as_stored(
    real_house: House,
) -> None:
    store = await _failing(real_house)
    async with at_work(store) as desk:
        await desk.commit(put("taken"))
        store.commits.fail(StoreFault.AFTER)
        store.commits.fail_resolving(times=2)
        results = await asyncio.gather(
            desk.commit(put("a"), happened("a")),
            desk.commit(put("taken", expect=ABSENT)),
            desk.commit(put("b"), happened("b")),
            return_exceptions=True,
        )
        assert isinstance(results[1], Conflict)
        assert results[0] == desk.commits[1]
        assert results[2] == desk.commits[2]
        await desk.commit(put("c"))
        assert await desk.stored() == desk.memory
        assert [commit.number for commit in desk.commits] == [1, 2, 3, 4]
        assert desk.writer.healthy


async def test_a_batch_in_doubt_that_was_not_stored_is_told_as_not_stored(
    real_house: House,
) -> None:
    store = await _failing(real_house)
    async with at_work(store) as desk:
        store.commits.fail(StoreFault.LOST)
        with pytest.raises(StoreUnavailable) as failed:
            await desk.commit(put("a"))
        assert not failed.value.in_doubt
        await eventually(lambda: desk.writer.healthy)
        await desk.commit(put("b"))
        assert set(await desk.stored()) == set(desk.memory) == {("things", "b")}


async def test_callers_wait_for_a_batch_in_doubt_only_so_long_but_memory_follows_it_later(
    failing_house: House,
) -> None:
    store = await _failing(failing_house)
    timing = WriterTiming(patience=0.05, first_probe=0.01, slowest_probe=0.01)
    async with at_work(store, timing=timing) as desk:
        store.commits.fail(StoreFault.AFTER)
        store.commits.fail_resolving(times=10_000)
        with pytest.raises(StoreUnavailable) as failed:
            await desk.commit(put("a"))
        assert failed.value.in_doubt
        assert desk.memory == {}
        with pytest.raises(StoreUnavailable) as refused:
            await desk.commit(put("b"))
        assert not refused.value.in_doubt
        store.commits.let_resolve()
        await eventually(lambda: desk.writer.healthy, state=lambda: desk.writer.reason)
        assert set(desk.memory) == {("things", "a")}
        await desk.commit(put("c"))
        assert await desk.stored() == desk.memory


async def test_transactions_behind_a_batch_in_doubt_wait_and_then_go_on(failing_house: House) -> None:
    store = await _failing(failing_house)
    async with at_work(store) as desk:
        store.commits.fail(StoreFault.AFTER)
        store.commits.hold()
        first = asyncio.create_task(desk.commit(put("a")))
        await eventually(lambda: store.commits.batches == [1])
        second = asyncio.create_task(desk.commit(put("b")))
        await eventually(lambda: desk.writer.pending == 2)
        store.commits.let_go()
        assert (await first).number == 1
        assert (await second).number == 2


async def test_a_fenced_writer_is_closed_for_good_and_says_so_once(failing_house: House) -> None:
    store = await _failing(failing_house)
    async with at_work(store) as desk:
        store.commits.fail(StoreFault.FENCED)
        store.commits.hold()
        calls = [asyncio.create_task(desk.commit(put("a")))]
        await eventually(lambda: store.commits.batches == [1])
        calls.append(asyncio.create_task(desk.commit(put("b"))))
        await eventually(lambda: desk.writer.pending == 2)
        store.commits.let_go()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [Fenced, Fenced]
        with pytest.raises(Fenced):
            await desk.commit(put("c"))
        assert len(desk.fenced) == 1
        assert not desk.writer.healthy
    assert desk.fatal == []
    assert store.commits.batches == [1]


async def test_a_failed_flush_is_fatal_and_leaves_its_callers_in_doubt(failing_house: House) -> None:
    store = await _failing(failing_house)
    async with at_work(store) as desk:
        store.commits.fail(StoreFault.FLUSH)
        with pytest.raises(StoreUnavailable) as failed:
            await desk.commit(put("a"))
        assert failed.value.in_doubt
        assert [type(error) for error in desk.fatal] == [StorageFailed]
        with pytest.raises(StoreUnavailable):
            await desk.commit(put("b"))
    assert store.commits.batches == [1]


async def _writer_with(store: Store, follow: Callable[[Commit], None], fatal: list[BaseException]) -> Writer:
    """A writer whose memory follows commits like this."""
    async with at_work(store) as desk:
        epoch = desk.epoch
    return Writer(
        store.commits,
        epoch=epoch,
        clock=SystemClock(),
        entropy=SystemEntropy(),
        on_commit=follow,
        on_fenced=fatal.append,
        on_fatal=fatal.append,
        timing=QUICK,
    )


async def test_memory_that_cannot_follow_the_store_is_fatal(store: Store) -> None:
    fatal: list[BaseException] = []

    def follow(commit: Commit) -> None:
        raise ArithmeticError("memory says no")

    writer = await _writer_with(store, follow, fatal)
    async with writer:
        with pytest.raises(StoreUnavailable) as failed:
            await writer.commit(transaction(put("a")))
        assert failed.value.in_doubt
    assert [type(error) for error in fatal] == [ArithmeticError]


async def test_a_large_batch_is_settled_beside_the_next_one_and_in_order(failing_house: House) -> None:
    store = await _failing(failing_house)
    async with at_work(store) as desk:

        async def caller(number: int) -> None:
            first = await desk.commit(put(f"d{number}"), happened(f"d{number}"))
            await desk.commit(put(f"d{number}", b"again", expect=first.number))

        store.commits.hold()
        calls = [asyncio.create_task(desk.commit(put("first")))]
        await eventually(lambda: store.commits.batches == [1])
        calls += [asyncio.create_task(caller(number)) for number in range(100)]
        await eventually(lambda: desk.writer.pending == 101)
        store.commits.let_go()
        await asyncio.gather(*calls)
        assert store.commits.batches == [1, 100, 64, 36]
        assert [commit.number for commit in desk.commits] == list(range(1, 202))
        assert await desk.stored() == desk.memory
        assert desk.writer.pending == 0


async def test_memory_that_cannot_follow_beside_the_next_batch_leaves_nobody_waiting(
    failing_house: House,
) -> None:
    store = await _failing(failing_house)
    fatal: list[BaseException] = []

    def follow(commit: Commit) -> None:
        if commit.number == 90:
            raise ArithmeticError("memory says no")

    writer = await _writer_with(store, follow, fatal)

    async def caller(number: int) -> str:
        committed = 0
        try:
            for turn in range(2):
                await writer.commit(transaction(put(f"d{number}-{turn}")))
                committed += 1
        except StoreUnavailable as error:
            return f"{committed} in doubt" if error.in_doubt else f"{committed} refused"
        return "stored"

    async with writer:
        store.commits.hold()
        calls = [asyncio.create_task(caller(number)) for number in range(100)]
        await eventually(lambda: writer.pending == 100)
        store.commits.let_go()
        heard = await asyncio.gather(*calls)
    assert [type(error) for error in fatal] == [ArithmeticError]
    # 64 were answered and their next transactions are under way, 25 more were answered beside them.
    assert heard == ["1 in doubt"] * 64 + ["1 refused"] * 25 + ["0 in doubt"] * 11


async def test_a_cancelled_caller_disturbs_nobody_and_his_transaction_may_still_be_stored(
    failing_house: House,
) -> None:
    store = await _failing(failing_house)
    async with at_work(store) as desk:
        store.commits.hold()
        calls = [asyncio.create_task(desk.commit(put(name))) for name in ("a", "b", "c")]
        await eventually(lambda: store.commits.batches == [3])
        calls[1].cancel()
        store.commits.let_go()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(results[1], asyncio.CancelledError)
        assert set(desk.memory) == {("things", "a"), ("things", "b"), ("things", "c")}
        assert await desk.stored() == desk.memory


async def test_closing_commits_what_was_accepted_and_refuses_what_comes_later(
    failing_house: House,
) -> None:
    store = await _failing(failing_house)
    async with at_work(store) as desk:
        store.commits.hold()
        calls = [asyncio.create_task(desk.commit(put("same", b"%d" % n))) for n in range(3)]
        await eventually(lambda: store.commits.batches == [1])
        closing = asyncio.create_task(desk.writer.close())
        await asyncio.sleep(0)
        with pytest.raises(CorralError) as refused:
            await desk.commit(put("late"))
        assert refused.value.code is Code.SHUTTING_DOWN
        store.commits.let_go()
        await closing
        assert [(await call).number for call in calls] == [1, 2, 3]


async def test_an_empty_transaction_is_a_commit_like_any_other(desk: Desk) -> None:
    first = await desk.writer.commit(Transaction())
    second = await desk.commit(put("a"))
    assert (first.number, second.number) == (1, 2)
    assert (await desk.store.reads.head()).commit == 2
