"""The clock of a deployment: for how long it has made no progress. It stops while only players, stops or a node are waited
for, and goes on where it stopped."""

from __future__ import annotations

import datetime as dt

import msgspec

from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.node_states import NodeState
from corral.domain.planning.health import Health
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_members import RolloutMembers
from corral.domain.planning.signals import RolloutClock


def stalled_seconds(deployment: DeploymentRecord, clock: RolloutClock) -> float:
    """How long it has been without progress, as far as the clock ran."""
    running = clock.running if deployment.clock_since is not None else 0.0
    return deployment.clock_used + running


def after_progress(
    deployment: DeploymentRecord, *, healthy: int, retired: int, now: dt.datetime
) -> DeploymentRecord:
    """The clock begins anew with one more healthy instance than ever before, and with each that is retired."""
    if healthy <= deployment.best_healthy and not retired:
        return deployment
    return msgspec.structs.replace(
        deployment,
        best_healthy=max(healthy, deployment.best_healthy),
        last_progress_at=now,
        clock_used=0.0,
        clock_since=now if deployment.clock_since is not None else None,
    )


def run_clock(
    deployment: DeploymentRecord,
    before: DeploymentRecord,
    clock: RolloutClock,
    *,
    stops: bool,
    now: dt.datetime,
) -> tuple[DeploymentRecord, float]:
    """Let the clock run or stop; also the seconds that it has counted. `before`: the deployment of which `clock` tells."""
    same = deployment.clock_since == before.clock_since
    used = stalled_seconds(deployment, clock) if same else deployment.clock_used
    if stops and deployment.clock_since is not None:
        return msgspec.structs.replace(deployment, clock_since=None, clock_used=used), used
    if not stops and deployment.clock_since is None:
        return msgspec.structs.replace(deployment, clock_since=now), used
    return deployment, used


def only_waits(view: PlanView, members: RolloutMembers, *, static: bool, goal: int, missing: int) -> bool:
    """Is nothing waited for that tells something about the revision: only a node that is away, the players of others, or
    their end? Static ones have to end before others can be started in their places. `missing`: how many instances the
    group lacks, those included that are about to go."""
    if not any(each.state is NodeState.ONLINE for each in view.nodes()):
        return True
    if any(each.health not in (Health.HEALTHY, Health.AWAY) for each in members.incoming):
        return False
    if members.away:
        return missing <= len(members.leaving) + len(members.returning) + len(members.stopping)
    enough = static or len(members.incoming) >= goal
    return bool(members.leaving) or (bool(members.stopping) and enough)
