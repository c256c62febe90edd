"""Waits of `corral group`: until a group has what it wants, or is gone, and what keeps it from that."""

from __future__ import annotations

from typing import Any, Final

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession
from corral.cli.failure import CommandFailure, CommandRefused, WaitRanOut, note
from corral.cli.instance.waits import crash_lines, wait_until
from corral.cli.terminal.output import Item
from corral.errors import counted

GROUPS: Final = "/api/v1/groups"
_LOOKED_AT: Final = 500
_REASONS: Final = 5


def status_of(group: Item) -> Item:
    found = group.get("status")
    return found if isinstance(found, dict) else {}


def counts_of(group: Item) -> str:
    status = status_of(group)
    return f"{status.get('ready', 0)}/{status.get('wanted', 0)}"


def group_state(group: Item) -> str:
    status = status_of(group)
    if status.get("deleting"):
        return "DELETING"
    if status.get("hold"):
        return "HELD"
    if status.get("paused"):
        return "PAUSED"
    if group.get("abstract"):
        return "ABSTRACT"
    return "MET" if status.get("ready", 0) >= status.get("wanted", 0) else "SHORT"


def until_met(session: ApiSession, name: str, timeout: int) -> Any:
    """Wait until as many instances are ready as are wanted, and no others are there but those that wait for their last
    players, which are named. A group that is given up for a while is a refusal, at once, if it has fewer."""
    found: list[Any] = []

    def look() -> tuple[bool, str]:
        found[:] = [session.client.get(f"{GROUPS}/{segment(name)}")]
        status = status_of(found[0])
        if status.get("hold"):
            raise _held(name, status["hold"])
        if status.get("paused") and status.get("ready", 0) < status.get("wanted", 0):
            raise _given_up(session, name, status["paused"])
        serving = status.get("instances", 0) - status.get("draining", 0)
        met = serving == status.get("wanted") == status.get("ready")
        seen = f"{counts_of(found[0])} ready{_draining(status)}"
        return met, f"{seen}, {status['reason']}" if status.get("reason") else seen

    try:
        wait_until(look, timeout=timeout, what=f"group '{name}' did not have its instances", reported=True)
    except WaitRanOut as late:
        raise WaitRanOut(f"{late.message}{_problems(session, name)}", hint=f"corral why {name}") from None
    if status_of(found[0]).get("draining"):
        note(f"group '{name}': {counts_of(found[0])} ready{_draining(status_of(found[0]))}")
    return found[0]


def _draining(status: Item) -> str:
    draining = int(status.get("draining", 0))
    waiting = counted(draining, "instance waits", "instances wait")
    return f", {waiting} for the last players to leave" if draining else ""


def _held(name: str, hold: Item) -> CommandRefused:
    return CommandRefused(
        f"group '{name}' is held by {hold.get('by')}: {hold.get('reason')}",
        hint=f"corral group release {name}",
        code="GROUP_HELD",
    )


def _given_up(session: ApiSession, name: str, paused: Item) -> CommandRefused:
    lines = crash_lines(session, str(paused.get("crash", "")))
    return CommandRefused(
        f"group '{name}' is paused as crash-looping: {paused.get('reason', '')}{lines}",
        hint=f"corral why {name}; change what is wrong, or try it again as it is: corral group unpause {name}",
        code="CRASH_LOOP",
    )


def _problems(session: ApiSession, name: str) -> str:
    """Why instances of a group are not ready, each reason once, with one of those it holds for."""
    from corral.cli.instance.waits import INSTANCES, start_problem, waits_for

    found: dict[str, str] = {}
    try:
        instances = session.client.pages(INSTANCES, {"group": name}, limit=_LOOKED_AT)
    except CommandFailure:
        return ""  # that time is up counts more
    for instance in instances:
        problem = start_problem(instance) or waits_for(instance)
        if problem:
            found.setdefault(problem, str(instance["id"]))
    return "".join(f"\n  {id}: {problem}" for problem, id in list(found.items())[:_REASONS])


def group_of_instance(session: ApiSession, id: str) -> Item:
    """The group of an instance that is not static, by its id; empty: it cannot be read, or has another name."""
    try:
        found: Item = session.client.get(f"{GROUPS}/{segment(id.rpartition('-')[0])}") if "-" in id else {}
    except CommandFailure:
        return {}  # what was asked for counts more
    return found


def replaced_text(before: Item, after: Item) -> str:
    """That another instance is started for one that was stopped by hand, `before` being its group as it was before the
    order; empty: none is."""
    name, was, now = before.get("name"), status_of(before), status_of(after)
    if not name or name != after.get("name") or after.get("static"):
        return ""
    if any(now.get(each) for each in ("hold", "paused", "deleting")):
        return ""
    if now.get("draining", 0) < was.get("draining", 0):
        return ""  # it was to go
    left = was.get("instances", 0) - was.get("draining", 0) - 1
    wanted = now.get("wanted", 0)
    if left >= wanted:
        return ""
    return (
        f"group '{name}' is to have {counted(wanted, 'instance')}, so that another one is started; "
        f"to stop all of them and keep them stopped: corral group hold {name} --reason TEXT"
    )


def until_stopped(session: ApiSession, name: str, timeout: int) -> Any:
    """Wait until nothing of a held group runs. Refused when somebody releases it meanwhile."""
    found: list[Any] = []

    def look() -> tuple[bool, str]:
        found[:] = [session.client.get(f"{GROUPS}/{segment(name)}")]
        status = status_of(found[0])
        left = status.get("instances", 0) + status.get("warm", 0) + status.get("lost", 0)
        if left and not status.get("hold"):
            raise CommandRefused(
                f"group '{name}' was released meanwhile", hint=f"corral why {name}", code="CONFLICT"
            )
        when = (
            "; each is stopped when it has no players" if (status.get("hold") or {}).get("when_empty") else ""
        )
        return not left, f"group '{name}' has {counted(left, 'instance')}{when}"

    hint = f"it stays held, and they are still being stopped: corral instance list --group {name}"
    wait_until(look, timeout=timeout, what=f"group '{name}' was not stopped", hint=hint)
    return found[0]


def until_gone(session: ApiSession, name: str, timeout: int) -> None:
    def look() -> tuple[bool, str]:
        left = instances_left(session, name)
        return left is None, f"group '{name}' has {counted(left or 0, 'instance')}"

    hint = f"it goes when they have ended: corral instance list --group {name}"
    wait_until(look, timeout=timeout, what=f"group '{name}' was not gone", hint=hint)


def instances_left(session: ApiSession, name: str) -> int | None:
    """None: the group is gone."""
    try:
        found = session.client.get(f"{GROUPS}/{segment(name)}")
    except CommandRefused as refusal:
        if refusal.code != "NOT_FOUND":
            raise
        return None
    return int(status_of(found).get("instances", 0))
