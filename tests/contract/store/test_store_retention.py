"""Retention: bounded pasts, dropped in small steps while work goes on."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Sequence

import pytest
from store_cases import Desk, ManualClock, at_work, drop, happened, put, with_commits

from corral.domain.audit_chain import ChainedEntry
from corral.domain.events import START, Cursor, Draft, EventType
from corral.domain.ids import Epoch
from corral.errors import Code, Rejected
from corral.store.port import Append, CommitEngine, Head, Store, Transaction
from corral.store.retention import ChainRetention, Retention, RetentionPolicy
from corral.store.store_errors import Fenced
from corral.system.clock import SystemClock

MANY = 100_000


class WatchedTrims:
    """Commits of a store that remember how many rows each trim dropped."""

    def __init__(self, inner: CommitEngine) -> None:
        self.commit_batch = inner.commit_batch
        self.resolve_batch = inner.resolve_batch
        self.drop_module_events = inner.drop_module_events
        self.steps: list[int] = []
        self._inner = inner

    async def trim(
        self,
        *,
        epoch: Epoch,
        events_through: int,
        tombstones_through: int,
        journals: Sequence[tuple[str, int]],
    ) -> int:
        step = await self._inner.trim(
            epoch=epoch,
            events_through=events_through,
            tombstones_through=tombstones_through,
            journals=journals,
        )
        self.steps.append(step)
        return step


async def _fill(store: Store, epoch: Epoch, transactions: Sequence[Transaction]) -> None:
    await store.commits.commit_batch(
        epoch=epoch, batch="fill", at=SystemClock().now(), transactions=transactions
    )


@pytest.mark.trap("T37")
async def test_a_purge_of_100_000_rows_goes_in_small_steps_between_which_others_write(
    store: Store,
) -> None:
    watched = WatchedTrims(store.commits)
    async with at_work(store) as desk:
        thousand = Transaction(events=(happened("old"),) * 1000)
        for _ in range(MANY // 10_000):
            await _fill(store, desk.epoch, [thousand] * 10)
        policy = RetentionPolicy(events=100)
        purge = asyncio.create_task(
            Retention(with_commits(desk.store, watched), epoch=desk.epoch, policy=policy).apply()
        )
        meanwhile = 0
        while not purge.done():
            await desk.writer.commit(Transaction(writes=(put(f"d{meanwhile}"),)))
            meanwhile += 1
        assert await purge == MANY - 100
        assert max(watched.steps) <= 500
        assert meanwhile >= 10
        assert [
            e.subject for e in await store.reads.events((await store.reads.head()).cursor, limit=10)
        ] == []
        with pytest.raises(Rejected) as refused:
            await store.reads.events(START, limit=10)
        assert refused.value.code is Code.RESYNC_REQUIRED
        assert await desk.stored() == desk.memory


async def test_journals_are_shortened_from_their_old_end_each_to_its_own_length(desk: Desk) -> None:
    for n in range(12):
        await desk.commit(
            Append(journal="audit", body=b"%d" % n),
            Append(journal="node/a", body=b"%d" % n),
            Append(journal="node/b/deep", body=b"%d" % n),
        )
    policy = RetentionPolicy(journals={"node/": 5, "node/b/": 2}, other_journals=10)
    dropped = await Retention(desk.store, epoch=desk.epoch, policy=policy).apply()
    assert dropped == 2 + 7 + 10
    left = {
        journal: [entry.body for entry in await desk.store.reads.entries(journal, limit=100)]
        for journal in ("audit", "node/a", "node/b/deep")
    }
    assert left["audit"] == [b"%d" % n for n in range(2, 12)]
    assert left["node/a"] == [b"%d" % n for n in range(7, 12)]
    assert left["node/b/deep"] == [b"10", b"11"]


async def test_a_long_journal_takes_several_steps(desk: Desk) -> None:
    entries = tuple(Append(journal="log", body=b"%d" % n) for n in range(1300))
    await desk.writer.commit(Transaction(entries=entries))
    watched = WatchedTrims(desk.store.commits)
    await Retention(
        with_commits(desk.store, watched), epoch=desk.epoch, policy=RetentionPolicy(other_journals=50)
    ).apply()
    assert [step for step in watched.steps if step] == [500, 500, 250]
    assert await desk.store.reads.journals() == {"log": (1251, 50)}


async def test_tombstones_are_kept_for_as_many_commits_as_a_follower_may_lag(desk: Desk) -> None:
    await desk.commit(put("a"), put("b"))
    await desk.commit(drop("a"))
    for n in range(5):
        await desk.commit(put(f"d{n}"))
    lag = (await desk.commit(drop("b"))).number - 1
    await Retention(desk.store, epoch=desk.epoch, policy=RetentionPolicy(tombstone_commits=3)).apply()
    assert [(c.id, c.body) for c in await desk.store.reads.changes(lag, limit=10)] == [("b", None)]
    with pytest.raises(Rejected):
        await desk.store.reads.changes(1, limit=10)
    assert await desk.stored() == desk.memory


async def test_applying_a_policy_twice_drops_nothing_more(desk: Desk) -> None:
    for n in range(20):
        await desk.commit(happened(f"s{n}"))
    retention = Retention(desk.store, epoch=desk.epoch, policy=RetentionPolicy(events=5))
    assert await retention.apply() == 15
    assert await retention.apply() == 0


async def test_retention_ends_when_another_controller_leads(desk: Desk) -> None:
    await desk.commit(happened("a"), happened("b"))
    retention = Retention(desk.store, epoch=Epoch(desk.epoch - 1), policy=RetentionPolicy(events=1))
    with pytest.raises(Fenced):
        await retention.apply()
    await retention.run(every=3600)


def test_a_policy_keeps_what_is_short_enough() -> None:
    head = Head(commit=10, sequence=50, entry=0, epoch=Epoch(1), batch="")
    policy = RetentionPolicy(events=60, tombstone_commits=4, journals={"a": 3, "ab": 1}, other_journals=9)
    assert policy.tombstones_through(head) == 6
    rows = {"a": (1, 3), "abc": (1, 3), "ac": (1, 4), "z": (1, 9)}
    assert list(policy.excess(rows)) == [("abc", 2), ("ac", 1)]


def _told_by_module(number: int, size: int = 10) -> Draft:
    return Draft(type=EventType.MODULE_EVENT, subject="loud/X", data={"n": number, "x": "y" * size})


@pytest.mark.trap("T85")
@pytest.mark.parametrize(
    ("size", "policy"),
    [
        (10, RetentionPolicy(events=50, module_events=10)),
        (1_000, RetentionPolicy(events=50, module_events=40, module_event_bytes=10_600)),
    ],
    ids=["count", "bytes"],
)
async def test_events_of_modules_beyond_their_share_go_and_the_history_of_others_stays(
    desk: Desk, size: int, policy: RetentionPolicy
) -> None:
    others = []
    for number in range(40):
        others += (await desk.commit(happened(f"s{number}"))).events
        for loud in range(5):
            await desk.commit(_told_by_module(number * 5 + loud, size))
    retention = Retention(desk.store, epoch=desk.epoch, policy=policy)
    assert await retention.apply() == 190
    assert await retention.apply() == 0
    kept = await desk.store.reads.events(START, limit=1000)
    assert [event for event in kept if event.type is not EventType.MODULE_EVENT] == others
    told = [event.data["n"] for event in kept if event.type is EventType.MODULE_EVENT]
    assert told == list(range(190, 200)), "the newest ones"


@pytest.mark.trap("T85")
async def test_cursors_of_events_that_were_dropped_from_among_others_stay_good(desk: Desk) -> None:
    told = (await desk.commit(happened("first"), *map(_told_by_module, range(5)), happened("second"))).events
    async with at_work(desk.store) as successor:
        late = (await successor.commit(_told_by_module(6), happened("third"), _told_by_module(7))).events
        policy = RetentionPolicy(module_events=1)
        assert await Retention(desk.store, epoch=successor.epoch, policy=policy).apply() == 6
        for cursor in [event.cursor for event in told]:
            rest = [event.subject for event in await desk.store.reads.events(cursor, limit=10)]
            place = [event.cursor for event in told].index(cursor)
            assert rest == [*["second"] * (place < 6), "third", "loud/X"]
        assert [e.subject for e in await desk.store.reads.events(late[0].cursor, limit=10)] == [
            "third",
            "loud/X",
        ]
        for sequence in range(1, 10):
            assert (
                await desk.store.reads.events(await desk.store.reads.cursor_at(sequence), limit=20)
                is not None
            )
        with pytest.raises(Rejected) as refused:
            await desk.store.reads.events(Cursor(told[2].cursor.epoch + 7, told[2].cursor.sequence), limit=10)
        assert refused.value.code is Code.RESYNC_REQUIRED
        assert (await successor.commit(happened("fourth"))).events[0].cursor.sequence == 11


@pytest.mark.trap("T85")
@pytest.mark.parametrize("trimmed", [True, False], ids=["trimmed", "whole"])
async def test_a_cursor_before_the_first_event_that_is_left_is_of_the_history_before_it(
    desk: Desk, trimmed: bool
) -> None:
    told = (await desk.commit(happened("first"), *map(_told_by_module, range(5)))).events
    async with at_work(desk.store) as successor:
        (later,) = (await successor.commit(happened("later"))).events
        if trimmed:
            await desk.store.commits.trim(
                epoch=successor.epoch, events_through=1, tombstones_through=0, journals=[]
            )
        assert await desk.store.commits.drop_module_events(epoch=successor.epoch, through=6) == 5
        left = [later] if trimmed else [told[0], later]
        for sequence in range(1, 7):
            cursor = await desk.store.reads.cursor_at(sequence)
            assert cursor == told[sequence - 1].cursor
            assert await desk.store.reads.events(cursor, limit=10) == [later]
        assert await desk.store.reads.events(await desk.store.reads.cursor_at(0), limit=10) == left


async def test_the_whole_log_is_as_long_as_it_may_be_though_some_were_dropped(desk: Desk) -> None:
    for number in range(30):
        await desk.commit(happened(f"s{number}"), _told_by_module(number))
    policy = RetentionPolicy(events=20, module_events=5)
    await Retention(desk.store, epoch=desk.epoch, policy=policy).apply()
    oldest = await desk.store.reads.cursor_at(0)
    kept = await desk.store.reads.events(oldest, limit=100)
    assert len(kept) == 20
    assert sum(event.type is EventType.MODULE_EVENT for event in kept) == 5


async def test_the_chained_journal_loses_what_is_older_in_small_steps_and_keeps_the_rest(
    desk: Desk,
) -> None:
    clock = ManualClock()

    async def written(count: int, journal: str = "audit") -> None:
        entries = tuple(Append(journal=journal, body=b"x") for _ in range(count))
        await desk.store.commits.commit_batch(
            epoch=desk.epoch, batch="b", at=clock.now(), transactions=[Transaction(entries=entries)]
        )

    await written(700)
    await written(3, "log")
    clock.wall += dt.timedelta(days=20)
    await written(5)
    clock.wall += dt.timedelta(days=20)
    await written(2)
    watched = WatchedTrims(desk.store.commits)
    recorded: list[int] = []

    async def record(last: ChainedEntry, count: int) -> None:
        recorded.append(count)

    policy = RetentionPolicy(
        chain=ChainRetention(rows=10_000, age=dt.timedelta(days=30), record=record),
    )
    retention = Retention(with_commits(desk.store, watched), epoch=desk.epoch, policy=policy, clock=clock)
    assert (await retention.apply(), recorded) == (700, [700])
    assert max(watched.steps) <= 500
    assert {journal: rows for journal, (_, rows) in (await desk.store.reads.journals()).items()} == {
        "audit": 7,
        "log": 3,
    }
    assert await retention.apply() == 0
