"""`corral audit`: who changed what, and from where."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.terminal.output import Column, limit_option, plain, show_list
from corral.cli.terminal.values import check_times, short_time, time_options

COLUMNS: Final = (
    Column("TIME", lambda entry: short_time(entry.get("at"))),
    Column("ACTOR", lambda entry: plain(entry.get("actor_name") or entry.get("actor"))),
    Column("ACTION", "action"),
    Column("SUBJECT", "subject", stretched=True),
    Column("FROM", "address", rank=1),
)


@click.group()
def audit() -> None:
    """Who changed what, and from where."""


@audit.command("list")
@time_options("changes")
@limit_option(100)
@api_command
def list_entries(session: ApiSession, since: str | None, until: str | None, limit: int) -> None:
    """List audit entries, the newest first. -o json also shows what was before and after."""
    check_times(since, until)
    found = session.client.pages("/api/v1/audit", {"since": since, "until": until}, limit=limit)
    show_list(session.output, found, columns=COLUMNS, name="number")
