"""Counting calls of functions: how much is computed, in a unit that a busy machine does not change."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

from corral.system.aio.tasks import Tasks


class CallCount:
    """Calls in one thread, of functions in Python and of those in C."""

    def __init__(self) -> None:
        self.calls = 0
        self.most_in_a_turn = 0
        """Of the loop; with `calls_by_turn` only."""
        self._by_code: collections.Counter[CodeType] = collections.Counter()

    def of(self, function: FunctionType) -> int:
        """How often this one was called."""
        return self._by_code[function.__code__]

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            self.calls += 1
            self._by_code[frame.f_code] += 1
        elif event == "c_call":
            self.calls += 1


@contextlib.contextmanager
def counted_calls() -> Iterator[CallCount]:
    """Count the calls of this thread alone. What waits elsewhere, or is done there, costs nothing."""
    count, before = CallCount(), sys.getprofile()
    sys.setprofile(count.note)
    try:
        yield count
    finally:
        sys.setprofile(before)


@contextlib.asynccontextmanager
async def calls_by_turn() -> AsyncIterator[CallCount]:
    """Count the calls between two turns of the loop: what is computed there holds up everybody else."""

    async def look(count: CallCount) -> None:
        last = count.calls
        while True:
            await asyncio.sleep(0)
            count.most_in_a_turn = max(count.most_in_a_turn, count.calls - last)
            last = count.calls

    async with Tasks() as tasks:
        with counted_calls() as count:
            tasks.spawn(look(count), name="testing/count")
            yield count
