"""`corral node drain`, `undrain` and `shutdown`: empty a node, let it take instances again, or end its daemon."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession, api_command
from corral.cli.dry_run import DRY, act_once_told, dry_run_option, refuse_wait, show_dry_run
from corral.cli.failure import CommandRefused, Unreachable, WaitRanOut, WrongUsage, note
from corral.cli.terminal.confirmation import act_confirmed, yes_option
from corral.cli.terminal.output import Item, show_done
from corral.cli.terminal.progress_line import ProgressReport, steps_bar
from corral.cli.terminal.values import SpanType, short_time
from corral.errors import counted
from corral.system.spans import span_seconds

F = TypeVar("F", bound=Callable[..., Any])

NODES: Final = "/api/v1/nodes"
NEVER: Final = -1
_NAMED: Final = 3
_PAUSE_SECONDS: Final = 0.3
_AFTER_DEADLINE: Final = 300
_UNAVAILABLE: Final = 503
_AWAY: Final = "unanswered"
"""Marks a node that was seen before the controller went away."""


class DeadlineType(click.ParamType[int]):
    """A span of time in seconds, or `none`: NEVER."""

    name = "deadline"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if str(value).lower() == "none":
            return NEVER
        if not isinstance(value, int) and span_seconds(str(value)) is None:
            self.fail(
                f"'{value}' is not a span of time; write it like 90s, 30m, 1h or 7d, or none for no deadline",
                param,
                ctx,
            )
        return SpanType().convert(value, param, ctx)


def _drain_options(command: F) -> F:
    for option in (
        click.option(
            "--timeout",
            type=SpanType(),
            help="How long to wait at most.  [default: until the deadline and 5 minutes; without one, for ever]",
        ),
        click.option(
            "--wait", is_flag=True, help="Return when it is done; exit code 4 if it is not in time."
        ),
        yes_option,
        dry_run_option,
        click.option("--force", is_flag=True, help="Wait for nobody: everything there is stopped now."),
        click.option(
            "--deadline",
            type=DeadlineType(),
            metavar="SPAN|none",
            help="When what is left is stopped, players or not.  [default: 1h; of a drain that goes on, as it is]",
        ),
        click.option("--reason", metavar="TEXT", help="Why; shown with the node.  [default: as it is]"),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("id")
@_drain_options
@api_command
def drain(session: ApiSession, id: str, **options: Any) -> None:
    """Empty a node: move its instances, wait for players.

    Nothing new is placed there until 'corral node undrain'. An instance goes when another one has taken its place and its
    players have left; worlds, and what can run nowhere else, are stopped when they are empty and stay stopped until then.

    Said again, it changes what is given and keeps the rest: with --wait alone it watches a drain that goes on.
    """
    _order(session, id, shutdown=False, **options)


@click.command()
@click.argument("id")
@_drain_options
@api_command
def shutdown(session: ApiSession, id: str, **options: Any) -> None:
    """Drain a node, then end its daemon.

    It ends with exit code 0, and neither systemd nor 'corral up' starts it again by itself. Once it runs again, the node is
    still drained: 'corral node undrain'.
    """
    _order(session, id, shutdown=True, **options)


def _order(
    session: ApiSession,
    id: str,
    *,
    shutdown: bool,
    reason: str | None,
    deadline: int | None,
    force: bool,
    dry_run: bool,
    yes: bool,
    wait: bool,
    timeout: int | None,
) -> None:
    if timeout is not None and not wait:
        raise WrongUsage("--timeout is for --wait", hint="add --wait, or leave it out")
    verb = "shutdown" if shutdown else "drain"
    path = f"{NODES}/{segment(id)}/{verb}"
    if force and deadline is not None:
        raise WrongUsage("--force waits for nobody, so there is no --deadline", hint="leave one of them out")
    body: dict[str, Any] = {"reason": reason or "", "force": force}
    if deadline is not None:
        body["deadline_seconds"] = None if deadline == NEVER else deadline

    def tell() -> Any:
        return session.client.post(path, body, params=DRY)

    def act(query: dict[str, str]) -> Any:
        return session.client.post(path, body, params=query)

    if dry_run:
        refuse_wait(wait)
        change = "shut down" if shutdown else "drained"
        show_dry_run(session, f"node '{id}'", tell(), change=change)
        return
    question = f"shut node '{id}' down" if shutdown else f"drain node '{id}'"
    if force:
        question += ", stopping everything there now"
    if force or shutdown:
        changed = act_once_told(question, tell, act, id, yes=yes)
    else:
        changed = act_confirmed(question, act, id, yes=yes, ask=False)
    if wait:
        changed = until_drained(session, changed, timeout or _longest(changed), shutdown=shutdown)
    show_done(session.output, changed, _done_text(id, changed, shutdown=shutdown))


def _longest(node: Item) -> int | None:
    """How many seconds a drain is waited for: until its deadline and some more; None: it has none."""
    import datetime as dt

    until = (node.get("drain") or {}).get("deadline_at")
    if not until:
        return None
    left = dt.datetime.fromisoformat(str(until)) - dt.datetime.now(dt.UTC)
    return max(0, int(left.total_seconds())) + _AFTER_DEADLINE


def _done_text(id: str, node: Item, *, shutdown: bool) -> str:
    if node.get("admission") != "drained":
        then = "; then its daemon ends" if (node.get("drain") or {}).get("shutdown") else ""
        return f"node '{id}' is being drained, {progress_text(node)}{then}; corral node info {id} shows how far it is"
    ended = f"node '{id}' is drained and its daemon has ended"
    if shutdown and node.get("state") != "ONLINE":
        return f"{ended}; when it runs again: corral node undrain {id}"
    return f"node '{id}' is drained; to use it again: corral node undrain {id}"


@click.command()
@click.argument("id")
@click.option("--reason", metavar="TEXT", help="Why; in the event and the audit.")
@api_command
def undrain(session: ApiSession, id: str, reason: str | None) -> None:
    """Let a drained node take instances again."""
    path = f"{NODES}/{segment(id)}"
    before = session.client.get(path).get("drain")
    changed = session.client.post(f"{path}/undrain", {"reason": reason} if reason else {})
    cordoned = changed.get("admission") == "cordoned"
    takes = f"is cordoned, as it was before: corral node uncordon {id}" if cordoned else "takes new instances"
    done = f"node '{id}' {takes}" if before else f"node '{id}' was not drained: nothing changed"
    show_done(session.output, changed, done)


def progress_text(node: Item) -> str:
    """One line: how many instances have gone, and what the others wait for."""
    drain = node.get("drain") or {}
    progress = drain.get("progress") or {}
    parts = [f"{steps_bar(int(progress.get('moved', 0)), int(progress.get('total', 0)))} moved"]
    if players := int(progress.get("waiting_players", 0)):
        parts.append(f"{counted(players, 'waits', 'wait')} for players{_named(drain.get('instances') or [])}")
    for field, one, many in (
        ("waiting_room", "waits for room", "wait for room"),
        ("waiting_turn", "waits for its turn", "wait for their turn"),
        ("stopping", "stopping", "stopping"),
        ("unreachable", "out of reach", "out of reach"),
    ):
        if count := int(progress.get(field, 0)):
            parts.append(counted(count, one, many))
    if node.get("admission") == "drained":
        parts.append("the daemon ends" if _still_ends(drain) else "drained")
    elif node.get("state") != "ONLINE":
        parts.append(f"the node is {node.get('state')}")
    elif until := drain.get("deadline_at"):
        parts.append(f"until {short_time(until)}")
    if node.get(_AWAY):
        parts.append("the controller does not answer")
    return " · ".join(parts)


def _still_ends(drain: Item) -> bool:
    """Is its daemon to end, and was not told so yet? One that runs again after that stays."""
    return bool(drain.get("shutdown")) and not drain.get("exit_ordered_at")


def _named(instances: list[Item]) -> str:
    """Some of those that wait for players, with how many they have."""
    waiting = [each for each in instances if each.get("waits_for") == "players"]
    if not waiting:
        return ""
    known = [f"{each['id']}: {_players(each)}" for each in waiting]
    return f" ({', '.join(known[:_NAMED])}{', …' if len(known) > _NAMED else ''})"


def _players(instance: Item) -> str:
    if instance.get("players") is not None:
        return str(instance["players"])
    until = instance.get("empty_at")
    return f"unknown, counts as empty at {short_time(until)}" if until else "?"


def _fitted(text: str) -> str:
    """The line with its last part, the deadline, where a terminal is too narrow for the whole."""
    width = shutil.get_terminal_size().columns - 1
    head, between, last = text.rpartition(" · ")
    room = width - len(f"… · {last}")
    if not sys.stderr.isatty() or len(text) <= width or not between or room < 1:
        return text
    return f"{head[:room]}… · {last}"


def until_drained(session: ApiSession, begun: Item, timeout: int | None, *, shutdown: bool) -> Any:
    """The node when everything there has ended, and with `shutdown` its daemon, too. CommandRefused: somebody undrained it
    meanwhile. WaitRanOut: it goes on."""
    id = str(begun["id"])
    deadline = None if timeout is None else time.monotonic() + timeout
    found: Any = begun
    try:
        with ProgressReport() as report:
            while not _is_done(found, shutdown=shutdown):
                report.show(_fitted(progress_text(found)))
                if deadline is not None and time.monotonic() + _PAUSE_SECONDS > deadline:
                    raise WaitRanOut(
                        f"node '{id}' was not drained within {counted(timeout or 0, 'second')}: {progress_text(found)}",
                        hint=f"it goes on: corral why node/{id}; to end it: corral node undrain {id}",
                    )
                time.sleep(_PAUSE_SECONDS)
                found = _look(session, found)
    except KeyboardInterrupt:
        note(
            f"interrupted: only the wait ends, the drain of node '{id}' goes on; corral node info {id} shows how far it is, "
            f"corral node undrain {id} ends it"
        )
        raise
    return found


def _is_done(node: Item, *, shutdown: bool) -> bool:
    if node.get("drain") is None:
        raise CommandRefused(
            f"node '{node.get('id')}' was undrained meanwhile",
            hint=f"corral why node/{node.get('id')}",
            code="CONFLICT",
        )
    return node.get("admission") == "drained" and (not shutdown or node.get("state") != "ONLINE")


def _look(session: ApiSession, last: Item) -> Any:
    """The node now; as it was seen last while no controller answers: one may take over."""
    try:
        return session.client.get(f"{NODES}/{segment(str(last['id']))}")
    except (CommandRefused, Unreachable) as error:
        passing = error.passing if isinstance(error, Unreachable) else error.status == _UNAVAILABLE
        if not passing:
            raise
        return {**last, _AWAY: True}


def drain_rows(node: Item) -> list[tuple[str, str]]:
    """The drain of a node, for its page; nothing where there is none."""
    drain = node.get("drain")
    if not drain:
        return []
    text = f"by {drain.get('by')}, {short_time(drain.get('started_at'))}"
    text += f": {drain['reason']}" if drain.get("reason") else ""
    text += "; then its daemon ends" if _still_ends(drain) else ""
    if drain.get("shutdown") and drain.get("exit_ordered_at"):
        text += f"; its daemon was ended {short_time(drain['exit_ordered_at'])}"
    rows = [("Drain", text), ("Drained", progress_text(node))]
    if ack := drain.get("ack"):
        ran = counted(int(ack.get("running_instances", 0)), "instance")
        takes = f"stops take up to {ack.get('estimated_seconds', 0)} s"
        rows.append(("Node says", f"{takes}; {ran} ran when it was asked"))
    return rows


def admission_text(node: Item) -> str:
    """The admission of a node in a list, with how far its drain is."""
    progress = (node.get("drain") or {}).get("progress") or {}
    admission = str(node.get("admission") or "-")
    if admission != "draining" or not progress:
        return admission
    return f"{admission} {progress.get('moved', 0)}/{progress.get('total', 0)}"
