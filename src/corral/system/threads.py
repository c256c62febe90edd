"""Work in a thread that is never left behind half done.

A thread cannot be cancelled. Long work asks now and then whether it is still wanted, where it can stop without
harm; everything else runs to its end.
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
"""Of the work that runs in this thread: set when nobody waits for it any more."""


class GivenUp(Exception):
    """Whoever waited for this work was cancelled; nobody sees this."""


def check_wanted() -> None:
    """For work that takes long, between two of its steps: raises `GivenUp` once whoever waits in `to_end` was
    cancelled. Does nothing anywhere else. Cheap enough for every block of a file."""
    given_up = _GIVEN_UP.get()
    if given_up is not None and given_up.is_set():
        raise GivenUp


async def to_end(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `asyncio.to_thread`, but whoever is cancelled while it runs waits for its end: two threads must not
    work on the same file. So `work` has to be short, or ask `check_wanted`; it is always begun."""
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
            working.exception()  # seen: nobody else will ask
        raise
