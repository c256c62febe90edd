"""Waiting for a condition, with a deadline whose failure shows the last state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

DEADLINE: Final = 60.0
"""Generous: it costs nothing in a passing test, and a busy machine is slow."""
_PAUSE: Final = 0.01


@overload
async def eventually(
    condition: Callable[[], Awaitable[T]],
    *,
    deadline: float = DEADLINE,
    state: Callable[[], Any] | None = None,
) -> T: ...
@overload
async def eventually(
    condition: Callable[[], T],
    *,
    deadline: float = DEADLINE,
    state: Callable[[], Any] | None = None,
) -> T: ...
async def eventually(
    condition: Callable[[], Any],
    *,
    deadline: float = DEADLINE,
    state: Callable[[], Any] | None = None,
) -> Any:
    """The first true value of `condition`. At the deadline the failure shows its last value, the exception it
    raised, or the result of `state`."""
    ends = time.monotonic() + deadline
    last: Any = None
    while True:
        try:
            value = condition()
            last = await value if isinstance(value, Awaitable) else value
        except AssertionError as error:
            last = error
        else:
            if last:
                return last
        if time.monotonic() > ends:
            shown = state() if state is not None else last
            raise AssertionError(f"not within {deadline:g} s; last seen: {shown!r}")
        await asyncio.sleep(_PAUSE)
