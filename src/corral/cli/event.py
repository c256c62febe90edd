"""`corral event`: what happened, and what happens now."""

from __future__ import annotations

import json
from typing import Final

import click

from corral.cli.failure import note, printable
from corral.cli.output import Column, Item, plain, show_list, show_streamed
from corral.cli.session import Session, api_command

EVENTS: Final = "/api/v1/events"
RESYNC: Final = "RESYNC_REQUIRED"

COLUMNS: Final = (
    Column("ID", "id"),
    Column("TIME", "at"),
    Column("TYPE", "type"),
    Column("SUBJECT", "subject"),
    Column("DATA", "data"),
)

MOST: Final = 500
"""The API's largest page: of the newest events there is only one."""

types_option = click.option("--types", metavar="TYPE,…", help="Only events of these types.")


@click.group()
def event() -> None:
    """What happened, and what happens now."""


@event.command("list")
@types_option
@click.option("--after", metavar="ID", help="Only events after this one (EPOCH-SEQUENCE).")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=100, show_default=True, help="At most so many."
)
@api_command
def list_events(session: Session, types: str | None, after: str | None, limit: int) -> None:
    """List the newest events, or those after one that is named; the oldest first in both."""
    if after is None and limit <= MOST:
        page = session.client.get(EVENTS, {"types": _types(types), "newest": "true", "limit": limit})
        show_list(session.output, page["items"], columns=COLUMNS)
        return
    bound = limit if after else None  # pages go forwards: the newest are at the end of them all
    params = {"types": _types(types), "after": after}
    items = session.client.pages(EVENTS, params, limit=bound, position="after")
    show_list(session.output, items if after else items[-limit:], columns=COLUMNS)


@event.command("follow")
@types_option
@click.option("--after", metavar="ID", help="Begin after this event rather than now.")
@api_command
def follow_events(session: Session, types: str | None, after: str | None) -> None:
    """Print events as they happen; a broken connection is taken up where it broke."""
    from corral.cli.sse import follow

    for message in follow(session.client, f"{EVENTS}/stream", {"types": _types(types), "after": after}):
        if message.event == RESYNC:
            note("events were lost: the position is older than what is kept")
            continue
        try:
            found = json.loads(message.data)
        except ValueError:
            continue  # not one of ours; the next may be
        show_streamed(session.output, found, _line)


def _types(types: str | None) -> str | None:
    return ",".join(part.strip().upper() for part in types.split(",") if part.strip()) if types else None


def _line(event: Item) -> str:
    told = f"{plain(event.get('at'))}  {plain(event.get('type'))}  {plain(event.get('subject'))}"
    data = event.get("data")
    return printable(f"{told}  {plain(data)}" if data else told)
