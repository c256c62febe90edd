"""What a deployment does now, for people, and what would change it."""

from __future__ import annotations

import datetime as dt

import msgspec

from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import is_ready
from corral.domain.groups.update_spec import Promotion
from corral.domain.planning.counterfactuals import Counterfactual
from corral.domain.planning.health import Health, settles_in
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_clocks import stalled_seconds
from corral.domain.planning.rollout_failures import unplannable
from corral.domain.planning.rollout_members import DeploymentProgress, rollout_members
from corral.domain.planning.rollout_phases import no_way_back
from corral.errors import counted


def progress_text(deployment: DeploymentRecord, progress: DeploymentProgress) -> str:
    """How far a deployment is: `3 of 6 are updated, 1 is starting, 2 wait for players`."""
    revision = deployment.stable if deployment.going_back else deployment.target
    parts = [f"{progress.updated} of {progress.wanted} run by revision {revision}"]
    if progress.starting:
        parts.append(f"{counted(progress.starting, 'is', 'are')} starting")
    if progress.unhealthy:
        parts.append(f"{counted(progress.unhealthy, 'is', 'are')} not healthy")
    if progress.outdated:
        parts.append(f"{counted(progress.outdated, 'is', 'are')} outdated")
    if progress.draining:
        parts.append(f"{counted(progress.draining, 'waits', 'wait')} for players")
    if progress.lost:
        parts.append(f"{counted(progress.lost, 'is', 'are')} lost")
    return ", ".join(parts)


def deployment_text(deployment: DeploymentRecord) -> str:
    """What a deployment is, and what it waits for or how it ended."""
    text = f"deployment '{deployment.id}' of revision {deployment.target} is {deployment.state}"
    if deployment.active:
        return f"{text}: {deployment.waiting}" if deployment.waiting else text
    ended = [each for each in (deployment.outcome, deployment.undone) if each]
    return f"{text}: {'; '.join(ended)}" if ended else text


def rollout_counterfactuals(
    view: PlanView, spec: GroupSpec, deployment: DeploymentRecord
) -> list[Counterfactual]:
    """What would change an active deployment, the nearest first."""
    own = msgspec.structs.replace(spec, update=deployment.options)
    members = rollout_members(view, deployment, own)
    id, state = deployment.id, deployment.state
    found: list[Counterfactual] = []

    def add(condition: str, effect: str, seconds: float | None = None) -> None:
        at = view.now + dt.timedelta(seconds=seconds) if seconds is not None else None
        found.append(Counterfactual(condition=condition, effect=effect, at=at))

    if state is DeploymentState.PAUSED:
        add(f"corral deployment resume {id}", "it goes on")
        return found
    if state is DeploymentState.PENDING:
        add("the group is released, or the controller has seen its nodes", "it begins, or goes on")
        return found
    if state is DeploymentState.GATE:
        add(f"corral deployment promote {id}", "the others follow the canaries")
        if deployment.options.promote is Promotion.AUTO and deployment.watched_since is not None:
            left = max(0.0, deployment.options.canary_seconds - view.rollout_clock(deployment).watched)
            add("the canaries stay healthy, and all metrics in their bounds", "the others follow", left)
    for each in members.incoming:
        if each.health is Health.UNSETTLED and is_ready(each.record):
            add(f"'{each.record.id}' stays ready", "it is healthy", settles_in(view, own, each.record))
        elif each.health in (Health.UNSETTLED, Health.UNHEALTHY):
            add(f"'{each.record.id}' is ready", "it is healthy some seconds later")
    for record in members.leaving:
        seconds = deployment.options.drain_seconds
        until = None if seconds is None else max(0.0, seconds - view.draining_seconds(record.id))
        add(f"the players of '{record.id}' leave", "it is stopped", until)
    for record in members.stopping:
        add(f"'{record.id}' has stopped", "its end is no longer waited for")
    for node in sorted({record.node for record in members.away}):
        add(f"node '{node}' reconnects", "its instances are looked at, and updated")
        add(f"corral node remove {node}", "its instances are given up; their worlds begin anew elsewhere")
    if deployment.clock_since is not None:
        left = deployment.options.progress_seconds - stalled_seconds(
            deployment, view.rollout_clock(deployment)
        )
        group = view.group(deployment.group)
        lacking = unplannable(view, group, deployment) if group is not None else ""
        back = deployment.options.auto_rollback and not no_way_back(deployment, lacking)
        effect = f"it goes back to revision {deployment.stable}" if back else "it fails"
        add("no progress until then", effect, max(0.0, left))
    return found
