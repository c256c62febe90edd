"""`corral instance commands`: who sent which line to an instance, and when."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandFailure
from corral.cli.instance.waits import INSTANCES
from corral.cli.terminal.output import Column, Item, limit_option, show_list
from corral.cli.terminal.values import check_times, short_time, time_options

COLUMNS: Final = (
    Column("TIME", lambda sent: short_time(sent.get("at"))),
    Column("BY", lambda sent: sender(sent)),
    Column("RUN", "incarnation", rank=1),
    Column("OFFSET", "offset", rank=2),
    Column("LINE", "line", stretched=True),
)
_HIDDEN: Final = "•••"


def sender(sent: Item) -> str:
    """Who sent a line, for people: a name, else what the audit calls them."""
    return str(sent.get("by_name") or sent.get("by") or "somebody")


@click.command("commands")
@click.argument("id")
@time_options("lines")
@limit_option(100)
@api_command
def sent_commands(session: ApiSession, id: str, since: str | None, until: str | None, limit: int) -> None:
    """List the lines that were sent to an instance, the newest first. 'corral audit list' also has what was refused."""
    check_times(since, until)
    found = session.client.pages(_path(id), {"since": since, "until": until}, limit=limit)
    show_list(session.output, found, columns=COLUMNS, name="line")


def earlier_lines(session: ApiSession, id: str, limit: int) -> list[str]:
    """The last lines that were sent, the oldest first; none if they cannot be had."""
    try:
        found = session.client.pages(_path(id), {}, limit=limit)
        return [str(sent["line"]) for sent in found if sent.get("line") not in (None, _HIDDEN)][::-1]
    except CommandFailure:
        return []


def _path(id: str) -> str:
    return f"{INSTANCES}/{segment(id)}/commands"
