"""`--watch`: draw a list again after an event that concerns it, and now and then in any case."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from corral.cli.api.event_stream import follow
from corral.cli.api.session import ApiSession
from corral.cli.failure import CommandFailure
from corral.cli.terminal.output import show_streamed

POLL_SECONDS: Final = 5.0
"""The floor: load changes without an event."""
CALM_SECONDS: Final = 0.25
"""A storm of events redraws no more often than this."""
_CLEAR: Final = "\x1b[H\x1b[2J"


def watch_list(
    session: ApiSession,
    fetch: Callable[[], Sequence[Any]],
    *,
    table: Callable[[Sequence[Any]], str],
    prefix: str | tuple[str, ...],
) -> None:
    """Show what `fetch` yields until interrupted; events whose type begins with `prefix` wake it."""
    changed = threading.Event()
    threading.Thread(target=_listen, args=(session, prefix, changed), name="cli/watch", daemon=True).start()
    last: Sequence[Any] | None = None
    while True:
        changed.clear()
        items = fetch()
        if items != last or sys.stdout.isatty():
            _draw(session.output, items, table)
        last = items
        time.sleep(CALM_SECONDS)
        changed.wait(POLL_SECONDS - CALM_SECONDS)


def _draw(output: str, items: Sequence[Any], table: Callable[[Sequence[Any]], str]) -> None:
    if output != "table":
        show_streamed(output, {"items": list(items), "next": None}, lambda _: "")
        return
    if sys.stdout.isatty():
        click.echo(_CLEAR, nl=False)
    click.echo(table(items))
    sys.stdout.flush()


def _listen(session: ApiSession, prefix: str | tuple[str, ...], changed: threading.Event) -> None:
    """Runs beside the drawing; when the stream cannot be had, polling is what remains."""
    try:
        for message in follow(session.client, "/api/v1/events/stream", {}, notify=lambda _: None):
            if message.event.startswith(prefix) or message.event.startswith("RESYNC"):
                changed.set()
    except CommandFailure:
        return
