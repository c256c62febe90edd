"""When a deployment has failed, and whether there is a way back."""

from __future__ import annotations

from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.ids import InstanceId
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_clocks import stalled_seconds
from corral.domain.planning.signals import RolloutClock
from corral.domain.planning.start_requests import StartRequest
from corral.errors import counted


def failure_of(deployment: DeploymentRecord, clock: RolloutClock, *, broken: str) -> str:
    """Why the deployment has failed; empty: it has not. `broken`: the metric that is out of the bounds of its gate."""
    options = deployment.options
    if not deployment.going_back and deployment.failed >= options.max_failures:
        last = deployment.failures[-1] if deployment.failures else None
        named = f": '{last.instance}' {last.reason}" if last is not None else ""
        many = counted(deployment.failed, "instance")
        return f"{many} failed (max_failures: {options.max_failures}){named}"
    if broken:
        return f"the gate is not met: {broken}"
    if deployment.clock_since is not None and stalled_seconds(deployment, clock) >= options.progress_seconds:
        waited = f"; {deployment.waiting}" if deployment.waiting else ""
        return f"no progress for {options.progress_seconds} s{waited}"
    return ""


def unplannable(view: PlanView, group: GroupRecord, deployment: DeploymentRecord) -> str:
    """Why nothing can be started by its stable revision, whatever the nodes are; empty: it can, or there is none."""
    if not deployment.stable:
        return ""
    id = InstanceId(f"{group.spec.name}-1")
    found = view.unstartable(group, StartRequest(id=id, reason="", revision=deployment.stable))
    return found.summary if found is not None else ""
