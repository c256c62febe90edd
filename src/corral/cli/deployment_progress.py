"""How far a deployment is: a bar for people, the wait for its end, and what is printed when it fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession
from corral.cli.failure import CommandRefused, Unreachable, WaitRanOut, note
from corral.cli.instance.waits import console_end
from corral.cli.terminal.output import Item, show_done
from corral.cli.terminal.progress_line import ProgressReport, steps_bar
from corral.cli.terminal.values import duration
from corral.errors import counted

DEPLOYMENTS: Final = "/api/v1/deployments"
FINAL: Final = ("COMPLETED", "FAILED", "ROLLED_BACK", "CANCELLED", "SUPERSEDED")
_NAMED: Final = 3
_FAILURES: Final = 3
_AWAY: Final = "unanswered"
"""Marks a deployment that was seen before the controller went away."""
_UNAVAILABLE: Final = 503
"""Of a controller that does not lead, or whose store does not answer."""
_PAUSE_SECONDS: Final = 0.3
_ENDS: Final = {
    "FAILED": "failed",
    "ROLLED_BACK": "was rolled back",
    "CANCELLED": "was cancelled",
    "SUPERSEDED": "was superseded by another deployment of the group",
}


def is_final(found: Item) -> bool:
    return found.get("state") in FINAL


def goes_back(found: Item) -> bool:
    return "ROLLING_BACK" in (found.get("state"), found.get("resumes"))


def progress_text(found: Item) -> str:
    """One line: how many instances are updated, what starts, and what is waited for."""
    progress = found.get("progress") or {}
    wanted, updated = int(progress.get("wanted", 0)), int(progress.get("updated", 0))
    verb = f"back at revision {found.get('stable')}" if goes_back(found) else "updated"
    parts = [f"{steps_bar(updated, wanted)} {verb}"]
    if starting := int(progress.get("starting", 0)) + int(progress.get("unhealthy", 0)):
        parts.append(f"{starting} starting")
    if players := progress.get("waiting_players") or ():
        parts.append(_players_text(players))
    if found.get(_AWAY):
        return " · ".join([*parts, "the controller does not answer"])
    waiting = str(found.get("waiting") or "")
    if waiting and (len(parts) == 1 or found.get("state") not in ("ROLLING", "ROLLING_BACK")):
        parts.append(waiting)
    return " · ".join(parts)


def _players_text(waiting: Sequence[Item]) -> str:
    """The instances that wait for their players, those with the fewest first."""
    ordered = sorted(waiting, key=lambda each: (each.get("players") is None, each.get("players") or 0))
    named = [f"{each['id']}: {_count(each)}" for each in ordered[:_NAMED]]
    more = ", …" if len(ordered) > _NAMED else ""
    return f"{counted(len(ordered), 'waits', 'wait')} for players ({', '.join(named)}{more})"


def _count(each: Item) -> str:
    return "unknown" if each.get("players") is None else str(each["players"])


def until_deployed(session: ApiSession, begun: Item, timeout: int, *, end: str = "COMPLETED") -> Any:
    """The deployment when it has come to this end. CommandRefused: it ended otherwise, with the instances that failed, their last
    lines and what was undone. WaitRanOut: it goes on."""
    id, deadline = str(begun["id"]), time.monotonic() + timeout
    found: Any = begun
    try:
        with ProgressReport() as report:
            while not is_final(found):
                report.show(progress_text(found))
                if time.monotonic() + _PAUSE_SECONDS > deadline:
                    raise WaitRanOut(
                        f"deployment '{id}' was not done within {counted(timeout, 'second')}: {progress_text(found)}",
                        hint=f"it goes on: corral deployment get {id}; to end it: corral deployment cancel {id}",
                    )
                time.sleep(_PAUSE_SECONDS)
                found = _look(session, found)
    except KeyboardInterrupt:
        note(
            f"interrupted: only the wait ends, deployment '{id}' goes on; corral deployment get {id} shows it, "
            f"corral deployment pause {id} holds it, corral deployment cancel {id} ends it"
        )
        raise
    if found.get("state") not in (end, "COMPLETED"):
        if session.output in ("json", "yaml"):
            show_done(session.output, found, "")  # a script reads what became of it all the same
        raise CommandRefused(
            failure_text(found), hint=f"corral why deployment/{id}", code=f"DEPLOYMENT_{found.get('state')}"
        )
    return found


def _look(session: ApiSession, last: Item) -> Any:
    """The deployment now; as it was seen last while no controller answers: one may take over."""
    try:
        return session.client.get(f"{DEPLOYMENTS}/{segment(str(last['id']))}")
    except (CommandRefused, Unreachable) as error:
        passing = error.passing if isinstance(error, Unreachable) else error.status == _UNAVAILABLE
        if not passing:
            raise
        return {**last, _AWAY: True}


def done_text(found: Item) -> str:
    took = duration(found.get("created_at"), found.get("ended_at"))
    back = found.get("state") == "ROLLED_BACK"
    runs = f"runs by revision {found['stable']} again" if back else f"runs by revision {found['target']}"
    return f"group '{found['group']}' {runs} (deployment '{found['id']}', {took})"


def failure_text(found: Item) -> str:
    """How a deployment ended that is not completed: who failed and how, the last lines of each, what was undone."""
    state = str(found.get("state"))
    reason = f": {found['outcome']}" if found.get("outcome") else ""
    text = f"deployment '{found['id']}' of group '{found['group']}' {_ENDS.get(state, state)}{reason}"
    for each in (found.get("failures") or ())[-_FAILURES:]:
        text += f"\n{failed_instance_text(each)}"
    if found.get("undone"):
        text += f"\nundone: {found['undone']}"
    return text


def failed_instance_text(failure: Item) -> str:
    where = f" on node '{failure['node']}'" if failure.get("node") else ""
    text = f"  {failure.get('instance')}{where}: {failure.get('reason')}"
    return text + console_end(failure.get("lines") or (), indent="  ")
