"""The steps of a deployment as changes of a workspace: its record, the decision, the event, and what its group keeps."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from corral.controller.instances.crash_loops import end_pause
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.events import EventType
from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.planning.rollout_phases import NextPhase

_EVENTS: Final = {
    DeploymentState.PAUSED: EventType.DEPLOYMENT_PAUSED,
    DeploymentState.COMPLETED: EventType.DEPLOYMENT_COMPLETED,
    DeploymentState.FAILED: EventType.DEPLOYMENT_FAILED,
    DeploymentState.ROLLED_BACK: EventType.DEPLOYMENT_ROLLED_BACK,
    DeploymentState.CANCELLED: EventType.DEPLOYMENT_CANCELLED,
    DeploymentState.SUPERSEDED: EventType.DEPLOYMENT_SUPERSEDED,
}


def decide_about(
    ws: Workspace, deployment: DeploymentRecord, reason: str, *, rule: Rule, **inputs: str | int
) -> str:
    """Record a decision about a deployment as a whole; it follows from the last one."""
    return ws.decide(
        DecisionKind.PHASE,
        rule=rule,
        group=deployment.group,
        reason=reason,
        inputs={"target": deployment.target, "stable": deployment.stable, **inputs},
        deployment=deployment.id,
        causes=(deployment.decision,),
        request=deployment.request,
    )


def take_step(ws: Workspace, before: DeploymentRecord, found: NextPhase, **data: Any) -> DeploymentRecord:
    """Store a deployment in its next state, with the decisions that led to it. `data`: more for its event."""
    record = found.record
    for change in found.changes:
        made = decide_about(ws, record, change.reason, rule=change.rule, **{"from": before.state.value})
        record = msgspec.structs.replace(record, decision=made)
    group = ws.group(record.group)
    if group is not None and found.ends_pause and group.paused is not None:
        group = end_pause(ws, group, by="rollback")
    if group is not None and found.group:
        ws.put_group(msgspec.structs.replace(ws.require_group(record.group), **found.group))
    if record != before:
        ws.put_deployment(record)
    if record.state is not before.state:
        told = {
            "group": record.group,
            "from": before.state.value,
            "to": record.state.value,
            "reason": found.changes[-1].reason if found.changes else record.outcome,
            **({"undone": record.undone} if record.undone else {}),
            "decision": record.decision,
            **data,
        }
        resumed = before.state is DeploymentState.PAUSED and record.active
        type = (
            EventType.DEPLOYMENT_RESUMED if resumed else _EVENTS.get(record.state, EventType.DEPLOYMENT_PHASE)
        )
        ws.event(type, record.id, **told)
    return record
