"""The gate where starts wait for the node's modules."""

from __future__ import annotations

import asyncio

import pytest

from corral.daemon.modules.start_gate import StartGate
from corral.testing.stepped_clock import SteppedClock


class SetClock(SteppedClock):
    """Stands still until it is set on."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 100.0

    def monotonic(self) -> float:
        return self.at


class Engine:
    """An engine as the gate sees it."""

    def __init__(self) -> None:
        self.rested = asyncio.Event()
        self.rested.set()

    @property
    def resting(self) -> bool:
        return self.rested.is_set()

    async def rest(self) -> None:
        await self.rested.wait()


def silent(_: str) -> str:
    return ""


async def test_where_nothing_is_under_way_nobody_waits():
    gate = StartGate(seconds=60, clock=SteppedClock())
    gate.expect("a", "starting")
    gate.met("a", "starting")
    with pytest.raises(StopIteration) as done:
        gate.passed(Engine(), silent).send(None)
    assert done.value.value == ()


async def test_a_start_waits_for_all_that_is_expected_and_then_for_the_engine():
    gate, engine = StartGate(seconds=60, clock=SteppedClock()), Engine()
    engine.rested.clear()
    gate.expect("a", "starting")
    gate.expect("a", "on its way")
    passing = asyncio.create_task(gate.passed(engine, silent))
    gate.met("a", "starting")
    await asyncio.sleep(0)
    assert not passing.done()
    gate.met("a", "on its way")
    await asyncio.sleep(0)
    assert not passing.done()
    engine.rested.set()
    assert await passing == ()


async def test_when_the_time_has_passed_what_is_missing_is_named():
    clock = SetClock()
    gate = StartGate(seconds=10, clock=clock)
    gate.expect("b", "on its way")
    clock.at += 9.99
    gate.expect("a", "on its way")
    clock.at += 10
    found = await gate.passed(Engine(), lambda one: "being fetched" if one == "b" else "")
    assert found == ("a: on its way", "b: being fetched")


async def test_what_is_awaited_for_two_reasons_is_named_once_where_more_is_known():
    gate = StartGate(seconds=10, clock=SteppedClock())
    gate.expect("a", "starting")
    gate.expect("a", "on its way")
    assert gate.awaited(lambda _: "being fetched") == ("a: being fetched",)
    assert gate.awaited(silent) == ("a: on its way", "a: starting")


async def test_an_order_is_waited_for_though_another_one_has_outlasted_its_time():
    clock = SetClock()
    gate = StartGate(seconds=10, clock=clock)
    gate.expect("lingers", "on its way")
    clock.at += 20
    gate.expect("fresh", "on its way")
    passing = asyncio.create_task(gate.passed(Engine(), silent))
    await asyncio.sleep(0)
    assert not passing.done()
    gate.met("lingers", "on its way")
    gate.met("fresh", "on its way")
    assert await passing == ()


async def test_a_start_does_not_wait_for_ever_for_what_is_ordered_again_and_again():
    clock = SetClock()
    gate = StartGate(seconds=10, clock=clock)
    gate.expect("a", "on its way")
    passing = asyncio.create_task(gate.passed(Engine(), silent))
    await asyncio.sleep(0)
    for _ in range(3):
        clock.at += 4
        gate.expect("a", "on its way")
        await asyncio.sleep(0)
    assert await passing == ("a: on its way",)
