"""`corral instance console`: what an instance writes, and a line to write to it.

One thread follows the console and survives broken connections, one sends lines in their order, and
the main thread owns the terminal. Leaving only ends these; the instance never learns of it.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import queue
import select
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from corral.cli.api import event_stream
from corral.cli.api.client import Client, segment
from corral.cli.failure import CommandFailure, Unreachable, note, printable
from corral.cli.instance.sent_commands import sender
from corral.cli.terminal.console_line import Neutraliser, gap_text

if TYPE_CHECKING:
    from corral.cli.terminal.line_prompt import SendingPrompt

_QUIET_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 30.0
"""How long a line is tried: a controller that was killed is back by then, and its nodes, too."""
_LINGER_SECONDS: Final = 10.0
_BATCH: Final = 256
_MAX_PARTIAL: Final = 4096
_ECHOES: Final = 64

TEXT: Final = "text"
LATE: Final = "late"
NOTE: Final = "note"
ECHO: Final = "echo"
ENDED: Final = "ended"
FAILED: Final = "failed"


class ConsoleSession:
    """Events of a console, as a queue with a descriptor that `select` can wait for."""

    def __init__(self, client: Client, id: str, *, place: str) -> None:
        self._client = client
        self._path = f"/api/v1/instances/{segment(id)}"
        self._id = id
        self._place = place
        self._mine: collections.deque[str] = collections.deque(maxlen=_ECHOES)
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ours, self._theirs = os.pipe()
        self.unanswered = 0

    def start(self) -> None:
        for work in (self._follow, self._send):
            name = f"cli/console{work.__name__}"
            threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        """Leaving closes the connection under these threads, and one that complains while the
        interpreter ends takes the whole process down: errors are reported here, or not at all."""
        try:
            work()
        except Exception as error:
            self._put(FAILED, Unreachable(f"the console broke off: {error}"))

    def fileno(self) -> int:
        return self._ours

    def send(self, line: str) -> None:
        self.unanswered += 1
        self._mine.append(line)
        self._lines.put(line)

    def take(self) -> Iterator[tuple[str, Any]]:
        """Events since the last call, a bounded number of them: keys are read in between."""
        for _ in os.read(self._ours, _BATCH):
            yield self._events.get_nowait()

    def _put(self, kind: str, value: Any) -> None:
        self._events.put((kind, value))
        with contextlib.suppress(OSError):
            os.write(self._theirs, b".")

    def _follow(self) -> None:
        try:
            messages = event_stream.follow(
                self._client,
                f"{self._path}/console/stream",
                {"format": "blocks"},
                last_id=self._place,
                notify=lambda text: self._put(NOTE, text),
            )
            for message in messages:
                with contextlib.suppress(ValueError):
                    self._receive(message.event, json.loads(message.data))
            self._put(FAILED, None)
        except CommandFailure as failure:
            self._put(FAILED, failure)

    def _receive(self, event: str, data: Any) -> None:
        if event == "text":
            self._put(TEXT, data["text"])
        elif event == "command":
            self._echoed(data)
        elif event == "run":
            self._put(NOTE, f"-- run {data.get('incarnation')} on node {data.get('node')} --")
        elif event == "gap":
            for gap in data.get("gaps", []):
                self._put(NOTE, f"-- {gap_text(gap)} --")
        elif event == "late":
            self._put(NOTE, f"-- late, from run {data.get('incarnation')}: --")
            self._put(LATE, "".join(f"{item['line']}\n" for item in data.get("items", [])))
            self._put(NOTE, "-- that was late; now it goes on --")
        elif event == "end":
            self._put(ENDED, data)

    def _echoed(self, sent: Any) -> None:
        """A line that an instance has taken; ours was shown when it was typed, before its answer."""
        line = str(sent.get("line", ""))
        try:
            self._mine.remove(line)
        except ValueError:
            self._put(ECHO, f"» {line}  ({sender(sent)})")

    def _send(self) -> None:
        while True:
            line = self._lines.get()
            try:
                self._client.post_patiently(
                    f"{self._path}/command",
                    {"command": line},
                    seconds=_PATIENCE_SECONDS,
                    notify=lambda text: self._put(NOTE, text),
                )
                self._put(NOTE, "")
            except CommandFailure as failure:
                with contextlib.suppress(ValueError):
                    self._mine.remove(line)
                problem = f"error: {failure.message}" + (f" ({failure.hint})" if failure.hint else "")
                self._put(NOTE, problem)
            finally:
                self.unanswered -= 1


def how_it_ended(id: str, end: Any) -> str:
    """One line about the end of a run."""
    exit = end.get("exit") or {}
    summary = exit.get("summary") or str(end.get("state", "")).lower()
    return f"-- instance '{id}' has ended: {summary} --"


class ConsoleScreen:
    """Output above the line that is typed. Output whose line is not finished is shown before the prompt until it is."""

    def __init__(self, prompt: SendingPrompt, *, raw: bool) -> None:
        self._prompt = prompt
        self._neutral = None if raw else Neutraliser()

    def write(self, text: str) -> None:
        text = self._prompt.before + (self._neutral.clean(text) if self._neutral else text)
        whole, newline, partial = text.rpartition("\n")
        if len(partial) > _MAX_PARTIAL:
            whole, newline, partial = whole + newline + partial, "\n", ""
        self._prompt.before = partial
        self._prompt.print_above(whole + newline)

    def write_apart(self, text: str) -> None:
        """Whole lines from elsewhere: what has begun at the end goes on afterwards."""
        begun, self._prompt.before = self._prompt.before, ""
        self.write(text)
        self._prompt.before = begun

    def print_line(self, line: str) -> None:
        """A line of ours among the output."""
        if line:
            self._prompt.print_above(f"\x1b[2m{printable(line)}\x1b[0m\n")


def attach_terminal(
    feed: ConsoleSession, id: str, *, scrollback: str, history: Sequence[str], raw: bool
) -> None:
    """Until the person detaches with Ctrl-C, Ctrl-] or Ctrl-D, or nothing more can come. `history`: lines from before,
    which the arrow keys lead to."""
    import asyncio

    from corral.cli.terminal.line_prompt import SendingPrompt

    def send(line: str) -> None:
        screen.print_line(f"» {line}")
        feed.send(line)

    def show() -> None:
        failure = _show(feed, screen, id)
        if failure is not None:
            prompt.end(failure)

    def begin() -> None:
        feed.start()
        asyncio.get_running_loop().add_reader(feed, show)

    prompt = SendingPrompt(f"{id}> ", history=history, on_line=send)
    screen = ConsoleScreen(prompt, raw=raw)
    note(f"attached to '{id}'; Ctrl-] or Ctrl-C detaches, the instance goes on")
    screen.write(scrollback)
    with contextlib.suppress(KeyboardInterrupt, EOFError):
        try:
            prompt.read(begin)
        finally:
            if prompt.before:
                click.echo(prompt.before)
    note("detached")


def _show(feed: ConsoleSession, screen: ConsoleScreen, id: str) -> CommandFailure | None:
    for kind, value in feed.take():
        if kind == TEXT:
            screen.write(value)
        elif kind in (NOTE, ECHO):
            screen.print_line(value)
        elif kind == LATE:
            screen.write_apart(value)
        elif kind == ENDED:
            screen.print_line(how_it_ended(id, value))
        elif isinstance(value, CommandFailure):
            return value
        else:
            return CommandFailure(f"instance '{id}' was removed")
    return None


def attach_pipe(feed: ConsoleSession, id: str, *, scrollback: str, raw: bool) -> None:
    """Without a terminal to edit lines on: lines of stdin are commands, output is passed on, as it is into a pipe or a file.

    Ends when the input has ended and the console has been quiet for a moment, or with the run.
    """
    import time

    neutral = None if raw or not sys.stdout.isatty() else Neutraliser()

    def pass_on(text: str) -> None:
        sys.stdout.write(neutral.clean(text) if neutral else text)
        sys.stdout.flush()

    pass_on(scrollback)
    feed.start()
    rest, over = b"", False
    deadline = 0.0
    while True:
        waiting: list[Any] = [feed] if over else [sys.stdin, feed]
        ready, _, _ = select.select(waiting, [], [], _QUIET_SECONDS)
        if over and not feed.unanswered and (not ready or time.monotonic() > deadline):
            return
        if feed in ready and _pass_events(feed, id, pass_on):
            return
        if not over and sys.stdin in ready:
            typed = os.read(sys.stdin.fileno(), 65_536)
            *lines, rest = (rest + typed).split(b"\n")
            if not typed:
                lines, over, deadline = [rest], True, time.monotonic() + _LINGER_SECONDS
            for line in lines:
                if line:
                    feed.send(line.decode("utf-8", "replace").rstrip("\r"))


def _pass_events(feed: ConsoleSession, id: str, pass_on: Callable[[str], None]) -> bool:
    """Pass on what came; True when it was the end."""
    for kind, value in feed.take():
        if kind in (TEXT, LATE):
            pass_on(value)
        elif kind == NOTE and value:
            note(value)
        elif kind == ENDED:
            note(how_it_ended(id, value))
            return True
        elif kind == FAILED:
            if isinstance(value, CommandFailure):
                raise value
            return True
    return False
