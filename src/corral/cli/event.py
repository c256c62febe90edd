"""`corral event`: what happened, and what happens now."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import note, printable
from corral.cli.terminal.output import Column, Item, details, limit_option, plain, show_list, show_streamed
from corral.cli.terminal.table import GREEN, RED, YELLOW, colour_enabled, coloured
from corral.cli.terminal.values import check_times, short_time, time_options
from corral.errors import Code, unknown_choice

EVENTS: Final = "/api/v1/events"
RESYNC: Final = "RESYNC_REQUIRED"

COLUMNS: Final = (
    Column("ID", "id", rank=2),
    Column("TIME", lambda event: short_time(event.get("at"))),
    Column("TYPE", "type", paint=lambda name: _colour(name)),
    Column("SUBJECT", "subject"),
    Column("DETAILS", lambda event: details(event.get("data")), rank=1, stretched=True),
)

_COLOURS: Final = {
    **dict.fromkeys(("CRASHED", "FAILED", "REFUSED", "LOST", "UNREACHABLE", "PAUSED", "REVOKED"), RED),
    **dict.fromkeys(("DISCONNECTED", "OFFLINE", "STOPPED", "SKIPPED"), YELLOW),
    **dict.fromkeys(("RUNNING", "CONNECTED", "READY", "ACTIVE", "RECOVERED"), GREEN),
}
MOST: Final = 500
"""The API's largest page: of the newest events there is only one."""

TYPE_COLUMNS: Final = (
    Column("TYPE", "type", paint=lambda name: _colour(name)),
    Column("RESOURCE", "resource", rank=2),
    Column("PERMISSION", "permission", rank=2),
    Column("DATA", lambda found: _field_names(found), rank=1),
    Column("PUBLISHED WHEN", "meaning", stretched=True),
)

FIELD_COLUMNS: Final = (
    Column("FIELD", "name"),
    Column("TYPE", "type"),
    Column("ALWAYS", lambda field: "yes" if field.get("required") else "no", rank=1),
    Column("CLASS", "class", rank=1),
    Column("EXAMPLE", lambda field: json.dumps(field.get("example"), ensure_ascii=False), rank=2),
    Column("MEANING", "meaning", stretched=True),
)

_FILTERS: Final = (
    click.option("--types", metavar="TYPE,…", help="Only events of these types."),
    click.option("--subject", metavar="ID", help="Only events about this id."),
    click.option("--group", metavar="NAME", help="Only events about this group or something of it."),
    click.option("--node", metavar="ID", help="Only events about this node or something on it."),
)


def filters(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say which events are meant."""
    for option in reversed(_FILTERS):
        command = option(command)
    return command


@click.group()
def event() -> None:
    """Events: the stored ones, and those that come."""


@event.command("list")
@filters
@click.option("--after", metavar="ID", help="Only events after this one (EPOCH-SEQUENCE).")
@time_options("events")
@limit_option(100)
@api_command
def list_events(
    session: ApiSession,
    types: str | None,
    subject: str | None,
    group: str | None,
    node: str | None,
    after: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """List the newest events, or those after a named one. The oldest come first in both."""
    check_times(since, until)
    params: dict[str, Any] = {"types": _types(types), "subject": subject, "group": group, "node": node}
    params |= {"since": since, "until": until}
    if after is None and limit <= MOST:
        page = session.client.get(EVENTS, {**params, "newest": "true", "limit": limit})
        show_list(session.output, page["items"], columns=COLUMNS)
        return
    bound = limit if after else None  # pages go forwards: the newest are at the end of them all
    params["after"] = after
    items = session.client.pages(EVENTS, params, limit=bound, position="after")
    show_list(session.output, items if after else items[-limit:], columns=COLUMNS)


@event.command("follow")
@filters
@click.option("--after", metavar="ID", help="Begin after this event rather than now.")
@api_command
def follow_events(
    session: ApiSession,
    types: str | None,
    subject: str | None,
    group: str | None,
    node: str | None,
    after: str | None,
) -> None:
    """Print events as they happen. A broken connection is resumed where it broke."""
    from corral.cli.api.event_stream import follow

    params = {"types": _types(types), "subject": subject, "group": group, "node": node, "after": after}
    for message in follow(session.client, f"{EVENTS}/stream", params):
        if message.event == RESYNC:
            note("events were lost: the position is older than what is kept")
            continue
        try:
            found = json.loads(message.data)
        except ValueError:
            continue  # not one of ours; the next may be
        show_streamed(session.output, found, _line)


@event.command("types")
@click.argument("type", required=False)
@api_command
def list_types(session: ApiSession, type: str | None) -> None:
    """List the types of events; of one TYPE the fields of its data."""
    items = session.client.get(f"{EVENTS}/types")["items"]
    if type is None:
        show_list(session.output, items, columns=TYPE_COLUMNS)
        return
    known = {item["type"]: item for item in items}
    if type.upper() not in known:
        raise unknown_choice("event type", type, known, code=Code.UNKNOWN_EVENT_TYPE)
    show_list(session.output, known[type.upper()]["fields"], columns=FIELD_COLUMNS)


def _field_names(found: Item) -> str:
    return ", ".join(plain(field.get("name")) for field in found.get("fields") or ())


def _types(types: str | None) -> str | None:
    return ",".join(part.strip().upper() for part in types.split(",") if part.strip()) if types else None


def _line(event: Item) -> str:
    name = printable(plain(event.get("type")))
    shown = coloured(name, _colour(name)) if colour_enabled() else name
    data = details(event.get("data"))
    rest = printable(f"{plain(event.get('subject'))}  {data}" if data != "-" else plain(event.get("subject")))
    line = f"{printable(short_time(event.get('at')))}  {shown}  {rest}"
    return line.replace("\n", "\\n")  # an event is one line, whatever others put into it


def _colour(name: str) -> str:
    """Events of something that went wrong, or well, by the last word of their names."""
    return _COLOURS.get(name.rpartition("_")[2], "")
