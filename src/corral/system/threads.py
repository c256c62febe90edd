"""Work in a thread that is never left behind half done.

A thread cannot be cancelled. Long work checks now and then whether it was cancelled, where it can stop
without harm; everything else runs to its end.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_GIVEN_UP: Final[contextvars.ContextVar[threading.Event | None]] = contextvars.ContextVar(
    "corral_given_up", default=None
)
"""For the work that runs in this thread: set when its caller was cancelled."""


class GivenUp(Exception):
    """The caller of this work was cancelled; the exception reaches no caller."""


def check_cancelled() -> None:
    """For long work, between two of its steps: raises `GivenUp` once the caller of `to_end` was cancelled.
    No-op anywhere else. Cheap enough for every block of a file."""
    given_up = _GIVEN_UP.get()
    if given_up is not None and given_up.is_set():
        raise GivenUp


async def to_end(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `asyncio.to_thread`, but a caller that is cancelled while it runs waits for its end: two threads
    must not work on the same file. So `work` has to be short, or call `check_cancelled`; it is always begun."""
    given_up = threading.Event()

    def run() -> T:
        _GIVEN_UP.set(given_up)  # in the thread's own copy of the context
        return work(*args, **kwargs)

    context = contextvars.copy_context()
    working = asyncio.get_running_loop().run_in_executor(None, context.run, run)
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        given_up.set()
        while not working.done():
            try:
                await asyncio.wait([working])
            except asyncio.CancelledError:
                continue
        if not working.cancelled():
            working.exception()  # marked as retrieved
        raise
