"""`corral instance`: list, start, stop and show instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from corral.cli.api.client import SUMMARY, segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.command_groups import Noun
from corral.cli.dry_run import DRY, dry_run_option, refuse_wait, show_dry_run
from corral.cli.failure import CommandRefused, note
from corral.cli.group_waits import group_of_instance, replaced_text
from corral.cli.instance.create import create
from corral.cli.instance.file_changes import (
    make_directory,
    move_file,
    put_file,
    remove_file,
    unpack,
)
from corral.cli.instance.file_edits import edit_file
from corral.cli.instance.file_pushes import push
from corral.cli.instance.file_trees import pull
from corral.cli.instance.files import files, get_file, plan, save
from corral.cli.instance.module_changes import module_rows
from corral.cli.instance.output import console, download, logs, search
from corral.cli.instance.runs import runs
from corral.cli.instance.sent_commands import sent_commands
from corral.cli.instance.waits import (
    ENDED,
    INSTANCES,
    stage_text,
    start_problem,
    started_again,
    until_ended,
    until_ready,
    wait_options,
)
from corral.cli.terminal.confirmation import confirm, yes_option
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
from corral.cli.terminal.values import age, full_time, pairs

STATES: Final = (
    "SCHEDULED",
    "PREPARING",
    "STARTING",
    "RUNNING",
    "DRAINING",
    "STOPPING",
    "OFFLINE",
    "STOPPED",
    "CRASHED",
)
COLUMNS: Final = (
    Column("ID", "id"),
    Column("GROUP", "group", rank=5),
    state_column("STATE", "state"),
    Column("READY", lambda instance: _ready(instance)),
    Column("NODE", "node", rank=2),
    Column("PORT", "port", rank=1),
    Column("PLAYERS", "players", rank=4),
    Column("PID", "pid", rank=6),
    Column("UPTIME", lambda instance: _uptime(instance)),
    Column("RESTARTS", lambda instance: str(instance.get("restarts", 0)), rank=3),
    Column("DRIFT", "drift", wide=True),
    Column("REASON", lambda instance: _reason(instance), rank=1, stretched=True),
)


def _ready(instance: Item) -> str:
    """A warm one is ready, and serves only when one of the others is missing. A lost one does not count."""
    ready = plain(instance.get("ready"))
    if instance.get("lost"):
        return f"{ready} (lost)"
    return f"{ready} (warm)" if instance.get("warm") else ready


def _uptime(instance: Item) -> str:
    if instance.get("state") in ("STOPPED", "CRASHED"):
        return "-"
    return age(instance.get("started_at"))


def _reason(instance: Item) -> str:
    exit = instance.get("exit")
    if instance.get("state") in ("STOPPED", "CRASHED") and isinstance(exit, dict) and exit.get("summary"):
        return str(exit["summary"])
    return plain(start_problem(instance) or stage_text(instance) or instance.get("reason"))


def _players(found: Item) -> str:
    if found.get("players") is None:
        return "-"
    most = found.get("max_players")
    return f"{found['players']} of {most}" if most else str(found["players"])


PATIENCE_SECONDS: Final = 15.0
"""How long a line that may have arrived is asked for again, with its key."""


@click.group(cls=Noun)
def instance() -> None:
    """Instances: start and stop them, read and write their consoles."""


@instance.command("list")
@click.option("--group", metavar="NAME", help="Only instances of this group.")
@click.option("--node", metavar="ID", help="Only instances on this node.")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), help="Only those in this state.")
@click.option("--wanted", type=click.Choice(("run", "drain", "stop")), help="Only those that shall do this.")
@click.option("-a", "--all", "ended", is_flag=True, help="Those that have ended, too.")
@click.option("-w", "--watch", is_flag=True, help="Draw again whenever something changes.")
@api_command
def list_instances(
    session: ApiSession,
    group: str | None,
    node: str | None,
    state: str | None,
    wanted: str | None,
    ended: bool,
    watch: bool,
) -> None:
    """List the instances. A table and `-o name` leave out those that have ended; other forms have all of them."""
    params = {"group": group, "node": node, "state": state, "wanted": wanted}
    living = session.output in ("table", "name") and not ended and state is None
    if living:
        params["live"] = "true"
    if session.output == "name":
        params |= SUMMARY

    def fetch() -> list[Any]:
        return session.client.pages(INSTANCES, params)

    if watch:
        _insist_on(session, "group", group)
        _insist_on(session, "node", node)
        from corral.cli.api.watch_option import watch_list

        def table(items: Sequence[Item]) -> str:
            return list_table(items, COLUMNS, by="id")

        watch_list(session, fetch, table=table, prefix=("INSTANCE_",))
    found = fetch()
    if not found:
        _insist_on(session, "group", group)
        _insist_on(session, "node", node)
    show_list(session.output, found, columns=COLUMNS, by_name=True)
    if living and not found:
        note("nothing runs; -a shows what has ended")


def _insist_on(session: ApiSession, noun: str, name: str | None) -> None:
    """Refuse a filter by what does not exist: an empty list would look like an answer."""
    try:
        if name:
            session.client.get(f"/api/v1/{noun}s/{segment(name)}")
    except CommandRefused as refusal:
        if refusal.code == "NOT_FOUND":
            refusal.hint = refusal.hint or f"'corral {noun} list' shows those that exist"
            raise


@instance.command("get")
@click.argument("id")
@api_command
def get_instance(session: ApiSession, id: str) -> None:
    """Show one instance."""
    found = session.client.get(f"{INSTANCES}/{segment(id)}")
    show_one(session.output, found, rows=_rows(found))


def _rows(found: Item) -> list[tuple[str, str]]:
    exit = found.get("exit") or {}
    failure = found.get("start_failure") or {}
    return [
        ("Id", plain(found.get("id"))),
        ("Group", plain(found.get("group"))),
        ("State", plain(found.get("state"))),
        ("Wanted", plain(found.get("wanted"))),
        ("Ready", _ready(found)),
        ("Reason", plain(found.get("reason"))),
        ("Drift", plain(found.get("drift"))),
        ("Stage", plain(found.get("stage"))),
        ("Players", _players(found)),
        ("Node", plain(found.get("node"))),
        *loss_rows(found),
        ("Ports", plain(found.get("ports"))),
        ("Pid", plain(found.get("pid"))),
        ("Run", plain(found.get("incarnation"))),
        ("Restarts", str(found.get("restarts", 0))),
        ("Started", full_time(found.get("started_at"))),
        ("Uptime", _uptime(found)),
        ("Ended", full_time(found.get("ended_at"))),
        ("Exit", plain(exit.get("summary"))),
        ("Start failure", f"{failure['code']}: {failure['message']}" if failure else "-"),
        ("Memory", f"{found['memory_mb']} MB" if found.get("memory_mb") else "-"),
        ("Runtime", plain(found.get("runtime"))),
        ("Variables", plain(found.get("variables"))),
        ("Plan", plain(found.get("plan_hash"))),
        *module_rows(found.get("modules") or {}),
        ("Last seen", age(found.get("last_seen"))),
    ]


def loss_rows(found: Item) -> list[tuple[str, str]]:
    """Since when its node is away, and which instance took the place of which."""
    rows = [
        ("Away since", full_time(found.get("lost_at")) if found.get("lost_at") else ""),
        ("Replaced by", str(found.get("replaced_by") or "")),
        ("Replaces", str(found.get("replaces") or found.get("moves") or "")),
    ]
    return [(name, value) for name, value in rows if value]


@instance.command()
@click.argument("group")
@click.option("--node", metavar="ID", help="Only on this node.")
@click.option("--var", "variables", multiple=True, metavar="K=V", help="A variable of this instance.")
@wait_options()
@api_command
def start(
    session: ApiSession, group: str, node: str | None, variables: tuple[str, ...], wait: bool, timeout: int
) -> None:
    """Start one more instance of GROUP."""
    body: dict[str, Any] = {"group": group, **({"node": node} if node else {})}
    if variables:
        body["variables"] = pairs(variables)
    made = session.client.post(INSTANCES, body)
    if wait:
        made = until_ready(session, made, timeout)
    show_done(session.output, made, f"instance '{made['id']}' is {made['state']} on node '{made['node']}'")


def _order(
    session: ApiSession, id: str, verb: str, reason: str | None, query: Mapping[str, str] | None = None
) -> Any:
    body = {"reason": reason} if reason else {}
    return session.client.post(f"{INSTANCES}/{segment(id)}/{verb}", body, params=query)


def _order_end(session: ApiSession, id: str, verb: str, reason: str | None) -> Any:
    """Order it, and say when its group starts another one instead."""
    before = group_of_instance(session, id)
    changed = _order(session, id, verb, reason)
    served = changed["state"] not in ENDED and not changed.get("warm") and not changed.get("lost")
    if before and served and (text := replaced_text(before, group_of_instance(session, id))):
        note(text)
    return changed


reason_option = click.option("--reason", help="Why; shown with the instance.")


@instance.command()
@click.argument("id")
@reason_option
@wait_options()
@api_command
def stop(session: ApiSession, id: str, reason: str | None, wait: bool, timeout: int) -> None:
    """Stop an instance by its group's ladder."""
    changed = _order_end(session, id, "stop", reason)
    if wait:
        changed = _ended(session, changed, timeout)
    _show_ending(session, changed)


@instance.command()
@click.argument("id")
@reason_option
@dry_run_option
@yes_option
@wait_options()
@api_command
def kill(
    session: ApiSession, id: str, reason: str | None, dry_run: bool, yes: bool, wait: bool, timeout: int
) -> None:
    """Kill everything of an instance at once."""
    if dry_run:
        refuse_wait(wait)
        found = _order(session, id, "kill", reason, DRY)
        show_dry_run(session, f"instance '{id}'", found, change="killed" if found["instances"] else "")
        return
    confirm(f"kill instance '{id}'", yes=yes)
    changed = _order_end(session, id, "kill", reason)
    if wait:
        changed = _ended(session, changed, timeout)
    _show_ending(session, changed)


def _ended(session: ApiSession, asked: Item, timeout: int) -> Any:
    found = until_ended(session, asked, timeout)
    if started_again(asked, found):
        note(f"it has ended; group '{found['group']}' keeps at least its min, so that it was started again")
    return found


def _show_ending(session: ApiSession, changed: Item) -> None:
    sentence = f"instance '{changed['id']}' is {changed['state']}"
    exit = changed.get("exit") or {}
    if changed["state"] in ("STOPPED", "CRASHED") and exit.get("summary"):
        sentence += f": {exit['summary']}"
    elif changed.get("wanted") == "stop":
        sentence += ", to be stopped"
    show_done(session.output, changed, sentence)


@instance.command()
@click.argument("id")
@reason_option
@wait_options()
@api_command
def restart(session: ApiSession, id: str, reason: str | None, wait: bool, timeout: int) -> None:
    """Stop an instance and start it again under its id."""
    changed = _order(session, id, "restart", reason)
    if wait:
        again = changed["state"] not in ("SCHEDULED", "PREPARING", "STARTING")
        after = {**changed, "incarnation": changed["incarnation"] + 1, "restarts": 0} if again else changed
        changed = until_ready(session, after, timeout)
    asked = changed.get("wanted") == "stop"  # the old run is there still: its state is no news
    text = f"instance '{id}' is to restart" if asked else f"instance '{id}' is {changed['state']}"
    show_done(session.output, changed, text)


@instance.command(context_settings={"allow_interspersed_args": False})
@click.argument("id")
@click.argument("line", nargs=-1, required=True, type=click.UNPROCESSED)
@api_command
def command(session: ApiSession, id: str, line: tuple[str, ...]) -> None:
    """Put a LINE into an instance's input. Options come before the ID: what follows is the line, whatever it looks like."""
    words = line[1:] if line[0] == "--" else line
    path = f"{INSTANCES}/{segment(id)}/command"
    taken = session.client.post_patiently(path, {"command": " ".join(words)}, seconds=PATIENCE_SECONDS)
    show_done(session.output, taken, f"instance '{id}' has it in its input")


@instance.command()
@click.argument("id")
@yes_option
@api_command
def delete(session: ApiSession, id: str, yes: bool) -> None:
    """Forget an instance that has ended, and its console."""
    if not yes:
        session.client.get(f"{INSTANCES}/{segment(id)}")  # no question about an unknown one
    confirm(f"forget instance '{id}'", yes=yes)
    session.client.delete(f"{INSTANCES}/{segment(id)}")
    show_done(session.output, {"id": id}, f"instance '{id}' is forgotten")


for extra in (
    *(console, logs, runs, sent_commands, search, download, plan, save, create),
    *(files, get_file, put_file, edit_file, remove_file, move_file, make_directory, unpack, pull, push),
):
    instance.add_command(extra)
