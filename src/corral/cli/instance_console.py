"""`corral instance console|logs|search|download`: what an instance writes, and a line to it."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any, Final

import click

from corral.cli.client import segment
from corral.cli.console_text import gap_text
from corral.cli.failure import WrongUsage, note
from corral.cli.instance_waits import INSTANCES
from corral.cli.output import Item, show_streamed
from corral.cli.session import Session, api_command

_PAGE: Final = 5000

run_option = click.option(
    "--incarnation", type=click.IntRange(1), metavar="N", help="An earlier run; without it the newest."
)


def _path(id: str) -> str:
    return f"{INSTANCES}/{segment(id)}/console"


@click.command()
@click.argument("id")
@click.option(
    "--tail",
    type=click.IntRange(0, _PAGE),
    default=200,
    show_default=True,
    help="Begin with so many old lines.",
)
@click.option("--raw", is_flag=True, help="Pass the instance's own escape sequences to the terminal.")
@api_command
def console(session: Session, id: str, tail: int, raw: bool) -> None:
    """Attach to an instance: its newest lines, what it writes, and a line to write to it.

    Ctrl-C, Ctrl-] or Ctrl-D detaches; the instance goes on.
    """
    from corral.cli import attach

    page = session.client.get(_path(id), {"newest": "true", "limit": max(1, tail)})
    feed = attach.Feed(session.client, id, after=int(page["next_offset"]), incarnation=None)
    scrollback = "".join(f"{item['line']}\n" for item in page["items"]) if tail else ""
    if sys.stdin.isatty() and sys.stdout.isatty():
        attach.attach_terminal(feed, id, scrollback=scrollback, raw=raw)
    else:
        attach.attach_pipe(feed, id, scrollback=scrollback)


@click.command()
@click.argument("id")
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until it ends.")
@click.option(
    "--tail", type=click.IntRange(0, _PAGE), default=100, show_default=True, help="The last so many lines."
)
@click.option(
    "--since", type=click.IntRange(0), metavar="OFFSET", help="Everything from this offset instead."
)
@click.option("--raw", is_flag=True, help="Pass the instance's own escape sequences to the terminal.")
@run_option
@api_command
def logs(
    session: Session,
    id: str,
    follow: bool,
    tail: int,
    since: int | None,
    raw: bool,
    incarnation: int | None,
) -> None:
    """Print what an instance wrote."""
    if since is None and not follow and tail == 0:
        raise WrongUsage("--tail 0 shows nothing", hint="add -f to see what comes")
    show = Printer(session.output, raw=raw)
    if since is not None:
        place = _print_from(session, id, since, incarnation, show)
    else:
        page = session.client.get(
            _path(id), {"newest": "true", "limit": max(1, tail), "incarnation": incarnation}
        )
        show.items(page["items"] if tail else [])
        place = int(page["next_offset"])
        if not follow and tail:
            show.tail(page)
    if follow:
        _print_live(session, id, place, incarnation, show)


class Printer:
    """Lines in the form that was asked for; on a terminal nothing in them is obeyed."""

    def __init__(self, output: str, *, raw: bool) -> None:
        self._output = output
        self._neutral = not raw and sys.stdout.isatty()

    def items(self, items: list[Any]) -> None:
        for item in items:
            show_streamed(self._output, item, self._line, name="line")

    def tail(self, page: Item) -> None:
        if page.get("tail"):
            self.items([page["tail"]])

    def _line(self, item: Item) -> str:
        if not self._neutral:
            return str(item.get("line", ""))
        from corral.cli.console_text import neutral

        return neutral(str(item.get("line", "")))


def _print_from(session: Session, id: str, after: int, incarnation: int | None, show: Printer) -> int:
    """Page by page to where the console ends now; where that is."""
    while True:
        page = session.client.get(
            _path(id), {"after": str(after), "limit": _PAGE, "incarnation": incarnation}
        )
        _note_gaps(page)
        show.items(page["items"])
        moved, after = int(page["next_offset"]) > after, int(page["next_offset"])
        if not moved or after >= int(page["end_offset"]):
            show.tail(page)
            return after


def _note_gaps(page: Item) -> None:
    for gap in page.get("gaps", []):
        note(gap_text(gap))


def _print_live(session: Session, id: str, after: int, incarnation: int | None, show: Printer) -> None:
    from corral.cli import sse

    params = {"after": str(after), "incarnation": incarnation}
    for message in sse.follow(session.client, f"{_path(id)}/stream", params):
        try:
            told = json.loads(message.data)
        except ValueError:
            continue  # not one of ours; the next may be
        if message.event in ("page", "gap"):
            _note_gaps(told)
            show.items(told["items"])
        elif message.event == "run":
            note(f"-- run {told.get('incarnation')} on node {told.get('node')} --")
        elif message.event == "end":
            from corral.cli.attach import how_it_ended

            note(how_it_ended(id, told))
            return


@click.command()
@click.argument("id")
@click.argument("pattern")
@click.option(
    "--since", type=click.IntRange(0), default=0, metavar="OFFSET", help="Look from this offset on."
)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=500, show_default=True, help="At most so many lines."
)
@run_option
@api_command
def search(session: Session, id: str, pattern: str, since: int, limit: int, incarnation: int | None) -> int:
    """Lines of a console that match PATTERN (RE2); exit code 1 when none does."""
    show = Printer(session.output, raw=False)
    left, after = limit, since
    while left > 0:
        params = {
            "pattern": pattern,
            "after": str(after),
            "limit": min(left, _PAGE),
            "incarnation": incarnation,
        }
        page = session.client.get(f"{_path(id)}/search", params)
        show.items(page["items"])
        left -= len(page["items"])
        moved, after = int(page["next_offset"]) > after, int(page["next_offset"])
        if not moved or after >= int(page["end_offset"]):
            break
    return 0 if left < limit else 1


@click.command()
@click.argument("id")
@click.option("-O", "--to", "path", metavar="FILE", help="Where to; '-': stdout, without it ID.log.")
@click.option("--since", type=click.IntRange(0), default=0, metavar="OFFSET", help="Begin at this offset.")
@run_option
@api_command
def download(session: Session, id: str, path: str | None, since: int, incarnation: int | None) -> None:
    """Save a console byte by byte, as it was written."""
    from corral.cli.saving import save

    target = path or f"{pathlib.PurePath(id).name}.log"
    params = {"after": str(since), "incarnation": incarnation}
    response = session.client.download(f"{_path(id)}/download", params)
    size = save(response, target, what=f"console of {id}")
    note(f"{size} bytes of '{id}' are in {'stdout' if target == '-' else target}")
