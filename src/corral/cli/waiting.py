"""`--wait`: look until something is so, tell what is seen meanwhile, give up in time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from corral.cli.failure import WaitRanOut, printable
from corral.cli.values import Span

F = TypeVar("F", bound=Callable[..., Any])

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 0.5
_CLEAR_LINE: Final = "\r\x1b[K"


def wait_options(default: str = "60s") -> Callable[[F], F]:
    """`--wait` and `--timeout`, for commands whose effect takes time."""

    def decorate(command: F) -> F:
        command = click.option(
            "--timeout", type=Span(), default=default, show_default=True, help="How long to wait at most."
        )(command)
        return click.option("--wait", is_flag=True, help="Return when it is done; exit code 4 if it is not.")(
            command
        )

    return decorate


class Progress:
    """One line on the terminal that tells how far it is; nothing where there is no terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._began = time.monotonic()

    def tell(self, what: str) -> None:
        if self._shown:
            seconds = time.monotonic() - self._began
            sys.stderr.write(f"{_CLEAR_LINE}{printable(what)[:160]} ({seconds:.0f}s)")
            sys.stderr.flush()

    def done(self) -> None:
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()


def wait_until(look: Callable[[], tuple[bool, str]], *, timeout: int, what: str) -> None:
    """Call `look` until it says yes. What it says besides is shown, and is the reason when time is up."""
    deadline = time.monotonic() + timeout
    pause = _FIRST_PAUSE_SECONDS
    progress = Progress()
    try:
        while True:
            done, seen = look()
            if done:
                return
            progress.tell(seen)
            if time.monotonic() + pause > deadline:
                raise WaitRanOut(f"{what} within {timeout} seconds: {seen}")
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_PAUSE_SECONDS)
    finally:
        progress.done()
