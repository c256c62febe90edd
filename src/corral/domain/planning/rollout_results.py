"""The result of a look at a deployment: what it starts and retires, and the phase it comes to."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.planning import rollout_phases as phases
from corral.domain.planning.group_plans import GroupNeed
from corral.domain.planning.rollout_members import DeploymentProgress
from corral.domain.planning.rollout_phases import PhaseChange


class RolloutStep(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do with one instance."""

    kind: DecisionKind
    instance: str
    reason: str
    rule: Rule = Rule.DEPLOY_RETIRE


class RolloutResult(msgspec.Struct, kw_only=True):
    """What a look at a deployment has found."""

    record: DeploymentRecord
    need: GroupNeed
    progress: DeploymentProgress | None = None
    steps: list[RolloutStep] = msgspec.field(default_factory=list)
    changes: tuple[PhaseChange, ...] = ()
    group: dict[str, Any] = msgspec.field(default_factory=dict)
    """Fields of the group's record that change."""
    ends_pause: bool = False
    outgoing: frozenset[str] = frozenset()
    """Instances about whose stay the deployment alone decides."""
    wake_after: float | None = None
    awaits: str = ""
    """The nodes that are away and waited for as long as it takes, for people."""


def held_rollout(deployment: DeploymentRecord, need: GroupNeed, *, now: dt.datetime) -> RolloutResult:
    """A deployment of a group that is held: nothing goes on until it is released."""
    found = phases.held(deployment, now, need.reason)
    return RolloutResult(record=found.record, need=need, changes=found.changes)
