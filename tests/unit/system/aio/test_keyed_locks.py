"""A lock for each key: one holder at a time, in turn, and nothing kept afterwards."""

from __future__ import annotations

import asyncio
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.system.aio.keyed_locks import KeyedLocks


class Visitors:
    """Tasks that come, hold a key until they are let go, and leave."""

    def __init__(self, *, holders: int = 1) -> None:
        self.locks = KeyedLocks[str](holders=holders)
        self.holders = holders
        self.inside: dict[str, list[int]] = defaultdict(list)
        self.entered: dict[str, list[int]] = defaultdict(list)
        self.tasks: list[asyncio.Task[None]] = []
        self._gates: list[asyncio.Event] = []

    def come(self, key: str) -> None:
        self._gates.append(asyncio.Event())
        self.tasks.append(asyncio.create_task(self._visit(len(self.tasks), key)))

    def let_go(self, number: int) -> None:
        self._gates[number].set()

    async def all_gone(self) -> None:
        for number in range(len(self.tasks)):
            self.let_go(number)
        for task in self.tasks:
            try:
                await task
            except asyncio.CancelledError:
                assert task.cancelled()

    async def _visit(self, number: int, key: str) -> None:
        async with self.locks.hold(key):
            self.inside[key].append(number)
            self.entered[key].append(number)
            assert len(self.inside[key]) <= self.holders
            try:
                await self._gates[number].wait()
            finally:
                self.inside[key].remove(number)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_holders_of_one_key_follow_one_another_in_the_order_in_which_they_came() -> None:
    visitors = Visitors()
    for _ in range(4):
        visitors.come("a")
    await settle()
    assert visitors.inside["a"] == [0]
    assert visitors.locks.users("a") == 4
    await visitors.all_gone()
    assert visitors.entered["a"] == [0, 1, 2, 3]
    assert visitors.locks.users("a") == 0


async def test_different_keys_do_not_wait_for_each_other() -> None:
    visitors = Visitors()
    visitors.come("a")
    visitors.come("b")
    await settle()
    assert (visitors.inside["a"], visitors.inside["b"]) == ([0], [1])
    await visitors.all_gone()


async def test_who_comes_in_the_moment_between_two_holders_waits() -> None:
    locks, inside, most = KeyedLocks[str](), 0, 0

    async def visit() -> None:
        nonlocal inside, most
        async with locks.hold("a"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    async def first() -> None:
        await visit()
        # The lock is free now and belongs to the second, who has not run yet.
        late.append(asyncio.create_task(visit()))

    late: list[asyncio.Task[None]] = []
    await asyncio.gather(first(), visit(), visit())
    await asyncio.gather(*late)
    assert most == 1
    assert len(locks) == 0


async def test_nothing_is_kept_of_a_key_that_is_not_in_use() -> None:
    visitors = Visitors()
    for key in "abc":
        visitors.come(key)
        visitors.come(key)
    await settle()
    assert len(visitors.locks) == 3
    await visitors.all_gone()
    assert len(visitors.locks) == 0


async def test_one_who_is_cancelled_while_waiting_lets_the_next_one_in() -> None:
    visitors = Visitors()
    for _ in range(3):
        visitors.come("a")
    await settle()
    visitors.tasks[1].cancel()
    visitors.let_go(0)
    await settle()
    assert visitors.inside["a"] == [2]
    await visitors.all_gone()
    assert len(visitors.locks) == 0


async def test_one_who_is_cancelled_when_its_turn_has_just_come_passes_it_on() -> None:
    visitors = Visitors()
    for _ in range(3):
        visitors.come("a")
    await settle()
    visitors.let_go(0)
    await asyncio.sleep(0)  # the first has left, the second is woken and has not run
    visitors.tasks[1].cancel()
    await settle()
    assert visitors.inside["a"] == [2]
    await visitors.all_gone()
    assert len(visitors.locks) == 0


async def test_a_failure_inside_gives_the_lock_back() -> None:
    locks = KeyedLocks[int]()
    with pytest.raises(ValueError, match="inside"):
        async with locks.hold(1):
            raise ValueError("inside")
    async with asyncio.timeout(5), locks.hold(1):
        pass
    assert len(locks) == 0


async def test_so_many_may_hold_a_key_as_were_allowed() -> None:
    visitors = Visitors(holders=2)
    for _ in range(3):
        visitors.come("a")
    await settle()
    assert visitors.inside["a"] == [0, 1]
    visitors.let_go(1)
    await settle()
    assert visitors.inside["a"] == [0, 2]
    await visitors.all_gone()
    assert len(visitors.locks) == 0


MOVES = st.one_of(
    st.tuples(st.just("come"), st.sampled_from("ab")),
    st.tuples(st.sampled_from(["let go", "cancel"]), st.integers(0, 11)),
    st.tuples(st.just("turn"), st.integers(1, 3)),
)


@given(script=st.lists(MOVES, max_size=60), holders=st.sampled_from([1, 1, 2]))
def test_whoever_comes_leaves_or_is_cancelled_there_is_never_one_too_many(script, holders) -> None:
    async def play() -> None:
        visitors = Visitors(holders=holders)
        cancelled = set()
        for move, what in script:
            if move == "come":
                visitors.come(what)
            elif move == "turn":
                for _ in range(what):
                    await asyncio.sleep(0)
            elif what < len(visitors.tasks):
                if move == "let go":
                    visitors.let_go(what)
                elif visitors.tasks[what].cancel():
                    cancelled.add(what)
        await visitors.all_gone()
        entered = [number for order in visitors.entered.values() for number in order]
        assert set(entered) | cancelled == set(range(len(visitors.tasks)))
        if holders == 1:
            assert all(order == sorted(order) for order in visitors.entered.values())
        assert len(visitors.locks) == 0

    asyncio.run(play())
