"""`--wait`: look until something is so, tell what is seen meanwhile, give up in time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from corral.cli.failure import WaitRanOut, note
from corral.cli.terminal.progress_line import ProgressLine
from corral.cli.terminal.values import Span

F = TypeVar("F", bound=Callable[..., Any])

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 0.5


def wait_options(default: str = "60s") -> Callable[[F], F]:
    """`--wait` and `--timeout`, for commands whose effect takes time."""

    def decorate(command: F) -> F:
        command = click.option(
            "--timeout", type=Span(), default=default, show_default=True, help="How long to wait at most."
        )(command)
        return click.option(
            "--wait",
            is_flag=True,
            help="Return when it is done: ready, or ended; exit code 4 if it is not in time, 1 if it cannot be.",
        )(command)

    return decorate


def wait_until(
    look: Callable[[], tuple[bool, str]], *, timeout: int, what: str, hint: str | None = None
) -> None:
    """Call `look` until it says yes. What it says besides is shown, and is the reason when time is up."""
    try:
        _look_until(look, timeout=timeout, what=what, hint=hint)
    except KeyboardInterrupt:
        note("interrupted: only the wait ends, what was asked for stays and goes on")
        raise


def _look_until(look: Callable[[], tuple[bool, str]], *, timeout: int, what: str, hint: str | None) -> None:
    began = time.monotonic()
    deadline = began + timeout
    pause = _FIRST_PAUSE_SECONDS
    with ProgressLine() as line:
        while True:
            done, seen = look()
            if done:
                return
            line.show(f"{time.monotonic() - began:.0f}s: {seen}")
            if time.monotonic() + pause > deadline:
                raise WaitRanOut(f"{what} within {timeout} seconds: {seen}", hint=hint)
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_PAUSE_SECONDS)
