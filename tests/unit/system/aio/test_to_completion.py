"""Work that goes on to its end although its caller is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from corral.system.aio.tasks import to_completion


async def test_its_result_and_its_failure_are_the_callers() -> None:
    async def number() -> int:
        return 7

    async def failing() -> None:
        raise OSError("broken")

    assert await to_completion(number(), name="room/work") == 7
    with pytest.raises(OSError, match="broken"):
        await to_completion(failing(), name="room/work")


@pytest.mark.parametrize("fails", [False, True])
async def test_a_caller_that_is_cancelled_again_and_again_waits_for_the_end(fails: bool) -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await may_end.wait()
        ended.set()
        if fails:
            raise OSError("nobody is there to take it")

    caller = asyncio.create_task(to_completion(work(), name="room/work"))
    await begun.wait()
    for _ in range(3):
        caller.cancel()
        await asyncio.wait({caller}, timeout=0.01)
        assert not caller.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()
