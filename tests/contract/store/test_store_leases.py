"""Leases as rows, and leadership as waiting on one's own clock."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from store_cases import SHORT, ManualClock

from corral.errors import Bug
from corral.store.leadership import Leadership, LeaseTiming, Loss
from corral.store.port import LEADER, LeaseEngine, LeaseRow, Store
from corral.store.store_errors import StoreUnavailable
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually


class CountingLeases:
    """Leases of a store that count how often they were read and renewed, and can be out of reach."""

    def __init__(self, inner: LeaseEngine) -> None:
        self.take_lease = inner.take_lease
        self.release_lease = inner.release_lease
        self.raise_epoch = inner.raise_epoch
        self._inner = inner
        self.reads = 0
        self.renewals = 0
        self.reachable = True

    async def read_lease(self, name: str) -> LeaseRow | None:
        self.reads += 1
        return await self._inner.read_lease(name)

    async def renew_lease(self, row: LeaseRow) -> LeaseRow | None:
        self.renewals += 1
        if not self.reachable:
            raise StoreUnavailable("cut off, on request")
        return await self._inner.renew_lease(row)


def _candidate(leases: LeaseEngine, clock: ManualClock, name: str) -> Leadership:
    return Leadership(leases, clock=clock, holder=name, timing=SHORT)


async def test_a_lease_is_taken_only_as_it_was_seen(store: Store) -> None:
    first = await store.leases.take_lease("job", holder="a", seen=None, info='{"at": 1}')
    assert first == LeaseRow(name="job", holder="a", epoch=1, counter=1, info='{"at": 1}')
    assert await store.leases.read_lease("job") == first
    assert await store.leases.take_lease("job", holder="b", seen=None) is None
    renewed = await store.leases.renew_lease(first)
    assert renewed is not None
    assert renewed.counter == 2
    assert await store.leases.take_lease("job", holder="b", seen=first) is None
    second = await store.leases.take_lease("job", holder="b", seen=renewed)
    assert second is not None
    assert second.epoch > first.epoch
    assert await store.leases.renew_lease(renewed) is None


async def test_a_renewal_counts_on_although_an_earlier_answer_was_lost(store: Store) -> None:
    row = await store.leases.take_lease("job", holder="a", seen=None)
    assert row is not None
    await store.leases.renew_lease(row)
    again = await store.leases.renew_lease(row)
    assert again is not None
    assert again.counter == 3


async def test_every_new_epoch_is_greater_than_any_the_store_ever_had(store: Store) -> None:
    epochs = []
    for name in ("job", LEADER, "other", LEADER):
        row = await store.leases.take_lease(name, holder="x", seen=await store.leases.read_lease(name))
        assert row is not None
        epochs.append(row.epoch)
    assert epochs == sorted(set(epochs))
    assert (await store.reads.head()).epoch == epochs[-1]


async def test_a_released_lease_keeps_its_epoch_and_has_no_holder(store: Store) -> None:
    row = await store.leases.take_lease("job", holder="a", seen=None)
    assert row is not None
    await store.leases.release_lease(row)
    released = await store.leases.read_lease("job")
    assert released is not None
    assert (released.holder, released.epoch) == ("", row.epoch)
    assert await store.leases.renew_lease(row) is None
    successor = await store.leases.take_lease("job", holder="b", seen=released)
    await store.leases.release_lease(row)
    assert await store.leases.read_lease("job") == successor


async def test_an_epoch_is_raised_by_its_holder_alone_and_the_fence_goes_along(store: Store) -> None:
    row = await store.leases.take_lease(LEADER, holder="a", seen=None)
    assert row is not None
    raised = await store.leases.raise_epoch(row, by=2**32)
    assert raised is not None
    assert raised.epoch == row.epoch + 2**32
    assert (await store.reads.head()).epoch == raised.epoch
    assert await store.leases.raise_epoch(row, by=1) is None
    assert await store.leases.renew_lease(raised) is not None


async def test_a_free_lease_is_taken_at_once_and_tells_others_about_its_holder(store: Store) -> None:
    leadership = Leadership(store.leases, clock=SystemClock(), holder="a", info='{"url": "x"}', timing=SHORT)
    assert await leadership.current() is None
    term = await leadership.acquire()
    assert term.valid()
    current = await leadership.current()
    assert current is not None
    assert (current.holder, current.info, current.epoch) == ("a", '{"url": "x"}', term.epoch)
    await term.release()
    assert not term.valid()
    assert await term.hold() is Loss.RELEASED
    assert await leadership.current() is None
    successor = await _candidate(store.leases, ManualClock(), "b").acquire()
    assert successor.epoch > term.epoch


@pytest.mark.trap("T28")
@pytest.mark.parametrize("step", [dt.timedelta(hours=1), dt.timedelta(hours=-1)])
async def test_a_step_of_the_wall_clock_moves_no_lease(store: Store, step: dt.timedelta) -> None:
    leases = CountingLeases(store.leases)
    holder_clock, candidate_clock = ManualClock(), ManualClock()
    term = await _candidate(store.leases, holder_clock, "a").acquire()
    waiting = asyncio.create_task(_candidate(leases, candidate_clock, "b").acquire())
    await eventually(lambda: leases.reads >= 2)

    holder_clock.wall += step
    candidate_clock.wall += step
    seen = leases.reads
    await eventually(lambda: leases.reads >= seen + 5)
    assert term.valid()
    assert not waiting.done()

    holder_clock.running += SHORT.ttl - SHORT.margin - 0.01
    candidate_clock.running += SHORT.ttl - 0.01
    seen = leases.reads
    await eventually(lambda: leases.reads >= seen + 5)
    assert term.valid()
    assert not waiting.done()

    holder_clock.running += 0.02
    candidate_clock.running += 0.02
    assert not term.valid()
    async with asyncio.timeout(20):
        assert (await waiting).epoch > term.epoch


async def test_a_candidate_counts_anew_whenever_the_holder_renewed(store: Store) -> None:
    leases = CountingLeases(store.leases)
    clock = ManualClock()
    row = await store.leases.take_lease(LEADER, holder="a", seen=None)
    assert row is not None
    waiting = asyncio.create_task(_candidate(leases, clock, "b").acquire())
    for _ in range(5):
        seen = leases.reads
        await eventually(lambda seen=seen: leases.reads >= seen + 2)
        clock.running += SHORT.ttl - 0.01
        row = await store.leases.renew_lease(row)
        assert row is not None
    assert not waiting.done()
    seen = leases.reads
    await eventually(lambda: leases.reads >= seen + 2)
    clock.running += SHORT.ttl
    assert (await waiting).epoch > row.epoch


async def test_a_holder_counts_from_before_its_renewal_was_sent(store: Store) -> None:
    class SlowRenewals(CountingLeases):
        async def renew_lease(self, row: LeaseRow) -> LeaseRow | None:
            clock.running += 0.5
            return await super().renew_lease(row)

    clock = ManualClock()
    leases = SlowRenewals(store.leases)
    term = await _candidate(leases, clock, "a").acquire()
    held = asyncio.create_task(term.hold())
    await eventually(lambda: leases.renewals >= 1)
    await eventually(lambda: not term.valid())
    # 0.5 s of the 0.8 went by under way: a second slow renewal does not fit in any more.
    assert await held is Loss.EXPIRED
    assert leases.renewals <= 2


async def test_a_holder_that_cannot_renew_gives_up_before_anyone_else_may_lead(store: Store) -> None:
    leases = CountingLeases(store.leases)
    clock = ManualClock()
    term = await _candidate(leases, clock, "a").acquire()
    held = asyncio.create_task(term.hold())
    await eventually(lambda: leases.renewals >= 2)
    leases.reachable = False
    seen = leases.renewals
    await eventually(lambda: leases.renewals >= seen + 2)
    assert term.valid()
    clock.running += SHORT.ttl - SHORT.margin + 0.001
    assert not term.valid()
    assert await held is Loss.EXPIRED


async def test_a_holder_whose_lease_was_taken_learns_it_at_the_next_renewal(store: Store) -> None:
    term = await _candidate(store.leases, ManualClock(), "a").acquire()
    held = asyncio.create_task(term.hold())
    row = await store.leases.read_lease(LEADER)
    while await store.leases.take_lease(LEADER, holder="b", seen=row) is None:
        row = await store.leases.read_lease(LEADER)
    assert await held is Loss.TAKEN
    assert not term.valid()


async def test_an_uncontested_lease_needs_no_renewal_and_never_expires(store: Store) -> None:
    clock = ManualClock()
    leases = CountingLeases(store.leases)
    await store.leases.take_lease(LEADER, holder="a process that was killed", seen=None)
    term = await Leadership(leases, clock=clock, holder="a", timing=SHORT, uncontested=True).acquire()
    held = asyncio.create_task(term.hold())
    clock.running += 1e6
    assert term.valid()
    await term.release()
    assert await held is Loss.RELEASED
    assert leases.renewals == 0


async def test_a_term_raises_its_own_epoch(store: Store) -> None:
    term = await _candidate(store.leases, ManualClock(), "a").acquire()
    before = term.epoch
    assert await term.raise_epoch(by=5) == before + 5 == term.epoch
    assert (await store.reads.head()).epoch == term.epoch


def test_lease_times_that_cannot_work_are_refused() -> None:
    with pytest.raises(Bug):
        LeaseTiming(ttl=5, renew=3, margin=3)
