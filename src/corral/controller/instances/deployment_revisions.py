"""By which revision an instance is started outside the plan of a deployment: by hand, again under its id, or after a refusal."""

from __future__ import annotations

from corral.controller.instances.workspace import Workspace
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord


def start_revision(ws: Workspace, group: GroupRecord, before: InstanceRecord | None = None) -> int:
    """The revision of a start by the deployment of its group, see `DeploymentRecord.revision_of`; 0: it has none."""
    id = group.deployment or group.unsettled
    deployment = ws.deployment(id) if id else None
    return deployment.revision_of(before) if deployment is not None else 0
