"""`--wait`: polling until an instance is ready or has ended, with the present state on a progress line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession
from corral.cli.failure import CommandFailure, CommandRefused, WaitRanOut, note
from corral.cli.terminal.output import Item
from corral.cli.terminal.progress_line import ProgressLine, ProgressReport
from corral.cli.terminal.values import SpanType
from corral.errors import counted

F = TypeVar("F", bound=Callable[..., Any])

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 0.5


def wait_options(default: str = "60s") -> Callable[[F], F]:
    """`--wait` and `--timeout`, for commands whose effect takes time."""

    def decorate(command: F) -> F:
        command = click.option(
            "--timeout", type=SpanType(), default=default, show_default=True, help="How long to wait at most."
        )(command)
        return click.option(
            "--wait",
            is_flag=True,
            help="Return when it is done: ready, or ended; exit code 4 if it is not in time, 1 if it cannot be.",
        )(command)

    return decorate


def wait_until(
    look: Callable[[], tuple[bool, str]],
    *,
    timeout: int,
    what: str,
    hint: str | None = None,
    reported: bool = False,
) -> None:
    """Call `look` until it returns true. Its text is shown, and is the reason when time is up. `reported`: off a terminal it
    is shown, too, one line a change."""
    with only_the_wait_ends():
        look_until(look, timeout=timeout, what=what, hint=hint, reported=reported)


@contextlib.contextmanager
def only_the_wait_ends() -> Iterator[None]:
    """Say so when a wait is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        note("interrupted: only the wait ends, what was asked for stays and goes on")
        raise


def look_until(
    look: Callable[[], tuple[bool, str]],
    *,
    timeout: int,
    what: str,
    hint: str | None = None,
    reported: bool = False,
) -> None:
    """`wait_until`, for a caller that says itself what an interruption means."""
    began = time.monotonic()
    deadline = began + timeout
    pause = _FIRST_PAUSE_SECONDS
    with ProgressReport() if reported else ProgressLine() as line:
        while True:
            done, seen = look()
            if done:
                return
            line.show(f"{time.monotonic() - began:.0f}s: {seen}" if sys.stderr.isatty() else seen)
            if time.monotonic() + pause > deadline:
                raise WaitRanOut(f"{what} within {counted(timeout, 'second')}: {seen}", hint=hint)
            time.sleep(pause)
            pause = min(pause * 1.3, _LONGEST_PAUSE_SECONDS)


INSTANCES: Final = "/api/v1/instances"
CRASHES: Final = "/api/v1/crashes"
ENDED: Final = ("STOPPED", "CRASHED")
_LAST_LINES: Final = 10


def until_ready(session: ApiSession, begun: Item, timeout: int) -> Any:
    """The instance when it is ready, `begun` being what the start was answered with. One that dies before is a
    refusal with its reason and its last lines, at once: also where its node restarts it."""
    id = str(begun["id"])
    found: list[Any] = []

    def look() -> tuple[bool, str]:
        found[:] = [session.client.get(f"{INSTANCES}/{segment(id)}")]
        now = found[0]
        if now.get("incarnation", 0) >= begun.get("incarnation", 0):
            _refuse_dead(session, begun, now)
        ready = bool(now.get("ready")) and now.get("wanted") == "run"
        return ready, f"instance '{id}' is {_progress(now)}"

    wait_until(look, timeout=timeout, what=f"instance '{id}' was not ready")
    return found[0]


def _refuse_dead(session: ApiSession, begun: Item, now: Item) -> None:
    id = str(now["id"])
    restarted = now.get("restarts", 0) > begun.get("restarts", 0)
    if now.get("state") not in ENDED and not restarted:
        return
    why = now.get("reason") if restarted and now.get("state") not in ENDED else why_not(now)
    lines = _last_lines(session, id, since=begun.get("incarnation", 0))
    raise CommandRefused(
        f"instance '{id}' did not become ready: {why}{lines}", hint=f"corral why {id}", code="START_FAILED"
    )


def _last_lines(session: ApiSession, id: str, *, since: int) -> str:
    """The end of the console of the last crash of an instance, unless it is of a run before `since`."""
    try:
        newest = session.client.get(CRASHES, {"instance": id, "limit": "1"})["items"]
    except CommandFailure:
        return ""  # what happened counts more
    known = bool(newest) and newest[0].get("incarnation", 0) >= since
    return crash_lines(session, str(newest[0]["id"])) if known else ""


def crash_lines(session: ApiSession, crash: str) -> str:
    """The end of the console of a run that crashed, to be put behind a message; empty when there is none."""
    try:
        tail = session.client.get(f"{CRASHES}/{segment(crash)}").get("tail") if crash else ()
    except CommandFailure:
        return ""  # what happened counts more
    return console_end(tail or ())


def console_end(lines: Sequence[str], *, indent: str = "") -> str:
    shown = "".join(f"\n  | {line}" for line in lines[-_LAST_LINES:])
    return f"\n{indent}its console ends with:{shown}" if shown else ""


def until_ended(session: ApiSession, asked: Item, timeout: int) -> Any:
    """The instance when nothing is left of the run that was to end, `asked` being what the order was
    answered with. Its group may have begun another under the same id by then."""
    id = str(asked["id"])
    found: list[Any] = []

    def look() -> tuple[bool, str]:
        found[:] = [session.client.get(f"{INSTANCES}/{segment(id)}")]
        over = found[0].get("state") in ENDED or started_again(asked, found[0])
        return over, f"instance '{id}' is {found[0].get('state')}"

    hint = f"it is still being stopped; to end it now: corral instance kill {id}"
    wait_until(look, timeout=timeout, what=f"instance '{id}' had not ended", hint=hint)
    return found[0]


def started_again(asked: Item, now: Item) -> bool:
    return bool(now.get("incarnation", 0) > asked.get("incarnation", 0) and now.get("wanted") == "run")


def why_not(instance: Item) -> str:
    """Why it does not run, as far as that is known."""
    if failed := start_problem(instance):
        return failed
    exit = instance.get("exit") or {}
    return str(exit.get("summary") or instance.get("reason") or instance.get("state"))


def start_problem(instance: Item) -> str:
    """The error of a start that failed; empty when there is none."""
    failure = instance.get("start_failure") or {}
    if not failure.get("message") or instance.get("started_at"):
        return ""
    return f"{failure.get('code')} at {failure.get('stage')}: {failure['message']}"


def stage_text(instance: Item) -> str:
    """The step of its preparation, and the condition it waits for; empty: none."""
    stage = str(instance.get("stage") or "")
    waits = instance.get("reason") if instance.get("state") == "PREPARING" else ""
    return f"{stage}: {waits}" if stage and waits else stage


def _progress(instance: Item) -> str:
    seen = f"{instance.get('state')} on node '{instance.get('node')}'"
    if stage := stage_text(instance):
        seen += f" ({stage})"
    if problem := start_problem(instance):
        return f"{seen}; last {problem}"
    return f"{seen}; {waits}" if (waits := waits_for(instance)) else seen


def waits_for(instance: Item) -> str:
    """Why one whose process exists is not ready, or why it is stopped, as far as its node has reported it."""
    waiting = instance.get("state") in ("STARTING", "RUNNING", "STOPPING") and not instance.get("ready")
    return str(instance.get("reason") or "") if waiting else ""
