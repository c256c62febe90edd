"""Resources in the frames of the event stream (`with=resource`): the summaries that lists have, so that a client that follows
needs no request for each event.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from corral.controller.events.frames import EventResource
from corral.controller.http.pipeline.summary_cache import short_text
from corral.controller.http.resources.groups.group_summaries import GroupSummary, group_summary
from corral.controller.http.resources.instances.instance_summaries import InstanceSummary, instance_summary
from corral.controller.http.resources.node_summaries import NodeSummary, node_summary
from corral.controller.http.resources.summary_view import SummaryView
from corral.controller.state.cluster_state import ClusterState, Mirror, StoredRecord
from corral.domain.access import Access
from corral.domain.event_subjects import KINDS, ResourceKind, group_of, node_of
from corral.domain.events import Event
from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import redacted


class DeploymentSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment in short."""

    id: str
    group: str
    state: DeploymentState
    target: int
    stable: int
    waiting: str
    outcome: str
    failed: int
    created_at: dt.datetime
    ended_at: dt.datetime | None
    revision: int


class ModuleSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A module in short, as it is on the controller."""

    id: str
    version: str
    phase: ModulePhase
    intent: ModuleIntent
    reason: str
    revision: int


def deployment_summary(view: SummaryView, stored: StoredRecord[DeploymentRecord]) -> DeploymentSummary:
    del view
    record = stored.record
    return DeploymentSummary(
        id=record.id,
        group=record.group,
        state=record.state,
        target=record.target,
        stable=record.stable,
        waiting=short_text(record.waiting),
        outcome=short_text(record.outcome),
        failed=record.failed,
        created_at=record.created_at,
        ended_at=record.ended_at,
        revision=stored.revision,
    )


def module_summary(view: SummaryView, stored: StoredRecord[PackageRecord]) -> ModuleSummary:
    del view
    record = stored.record
    return ModuleSummary(
        id=record.id,
        version=record.version,
        phase=record.phase,
        intent=record.intent,
        reason=short_text(record.reason),
        revision=stored.revision,
    )


SUMMARIES: Final[tuple[type[msgspec.Struct], ...]] = (
    InstanceSummary,
    GroupSummary,
    NodeSummary,
    DeploymentSummary,
    ModuleSummary,
)
_SUMMARISE: Final[Mapping[ResourceKind, Callable[[SummaryView, Any], msgspec.Struct]]] = {
    ResourceKind.INSTANCE: instance_summary,
    ResourceKind.GROUP: group_summary,
    ResourceKind.NODE: node_summary,
    ResourceKind.DEPLOYMENT: deployment_summary,
    ResourceKind.MODULE: module_summary,
}


@dataclass(frozen=True)
class EventResources:
    """The resources of events, as every reader may see them. Those of two streams are equal, so that frames are shared."""

    view: SummaryView

    def of(self, event: Event) -> EventResource | None:
        """The resource as it is now; None for an event that is about none."""
        kind = KINDS.get(event.type)
        if kind is None:
            return None
        stored = _mirror(self.view.state, kind).find(event.subject)
        if stored is None:
            return EventResource(kind=kind, id=event.subject, revision=self.view.state.number, summary=None)
        summary = redacted(_SUMMARISE[kind](self.view, stored))
        return EventResource(kind=kind, id=event.subject, revision=stored.revision, summary=summary)


def _mirror(state: ClusterState, kind: ResourceKind) -> Mirror[Any]:
    mirrors: Mapping[ResourceKind, Mirror[Any]] = {
        ResourceKind.INSTANCE: state.instances,
        ResourceKind.GROUP: state.groups,
        ResourceKind.NODE: state.nodes,
        ResourceKind.DEPLOYMENT: state.deployments,
        ResourceKind.MODULE: state.modules,
    }
    return mirrors[kind]


_READS: Final[Mapping[ResourceKind, Permission]] = {
    ResourceKind.INSTANCE: Permission.INSTANCES_READ,
    ResourceKind.GROUP: Permission.GROUPS_READ,
    ResourceKind.NODE: Permission.NODES_READ,
    ResourceKind.DEPLOYMENT: Permission.DEPLOYMENTS_READ,
    ResourceKind.MODULE: Permission.MODULES_READ,
}


def resource_filter(access: Access) -> Callable[[Event, EventResource], bool] | None:
    """Of which events a caller gets the resource: of those whose resource it may read, as it is in the frame; None: of
    all."""
    if all(access.allows_everywhere(permission) for permission in _READS.values()):
        return None

    def readable(event: Event, resource: EventResource) -> bool:
        permission, summary = _READS[resource.kind], resource.summary
        group = getattr(summary, "group", "") or group_of(event)
        match resource.kind:
            case ResourceKind.INSTANCE:
                node = getattr(summary, "node", "") or node_of(event)
                return access.allows_on_instance(permission, group, node)
            case ResourceKind.NODE:
                return access.allows_on_node(permission, resource.id)
            case ResourceKind.GROUP | ResourceKind.DEPLOYMENT:
                return access.allows_on_group(permission, group)
            case _:
                return access.allows_everywhere(permission)

    return readable
