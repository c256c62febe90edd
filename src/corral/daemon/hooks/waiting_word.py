"""What a start waits for at the gate, for those who look: said when it lasts, and taken back when it is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Self

_LASTS_SECONDS: Final = 0.25
_AGAIN_SECONDS: Final = 1.0
_MOST_NAMED: Final = 5


class WaitingWord:
    """Use as `with`. `awaited` names what is waited for; `say` hears it as one text, and anew when it changes,
    and an empty one at the end if there was any."""

    def __init__(self, awaited: Callable[[], tuple[str, ...]], say: Callable[[str], None]) -> None:
        self._awaited = awaited
        self._say = say
        self._said = ""
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._look_in(_LASTS_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._said:
            self._say("")

    def _look_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._look_in(_AGAIN_SECONDS)
        text = waiting_text(self._awaited())
        if text != self._said:
            self._said = text
            self._say(text)


def waiting_text(awaited: tuple[str, ...]) -> str:
    """Short, however many there are."""
    if not awaited:
        return "waiting for modules: they are being started or changed"
    more = len(awaited) - _MOST_NAMED
    named = "; ".join(awaited[:_MOST_NAMED])
    return f"waiting for modules: {named}" + (f"; and {more} more" if more > 0 else "")
