"""Failures of instances that a deployment has started: they are kept with it, and enough of them end it."""

from __future__ import annotations

import msgspec

from corral.controller.instances.workspace import Workspace
from corral.domain.groups.deployments import (
    FAILURES_KEPT,
    LINE_LENGTH,
    LINES_KEPT,
    DeploymentFailure,
)
from corral.domain.groups.instance_records import ExitRecord, InstanceRecord, StartFailure


def note_failure(
    ws: Workspace,
    record: InstanceRecord,
    exit: ExitRecord | None,
    *,
    reason: str,
    crash: str = "",
    failure: StartFailure | None = None,
) -> None:
    """Count a crash, or a refused start, of an instance of the target of its group's active deployment. On the way back
    there is no target any more."""
    group = ws.group(record.group)
    deployment = ws.deployment(group.deployment) if group is not None and group.deployment else None
    if deployment is None or not deployment.active or deployment.going_back:
        return
    if not deployment.is_target(record):
        return
    known = ws.crash(crash) if crash else None
    refused = failure if crash == "" else None
    found = DeploymentFailure(
        at=ws.now,
        instance=record.id,
        incarnation=record.incarnation,
        node=record.node,
        code=refused.code if refused is not None else exit.crash_class if exit is not None else "",
        reason=reason,
        phase=deployment.state.value,
        crash=crash,
        lines=tuple(line[:LINE_LENGTH] for line in known.tail[-LINES_KEPT:]) if known is not None else (),
    )
    ws.put_deployment(
        msgspec.structs.replace(
            deployment,
            failed=deployment.failed + 1,
            failures=(*deployment.failures, found)[-FAILURES_KEPT:],
        )
    )
