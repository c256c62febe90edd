"""`corral node`: the hosts of the cluster, and the join tokens that let a host enrol once."""

from __future__ import annotations

from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.dry_run import DRY, dry_run_option, show_dry_run
from corral.cli.failure import CommandRefused, WaitRanOut, note
from corral.cli.node_cache import cache, prewarm
from corral.cli.node_command import command
from corral.cli.node_drain import admission_text, drain, drain_rows, shutdown, undrain
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
from corral.cli.terminal.values import SpanType, age, full_time
from corral.errors import counted

STATES: Final = ("ENROLLED", "ONLINE", "DISCONNECTED", "UNREACHABLE", "REVOKED")
NODES: Final = "/api/v1/nodes"
_STRAYS: Final = 5
_LABEL_FORM: Final = "KEY=VALUE"
JOIN_TOKENS: Final = "/api/v1/nodes/join-tokens"

COLUMNS: Final = (
    Column("ID", "id"),
    state_column("STATE", "state"),
    state_column("ADMISSION", admission_text, rank=1),
    Column("SINCE", lambda node: age(node.get("state_since")), rank=3),
    Column("INSTANCES", lambda node: str(node.get("instances", 0))),
    Column("MEMORY", lambda node: _memory(node), rank=1),
    Column("HOST USED", lambda node: _host_memory(node), rank=3),
    Column("CPU", lambda node: _cpu(node), rank=2),
    Column("ADDRESS", "address", rank=5),
    Column("VERSION", "version", rank=6),
    Column("LABELS", "labels", rank=4, stretched=True),
)

JOIN_TOKEN_COLUMNS: Final = (
    Column("ID", "id"),
    Column("NODE", lambda token: str(token.get("node_id") or "any")),
    Column("REPLACE", "replace"),
    Column("EXPIRES", lambda token: age(token.get("expires_at"))),
    Column("USED", lambda token: str(token.get("used_by") or "-")),
    Column("BY", "created_by"),
)


def _admission(node: Item) -> str:
    admission = plain(node.get("admission"))
    return f"{admission}: {plain(reason)}" if (reason := node.get("admission_reason")) else admission


def _memory(node: Item) -> str:
    """Memory reserved for instances, of what counts for placement."""
    total = node.get("memory_mb") or 0
    return f"{node.get('reserved_memory_mb') or 0}/{total} MB" if total else "-"


def _free_memory(node: Item) -> str:
    total, reserved = node.get("memory_mb") or 0, node.get("reserved_memory_mb") or 0
    if not total:
        return "-"
    capped = (
        f" (at most {cap} MB by operators)" if (cap := (node.get("settings") or {}).get("memory_mb")) else ""
    )
    return f"{reserved} MB reserved, {max(0, total - reserved)} of {total} MB free{capped}"


def _host_memory(node: Item) -> str:
    """Usage is known only of a connected node."""
    total = (node.get("claims") or {}).get("memory_mb") or 0
    if not node.get("session"):
        return "-"
    return f"{node.get('used_memory_mb') or 0}" + (f"/{total} MB" if total else " MB")


def _settings(node: Item) -> str:
    """What operators set, as they write it."""
    settings = node.get("settings") or {}
    labels = [f"{key}={value}" for key, value in sorted((settings.get("labels") or {}).items())]
    labels += [f"{key}-" for key in settings.get("withheld") or ()]
    caps = ("memory_mb", "at most {} MB"), ("cpus", "at most {} CPUs")
    said = [text.format(settings[name]) for name, text in caps if settings.get(name)]
    if settings.get("runtimes"):
        said.append(f"only runtimes {', '.join(settings['runtimes'])}")
    return "; ".join([*([f"labels {' '.join(labels)}"] if labels else []), *said]) or "-"


def _cpu(node: Item) -> str:
    usage, cpus = node.get("cpu_usage"), node.get("cpus") or 0
    if not isinstance(usage, int | float) or not cpus or not node.get("session"):
        return "-"
    return f"{usage * 100:.0f}% of {cpus}"


@click.group(cls=Noun)
def node() -> None:
    """Hosts that run instances."""


@node.command("list")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only nodes in this state.")
@click.option("--label", metavar="K=V", multiple=True, help="Only nodes with this label; may be repeated.")
@click.option("-w", "--watch", is_flag=True, help="Draw again whenever something changes.")
@api_command
def list_nodes(session: ApiSession, state: str | None, label: tuple[str, ...], watch: bool) -> None:
    """List the nodes."""
    params = {"state": state, "label": label}

    def fetch() -> list[Any]:
        return session.client.pages(NODES, params)

    if not watch:
        show_list(session.output, fetch(), columns=COLUMNS, by_name=True)
        return
    from corral.cli.api.watch_option import watch_list

    watch_list(session, fetch, table=lambda nodes: list_table(nodes, COLUMNS, by="id"), prefix="NODE_")


@node.command()
@click.argument("id")
@click.option(
    "--wait", type=click.Choice(STATES, case_sensitive=False), help="Wait until it is in this state."
)
@click.option("--timeout", type=SpanType(), default="60s", show_default=True, help="How long to wait.")
@api_command
def info(session: ApiSession, id: str, wait: str | None, timeout: int) -> None:
    """Show one node, or wait until it is in a state."""
    found = _wait_for(session, id, wait, timeout) if wait else session.client.get(f"{NODES}/{segment(id)}")
    show_one(session.output, found, rows=_rows(found))


def _rows(node: Item) -> list[tuple[str, str]]:
    return [
        ("Id", plain(node.get("id"))),
        ("State", plain(node.get("state"))),
        ("Since", age(node.get("state_since"))),
        ("Reason", plain(node.get("reason"))),
        ("Admission", _admission(node)),
        *drain_rows(node),
        ("Last seen", age(node.get("last_seen"))),
        ("Enrolled", full_time(node.get("enrolled_at"))),
        ("Address", plain(node.get("address"))),
        ("Version", plain(node.get("version"))),
        ("Session", plain(node.get("session"))),
        ("Machine", plain(node.get("machine_id"))),
        ("Host", plain(node.get("host"))),
        ("Labels", plain(node.get("labels"))),
        ("Set by operators", _settings(node)),
        ("Instances", str(node.get("instances", 0))),
        ("Memory", _free_memory(node)),
        ("Host memory", _host_memory(node)),
        ("CPU", _cpu(node)),
        ("Free disk", f"{node['free_disk_mb']} MB" if node.get("free_disk_mb") else "-"),
        ("Used ports", plain(node.get("used_ports"))),
        ("Runtimes", plain(node.get("runtimes"))),
        ("Capabilities", plain(node.get("capabilities"))),
        ("Log level", plain(node.get("log_level"))),
        ("Strays", _strays(node)),
    ]


def _strays(node: Item) -> str:
    """Runs there that nothing proves to be ours, the first of them by name."""
    count = int(node.get("stray_count") or 0)
    named = ", ".join(plain(stray.get("instance")) for stray in (node.get("strays") or [])[:_STRAYS])
    return f"{count}: {named}" + (", ..." if count > _STRAYS else "") if count else "-"


def _wait_for(session: ApiSession, id: str, state: str, timeout: int) -> Any:
    """Look until the node is there; one that does not exist yet may still enrol."""
    import time

    deadline = time.monotonic() + timeout
    pause = 0.05
    while True:
        try:
            found = session.client.get(f"{NODES}/{segment(id)}")
            seen = f"it is {found.get('state')}"
            if found.get("state") == state:
                return found
        except CommandRefused as refusal:
            if refusal.code != "NOT_FOUND":
                raise
            seen = "there is no such node"
        if time.monotonic() + pause > deadline:
            raise WaitRanOut(f"node '{id}' was not {state} within {counted(timeout, 'second')}: {seen}")
        time.sleep(pause)
        pause = min(pause * 1.5, 1.0)


def _change(session: ApiSession, id: str, verb: str, reason: str | None, sentence: str) -> None:
    body = {"reason": reason} if reason else {}
    changed = session.client.post(f"{NODES}/{segment(id)}/{verb}", body)
    show_done(session.output, changed or {"id": id}, sentence)


@node.command()
@click.argument("id")
@click.option("--reason", help="Why; shown with the node.")
@api_command
def cordon(session: ApiSession, id: str, reason: str | None) -> None:
    """Let a node take no new instances; those it has stay."""
    _change(session, id, "cordon", reason, f"node '{id}' takes no new instances")


@node.command()
@click.argument("id")
@api_command
def uncordon(session: ApiSession, id: str) -> None:
    """Let a node take new instances again."""
    _change(session, id, "uncordon", None, f"node '{id}' takes new instances")


@node.command("label")
@click.argument("id")
@click.argument("changes", metavar="KEY=VALUE|KEY-...", nargs=-1)
@click.option("--as-claimed", metavar="KEY", multiple=True, help="Leave this label to the node again.")
@api_command
def set_labels(session: ApiSession, id: str, changes: tuple[str, ...], as_claimed: tuple[str, ...]) -> None:
    """Set labels of a node, or remove them (KEY-). They override what the node reports itself."""
    if not changes and not as_claimed:
        raise click.UsageError("name at least one KEY=VALUE, KEY- or --as-claimed KEY")
    values = dict(map(_label_change, changes))
    changed = _configure(session, id, {"labels": values, "as_claimed": as_claimed})
    show_done(session.output, changed, f"labels of node '{id}': {plain(changed.get('labels'))}")


def _label_change(text: str) -> tuple[str, str | None]:
    if text.endswith("-") and "=" not in text and text != "-":
        return text[:-1], None
    if "=" not in text[1:]:
        raise click.BadParameter(
            f"'{text}' is neither KEY=VALUE, which sets a label, nor KEY-, which removes it"
        )
    return label(text)


@node.command()
@click.argument("id")
@click.option(
    "--memory-mb", type=click.IntRange(min=0), help="At most so much counts; 0: as the node reports."
)
@click.option("--cpus", type=click.IntRange(min=0), help="At most so many count; 0: as the node reports.")
@click.option("--runtimes", metavar="A,B", help="Only these count; empty: all that the node has.")
@api_command
def cap(session: ApiSession, id: str, memory_mb: int | None, cpus: int | None, runtimes: str | None) -> None:
    """Limit a node's memory, CPUs and runtimes. The limits hold whatever it reports itself."""
    body: dict[str, Any] = {}
    if memory_mb is not None:
        body["memory_mb"] = memory_mb or None
    if cpus is not None:
        body["cpus"] = cpus or None
    if runtimes is not None:
        body["runtimes"] = [name for name in runtimes.split(",") if name] or None
    if not body:
        raise click.UsageError("name at least one of --memory-mb, --cpus and --runtimes")
    changed = _configure(session, id, body)
    counts = f"{changed.get('memory_mb')} MB, {changed.get('cpus')} CPUs, {plain(changed.get('runtimes') or 'no runtime')}"
    show_done(session.output, changed, f"of node '{id}' count {counts}")


def _configure(session: ApiSession, id: str, body: dict[str, Any]) -> Any:
    return session.client.patch(f"{NODES}/{segment(id)}", body)


@node.command("modules")
@click.argument("id")
@api_command
def modules(session: ApiSession, id: str) -> None:
    """List the modules of a node. Those that it has or shall have, with their state there."""
    from corral.cli.module.nodes import MODULE_COLUMNS

    found = session.client.pages(f"{NODES}/{segment(id)}/modules", {})
    show_list(session.output, found, columns=MODULE_COLUMNS, name="module")


@node.command()
@click.argument("id")
@click.option("--reason", help="Why; shown with the node.")
@yes_option
@api_command
def revoke(session: ApiSession, id: str, reason: str | None, yes: bool) -> None:
    """Refuse a node's certificates from now on. It has to enrol again."""
    body = {"reason": reason} if reason else {}
    changed = act_confirmed(
        f"revoke node '{id}'",
        lambda query: session.client.post(f"{NODES}/{segment(id)}/revoke", body, params=query),
        id,
        yes=yes,
    )
    show_done(session.output, changed, f"node '{id}' is revoked; its certificates are refused")


@node.command()
@click.argument("id")
@dry_run_option
@yes_option
@api_command
def remove(session: ApiSession, id: str, dry_run: bool, yes: bool) -> None:
    """Forget a node that is no longer there."""
    if dry_run:
        found = session.client.delete(f"{NODES}/{segment(id)}", dict(DRY))
        show_dry_run(session, f"node '{id}'", found, change="removed")
        return
    act_confirmed(
        f"remove node '{id}'",
        lambda query: session.client.delete(f"{NODES}/{segment(id)}", query),
        id,
        yes=yes,
    )
    show_done(session.output, {"id": id}, f"node '{id}' is removed")


def label(text: str) -> tuple[str, str]:
    """KEY=VALUE, read."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"'{text}' is not {_LABEL_FORM}")
    return key, value


@click.command("join-token")
@click.option("--node-id", metavar="ID", help="Let only this node id use it.")
@click.option("--ttl", type=SpanType(), default="1h", show_default=True, help="How long it can be used.")
@click.option("--replace", is_flag=True, help="Let it take over the id of a node that exists.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label for the node; may be repeated.")
@api_command
def join_token(
    session: ApiSession, node_id: str | None, ttl: int, replace: bool, labels: tuple[str, ...]
) -> None:
    """Make a join token. Prints the one command to run on the new host."""
    body: dict[str, object] = {"ttl_seconds": ttl, "replace": replace}
    if labels:
        body["labels"] = dict(map(label, labels))
    if node_id:
        body["node_id"] = node_id
    made = session.client.post(JOIN_TOKENS, body)
    if session.output == "table":
        whom = f"node '{made['node_id']}'" if made.get("node_id") else "any node id"
        note(
            f"join token {made.get('id')}: for {whom}, once, until {made.get('expires_at')}. Run on the host:"
        )
    show_done(session.output, made, str(made.get("command") or made.get("token")))


@click.command("join-tokens")
@api_command
def join_tokens(session: ApiSession) -> None:
    """List the join tokens, without their secrets."""
    show_list(session.output, session.client.pages(JOIN_TOKENS), columns=JOIN_TOKEN_COLUMNS)


@click.command("join-token-revoke")
@click.argument("id")
@yes_option
@api_command
def join_token_revoke(session: ApiSession, id: str, yes: bool) -> None:
    """Make a join token useless. A node that used it already stays."""
    confirm(f"revoke join token '{id}'", yes=yes)
    session.client.delete(f"{JOIN_TOKENS}/{segment(id)}")
    show_done(session.output, {"id": id}, f"join token '{id}' is revoked")


for extra in (join_token, join_tokens, join_token_revoke, cache, prewarm, drain, undrain, shutdown, command):
    node.add_command(extra)
