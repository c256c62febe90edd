"""What a change of a group means for what runs: nothing, until it is started again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from corral.cli.api.session import Session
from corral.cli.failure import note
from corral.cli.terminal.output import Item

_NAMED: Final = 5
_OVER: Final = ("STOPPED", "CRASHED")
_NOT_OF_RUNS: Final = {"min", "max", "crash_loop", "nodes", "node_labels", "node_capabilities"}
"""Fields that mean nothing to what runs already."""


def differing(before: Item, after: Item) -> set[str]:
    """The fields that are not as they were."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def say_what_runs_as_before(session: Session, group: Item, fields: Collection[str]) -> None:
    """After a change of these fields: who was started before it, and how to start them again."""
    if session.output != "table" or not set(fields) - _NOT_OF_RUNS:
        return
    name, since = str(group.get("name")), str((group.get("status") or {}).get("updated_at"))
    found = session.client.pages("/api/v1/instances", {"group": name})
    old = [
        str(each.get("id"))
        for each in found
        if each.get("state") not in _OVER and str(_ordered_at(each)) < since
    ]
    if old:
        shown = ", ".join(old[:_NAMED]) + (", …" if len(old) > _NAMED else "")
        runs = "instance runs" if len(old) == 1 else "instances run"
        note(f"{len(old)} {runs} as the group was before ({shown}): corral group restart {name}")


def _ordered_at(instance: Item) -> Any:
    """When it was started by the controller: a run that its node makes of it again is as the one before it."""
    began = instance.get("created_at")
    return began if instance.get("restarts") else instance.get("started_at") or began
