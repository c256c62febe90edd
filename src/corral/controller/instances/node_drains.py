"""Orders of operators about the emptying of a node, and its end, as changes of a workspace.

All of it is in the record of the node: a controller that takes over goes on with it. The frames to the daemon follow
from the record, too.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.instances.instance_drains import drain_instance, undrain_instance
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind, Numbers, Rule
from corral.domain.events import EventType
from corral.domain.groups.instance_records import InstanceRecord, is_draining, is_present, live
from corral.domain.ids import DecisionId
from corral.domain.instance_states import Wanted
from corral.domain.node_states import ADMISSION_LIFECYCLE, Admission, AdmissionTrigger, NodeState
from corral.domain.planning.drain_progress import DrainProgress
from corral.domain.records import BootMoment, NodeDrain, NodeRecord

DEADLINE_SECONDS: Final = 3600
"""How long players are waited for, where nobody says otherwise."""


class DrainOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asks for. What is left out stays as it is, where the node is emptied already."""

    reason: str = ""
    deadline_seconds: int | UnsetType | None = UNSET
    """None: players are waited for without an end. Left out of the first order: DEADLINE_SECONDS."""
    shutdown: bool | UnsetType = UNSET
    """Left out of the first order: false."""


def drain_node(ws: Workspace, id: str, order: DrainOrder) -> NodeRecord:
    """Empty a node. One that is being emptied, or is, gets another reason, deadline or end; an order like the last one
    changes nothing."""
    record = ws.require_node(id)
    former = record.drain
    asked = _asked_for(order, former)
    again = (
        order.shutdown is True
        and former is not None
        and former.exit_ordered_at is not None
        and record.state
        is NodeState.ONLINE  # its daemon was started again; one that is down has done as ordered
    )
    if former is not None and not again and asked == _asked_for(DrainOrder(), former):
        return record
    reason, seconds, shutdown = asked
    admission = ADMISSION_LIFECYCLE.step(f"node '{id}'", record.admission, AdmissionTrigger.DRAIN)
    cordoned = record.admission is Admission.CORDONED
    drain = former or NodeDrain(
        id=ws.new_id("drn"),
        by="",
        reason="",
        started_at=ws.now,
        was_cordoned=cordoned,
        cordon_reason=record.admission_reason if cordoned else "",
        total=ws.state.instances.live_on(id),
    )
    if again:  # its daemon was started again since: it ends once more
        drain = msgspec.structs.replace(drain, id=ws.new_id("drn"), exit_ordered_at=None)
    deadline = ws.now + dt.timedelta(seconds=seconds) if seconds is not None else None
    ends = ws.boot_moment(seconds) if seconds is not None else None
    if former is not None and order.deadline_seconds is UNSET:
        deadline, ends = former.deadline_at, former.deadline_ends
    drain = msgspec.structs.replace(
        drain,
        by=ws.by,
        reason=reason,
        deadline_seconds=seconds,
        deadline_at=deadline,
        deadline_ends=ends,
        shutdown=shutdown,
        request=ws.request,
    )
    decision = _decide(ws, id, _drain_text(drain, id), drain)
    drain = msgspec.structs.replace(drain, decision=decision)
    changed = msgspec.structs.replace(record, admission=admission, admission_reason=reason, drain=drain)
    _put(ws, changed)
    ws.event(
        EventType.NODE_DRAINING,
        id,
        drain=drain.id,
        by=drain.by,
        reason=reason,
        deadline_at=deadline.isoformat() if deadline is not None else None,
        shutdown=drain.shutdown,
        total=drain.total,
        decision=decision,
    )
    return changed


def _asked_for(order: DrainOrder, former: NodeDrain | None) -> tuple[str, int | None, bool]:
    """The reason, the seconds until the deadline, and whether the daemon ends: by the order, else as they are."""
    reason, seconds, shutdown = (
        (former.reason, former.deadline_seconds, former.shutdown)
        if former is not None
        else ("", DEADLINE_SECONDS, False)
    )
    return (
        order.reason or reason,
        seconds if order.deadline_seconds is UNSET else order.deadline_seconds,
        shutdown if order.shutdown is UNSET else order.shutdown,
    )


def deadline_left(drain: NodeDrain, *, now: dt.datetime, boot: BootMoment | None) -> float:
    """Seconds until the deadline of a drain. By the boot clock while the same boot lasts: the wall clock may have been set
    since, also while no controller ran. After a reboot, and on another host, the whole time again: late, never early."""
    if drain.deadline_at is None:
        return math.inf
    if counts_here(drain, boot) and drain.deadline_ends is not None and boot is not None:
        left = drain.deadline_ends.seconds - boot.seconds
    elif drain.deadline_seconds is not None:
        left = float(drain.deadline_seconds)
    else:
        left = (drain.deadline_at - now).total_seconds()
    return max(0.0, left)


def counts_here(drain: NodeDrain, boot: BootMoment | None) -> bool:
    """Is the deadline of a drain stored by this boot clock?"""
    ends = drain.deadline_ends
    return ends is not None and boot is not None and ends.boot == boot.boot


def renew_deadline(ws: Workspace, id: str) -> None:
    """Let the time until the deadline begin anew where another boot clock counted it, and store until when it lasts."""
    record = ws.require_node(id)
    drain = record.drain
    ends = ws.boot_moment(drain.deadline_seconds or 0) if drain is not None else None
    if drain is None or drain.deadline_seconds is None or ends is None or counts_here(drain, ends):
        return
    until = ws.now + dt.timedelta(seconds=drain.deadline_seconds)
    renewed = msgspec.structs.replace(drain, deadline_at=until, deadline_ends=ends)
    ws.put_node(msgspec.structs.replace(record, drain=renewed))


def undrain_node(ws: Workspace, id: str, *, reason: str = "") -> NodeRecord:
    """Let a node take instances again that was being emptied, or was empty; what is still there and waits for its players
    to leave serves again. What is stopping ends. A node that is not being emptied is not changed."""
    record = ws.require_node(id)
    drain = record.drain
    if drain is None and record.admission not in (Admission.DRAINING, Admission.DRAINED):
        return record
    cordoned = drain is not None and drain.was_cordoned
    trigger = AdmissionTrigger.UNDRAIN_CORDONED if cordoned else AdmissionTrigger.UNDRAIN
    admission = ADMISSION_LIFECYCLE.step(f"node '{id}'", record.admission, trigger)
    text = f"node '{id}' is {admission} again by {ws.by}" + (f": {reason}" if reason else "")
    decision = _decide(ws, id, text, drain)
    ws.causes = (decision, *ws.causes)
    for each in drained_there(ws, id):
        undrain_instance(ws, each, f"{text}; it serves again", rule=Rule.OPERATOR)
    _part_with_replacements(ws, id, text)
    kept = drain.cordon_reason if drain is not None and cordoned else ""
    changed = msgspec.structs.replace(record, admission=admission, admission_reason=kept, drain=None)
    _put(ws, changed)
    ws.event(
        EventType.NODE_UNDRAINED,
        id,
        drain=drain.id if drain is not None else "",
        reason=reason,
        admission=admission.value,
        decision=decision,
    )
    return changed


def end_drain(ws: Workspace, id: str) -> NodeRecord:
    """Record that the last instance on a node has ended that was to be emptied."""
    record = ws.require_node(id)
    admission = ADMISSION_LIFECYCLE.step(f"node '{id}'", record.admission, AdmissionTrigger.EMPTIED)
    drain = record.drain
    text = f"every instance on node '{id}' has ended"
    if drain is not None and drain.shutdown:
        text += "; its daemon is to end"
    decision = _decide(ws, id, text, drain, causes=(drain.decision,) if drain is not None else ())
    if drain is not None:
        drain = msgspec.structs.replace(drain, drained_at=ws.now)
    changed = msgspec.structs.replace(record, admission=admission, drain=drain)
    _put(ws, changed)
    ws.event(
        EventType.NODE_DRAINED,
        id,
        drain=drain.id if drain is not None else "",
        shutdown=drain is not None and drain.shutdown,
        decision=decision,
    )
    return changed


def _part_with_replacements(ws: Workspace, node: str, text: str) -> None:
    """Let the replacements of what serves on take no more players: they are one too many each. Those of what ends stay,
    and count as any other instance from now on."""
    there: dict[str, InstanceRecord] = {each.id: each for each in ws.on_node(node) if live(each.state)}
    for name in sorted({each.group for each in there.values()}):
        for each in ws.instances_of(name):
            former = there.get(each.moves)
            if former is None:
                continue
            changed = msgspec.structs.replace(each, moves="")
            ws.put_instance(changed)
            if former.wanted is Wanted.RUN and is_present(changed):
                reason = f"{text}, and '{former.id}' serves on; it is stopped when it has no players"
                drain_instance(ws, changed, reason, rule=Rule.SURPLUS_STOP)


def tell_progress(ws: Workspace, id: str, progress: DrainProgress) -> None:
    """Publish how far the emptying of a node is."""
    drain = ws.require_node(id).drain
    ws.event(
        EventType.NODE_DRAIN_PROGRESS,
        id,
        drain=drain.id if drain is not None else "",
        **msgspec.to_builtins(progress),
    )


def drained_there(ws: Workspace, node: str) -> list[InstanceRecord]:
    """The instances on a node that take no more players because it is emptied."""
    return [
        each
        for each in ws.on_node(node)
        if is_draining(each) and each.drain is not None and each.drain.by == Rule.DRAIN_MOVE.value
    ]


def _decide(
    ws: Workspace, node: str, reason: str, drain: NodeDrain | None, causes: Sequence[str] = ()
) -> DecisionId:
    inputs: Numbers = {"instances": ws.state.instances.live_on(node)}
    if drain is not None:
        inputs |= {"drain": drain.id, "total": drain.total}
    return ws.decide(
        DecisionKind.PHASE,
        rule=Rule.OPERATOR,
        group="",
        node=node,
        reason=reason,
        inputs=inputs,
        causes=causes,
    )


def _drain_text(drain: NodeDrain, node: str) -> str:
    text = f"node '{node}' is to be emptied by {drain.by}"
    text += f": {drain.reason}" if drain.reason else ""
    if drain.deadline_at is None:
        text += "; players are waited for without an end"
    elif drain.deadline_seconds:
        text += f"; what is left at {drain.deadline_at:%Y-%m-%d %H:%M:%S} UTC is stopped"
    else:
        text += "; everything is stopped at once"
    return f"{text}; then its daemon ends" if drain.shutdown else text


def _put(ws: Workspace, record: NodeRecord) -> None:
    """Store a node. Of this and a placement on the node at the same time one conflicts."""
    ws.put_node(record)
    ws.put_ledger(ws.ledger(record.id))
