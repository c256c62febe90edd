"""Tasks of modules: once, at a rate, by the calendar; never two at a time, never after their scope."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_module import ScriptedProcess, played_scope

from corral.errors import Code, CorralError, Rejected
from corral.modules.process.call_failures import ModuleRaised
from corral.modules.scope import Scope
from corral.modules.services.host_operations import OperationTable
from corral.modules.services.schedules import MAX_TASKS, ModuleSchedules, following
from corral.sdk.protocol.messages import CANCEL_TASK, SCHEDULE, CancelTask, Nothing, Schedule, TaskRun
from corral.testing.stepped_clock import SteppedClock
from corral.testing.waiting import eventually


class Desk:
    """Operations as a module calls them: encoded, decoded, served."""

    def __init__(self, schedules: ModuleSchedules) -> None:
        self._table = OperationTable(schedules.operations())

    async def add(self, scope: Scope, **fields: Any) -> None:
        body = msgspec.Raw(msgspec.msgpack.encode(Schedule(**{"task": 1, **fields})))
        await self._table.serve(scope, SCHEDULE, body)

    async def cancel(self, scope: Scope, task: int = 1) -> None:
        body = msgspec.Raw(msgspec.msgpack.encode(CancelTask(task=task)))
        await self._table.serve(scope, CANCEL_TASK, body)


@pytest.fixture
def desk(clock: SteppedClock) -> Desk:
    return Desk(ModuleSchedules(clock=clock))


@pytest.fixture
async def played() -> Any:
    scope, process = played_scope()
    yield scope, process
    await scope.close()


def runs(process: ScriptedProcess) -> list[int]:
    return [body.task for _, body in process.calls if isinstance(body, TaskRun)]


async def test_a_delayed_task_runs_once_and_is_forgotten(desk: Desk, played: Any) -> None:
    scope, process = played
    await desk.add(scope, delay_ms=10, name="late")
    assert scope.registrations() == [("task", "late")]
    await eventually(lambda: runs(process) == [1] and scope.registrations() == [])
    await desk.add(scope, delay_ms=0)  # its number is free again
    await eventually(lambda: runs(process) == [1, 1])


async def test_a_task_at_a_rate_goes_on_until_it_is_cancelled(desk: Desk, played: Any) -> None:
    scope, process = played
    await desk.add(scope, every_ms=10)
    await eventually(lambda: len(runs(process)) >= 5)
    await desk.cancel(scope)
    seen = len(runs(process))
    assert scope.registrations() == []
    await desk.add(scope, task=2, delay_ms=60)
    await eventually(lambda: 2 in runs(process))
    assert runs(process) == [1] * seen + [2]


async def test_a_run_that_takes_its_time_is_never_joined_by_another(desk: Desk, played: Any) -> None:
    scope, process = played
    at_once = most = 0
    release = asyncio.Event()

    async def slow(method: str, body: Any) -> Nothing:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await release.wait()
        at_once -= 1
        return Nothing()

    process.answering = slow
    await desk.add(scope, every_ms=10)
    await eventually(lambda: at_once == 1)
    await desk.add(scope, task=2, delay_ms=100)  # ten turns of the other fall out meanwhile
    await eventually(lambda: 2 in runs(process))
    assert runs(process).count(1) == 1
    release.set()
    await eventually(lambda: runs(process).count(1) >= 3)
    assert most == 2  # one of each


async def test_a_task_whose_runs_fail_goes_on(desk: Desk, played: Any) -> None:
    scope, process = played

    async def failing(method: str, body: Any) -> Nothing:
        raise ModuleRaised("played", method, kind="ValueError", message="no")

    process.answering = failing
    await desk.add(scope, every_ms=10)
    await eventually(lambda: len(runs(process)) >= 3)
    assert scope.counts.failures >= 2


async def test_a_run_that_overruns_its_deadline_is_counted_and_the_task_goes_on(
    desk: Desk, played: Any
) -> None:
    scope, process = played

    async def hanging(method: str, body: Any) -> Nothing:
        await asyncio.Event().wait()
        return Nothing()

    process.answering = hanging
    await desk.add(scope, every_ms=10, deadline_ms=20)
    await eventually(lambda: scope.counts.overruns >= 2)


async def test_tasks_wait_until_the_module_serves(desk: Desk) -> None:
    scope, process = played_scope(serving=False)
    try:
        await desk.add(scope, delay_ms=0)
        other, watched = played_scope("other")
        await desk.add(other, delay_ms=20)
        await eventually(lambda: runs(watched) == [1])
        await other.close()
        assert runs(process) == []
        scope.serve()
        await eventually(lambda: runs(process) == [1])
    finally:
        await scope.close()


async def test_nothing_runs_after_the_scope_is_closed(desk: Desk) -> None:
    scope, process = played_scope()
    await desk.add(scope, every_ms=10)
    await desk.add(scope, task=2, cron="* * * * *")
    await desk.add(scope, task=3, delay_ms=20)
    await eventually(lambda: 1 in runs(process))
    await scope.close()
    seen = runs(process)
    other, watched = played_scope("other")
    await desk.add(other, delay_ms=60)
    await eventually(lambda: runs(watched) == [1])
    await other.close()
    assert runs(process) == seen
    with pytest.raises(Rejected) as caught:
        await desk.add(scope, task=4, delay_ms=1)
    assert caught.value.code is Code.NOT_RUNNING


async def test_a_cron_task_runs_at_the_turn_of_the_minute(clock: SteppedClock) -> None:
    desk = Desk(ModuleSchedules(clock=clock))
    scope, process = played_scope(clock=clock)
    try:
        now = clock.now()
        clock.step(58.0 - now.second - now.microsecond / 1e6)
        await desk.add(scope, cron="* * * * *")
        await eventually(lambda: runs(process) == [1])
        assert clock.now().second < 30
    finally:
        await scope.close()


@pytest.mark.system
async def test_a_clock_that_is_set_back_repeats_no_turn(clock: SteppedClock) -> None:
    desk = Desk(ModuleSchedules(clock=clock))
    scope, process = played_scope(clock=clock)
    try:
        now = clock.now()
        clock.step(58.0 - now.second - now.microsecond / 1e6)
        await desk.add(scope, cron="* * * * *")
        await eventually(lambda: runs(process) == [1])
        clock.step(-0.5)  # before the turn again
        await desk.add(scope, task=2, delay_ms=1000)
        await eventually(lambda: 2 in runs(process))
        assert runs(process) == [1, 2]
    finally:
        await scope.close()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"delay_ms": 1, "every_ms": 10},
        {"every_ms": 10, "cron": "* * * * *"},
        {"delay_ms": -1},
        {"every_ms": 0},
        {"every_ms": 9},
        {"every_ms": 10, "initial_delay_ms": -5},
        {"delay_ms": 10**14},
        {"delay_ms": 1, "deadline_ms": 0},
        {"delay_ms": 1, "deadline_ms": 10**9},
        {"cron": "* * *"},
        {"cron": "0 0 30 2 *"},
    ],
)
async def test_what_is_no_time_is_refused(desk: Desk, played: Any, fields: dict[str, Any]) -> None:
    scope, _ = played
    with pytest.raises(CorralError) as caught:
        await desk.add(scope, **fields)
    assert caught.value.code is Code.INVALID_FIELD
    assert scope.registrations() == []


async def test_one_task_too_many_and_a_number_twice_are_refused(desk: Desk, played: Any) -> None:
    scope, _ = played
    await desk.add(scope, task=0, delay_ms=100_000)
    with pytest.raises(Rejected) as twice:
        await desk.add(scope, task=0, delay_ms=100_000)
    assert twice.value.code is Code.ALREADY_EXISTS
    for number in range(1, MAX_TASKS):
        await desk.add(scope, task=number, delay_ms=100_000)
    with pytest.raises(Rejected) as many:
        await desk.add(scope, task=MAX_TASKS, delay_ms=100_000)
    assert many.value.code is Code.RATE_LIMITED
    other, _ = played_scope("other")
    await desk.add(other, task=0, delay_ms=100_000)  # of its own
    await other.close()


async def test_to_cancel_what_is_not_there_is_harmless(desk: Desk, played: Any) -> None:
    scope, _ = played
    await desk.cancel(scope, 99)


@given(
    due=st.floats(0, 1e6),
    period=st.floats(0.01, 1e4),
    late=st.floats(0, 1e5),
)
def test_the_turn_that_follows_is_on_the_grid_and_not_over(due: float, period: float, late: float) -> None:
    now = due + late
    found = following(due, period, now=now)
    assert found > now or abs(found - now) < 1e-6 * max(1.0, now)
    assert found - now <= period * (1 + 1e-6) + 1e-6
    turns = (found - due) / period
    assert abs(turns - round(turns)) < 1e-6 * max(1.0, turns)
