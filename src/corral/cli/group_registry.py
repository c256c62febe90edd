"""`corral group registry`: the instances of a group that proxies may send players to."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import note, printable
from corral.cli.group_scaling import closed_text
from corral.cli.group_waits import GROUPS
from corral.cli.terminal.output import Column, Item, list_table, plain, show_done, show_list
from corral.errors import counted, short_list

_PAGE: Final = 5000
_NAMED: Final = 5

COLUMNS: Final = (
    Column("ID", "id"),
    Column("NODE", "node", rank=2),
    Column("ADDRESS", lambda item: _address(item)),
    Column("PLAYERS", lambda item: _players(item)),
    Column("PORTS", lambda item: plain(item.get("ports")), rank=1, wide=True),
)


@click.command()
@click.argument("name")
@api_command
def registry(session: ApiSession, name: str) -> None:
    """List the instances of a group that take players."""
    found = _fetched(session, name)
    if session.output == "name":
        show_list("name", found["instances"], columns=COLUMNS)
        return
    if session.output != "table":
        show_done(session.output, found, "")
        return
    if found["held"]:
        click.echo(printable(f"Held: it takes no players; 'corral group release {name}' ends that"))
    if closed := closed_text(found["maintenance"]):
        click.echo(printable(f"Maintenance: {closed}"))
    if found["fallback"]:
        click.echo(printable(f"Fallback: {', '.join(map(_fallback, found['fallback']))}"))
    click.echo(list_table(found["instances"], COLUMNS, by="id"))
    if nowhere := found["without_address"]:
        named = short_list(nowhere, _NAMED)
        note(f"left out, for the node gives no address that players can be sent to (--advertise): {named}")


def _fetched(session: ApiSession, name: str) -> dict[str, Any]:
    """All pages as one."""
    path, params = f"{GROUPS}/{segment(name)}/registry", {"limit": str(_PAGE)}
    found: dict[str, Any] = session.client.get(path, params)
    while found["next"]:
        more = session.client.get(path, {**params, "cursor": found["next"]})
        for field in ("instances", "without_address"):
            more[field] = found[field] + more[field]
        found = more
    return found


def _address(item: Item) -> str:
    host = str(item.get("address", ""))
    port = f":{item['port']}" if item.get("port") else ""
    return f"[{host}]{port}" if ":" in host and port else f"{host}{port}"


def _players(item: Item) -> str:
    known = "?" if item.get("players") is None else str(item["players"])
    return f"{known}/{item['max_players']}" if item.get("max_players") else known


def _fallback(each: Item) -> str:
    closed = ", closed" if each.get("maintenance") else ""
    return f"{each.get('group')} ({counted(int(each.get('ready', 0)), 'instance')}{closed})"
