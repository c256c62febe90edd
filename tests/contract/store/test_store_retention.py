"""Retention: bounded pasts, dropped in small steps while work goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from store_cases import Desk, at_work, drop, happened, put

from corral.domain.events import START
from corral.domain.ids import Epoch
from corral.errors import Code, Rejected
from corral.store.composed import ComposedStore
from corral.store.port import Adapter, Append, Fenced, Head, Transaction
from corral.store.retention import Retention, RetentionPolicy
from corral.system.clock import SystemClock

MANY = 100_000


class WatchedTrims(ComposedStore):
    """A store that remembers how many rows each trim dropped."""

    def __init__(self, inner: Adapter) -> None:
        super().__init__(
            name=inner.name, commits=inner, reads=inner, leases=inner, blobs=inner, close=inner.close
        )
        self.steps: list[int] = []

    async def trim(
        self,
        *,
        epoch: Epoch,
        events_through: int,
        tombstones_through: int,
        journals: Sequence[tuple[str, int]],
    ) -> int:
        step = await super().trim(
            epoch=epoch,
            events_through=events_through,
            tombstones_through=tombstones_through,
            journals=journals,
        )
        self.steps.append(step)
        return step


async def _fill(store: Adapter, epoch: Epoch, transactions: Sequence[Transaction]) -> None:
    await store.commit_batch(epoch=epoch, batch="fill", at=SystemClock().now(), transactions=transactions)


@pytest.mark.trap("T37")
async def test_a_purge_of_100_000_rows_goes_in_small_steps_between_which_others_write(
    store: Adapter,
) -> None:
    watched = WatchedTrims(store)
    async with at_work(store) as desk:
        thousand = Transaction(events=(happened("old"),) * 1000)
        for _ in range(MANY // 10_000):
            await _fill(store, desk.epoch, [thousand] * 10)
        policy = RetentionPolicy(events=100)
        purge = asyncio.create_task(Retention(watched, epoch=desk.epoch, policy=policy).apply())
        meanwhile = 0
        while not purge.done():
            await desk.writer.commit(Transaction(writes=(put(f"d{meanwhile}"),)))
            meanwhile += 1
        assert await purge == MANY - 100
        assert max(watched.steps) <= 500
        assert meanwhile >= 10
        assert [e.subject for e in await store.events((await store.head()).cursor, limit=10)] == []
        with pytest.raises(Rejected) as refused:
            await store.events(START, limit=10)
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
        journal: [entry.body for entry in await desk.store.entries(journal, limit=100)]
        for journal in ("audit", "node/a", "node/b/deep")
    }
    assert left["audit"] == [b"%d" % n for n in range(2, 12)]
    assert left["node/a"] == [b"%d" % n for n in range(7, 12)]
    assert left["node/b/deep"] == [b"10", b"11"]


async def test_a_long_journal_takes_several_steps(desk: Desk) -> None:
    entries = tuple(Append(journal="log", body=b"%d" % n) for n in range(1300))
    await desk.writer.commit(Transaction(entries=entries))
    watched = WatchedTrims(desk.store)
    await Retention(watched, epoch=desk.epoch, policy=RetentionPolicy(other_journals=50)).apply()
    assert [step for step in watched.steps if step] == [500, 500, 250]
    assert await desk.store.journals() == {"log": (1251, 50)}


async def test_tombstones_are_kept_for_as_many_commits_as_a_follower_may_lag(desk: Desk) -> None:
    await desk.commit(put("a"), put("b"))
    await desk.commit(drop("a"))
    for n in range(5):
        await desk.commit(put(f"d{n}"))
    lag = (await desk.commit(drop("b"))).number - 1
    await Retention(desk.store, epoch=desk.epoch, policy=RetentionPolicy(tombstone_commits=3)).apply()
    assert [(c.id, c.body) for c in await desk.store.changes(lag, limit=10)] == [("b", None)]
    with pytest.raises(Rejected):
        await desk.store.changes(1, limit=10)
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
    assert policy.events_through(head) == 0
    assert policy.tombstones_through(head) == 6
    rows = {"a": (1, 3), "abc": (1, 3), "ac": (1, 4), "z": (1, 9)}
    assert list(policy.excess(rows)) == [("abc", 2), ("ac", 1)]
