"""`corral group resolved`, `revisions` and `restart`: where the values of a group come from, what its instances were started
by, and how all of them are replaced."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.deploy import WAIT, given_options, order_deployment, update_options
from corral.cli.dry_run import DRY, act_once_told, dry_run_option, show_dry_run
from corral.cli.failure import WrongUsage
from corral.cli.group_waits import GROUPS
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import yes_option
from corral.cli.terminal.output import Column, Item, plain, show_done, show_list, show_one
from corral.cli.terminal.values import age, full_time

COLUMNS: Final = (
    Column("REVISION", lambda each: str(each.get("number"))),
    Column("AGO", lambda each: age(each.get("created_at"))),
    Column("TRIGGER", "trigger", rank=2),
    Column("BY", "by", rank=3),
    Column("INSTANCES", lambda each: str(each.get("instances", 0))),
    Column("MARK", lambda each: _mark(each)),
    Column("CHANGED", lambda each: plain(each.get("changed")), rank=1, stretched=True),
)


ORIGINS: Final = (
    Column("FIELD", "field"),
    Column("VALUE", lambda each: plain(each.get("value")), stretched=True),
    Column("WRITTEN IN", "group"),
)


def _mark(each: Item) -> str:
    return ",".join(mark for mark in ("stable", "pinned") if each.get(mark)) or "-"


def revisions_text(status: Item) -> str:
    """The revisions of a group that matter, by number."""
    known = (
        ("deployment_revision", "newest"),
        ("stable_revision", "stable"),
        ("pinned_revision", "pinned to"),
    )
    return ", ".join(f"{word} {status[field]}" for field, word in known if status.get(field)) or "-"


@click.command()
@click.argument("name")
@api_command
def resolved(session: ApiSession, name: str) -> None:
    """Show in which document each value was written."""
    found = session.client.get(f"{GROUPS}/{segment(name)}/resolved")
    if session.output == "table":
        items = [
            {"field": path, "value": _value_at(found["document"], path), "group": group}
            for path, group in found["origins"].items()
        ]
        show_list(session.output, items, columns=ORIGINS, name="field")
        return
    show_one(session.output, found, rows=[], name="name")


def _value_at(document: Any, path: str) -> Any:
    for step in path.split("/"):
        document = document.get(step) if isinstance(document, dict) else None
    return document


@click.command()
@click.argument("name")
@click.argument("number", type=click.IntRange(min=1), required=False)
@api_command
def revisions(session: ApiSession, name: str, number: int | None) -> None:
    """List the revisions of a group, or show one of them."""
    path = f"{GROUPS}/{segment(name)}/revisions"
    if number is None:
        show_list(session.output, session.client.pages(path), columns=COLUMNS, name="number")
        return
    found = session.client.get(f"{path}/{number}")
    show_one(session.output, found, rows=_rows(found), name="number")


def _rows(found: Item) -> list[tuple[str, str]]:
    artifact = found.get("artifact") or {}
    return [
        ("Group", plain(found.get("group"))),
        ("Revision", plain(found.get("number"))),
        ("Created", full_time(found.get("created_at"))),
        ("By", plain(found.get("by"))),
        ("Trigger", plain(found.get("trigger"))),
        ("Mark", _mark(found)),
        ("Instances", plain(found.get("instances", 0))),
        ("Changed", plain(found.get("changed"))),
        (
            "Templates",
            plain([f"{each['name']} version {each['version']}" for each in found.get("templates", [])]),
        ),
        ("Program", plain(artifact.get("file"))),
        ("Digest", plain(artifact.get("sha256"))),
        ("Extensions", plain([each["id"] for each in found.get("extensions", [])])),
        ("Document", "-o yaml"),
    ]


@click.command()
@click.argument("name")
@click.option("--at-once", is_flag=True, help="Restart all instances at the same time.")
@click.option("--reason", metavar="TEXT", help="Why; shown with the deployment.")
@update_options
@dry_run_option
@yes_option
@wait_options(WAIT)
@api_command
def restart(
    session: ApiSession,
    name: str,
    at_once: bool,
    reason: str | None,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout: int,
    **options: Any,
) -> None:
    """Replace every instance of a group, one after the other. It is a deployment to a revision with the same contents."""
    given = given_options(options)
    if not at_once:
        order_deployment(
            session, name, "restart", reason, given, dry_run=dry_run, yes=yes, wait=wait, timeout=timeout
        )
        return
    if wait or reason or given:
        raise WrongUsage("--at-once takes no option but --dry-run and --yes", hint="leave it out, or them")
    path, body = f"{GROUPS}/{segment(name)}/restart", {"at_once": True}

    def tell() -> Any:
        return session.client.post(path, body, params=DRY)

    if dry_run:
        show_dry_run(session, f"group '{name}'", tell())
        return
    changed = act_once_told(
        f"restart every instance of group '{name}' at once",
        tell,
        lambda query: session.client.post(path, body, params=query),
        name,
        yes=yes,
    )
    show_done(session.output, changed, f"group '{name}' is being restarted", name="name")
