"""Schemas of deployments in the API: a deployment as it is shown, how far it is, and what the audit keeps of it."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.http.messages.call import RequestBody, Text
from corral.controller.http.messages.list_pages import Choices, Ids, SearchText
from corral.controller.http.messages.paging import PageQuery
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.instances.deployments import deployment_progress_of
from corral.controller.state.cluster_state import StoredRecord
from corral.domain.groups.deployments import DeploymentFailure, DeploymentRecord, DeploymentState
from corral.domain.groups.update_spec import UpdateSpec
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_members import DeploymentProgress

GroupFilter = Annotated[str, msgspec.Meta(max_length=63)]


class DeploymentShape(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment of a group to a revision."""

    id: str
    group: str
    state: DeploymentState
    resumes: DeploymentState | None
    phase_since: dt.datetime
    created_at: dt.datetime
    ended_at: dt.datetime | None
    target: int
    stable: int
    options: UpdateSpec
    trigger: str
    by: str
    reason: str
    last_progress_at: dt.datetime
    best_healthy: int
    failed: int
    failures: tuple[DeploymentFailure, ...]
    waiting: str
    outcome: str
    undone: str
    progress: DeploymentProgress | None
    revision: int


UpdateOptions: Final[Any] = msgspec.defstruct(
    "UpdateOptions",
    [
        (field.name, field.type | None | UnsetType, UNSET)
        for field in msgspec.structs.fields(UpdateSpec)
        if field.name != "auto"
    ],
    bases=(RequestBody,),
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    module=__name__,
)
"""The fields of `update` that one deployment may have otherwise than the document; null goes back to the default."""


class DeploymentOrder(RequestBody, frozen=True, kw_only=True):
    """An order that begins a deployment."""

    reason: Text = ""
    options: UpdateOptions | UnsetType = UNSET

    def given(self) -> dict[str, Any]:
        """The fields of `update` that the order overrides."""
        found: dict[str, Any] = msgspec.to_builtins(self.options) if self.options is not UNSET else {}
        return found


class RestartOrder(DeploymentOrder, frozen=True, kw_only=True):
    at_once: bool = False


class DeploymentReason(RequestBody, frozen=True, kw_only=True):
    reason: Text = ""


class DeploymentQuery(PageQuery, frozen=True, kw_only=True):
    group: GroupFilter | None = None
    ids: Ids | None = None
    q: SearchText | None = None
    state: Choices = ()


def present_view(instances: InstanceControl, now: dt.datetime) -> PlanView:
    """The cluster as the planner would see it now."""
    return instances.signals.view(instances.workspace(cause="status", now=now))


def deployment_shape(
    instances: InstanceControl,
    stored: StoredRecord[DeploymentRecord],
    now: dt.datetime,
    view: PlanView | None = None,
) -> DeploymentShape:
    """A deployment as it is shown. How far it is, is counted anew; of one that has ended nothing is. `view`: for many of
    them the same one."""
    record = stored.record
    view = view or present_view(instances, now) if record.active else None
    return DeploymentShape(
        id=record.id,
        group=record.group,
        state=record.state,
        resumes=record.resumes,
        phase_since=record.phase_since,
        created_at=record.created_at,
        ended_at=record.ended_at,
        target=record.target,
        stable=record.stable,
        options=record.options,
        trigger=record.trigger,
        by=record.by,
        reason=record.reason,
        last_progress_at=record.last_progress_at,
        best_healthy=record.best_healthy,
        failed=record.failed,
        failures=record.failures,
        waiting=record.waiting,
        outcome=record.outcome,
        undone=record.undone,
        progress=deployment_progress_of(view, record) if view is not None else None,
        revision=stored.revision,
    )


def audited_deployment(record: DeploymentRecord) -> dict[str, object]:
    """What the audit keeps of a deployment."""
    return {
        "group": record.group,
        "state": record.state.value,
        "target": record.target,
        "stable": record.stable,
        "trigger": record.trigger,
        "reason": record.reason,
    }
