"""`corral group`: what runs, how many of it, and which instances still run as before a change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.group_drift import drift_text
from corral.cli.group_edits import create, delete, update
from corral.cli.group_hold import hold, release
from corral.cli.group_registry import registry
from corral.cli.group_revisions import resolved, restart, revisions, revisions_text
from corral.cli.group_scaling import (
    closed_text,
    maintenance,
    maintenance_of,
    players_text,
    scale,
    scaling_rows,
)
from corral.cli.group_waits import (
    GROUPS,
    counts_of,
    group_state,
    status_of,
)
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import yes_option
from corral.cli.terminal.output import (
    Column,
    Item,
    list_table,
    plain,
    show_done,
    show_list,
    show_one,
    state_column,
)
from corral.cli.terminal.values import age, full_time

COLUMNS: Final = (
    Column("NAME", "name"),
    state_column("STATE", group_state),
    Column("READY", lambda group: counts_of(group)),
    Column("MIN", lambda group: str(group.get("min", 0)), rank=1),
    Column("MAX", lambda group: plain(group.get("max")), rank=2),
    Column("MODE", lambda group: plain((status_of(group).get("scaling") or {}).get("mode")), wide=True),
    Column("PLAYERS", players_text, wide=True),
    Column("MEMORY", lambda group: f"{group['memory_mb']} MB" if group.get("memory_mb") else "-", rank=4),
    Column("UPDATED", lambda group: age(status_of(group).get("updated_at")), rank=3),
    Column("REASON", lambda group: plain(_reason(group)), rank=1, stretched=True),
)


def _reason(group: Item) -> str:
    """Why it has too few; of one that is left alone, what went wrong."""
    status = status_of(group)
    gone = "file gone" if status.get("file_gone") else ""
    closed = closed_text(maintenance_of(group))
    return str((status.get("paused") or {}).get("reason") or status.get("reason") or gone or closed)


@click.group(cls=Noun)
def group() -> None:
    """Groups: what shall run, and how many instances of it."""


@group.command("list")
@click.option("-w", "--watch", is_flag=True, help="Draw again whenever something changes.")
@api_command
def list_groups(session: ApiSession, watch: bool) -> None:
    """List the groups."""

    def fetch() -> list[Any]:
        return session.client.pages(GROUPS)

    if watch:
        from corral.cli.api.watch_option import watch_list

        watch_list(
            session,
            fetch,
            table=lambda items: list_table(items, COLUMNS, by="name"),
            prefix=("GROUP_", "INSTANCE_"),
        )
    show_list(session.output, fetch(), columns=COLUMNS, name="name", by_name=True)


@group.command("get")
@click.argument("name")
@api_command
def get_group(session: ApiSession, name: str) -> None:
    """Show one group; '-o yaml' gives a file for 'update -f'."""
    found = session.client.get(f"{GROUPS}/{segment(name)}")
    show_one(session.output, found, rows=_rows(found), name="name")


def _rows(found: Item) -> list[tuple[str, str]]:
    status = status_of(found)
    paused = status.get("paused") or {}
    return [
        ("Name", plain(found.get("name"))),
        ("State", group_state(found)),
        ("Ready", counts_of(found)),
        ("Instances", _instances(status)),
        ("Warm", f"{status.get('warm', 0)} of {found.get('warm', 0)}" if found.get("warm") else "-"),
        *([("Lost", str(status["lost"]))] if status.get("lost") else []),
        ("Reason", plain(_reason(found))),
        ("Drift", drift_text(found)),
        ("Deployment", plain(status.get("deployment"))),
        ("Revisions", revisions_text(status)),
        ("Paused until", full_time(paused.get("until"))),
        ("Held", _hold(status.get("hold") or {})),
        ("Owner", plain(status.get("owner"))),
        ("Parent", plain(found.get("parent"))),
        ("Runtime", plain(found.get("runtime"))),
        ("Command", " ".join([*found.get("command", []), *found.get("args", [])]) or "-"),
        ("Templates", plain(found.get("templates"))),
        ("Artifact", _artifact(found.get("artifact") or {})),
        ("Static", plain(found.get("static"))),
        *scaling_rows(found),
        ("Priority", plain(found.get("priority"))),
        (
            "Depends on",
            _list(f"{each['group']} ({each['ready']} ready)" for each in found.get("depends_on", ())),
        ),
        ("Fallback", plain(found.get("fallback_group"))),
        ("Static names", _list(found.get("static_names", ()))),
        ("Ports", plain({name: _port(port) for name, port in (found.get("ports") or {}).items()})),
        ("Memory", f"{found['memory_mb']} MB" if found.get("memory_mb") else "-"),
        ("Nodes", plain(found.get("nodes"))),
        ("Node labels", plain(found.get("node_labels"))),
        ("Affinity", _list(map(_affinity, found.get("affinity", ())))),
        ("Spread", _list(map(_spread, found.get("spread", ())))),
        ("Labels", plain(found.get("labels"))),
        ("Created", full_time(status.get("created_at"))),
        ("Updated", full_time(status.get("updated_at"))),
        ("Revision", plain(found.get("revision"))),
    ]


def _instances(status: Item) -> str:
    draining = status.get("draining", 0)
    going = f", {draining} of them until their players have left" if draining else ""
    return f"{status.get('instances', 0)}{going}"


def _list(texts: Iterable[str]) -> str:
    return ", ".join(texts) or "-"


def _affinity(each: Item) -> str:
    near = each.get("label") or f"group {each.get('group')}"
    if each.get("required"):
        return f"{'only' if each.get('weight', 0) >= 0 else 'never'} {near}"
    return f"{near} {each.get('weight', 0):+d}"


def _spread(each: Item) -> str:
    skew = each.get("max_skew")
    return f"by {each.get('by')}" + (f" (max_skew {skew})" if skew is not None else "")


def _hold(hold: Item) -> str:
    if not hold:
        return "-"
    how = ", stopped when empty" if hold.get("when_empty") else ""
    return f"by {hold.get('by')} since {full_time(hold.get('since'))}{how}: {hold.get('reason')}"


def _artifact(found: Item) -> str:
    return f"{found['platform']} {found.get('version')}" if found.get("platform") else plain(found.get("url"))


def _port(port: Item) -> str:
    if port.get("of"):
        return f"{port['of']}{port.get('offset', 0):+d}"
    bounds = port.get("range")
    return f"{bounds[0]}-{bounds[1]}" if bounds else str(port.get("port"))


@group.command()
@click.argument("name")
@api_command
def unpause(session: ApiSession, name: str) -> None:
    """Try a crash-looping group again now."""
    before = status_of(session.client.get(f"{GROUPS}/{segment(name)}")).get("paused")
    changed = session.client.post(f"{GROUPS}/{segment(name)}/unpause")
    done = f"group '{name}' is tried again" if before else f"group '{name}' was not paused: nothing changed"
    show_done(session.output, changed, done, name="name")


for command in (
    create,
    update,
    scale,
    maintenance,
    registry,
    hold,
    release,
    resolved,
    restart,
    revisions,
    delete,
):
    group.add_command(command)


@group.command()
@click.argument("name")
@wait_options()
@api_command
def start(session: ApiSession, name: str, wait: bool, timeout: int) -> None:
    """Start one more instance of a group."""
    from corral.cli.instance.waits import until_ready

    made = session.client.post(f"{GROUPS}/{segment(name)}/start")
    if wait:
        made = until_ready(session, made, timeout)
    show_done(session.output, made, f"instance '{made['id']}' is {made['state']} on node '{made['node']}'")


@group.command("reload")
@click.option("--prune", is_flag=True, help="Delete groups whose file is gone.")
@yes_option
@api_command
def reload_groups(session: ApiSession, prune: bool, yes: bool) -> None:
    """Read the controller's directory of groups again (--groups DIR)."""
    from corral.cli.apply import reload_folder

    reload_folder(session, prune=prune, yes=yes)
