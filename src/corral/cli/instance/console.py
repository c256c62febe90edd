"""`corral instance console|search|download`: what an instance writes, and a line to it."""

from __future__ import annotations

import pathlib
import sys

import click

from corral.cli.api.session import Session, api_command
from corral.cli.failure import note
from corral.cli.instance.logs import PAGE, Printer, console_path
from corral.cli.instance.runs import run_option


@click.command()
@click.argument("id")
@click.option(
    "-n",
    "--tail",
    type=click.IntRange(0, PAGE),
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
    from corral.cli.instance import console_session as attach

    page = session.client.get(console_path(id), {"newest": "true", "limit": max(1, tail)})
    feed = attach.Feed(session.client, id, place=f"{page['incarnation']}-{page['next_offset']}")
    scrollback = "".join(f"{item['line']}\n" for item in page["items"]) if tail else ""
    if sys.stdin.isatty() and sys.stdout.isatty():
        attach.attach_terminal(feed, id, scrollback=scrollback, raw=raw)
    else:
        attach.attach_pipe(feed, id, scrollback=scrollback)


@click.command()
@click.argument("id")
@click.argument("pattern")
@click.option(
    "--after", type=click.IntRange(0), default=0, metavar="OFFSET", help="Look from this offset on."
)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=500, show_default=True, help="At most so many lines."
)
@run_option
@api_command
def search(session: Session, id: str, pattern: str, after: int, limit: int, incarnation: int | None) -> int:
    """Lines of a console that match PATTERN (RE2); exit code 1 when none does."""
    show = Printer(session.output, raw=False)
    left = limit
    while left > 0:
        params = {
            "pattern": pattern,
            "after": str(after),
            "limit": min(left, PAGE),
            "incarnation": incarnation,
        }
        page = session.client.get(f"{console_path(id)}/search", params)
        show.items(page["items"])
        left -= len(page["items"])
        moved, after = int(page["next_offset"]) > after, int(page["next_offset"])
        if not moved or after >= int(page["end_offset"]):
            break
    return 0 if left < limit else 1


@click.command()
@click.argument("id")
@click.option("-O", "--to", "path", metavar="FILE", help="Where to; '-': stdout, without it ID.log.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="OFFSET", help="Begin at this offset.")
@run_option
@api_command
def download(session: Session, id: str, path: str | None, after: int, incarnation: int | None) -> None:
    """Save a console byte by byte, as it was written."""
    from corral.cli.api.download import save

    target = path or f"{pathlib.PurePath(id).name}.log"
    params = {"after": str(after), "incarnation": incarnation}
    response = session.client.download(f"{console_path(id)}/download", params)
    size = save(response, target, what=f"console of {id}")
    note(f"{size} bytes of '{id}' are in {'stdout' if target == '-' else target}")
