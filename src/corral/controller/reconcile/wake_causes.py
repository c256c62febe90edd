"""What wakes a group: the event of a commit that explains a later decision best."""

from __future__ import annotations

from typing import Final

from corral.controller.reconcile.apply_plan import Wake
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES
from corral.domain.events import Event, EventType
from corral.store.port import Change, Commit

_MENDED: Final = "a change of nodes, reservations, templates, programs or modules"


def event_behind(commit: Commit, change: Change) -> Event | None:
    """The event of a commit that says most about a change: a crash that ended a run, else the last. Nodes report several
    steps of a run at once."""
    found = [event for event in commit.events if event.subject == change.id]
    for event in found:
        if event.type is EventType.INSTANCE_CRASHED and not event.data.get("restarted_as"):
            return event
    return found[-1] if found else None


def decision_behind(change: Change, state: ClusterState) -> tuple[str, ...]:
    """The causes of what follows from an instance that changed without an event, such as one that is to be stopped: the
    decision about it, and the request behind that."""
    stored = state.instances.find(change.id) if change.collection == INSTANCES.name else None
    if stored is None:
        return ()
    asked = f"request:{stored.record.request}" if stored.record.request else ""
    return tuple(filter(None, (stored.record.decision, asked)))


def mended_by(event: Event | None) -> Wake:
    """Why groups that lack something are looked at again."""
    if event is None:
        return Wake(cause=_MENDED)
    text = f"{_MENDED}: {event.type} {event.subject} ({event.cursor})"
    return Wake(cause=text, causes=(f"event:{event.cursor}",))
