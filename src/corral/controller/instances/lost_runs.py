"""Instances whose node is away for longer than their group waits, and those of them that are back."""

from __future__ import annotations

import msgspec

from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind, Numbers, Rule
from corral.domain.events import EventType
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.instance_states import Wanted


def mark_lost(ws: Workspace, record: InstanceRecord, reason: str, inputs: Numbers) -> None:
    """Count an instance no more. It may be running, so it keeps its reservation, and nothing else gets its id."""
    if record.lost:
        return
    decision = ws.decide(
        DecisionKind.PHASE,
        rule=Rule.LOST_REPLACE,
        group=record.group,
        instance=record.id,
        node=record.node,
        reason=reason,
        inputs=inputs,
    )
    lost = msgspec.structs.replace(record, lost=True)
    if record.wanted is Wanted.RUN:  # else the order to stop it explains more
        lost = msgspec.structs.replace(lost, decision=decision, reason=reason)
    ws.put_instance(lost)
    ws.event(
        EventType.INSTANCE_LOST,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=record.incarnation,
        reason=reason,
        lost_at=record.lost_at.isoformat() if record.lost_at is not None else None,
        decision=decision,
    )


def seen_again(ws: Workspace, record: InstanceRecord) -> InstanceRecord:
    """The record of a run that its node reports as alive: if it was lost and is to run, it counts again. Not stored yet."""
    if not record.lost and record.lost_at is None:
        return record
    back = msgspec.structs.replace(record, lost=False, lost_at=None)
    if not record.lost or record.wanted is not Wanted.RUN:
        return back
    reason = f"node '{record.node}' is back and runs it: it counts again"
    decision = ws.decide(
        DecisionKind.ADOPT,
        rule=Rule.LOST_RETURN,
        group=record.group,
        instance=record.id,
        node=record.node,
        reason=reason,
        inputs={"incarnation": record.incarnation, "wanted": record.wanted.value},
        causes=(f"node:{record.node}",),
    )
    return msgspec.structs.replace(back, decision=decision)
