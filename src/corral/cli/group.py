"""`corral group`: what runs, how many of it, and which instances still run as before a change."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.failure import CommandRefused, WrongUsage, note
from corral.cli.group_hold import held_by, hold, hold_of, release
from corral.cli.group_waits import (
    GROUPS,
    counts_of,
    group_state,
    instances_left,
    status_of,
    until_gone,
    until_met,
)
from corral.cli.instance.waits import wait_options
from corral.cli.terminal.confirmation import act_confirmed, confirm, yes_option
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
from corral.errors import Rejected, counted

READ_ONLY: Final = ("status", "revision")
"""Fields that the API adds to a document: a group that was read can be written back."""
_NAMES_SHOWN: Final = 5

COLUMNS: Final = (
    Column("NAME", "name"),
    state_column("STATE", group_state),
    Column("READY", lambda group: counts_of(group)),
    Column("MIN", lambda group: str(group.get("min", 0)), rank=1),
    Column("MAX", lambda group: plain(group.get("max")), rank=2),
    Column("MEMORY", lambda group: f"{group['memory_mb']} MB" if group.get("memory_mb") else "-", rank=4),
    Column("UPDATED", lambda group: age(status_of(group).get("updated_at")), rank=3),
    Column("REASON", lambda group: plain(_reason(group)), rank=1, stretched=True),
)

file_option = click.option(
    "-f", "--file", "path", required=True, metavar="FILE", help="JSON or YAML; '-' reads stdin."
)


def _reason(group: Item) -> str:
    """Why it has too few; of one that is left alone, what went wrong."""
    status = status_of(group)
    gone = "file gone" if status.get("file_gone") else ""
    return str((status.get("paused") or {}).get("reason") or status.get("reason") or gone)


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
    """Show one group; '-o yaml' gives a document that 'update -f' takes."""
    found = session.client.get(f"{GROUPS}/{segment(name)}")
    show_one(session.output, found, rows=_rows(found), name="name")


def _rows(found: Item) -> list[tuple[str, str]]:
    status = status_of(found)
    paused = status.get("paused") or {}
    return [
        ("Name", plain(found.get("name"))),
        ("State", group_state(found)),
        ("Ready", counts_of(found)),
        ("Instances", str(status.get("instances", 0))),
        ("Warm", f"{status.get('warm', 0)} of {found.get('warm', 0)}" if found.get("warm") else "-"),
        ("Reason", plain(_reason(found))),
        ("Drift", _drift(found)),
        ("Paused until", full_time(paused.get("until"))),
        ("Held", _hold(status.get("hold") or {})),
        ("Owner", plain(status.get("owner"))),
        ("Parent", plain(found.get("parent"))),
        ("Runtime", plain(found.get("runtime"))),
        ("Command", " ".join([*found.get("command", []), *found.get("args", [])]) or "-"),
        ("Templates", plain(found.get("templates"))),
        ("Artifact", _artifact(found.get("artifact") or {})),
        ("Static", plain(found.get("static"))),
        ("Min", str(found.get("min", 0))),
        ("Max", plain(found.get("max"))),
        ("Scaling", plain((found.get("scaling") or {}).get("mode"))),
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


def _drift(found: Item) -> str:
    """Who does not run as the document says, and what brings them up to date."""
    drift = status_of(found).get("drift") or {}
    parts = [
        f"{drift[f'{kind}_count']} {kind} ({_shown(drift[kind])})"
        for kind in ("outdated", "placement")
        if drift.get(f"{kind}_count")
    ]
    if drift.get("unknown_count"):
        parts.append(f"{drift['unknown_count']} unknown")
    if not parts:
        return "-"
    return ", ".join(parts) + _differing_nodes(drift) + _remedy(drift)


def _differing_nodes(drift: Item) -> str:
    """What differs on which node from what the group demands."""
    return "".join(f"; {node}: {reason}" for node, reason in (drift.get("nodes") or {}).items())


def _remedy(drift: Item) -> str:
    """What brings the instances up to date; if nothing does now, why not."""
    if drift.get("refused"):
        return f"; a restart is refused now: {drift['refused']}"
    return f": {drift['command']}" if drift.get("command") else ""


def _hold(hold: Item) -> str:
    if not hold:
        return "-"
    how = ", stopped when empty" if hold.get("when_empty") else ""
    return f"by {hold.get('by')} since {full_time(hold.get('since'))}{how}: {hold.get('reason')}"


def _shown(ids: list[str]) -> str:
    return ", ".join(ids[:_NAMES_SHOWN]) + (", …" if len(ids) > _NAMES_SHOWN else "")


def _artifact(found: Item) -> str:
    return f"{found['platform']} {found.get('version')}" if found.get("platform") else plain(found.get("url"))


def _port(port: Item) -> str:
    if port.get("of"):
        return f"{port['of']}{port.get('offset', 0):+d}"
    bounds = port.get("range")
    return f"{bounds[0]}-{bounds[1]}" if bounds else str(port.get("port"))


@group.command()
@file_option
@wait_options()
@api_command
def create(session: ApiSession, path: str, wait: bool, timeout: int) -> None:
    """Create a group from a file; its instances start at once."""
    for document in _read(path):
        made = session.client.post(GROUPS, _writable(document))
        if wait:
            made = until_met(session, str(made["name"]), timeout)
        show_done(session.output, made, f"group '{made['name']}' is created", name="name")


@group.command()
@click.argument("name", required=False)
@file_option
@yes_option
@api_command
def update(session: ApiSession, name: str | None, path: str, yes: bool) -> None:
    """Change the fields that a file names. Others stay; null goes back to the default (RFC 7396)."""
    documents = _read(path)
    if name is not None and len(documents) > 1:
        raise WrongUsage(f"{path} holds {len(documents)} documents, and one NAME is given")
    for document in documents:
        target = name or document.get("name")
        if not isinstance(target, str) or not target:
            raise WrongUsage("which group? the file has no 'name'", hint="corral group update NAME -f FILE")
        before, changed = _updated(session, target, document, yes=yes)
        fields = differing(before, changed) - set(READ_ONLY)
        what = f"group '{target}' is changed" if fields else f"group '{target}': nothing changed"
        show_done(session.output, changed, what, name="name")
        if fields and session.output == "table":
            _note_drift(session.client.get(f"{GROUPS}/{segment(target)}"))


def _updated(session: ApiSession, name: str, document: dict[str, Any], *, yes: bool) -> tuple[Any, Any]:
    """The group before and after a change. A file that was made from a group that somebody has changed since is refused:
    its values are older than theirs. Only what may leave worlds behind is asked about."""
    read = status_of(document).get("document_sha256")
    while True:
        before = session.client.get(f"{GROUPS}/{segment(name)}")
        if read and read != status_of(before).get("document_sha256"):
            raise _changed_meanwhile(name, document, before)
        revision = int(before.get("revision") or 0) if read else 0
        patch = functools.partial(
            session.client.patch, f"{GROUPS}/{segment(name)}", _writable(document), revision=revision
        )
        try:
            changed = act_confirmed(f"change group '{name}'", patch, name, yes=yes, ask=False)
        except CommandRefused as refusal:
            if refusal.code != "REVISION_MISMATCH":
                raise
            continue  # its record has changed between the two requests: perhaps not its document
        return before, changed


def _changed_meanwhile(name: str, document: dict[str, Any], now: Item) -> CommandRefused:
    fields = sorted(differing(_writable(document), _writable(now)))
    return CommandRefused(
        f"group '{name}' was changed at {full_time(status_of(now).get('updated_at'))}, after this file was made from it; "
        f"it differs in {', '.join(fields[:_NAMES_SHOWN])}",
        hint=f"make the file anew (corral group get {name} -o yaml), or take 'status' out of it to overwrite these",
        code="REVISION_MISMATCH",
    )


def _read(path: str) -> list[dict[str, Any]]:
    """The documents of a file, with the names of fields as the API has them."""
    from corral.cli.document_files import read_documents
    from corral.domain.groups.field_aliases import with_field_names

    try:
        return [with_field_names(document) for document in read_documents(path)]
    except Rejected as refusal:
        raise WrongUsage(f"{path}: {refusal.message}", hint=refusal.hint) from None


def _writable(document: Item) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key not in READ_ONLY}


@group.command()
@click.argument("name")
@click.argument("count", type=click.IntRange(0, 10_000))
@wait_options()
@api_command
def scale(session: ApiSession, name: str, count: int, wait: bool, timeout: int) -> None:
    """Have COUNT instances of a group."""
    changed = session.client.post(f"{GROUPS}/{segment(name)}/scale", {"count": count})
    if held := hold_of(changed):
        note(
            f"group '{name}' is held {held_by(held)}; the number counts from 'corral group release {name}' on"
        )
    if wait:
        changed = until_met(session, name, timeout)
    show_done(session.output, changed, f"group '{name}' shall have {counted(count, 'instance')}", name="name")


@group.command()
@click.argument("name")
@api_command
def unpause(session: ApiSession, name: str) -> None:
    """Try a crash-looping group again now."""
    before = status_of(session.client.get(f"{GROUPS}/{segment(name)}")).get("paused")
    changed = session.client.post(f"{GROUPS}/{segment(name)}/unpause")
    done = f"group '{name}' is tried again" if before else f"group '{name}' was not paused: nothing changed"
    show_done(session.output, changed, done, name="name")


group.add_command(hold)
group.add_command(release)


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


@group.command()
@click.argument("name")
@yes_option
@api_command
def restart(session: ApiSession, name: str, yes: bool) -> None:
    """Restart every instance of a group, all at once."""
    confirm(f"restart every instance of group '{name}' at once", yes=yes)
    changed = session.client.post(f"{GROUPS}/{segment(name)}/restart")
    show_done(session.output, changed, f"group '{name}' is being restarted", name="name")


@group.command()
@click.argument("name")
@click.option("--cascade", is_flag=True, help="Stop its instances first.")
@yes_option
@wait_options()
@api_command
def delete(session: ApiSession, name: str, cascade: bool, yes: bool, wait: bool, timeout: int) -> None:
    """Delete a group. With --cascade it goes when its last instance has ended."""
    more = {"cascade": "true"} if cascade else {}
    act_confirmed(
        f"delete group '{name}'" + (" and stop its instances" if cascade else ""),
        lambda query: session.client.delete(f"{GROUPS}/{segment(name)}", {**more, **query}),
        name,
        yes=yes,
    )
    if wait:
        until_gone(session, name, timeout)
    left = instances_left(session, name) if cascade and not wait else None
    done = f"group '{name}' is deleted"
    if left is not None:
        done = f"group '{name}' is being deleted: it goes when its {counted(left, 'instance has', 'instances have')} ended"
    show_done(session.output, {"name": name}, done, name="name")


def differing(before: Item, after: Item) -> set[str]:
    """The fields that are not as they were."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _note_drift(group: Item) -> None:
    """After a change: who does not run as the document says, and how to change that."""
    drift = status_of(group).get("drift") or {}
    for kind, sentence in (
        ("outdated", "as the group was before"),
        ("placement", "on nodes that the group would not choose now"),
    ):
        count = drift.get(f"{kind}_count", 0)
        if count:
            runs = counted(count, "instance runs", "instances run")
            differs = _differing_nodes(drift) if kind == "placement" else ""
            note(f"{runs} {sentence} ({_shown(drift[kind])}){differs}{_remedy(drift)}")


@group.command("reload")
@click.option("--prune", is_flag=True, help="Delete groups whose file is gone.")
@yes_option
@api_command
def reload_groups(session: ApiSession, prune: bool, yes: bool) -> None:
    """Read the controller's directory of groups again (--groups DIR)."""
    from corral.cli.apply import reload_folder

    reload_folder(session, prune=prune, yes=yes)
