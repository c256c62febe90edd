"""Carry out what a look at a deployment has found: its phases and its record, and the marks of retired instances."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.instances.deployment_phases import take_step
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.planning.plan_results import GroupResult, PlannedDecision
from corral.domain.planning.rollout_phases import NextPhase

_OF_DEPLOYMENTS: Final = frozenset({Rule.DEPLOY_START, Rule.DEPLOY_RETIRE, Rule.DEPLOY_ROLLBACK})


def step_rollout(ws: Workspace, found: GroupResult) -> DeploymentRecord | None:
    """Record the phase that a deployment comes to; the record as it is then."""
    rollout = found.rollout
    before = ws.deployment(rollout.record.id) if rollout is not None else None
    if rollout is None or before is None:
        return None
    if not rollout.changes and not rollout.group:
        return rollout.record
    phase = NextPhase(
        record=rollout.record, changes=rollout.changes, group=rollout.group, ends_pause=rollout.ends_pause
    )
    return take_step(ws, before, phase)


def causes_of(
    decision: PlannedDecision, deployment: DeploymentRecord | None, causes: tuple[str, ...]
) -> tuple[str, ...]:
    """The causes of a decision; one by a rule of deployments follows from the last decision about its deployment."""
    if deployment is None or decision.rule not in _OF_DEPLOYMENTS:
        return causes
    return (deployment.decision, *(each for each in causes if each != deployment.decision))


def mark_retired(ws: Workspace, decision: PlannedDecision, deployment: DeploymentRecord | None) -> None:
    """Note at an instance which deployment parts with it."""
    parts = decision.kind in (DecisionKind.STOP, DecisionKind.DRAIN)
    if deployment is None or not parts or decision.rule is not Rule.DEPLOY_RETIRE:
        return
    record = ws.require_instance(decision.instance)
    if record.retired_by != deployment.id:
        ws.put_instance(msgspec.structs.replace(record, retired_by=deployment.id))


def store_rollout(
    ws: Workspace, deployment: DeploymentRecord | None, found: GroupResult, reason: str, *, started: int
) -> None:
    """Store what a deployment waits for, once it is known whether nodes take what it starts."""
    if deployment is None:
        return
    refused = deployment.active and found.need.batches and reason and not started
    if refused:
        returning = found.refusal is not None and found.refusal.returning()
        awaits = found.rollout.awaits if found.rollout is not None and not returning else ""
        waiting = "; ".join(each for each in (awaits, reason) if each)
        deployment = msgspec.structs.replace(deployment, waiting=waiting)
    if ws.deployment(deployment.id) != deployment:
        ws.put_deployment(deployment)
