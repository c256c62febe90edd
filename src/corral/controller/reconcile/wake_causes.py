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
_ASKED_FOR: Final = frozenset(
    {
        EventType.GROUP_CREATED,
        EventType.GROUP_UPDATED,
        EventType.GROUP_SCALED,
        EventType.GROUP_HELD,
        EventType.GROUP_RELEASED,
    }
)
_MENDED: Final = "a change of nodes, reservations, templates, programs or modules"


def wake_for(commit: Commit, change: Change, group: str, state: ClusterState, *, own: bool) -> Wake:
    """Why a group is checked after a change; `own`: the change is of the group itself or of one of its instances."""
    event = event_behind(commit, change, group)
    request = _request_behind(event, state)
    causes = _causes_of(event) if event is not None else _decision_behind(change, state)
    return Wake(
        cause=f"{event.type} {event.subject} ({event.cursor})" if event else f"a change of {change.id}",
        causes=(*causes, f"{_REQUEST}{request}") if request else causes,
        request=request,
        after_crash=own and event is not None and event.type is EventType.INSTANCE_CRASHED,
    )


def event_behind(commit: Commit, change: Change, group: str) -> Event | None:
    """The event of a commit that says most about a change: a crash that ended a run, else the last. Nodes report several
    steps of a run at once. Where a group has none of its own, one about its instances."""
    found = [event for event in commit.events if event.subject == change.id]
    found = found or [event for event in commit.events if event.data.get("group") == group == change.id]
    for event in found:
        if event.type is EventType.INSTANCE_CRASHED and not event.data.get("restarted_as"):
            return event
    return found[-1] if found else None


def _causes_of(event: Event) -> tuple[str, ...]:
    """The cause of what follows from an event: the decision that a scale is, else the event itself."""
    decision = event.data.get("decision") if event.type is EventType.GROUP_SCALED else None
    return (decision,) if isinstance(decision, str) else (f"event:{event.cursor}",)


def _decision_behind(change: Change, state: ClusterState) -> tuple[str, ...]:
    """The causes of what follows from an instance that changed without an event, such as one that is to be stopped: the
    decision about it, and the request behind that."""
    stored = state.instances.find(change.id) if change.collection == INSTANCES.name else None
    if stored is None:
        return ()
    asked = f"request:{stored.record.request}" if stored.record.request else ""
    return tuple(filter(None, (stored.record.decision, asked)))


def _request_behind(event: Event | None, state: ClusterState) -> str:
    """The request whose change of a group may require new instances. A scale with a rule is one that the load asked for."""
    asked = event is not None and (
        (event.type in _ASKED_FOR and "rule" not in event.data)
        or (event.type is EventType.CRASH_LOOP_ENDED and event.data.get("by") == "operator")
    )
    stored = state.groups.find(event.subject) if event is not None and asked else None
    return stored.record.request if stored is not None else ""


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


def woken_by_players(instance: str) -> Wake:
    """Why a group is looked at after the number of players of an instance has changed, or is not known any more."""
    return Wake(cause=f"the players of '{instance}' have changed", causes=(f"players:{instance}",))


def node_changed(commit: Commit, change: Change) -> Wake:
    """Why groups are looked at whose instances are on a node that changed."""
    event = event_behind(commit, change, "")
    if event is None:
        return Wake(cause=f"a change of node '{change.id}'")
    decision = event.data.get("decision")
    causes = (decision,) if isinstance(decision, str) else (f"event:{event.cursor}",)
    return Wake(cause=f"{event.type} {event.subject} ({event.cursor})", causes=causes)


def mended_by(event: Event | None) -> Wake:
    """Why groups that lack something are looked at again."""
    if event is None:
        return Wake(cause=_MENDED)
    text = f"{_MENDED}: {event.type} {event.subject} ({event.cursor})"
    return Wake(cause=text, causes=(f"event:{event.cursor}",))
