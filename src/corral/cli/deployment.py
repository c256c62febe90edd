"""`corral deployment`: what is being rolled out, how far it is, and the orders about it."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.deployment_progress import (
    DEPLOYMENTS,
    FINAL,
    done_text,
    failed_instance_text,
    is_final,
    progress_text,
    until_deployed,
)
from corral.cli.failure import CommandRefused, note, printable
from corral.cli.group_waits import GROUPS
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import act_confirmed, confirm, yes_option
from corral.cli.terminal.output import (
    Column,
    Item,
    limit_option,
    list_table,
    plain,
    show_done,
    show_list,
    show_one,
    state_column,
)
from corral.cli.terminal.values import age, duration, full_time

STATES: Final = ("PENDING", "CANARY", "GATE", "ROLLING", "PAUSED", "ROLLING_BACK", *FINAL)
COLUMNS: Final = (
    Column("ID", "id", whole=True),
    Column("GROUP", "group"),
    state_column("STATE", "state"),
    Column("TO", lambda found: str(found.get("target"))),
    Column("UPDATED", lambda found: _updated(found), rank=1),
    Column("BY", "by", rank=3),
    Column("AGO", lambda found: age(found.get("created_at")), rank=2),
    Column(
        "REASON",
        lambda found: plain(found.get("waiting") or found.get("outcome") or found.get("reason")),
        rank=1,
        stretched=True,
    ),
)


def _updated(found: Item) -> str:
    progress = found.get("progress") or {}
    return f"{progress.get('updated', 0)}/{progress.get('wanted', 0)}" if progress else "-"


@click.group(cls=Noun)
def deployment() -> None:
    """Deployments: how the instances of a group come to another revision."""


@deployment.command("list")
@click.option("--group", metavar="NAME", help="Only deployments of this group.")
@click.option(
    "--state", "states", type=click.Choice(STATES), multiple=True, help="Only deployments in this state."
)
@click.option("-w", "--watch", is_flag=True, help="Draw again whenever something changes.")
@limit_option(50)
@api_command
def list_deployments(
    session: ApiSession, group: str | None, states: tuple[str, ...], watch: bool, limit: int
) -> None:
    """List deployments, the newest first."""

    def fetch() -> list[Any]:
        return session.client.pages(DEPLOYMENTS, {"group": group, "state": list(states) or None}, limit=limit)

    if watch:
        from corral.cli.api.watch_option import watch_list

        watch_list(
            session,
            fetch,
            table=lambda items: list_table(items, COLUMNS),
            prefix=("DEPLOYMENT_", "INSTANCE_"),
        )
    show_list(session.output, fetch(), columns=COLUMNS)


@deployment.command("get")
@click.argument("id")
@api_command
def get_deployment(session: ApiSession, id: str) -> None:
    """Show a deployment; of a group, by its name, the last one."""
    found = _find(session, id)
    rows = _rows(found, static=_is_static(session, found)) if session.output == "table" else []
    show_one(session.output, found, rows=rows)
    if session.output == "table" and found.get("failures"):
        click.echo("\nFailures:")
        for each in found["failures"]:
            click.echo(printable(failed_instance_text(each)))


def _is_static(session: ApiSession, found: Item) -> bool:
    """Whether the group of a deployment keeps directories, which decides about defaults."""
    try:
        return bool(session.client.get(f"{GROUPS}/{segment(str(found.get('group')))}").get("static"))
    except CommandRefused:
        return False  # it is gone


def _rows(found: Item, *, static: bool) -> list[tuple[str, str]]:
    return [
        ("Id", plain(found.get("id"))),
        ("Group", plain(found.get("group"))),
        ("State", plain(found.get("state"))),
        ("Progress", progress_text(found) if found.get("progress") else "-"),
        ("Now", plain(found.get("waiting"))),
        ("Outcome", plain(found.get("outcome"))),
        ("To revision", plain(found.get("target"))),
        ("Stable", plain(found.get("stable") or None)),
        ("Trigger", plain(found.get("trigger"))),
        ("By", plain(found.get("by"))),
        ("Reason", plain(found.get("reason"))),
        ("Options", _options(found.get("options") or {}, static=static)),
        ("Undone", plain(found.get("undone"))),
        ("Created", full_time(found.get("created_at"))),
        ("In this state", age(found.get("phase_since"))),
        ("Ended", full_time(found.get("ended_at"))),
        ("Took", duration(found.get("created_at"), found.get("ended_at"))),
    ]


def _options(options: Item, *, static: bool) -> str:
    defaults = {"max_surge": 0 if static else 1, "max_unavailable": 1 if static else 0}
    values = {name: defaults.get(name) if value is None else value for name, value in options.items()}
    shown = {name: value for name, value in values.items() if value not in (None, [], {})}
    return " ".join(f"{name}={plain(value)}" for name, value in shown.items()) or "-"


def _find(session: ApiSession, id: str) -> Any:
    """A deployment by its id; by the name of a group its last one."""
    try:
        return session.client.get(f"{DEPLOYMENTS}/{segment(id)}")
    except CommandRefused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        found = session.client.get(DEPLOYMENTS, {"group": id, "limit": "1"})["items"]
        if not found:
            raise
        return found[0]


def _order(
    session: ApiSession,
    id: str,
    verb: str,
    reason: str | None = None,
    *,
    query: dict[str, str] | None = None,
) -> Any:
    """Order it, and say so when it was the case already."""
    found = _find(session, id)
    body = {"reason": reason} if reason else None
    path = f"{DEPLOYMENTS}/{segment(str(found['id']))}/{verb}"
    changed = session.client.post(path, body, params=query)
    same = (found.get("id"), found.get("state")) == (changed.get("id"), changed.get("state"))
    if same and found.get("revision") == changed.get("revision"):
        note(f"'{verb}' changed nothing: it is {changed.get('state')} already")
    return changed


def _show(session: ApiSession, changed: Item) -> None:
    what = f"deployment '{changed['id']}' of group '{changed['group']}' is {changed['state']}"
    if not is_final(changed):
        what += f": {progress_text(changed)}"
    show_done(session.output, changed, what)


def _waited(session: ApiSession, changed: Item, wait: bool, timeout: int, *, end: str = "COMPLETED") -> None:
    if not wait:
        _show(session, changed)
        return
    done = until_deployed(session, changed, timeout, end=end)
    show_done(session.output, done, done_text(done))


reason_option = click.option("--reason", metavar="TEXT", help="Why; shown with the deployment.")


@deployment.command()
@click.argument("id")
@api_command
def pause(session: ApiSession, id: str) -> None:
    """Let a deployment rest. Nothing is started or retired for it until 'resume'; healing goes on."""
    _show(session, _order(session, id, "pause"))


@deployment.command()
@click.argument("id")
@wait_options("1h")
@api_command
def resume(session: ApiSession, id: str, wait: bool, timeout: int) -> None:
    """Let a paused deployment go on."""
    _waited(session, _order(session, id, "resume"), wait, timeout)


@deployment.command()
@click.argument("id")
@wait_options("1h")
@api_command
def promote(session: ApiSession, id: str, wait: bool, timeout: int) -> None:
    """Let all others follow the canaries now."""
    _waited(session, _order(session, id, "promote"), wait, timeout)


@deployment.command()
@click.argument("id")
@reason_option
@yes_option
@wait_options("1h")
@api_command
def rollback(session: ApiSession, id: str, reason: str | None, yes: bool, wait: bool, timeout: int) -> None:
    """Bring the instances of a group back to the stable revision."""
    found = _find(session, id)
    changed = act_confirmed(
        f"bring group '{found['group']}' back to revision {found['stable']}",
        lambda query: _order(session, str(found["id"]), "rollback", reason, query=query),
        str(found["group"]),
        yes=yes,
    )
    _waited(session, changed, wait, timeout, end="ROLLED_BACK")


@deployment.command()
@click.argument("id")
@reason_option
@yes_option
@api_command
def cancel(session: ApiSession, id: str, reason: str | None, yes: bool) -> None:
    """End a deployment where it is; what it started stays."""
    found = _find(session, id)
    confirm(f"end deployment '{found['id']}' of group '{found['group']}' where it is", yes=yes)
    _show(session, _order(session, str(found["id"]), "cancel", reason))


@deployment.command("why")
@click.argument("id")
@api_command
def why_deployment(session: ApiSession, id: str) -> None:
    """Why a deployment is in its state."""
    from corral.cli.why import show_why

    found = _find(session, id)
    show_why(session, session.client.get(f"{DEPLOYMENTS}/{segment(str(found['id']))}/why"))
