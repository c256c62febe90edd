"""Schemas of events about groups and deployments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import UNSET, UnsetType, field

from corral.domain.event_schemas.schema import (
    By,
    Decision,
    EventData,
    EventSchema,
    Group,
    NoData,
    OptionalBy,
    Reason,
    said,
)
from corral.domain.events import EventType
from corral.domain.groups.deployments import DeploymentState


class GroupCreatedData(EventData, frozen=True, kw_only=True):
    """The bounds of a new group."""

    min: Annotated[int, said("At least so many instances are kept.", 1)]
    max: Annotated[int | None, said("At most so many; null: no bound.", 10)]


class GroupUpdatedData(EventData, frozen=True, kw_only=True):
    """What changed."""

    changed: Annotated[list[str], said("The fields that changed.", ["memory_mb"])]


class GroupScaledData(EventData, frozen=True, kw_only=True):
    """From how many instances to how many."""

    from_: Annotated[int, said("The number before.", 3)] = field(name="from")
    to: Annotated[int, said("The number from now on.", 5)]
    rule: (
        Annotated[str, said("The rule by which load decided; absent: an operator did.", "scale_up")]
        | UnsetType
    ) = UNSET
    decision: Decision


class GroupMaintenanceChangedData(EventData, frozen=True, kw_only=True):
    """Whether players may join."""

    enabled: Annotated[bool, said("Whether it is closed to players.", True)]
    message: Annotated[str, said("What players are told.", "back at noon")]
    schedule: Annotated[str, said("The schedule that says so; empty: the document.", "nightly")]


class GroupHeldData(EventData, frozen=True, kw_only=True):
    """How a group is held."""

    by: By
    reason: Reason
    when_empty: Annotated[bool, said("Whether instances may wait until their players are gone.", False)]


class GroupReleasedData(EventData, frozen=True, kw_only=True):
    """The hold that ended."""

    by: By
    reason: Annotated[str, said("The reason of the hold.", "disk is being replaced")]


class GroupShortData(EventData, frozen=True, kw_only=True):
    """What a group lacks."""

    reason: Reason
    wanted: Annotated[int, said("How many instances are wanted.", 3)]


class CrashLoopStartedData(EventData, frozen=True, kw_only=True):
    """The pause of a group."""

    until: Annotated[str, said("When it is tried again.", "2026-01-01T12:09:00+00:00")]
    reason: Reason
    pauses: Annotated[int, said("The number of pauses in a row.", 1)]
    decision: Decision


class CrashLoopEndedData(EventData, frozen=True, kw_only=True):
    """What ended a pause."""

    by: Annotated[
        str,
        said(
            "What ended it: `time`, `operator`, `deployment`, `rollback`, or `change` of what its instances start with.",
            "time",
        ),
    ]
    decision: Decision


class DeploymentCreatedData(EventData, frozen=True, kw_only=True):
    """A deployment as it begins."""

    group: Group
    target: Annotated[int, said("The revision that instances get.", 14)]
    stable: Annotated[int, said("The revision to go back to; 0: none.", 13)]
    trigger: Annotated[
        str,
        said(
            "`manual`, `restart`, `rollback`, or what had changed: `document`, `template`, `catalog`, `module`.",
            "manual",
        ),
    ]
    by: By
    reason: Reason
    decision: Decision


class DeploymentStepData(EventData, frozen=True, kw_only=True):
    """A step of a deployment."""

    group: Group
    from_: Annotated[DeploymentState, said("The state it was in.", "CANARY")] = field(name="from")
    to: Annotated[DeploymentState, said("The state it is in now.", "ROLLING")]
    reason: Reason
    undone: Annotated[str, said("What was taken back.", "2 instances run revision 13 again")] | UnsetType = (
        UNSET
    )
    by: OptionalBy = UNSET
    decision: Decision


_T = EventType
SCHEMAS: Final[Mapping[EventType, EventSchema]] = {
    _T.GROUP_CREATED: EventSchema("A group was made.", GroupCreatedData),
    _T.GROUP_UPDATED: EventSchema("A group's document changed.", GroupUpdatedData),
    _T.GROUP_DELETED: EventSchema("A group was deleted.", NoData),
    _T.GROUP_SCALED: EventSchema(
        "The number of instances of a group was set by an operator, or changed because of its load.",
        GroupScaledData,
    ),
    _T.GROUP_MAINTENANCE_CHANGED: EventSchema(
        "A group is closed to players now, or open again.", GroupMaintenanceChangedData
    ),
    _T.GROUP_HELD: EventSchema(
        "An operator holds a group: its instances are stopped and stay so.", GroupHeldData
    ),
    _T.GROUP_RELEASED: EventSchema("A group is held no longer.", GroupReleasedData),
    _T.GROUP_SHORT: EventSchema(
        "A group has fewer instances than wanted and cannot get more.", GroupShortData
    ),
    _T.CRASH_LOOP_STARTED: EventSchema("A group failed too often and is left alone.", CrashLoopStartedData),
    _T.CRASH_LOOP_ENDED: EventSchema("A group's pause is over.", CrashLoopEndedData),
    _T.DEPLOYMENT_CREATED: EventSchema("A deployment of a group to a revision began.", DeploymentCreatedData),
    _T.DEPLOYMENT_PHASE: EventSchema("A deployment is in another state.", DeploymentStepData),
    _T.DEPLOYMENT_PAUSED: EventSchema("An operator paused a deployment.", DeploymentStepData),
    _T.DEPLOYMENT_RESUMED: EventSchema("An operator let a paused deployment go on.", DeploymentStepData),
    _T.DEPLOYMENT_COMPLETED: EventSchema(
        "Every instance within reach runs by the target of a deployment.", DeploymentStepData
    ),
    _T.DEPLOYMENT_FAILED: EventSchema("A deployment failed and was not taken back.", DeploymentStepData),
    _T.DEPLOYMENT_ROLLED_BACK: EventSchema(
        "Every instance within reach runs by the stable revision again.", DeploymentStepData
    ),
    _T.DEPLOYMENT_CANCELLED: EventSchema(
        "An operator ended a deployment where it was, or its group was deleted.", DeploymentStepData
    ),
    _T.DEPLOYMENT_SUPERSEDED: EventSchema(
        "A later deployment of the group took the place of one; `by` is the id of the later one.",
        DeploymentStepData,
    ),
}
