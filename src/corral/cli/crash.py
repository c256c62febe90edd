"""`corral crash`: what ended without being asked to."""

from __future__ import annotations

from typing import Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import printable
from corral.cli.terminal.output import Column, Item, limit_option, plain, show_list, show_one
from corral.cli.terminal.values import age, check_times, full_time, time_options

CRASHES: Final = "/api/v1/crashes"
CLASSES: Final = (
    "oom",
    "port_in_use",
    "missing_file",
    "missing_class",
    "stack_overflow",
    "signal",
    "clean_exit",
    "never_ready",
    "unknown",
)
COLUMNS: Final = (
    Column("ID", "id", whole=True),
    Column("AGO", lambda crash: age(crash.get("at"))),
    Column("GROUP", "group", rank=3),
    Column("NODE", "node", rank=2),
    Column("CLASS", "crash_class"),
    Column("UPTIME", lambda crash: f"{int(crash.get('uptime_ms') or 0) / 1000:.1f}s"),
    Column("RESTARTED", lambda crash: "yes" if crash.get("restarted_as") else "no", rank=1),
    Column("EXIT", lambda crash: _summary(crash), stretched=True),
)


def _summary(crash: Item) -> str:
    exit = crash.get("exit")
    return plain(exit.get("summary") if isinstance(exit, dict) else None)


@click.group(cls=Noun)
def crash() -> None:
    """Crashes: runs that ended without a request."""


@crash.command("list")
@click.option("--group", metavar="NAME", help="Only crashes of this group.")
@click.option("--instance", metavar="ID", help="Only crashes of this instance.")
@click.option("--node", metavar="ID", help="Only crashes on this node.")
@click.option("--class", "crash_class", type=click.Choice(CLASSES), help="Only crashes of this kind.")
@time_options("crashes")
@limit_option(50)
@api_command
def list_crashes(
    session: ApiSession,
    group: str | None,
    instance: str | None,
    node: str | None,
    crash_class: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> None:
    """List crashes, the newest first."""
    check_times(since, until)
    params = {"group": group, "instance": instance, "node": node, "crash_class": crash_class}
    params |= {"since": since, "until": until}
    items = session.client.pages(CRASHES, params, limit=limit)
    show_list(session.output, items, columns=COLUMNS)


@crash.command("get")
@click.argument("id")
@api_command
def get_crash(session: ApiSession, id: str) -> None:
    """Show a crash with the last lines of its console."""
    found = session.client.get(f"{CRASHES}/{segment(id)}")
    rows = [
        ("Id", plain(found.get("id"))),
        ("Instance", plain(found.get("instance"))),
        ("Run", plain(found.get("incarnation"))),
        ("Group", plain(found.get("group"))),
        ("Node", plain(found.get("node"))),
        ("At", full_time(found.get("at"))),
        ("Class", plain(found.get("crash_class"))),
        ("Exit", _summary(found)),
        ("Uptime", f"{int(found.get('uptime_ms') or 0) / 1000:.1f}s"),
        ("Signature", plain(found.get("signature"))),
        ("Restarted as", plain(found.get("restarted_as") or None)),
    ]
    show_one(session.output, found, rows=rows)
    if session.output == "table" and found.get("tail"):
        click.echo("\nLast lines:")
        for line in found["tail"]:
            click.echo(f"  {printable(str(line))}")
