"""`corral node cache|prewarm`: what nodes keep so that starts are quick."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import WrongUsage
from corral.cli.terminal.output import Column, list_table, show_done, show_list
from corral.cli.terminal.values import age, size_text

NODES: Final = "/api/v1/nodes"
PREWARM_SECONDS: Final = 630.0

CACHE_COLUMNS: Final = (
    Column("KIND", "kind"),
    Column("NAME", "name"),
    Column("VERSION", "version"),
    Column("SIZE", lambda item: size_text(item.get("size"))),
    Column("USED", lambda item: age(item.get("at"))),
    Column("DIGEST", lambda item: str(item.get("digest", ""))[:12]),
)
FAILURE_COLUMNS: Final = (
    Column("NODE", "node"),
    Column("RESULT", lambda item: "failed" if item.get("code") else "warm"),
    Column("SUBJECT", "subject"),
    Column("REASON", "message"),
)


@click.command()
@click.argument("id")
@api_command
def cache(session: ApiSession, id: str) -> None:
    """Show what a node has in its cache."""
    found = session.client.get(f"{NODES}/{segment(id)}/cache")
    items = _items(found)
    if session.output == "name":
        show_list("name", items, columns=CACHE_COLUMNS, name="name")
        return
    if session.output != "table":
        show_done(session.output, found, "")
        return
    click.echo(list_table(items, CACHE_COLUMNS))
    click.echo(f"{size_text(found.get('total_bytes'))} of {size_text(found.get('quota_bytes'))}")


def _items(found: Any) -> list[dict[str, Any]]:
    """Everything in one table."""
    return [
        *(
            {
                "kind": "template",
                "name": item.get("name"),
                "version": item.get("version"),
                "size": item.get("size"),
                "at": item.get("last_used"),
                "digest": item.get("hash"),
            }
            for item in found.get("templates", [])
        ),
        *(
            {
                "kind": "artifact",
                "name": item.get("platform") or item.get("file"),
                "version": item.get("version"),
                "size": item.get("size"),
                "at": item.get("cached_at"),
                "digest": item.get("sha256"),
            }
            for item in found.get("artifacts", [])
        ),
        *(
            {
                "kind": "first run",
                "name": item.get("config_format"),
                "version": item.get("version"),
                "size": item.get("size"),
            }
            for item in found.get("bootstraps", [])
        ),
    ]


@click.command()
@click.argument("id", required=False)
@click.option("--all", "everywhere", is_flag=True, help="On every node that is connected.")
@click.option("--group", metavar="NAME", help="Only what this group needs; else what all groups need.")
@api_command
def prewarm(session: ApiSession, id: str | None, everywhere: bool, group: str | None) -> int:
    """Fill a node's cache with what groups need to start."""
    if (id is None) != everywhere:
        raise WrongUsage("name one node, or use --all")
    place = f"{NODES}/cache/prewarm" if everywhere else f"{NODES}/{segment(str(id))}/cache/prewarm"
    answer = session.client.post(place, {"group": group} if group else {}, timeout=PREWARM_SECONDS)
    reports = answer.get("items", [answer])
    rows = [row for report in reports for row in _results(report)]
    if session.output in ("json", "yaml"):
        show_done(session.output, answer, "")
    else:
        show_list(session.output, rows, columns=FAILURE_COLUMNS, name="node")
    return 1 if any(row.get("code") for row in rows) else 0


def _results(report: Any) -> list[dict[str, Any]]:
    """A line for each failure of a node, or one that all is there."""
    failures = [{"node": report.get("node"), **failure} for failure in report.get("failures", [])]
    if report.get("code"):
        failures.append(
            {"node": report.get("node"), "code": report["code"], "message": report.get("message")}
        )
    return failures or [{"node": report.get("node")}]
