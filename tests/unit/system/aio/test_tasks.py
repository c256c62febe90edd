"""Tasks have an owner, a name and an end; the first of several things is found without losing the others."""

from __future__ import annotations

import asyncio
import gc
from typing import NoReturn

import pytest
import structlog

from corral.errors import Code, Retryable
from corral.system import log_context
from corral.system.aio.tasks import Tasks, cancel_and_wait, first_of


@pytest.fixture
async def complaints():
    """What asyncio itself has to say about tasks that nobody looked at."""
    said: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: said.append(context["message"]))
    yield said
    loop.set_exception_handler(None)


async def fail(error: Exception) -> NoReturn:
    raise error


async def for_ever() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


class Stubborn:
    """Work that takes a while to end when it is cancelled."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended = False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.asked.set()
            while not self.may_end.is_set():
                try:
                    await self.may_end.wait()
                except asyncio.CancelledError:
                    continue
            self.ended = True
            raise


async def test_a_task_has_its_name_and_is_forgotten_at_its_end() -> None:
    tasks = Tasks()
    task = tasks.spawn(asyncio.sleep(0, "done"), name="room/verb/id")
    assert (task.get_name(), len(tasks)) == ("room/verb/id", 1)
    assert await task == "done"
    assert not tasks


async def test_a_task_that_has_ended_does_not_count_before_its_callbacks_have_run() -> None:
    tasks, seen = Tasks(), []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(lambda: seen.append(len(tasks)))

    tasks.spawn(work(), name="room/work")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [0]


async def test_close_cancels_and_waits_for_the_end() -> None:
    tasks, work = Tasks(), Stubborn()
    tasks.spawn(work.run(), name="room/stubborn")
    await asyncio.sleep(0)
    closing = asyncio.create_task(tasks.close())
    await work.asked.wait()
    assert not closing.done()
    work.may_end.set()
    await closing
    assert work.ended


async def test_a_close_that_is_cancelled_waits_for_the_end_all_the_same() -> None:
    tasks, work = Tasks(), Stubborn()
    tasks.spawn(work.run(), name="room/stubborn")
    await asyncio.sleep(0)
    closing = asyncio.create_task(tasks.close())
    await work.asked.wait()
    closing.cancel()
    await asyncio.sleep(0)
    assert not closing.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert work.ended


async def test_what_begins_while_it_closes_is_ended_too() -> None:
    tasks, begun = Tasks(), []

    async def successor() -> None:
        begun.append(True)
        await for_ever()

    async def work() -> None:
        try:
            await for_ever()
        finally:
            tasks.spawn(successor(), name="room/second")
            await asyncio.sleep(0)

    tasks.spawn(work(), name="room/first")
    await asyncio.sleep(0)
    await tasks.close()
    assert begun == [True]
    assert not tasks


async def test_a_task_may_close_its_own_owner() -> None:
    tasks = Tasks()
    other = tasks.spawn(for_ever(), name="room/other")
    await tasks.spawn(tasks.close(), name="room/closing", awaited=True)
    assert other.cancelled()


async def test_it_can_be_used_again_after_it_was_closed() -> None:
    tasks = Tasks()
    await tasks.close()
    assert await tasks.spawn(asyncio.sleep(0, 1), name="room/again") == 1


async def test_those_under_way_end_with_the_block_also_when_it_fails() -> None:
    with pytest.raises(ValueError, match="of the block"):
        async with Tasks() as tasks:
            task = tasks.spawn(for_ever(), name="room/work")
            await asyncio.sleep(0)
            raise ValueError("of the block")
    assert task.cancelled()


async def test_a_failure_is_logged_once_with_the_name_of_the_task(complaints) -> None:
    tasks = Tasks()
    with structlog.testing.capture_logs() as logged:
        tasks.spawn(fail(ValueError("broken")), name="room/verb/id")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await tasks.close()
    gc.collect()
    (record,) = logged
    assert (record["event"], record["task"], record["log_level"]) == ("task.failed", "room/verb/id", "error")
    assert str(record["exc_info"]) == "broken"
    assert complaints == []


async def test_a_failure_of_ours_is_a_reason_and_no_traceback() -> None:
    with structlog.testing.capture_logs() as logged:
        async with Tasks() as tasks:
            tasks.spawn(fail(Retryable(Code.UNREACHABLE, "gone")), name="room/work")
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert [(record["log_level"], record["reason"]) for record in logged] == [("warning", "gone")]


async def test_a_failure_while_it_is_cancelled_is_logged() -> None:
    async def work() -> None:
        try:
            await for_ever()
        finally:
            raise ValueError("while it ended")

    with structlog.testing.capture_logs() as logged:
        async with Tasks() as tasks:
            tasks.spawn(work(), name="room/work")
            await asyncio.sleep(0)
    assert [str(record["exc_info"]) for record in logged] == ["while it ended"]


async def test_a_cancellation_is_no_failure() -> None:
    with structlog.testing.capture_logs() as logged:
        async with Tasks() as tasks:
            tasks.spawn(for_ever(), name="room/work")
            await asyncio.sleep(0)
    assert logged == []


async def test_the_outcome_of_an_awaited_task_is_the_callers(complaints) -> None:
    with structlog.testing.capture_logs() as logged:
        async with Tasks() as tasks:
            task = tasks.spawn(fail(ValueError("broken")), name="room/work", awaited=True)
            with pytest.raises(ValueError, match="broken"):
                await task
            tasks.spawn(fail(ValueError("never asked for")), name="room/work", awaited=True)
            await asyncio.sleep(0)
        del task
    gc.collect()
    assert (logged, complaints) == ([], [])


async def test_wait_ends_with_the_last_of_them_and_cancels_none() -> None:
    tasks, may_end = Tasks(), asyncio.Event()
    first = tasks.spawn(may_end.wait(), name="room/work")
    waiting = asyncio.create_task(tasks.wait())
    impatient = asyncio.create_task(tasks.wait())
    await asyncio.sleep(0)
    impatient.cancel()
    await tasks.wait(timeout=0.001)
    assert not waiting.done()
    may_end.set()
    await waiting
    assert first.result() is True
    assert impatient.cancelled()


async def test_cancel_asks_and_does_not_wait() -> None:
    tasks = Tasks()
    task = tasks.spawn(for_ever(), name="room/work")
    await asyncio.sleep(0)
    tasks.cancel()
    assert not task.done()
    await tasks.close()
    assert task.cancelled()


async def test_cancel_and_wait_takes_every_outcome() -> None:
    loop = asyncio.get_running_loop()
    done, broken = loop.create_future(), loop.create_future()
    done.set_result(1)
    broken.set_exception(ValueError("broken"))
    waiting = asyncio.create_task(for_ever())
    await cancel_and_wait(done, broken, waiting)
    await cancel_and_wait()
    assert waiting.cancelled()


async def test_the_first_is_given_back_and_the_rest_is_at_its_end() -> None:
    work = Stubborn()
    work.may_end.set()
    first, rest = await first_of(asyncio.sleep(0, "done"), work.run(), name="room/race")
    assert first is not None
    assert (first.result(), rest) == ("done", None)
    assert work.ended


async def test_all_that_are_over_at_once_are_given_back() -> None:
    loop = asyncio.get_running_loop()
    future, event = loop.create_future(), asyncio.Event()
    event.set()
    future.set_exception(ValueError("broken"))
    first, second, third = await first_of(future, event, asyncio.sleep(0, 3))
    assert first is future
    assert second is not None
    assert second.result() is True
    assert third is None or third.result() == 3
    assert isinstance(first.exception(), ValueError)


async def test_a_failure_is_the_callers_to_take() -> None:
    with structlog.testing.capture_logs() as logged:
        first, _ = await first_of(fail(ValueError("broken")), for_ever())
    assert first is not None
    with pytest.raises(ValueError, match="broken"):
        first.result()
    assert logged == []


async def test_futures_of_others_stay_as_they_are() -> None:
    theirs = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(for_ever())
    assert await first_of(theirs, task, asyncio.sleep(0)) != (None, None, None)
    assert not theirs.done()
    assert not task.done()
    await cancel_and_wait(theirs, task)


async def test_none_of_them_when_the_time_is_up() -> None:
    event = asyncio.Event()
    assert await first_of(event, for_ever(), timeout=0.001) == (None, None)


async def test_an_event_that_is_set_counts_also_when_there_is_no_time() -> None:
    event = asyncio.Event()
    event.set()
    seen, other = await first_of(event, for_ever(), timeout=0)
    assert (seen is not None, other) == (True, None)


async def test_when_the_wait_is_cancelled_everything_is_at_its_end() -> None:
    work, theirs = Stubborn(), asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(first_of(work.run(), theirs))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await work.asked.wait()
    assert not waiting.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert work.ended
    assert not theirs.done()
    theirs.cancel()


async def test_a_failure_that_a_cancellation_overtakes_is_logged(complaints) -> None:
    may_fail = asyncio.Event()

    async def work() -> None:
        await may_fail.wait()
        raise ValueError("broken")

    waiting = asyncio.create_task(first_of(work(), for_ever(), name="room/race"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    with structlog.testing.capture_logs() as logged:
        may_fail.set()
        await asyncio.sleep(0)  # it has failed, and the waiting one has not run
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    del waiting
    gc.collect()
    assert [(record["task"], str(record["exc_info"])) for record in logged] == [("room/race", "broken")]
    assert complaints == []


async def test_what_one_that_was_cut_short_says_of_ours_is_not_told() -> None:
    async def work() -> None:
        try:
            await for_ever()
        finally:
            raise Retryable(Code.UNREACHABLE, "cut short")

    with structlog.testing.capture_logs() as logged:
        await first_of(asyncio.sleep(0.001), work())
    assert logged == []


async def test_a_second_cancellation_does_not_leave_anything_behind() -> None:
    work = Stubborn()
    waiting = asyncio.create_task(first_of(work.run(), for_ever()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    await work.asked.wait()
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert work.ended


async def ids_within(*, wait: asyncio.Event) -> list[dict[str, str]]:
    """The ids at the beginning of a task, and after the work that spawned it is over."""
    seen = [log_context.bound_ids()]
    await wait.wait()
    return [*seen, log_context.bound_ids()]


async def test_a_task_takes_no_id_of_the_work_that_spawns_it() -> None:
    over = asyncio.Event()
    with log_context.bound(request="req-1", instance="web-1"):
        task = Tasks().spawn(ids_within(wait=over), name="room/apart")
        await asyncio.sleep(0)
        assert log_context.bound_ids() == {"request": "req-1", "instance": "web-1"}
    over.set()
    assert await task == [{}, {}]


@pytest.mark.parametrize("kind", ["awaited", "keeps_ids"])
async def test_a_task_that_is_part_of_the_work_keeps_its_ids(kind: str) -> None:
    over = asyncio.Event()
    with log_context.bound(request="req-1"):
        task = Tasks().spawn(ids_within(wait=over), name="room/part", **{kind: True})
        await asyncio.sleep(0)
    over.set()
    assert await task == [{"request": "req-1"}, {"request": "req-1"}]
    assert log_context.bound_ids() == {}


async def test_an_id_that_a_task_binds_stays_in_that_task() -> None:
    async def bind(id: str) -> str:
        with log_context.bound(request=id):
            await asyncio.sleep(0)
            return log_context.bound_request()

    tasks = Tasks()
    spawned = [tasks.spawn(bind(f"req-{number}"), name="room/bind", awaited=True) for number in range(20)]
    assert [await task for task in spawned] == [f"req-{number}" for number in range(20)]
    assert log_context.bound_request() == ""
