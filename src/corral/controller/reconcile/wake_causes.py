"""What wakes a group: the event of a commit that explains a later decision best."""

from __future__ import annotations

from typing import Final

from corral.controller.reconcile.apply_plan import Wake
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES
from corral.domain.events import Event, EventType
from corral.store.port import Change, Commit

_CAUSES: Final = 3
"""The most events that are named as causes of one check."""
_REQUEST: Final = "request:"
_MENDED: Final = "a change of nodes, reservations, templates, programs or modules"


def event_behind(commit: Commit, change: Change, group: str) -> Event | None:
    """The event of a commit that says most about a change: a crash that ended a run, else the last. Nodes report several
    steps of a run at once. Where a group has none of its own, one about its instances."""
    found = [event for event in commit.events if event.subject == change.id]
    found = found or [event for event in commit.events if event.data.get("group") == group == change.id]
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


def joined(waiting: Wake | None, new: Wake) -> Wake:
    """What a group that waits to be checked is checked for, with a further reason. One with a request or a crash behind it
    explains more than one without, and one with a cause more than one with none."""
    if waiting is None:
        return new
    telling = bool(waiting.request) or waiting.after_crash
    if not (new.request or new.after_crash) and (telling or not new.causes):
        return waiting
    if not telling:
        return new
    first, second = (waiting, new) if waiting.after_crash and not new.after_crash else (new, waiting)
    known = dict.fromkeys((*first.causes, *second.causes))
    asked = [each for each in known if each.startswith(_REQUEST)]
    others = [each for each in known if not each.startswith(_REQUEST)]
    return Wake(
        cause=new.cause,
        causes=(*others[:_CAUSES], *asked[:1]),
        request=new.request or waiting.request,
        after_crash=new.after_crash or waiting.after_crash,
    )


def mended_by(event: Event | None) -> Wake:
    """Why groups that lack something are looked at again."""
    if event is None:
        return Wake(cause=_MENDED)
    text = f"{_MENDED}: {event.type} {event.subject} ({event.cursor})"
    return Wake(cause=text, causes=(f"event:{event.cursor}",))
