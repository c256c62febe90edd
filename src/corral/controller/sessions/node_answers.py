"""Waiting for what a node was asked for: it answers, its session ends, or this controller leads no more."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, TypeVar

from corral.errors import Code, CorralError, Retryable
from corral.system.aio.tasks import first_of

T = TypeVar("T")


async def answer_of(answer: asyncio.Future[T], *, over: asyncio.Event, gone: CorralError) -> T:
    """The answer; raises `gone` when the session is over first. The caller sets the deadline.

    Afterwards the future is at its end: what comes later comes to nobody.
    """
    try:
        answered, *_ = await first_of(answer, over, name="sessions/over")
        if answered is None:
            raise gone
        return answered.result()
    finally:
        answer.cancel()


def no_longer_leading() -> Retryable:
    """The term is over; the next leader may be there in a moment."""
    return Retryable(Code.NOT_LEADER, "this controller no longer leads", retry_after=1.0)


def dismiss(answers: Iterable[asyncio.Future[Any]]) -> None:
    """The term is over: nobody will answer."""
    for answer in answers:
        if not answer.done():
            answer.set_exception(no_longer_leading())
