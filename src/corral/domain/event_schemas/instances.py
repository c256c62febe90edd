"""Schemas of events about instances."""

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
    Incarnation,
    Node,
    OptionalDecision,
    OptionalReason,
    Reason,
    said,
)
from corral.domain.events import EventType
from corral.domain.groups.instance_records import ExitRecord
from corral.domain.instance_states import InstanceState

Ready = Annotated[bool, said("Whether it can be used.", True)]


class InstancePlaceData(EventData, frozen=True, kw_only=True):
    """Whose instance it is and where; a base of the others."""

    group: Group
    node: Node


class InstanceRunData(InstancePlaceData, frozen=True, kw_only=True):
    """A run, and why it is in this state."""

    incarnation: Incarnation
    pid: Annotated[int, said("Id of its process on the node; 0: there is none.", 4711)] | UnsetType = UNSET
    reason: OptionalReason = UNSET
    decision: OptionalDecision = UNSET


class InstanceRunningData(InstanceRunData, frozen=True, kw_only=True):
    """A run that runs."""

    ready: Ready | UnsetType = UNSET


class InstanceStageData(InstancePlaceData, frozen=True, kw_only=True):
    """How far a start is."""

    incarnation: Incarnation
    stage: Annotated[
        str,
        said("The step of its preparation; empty: its process runs, and is not ready.", "TEMPLATE_APPLY"),
    ]
    reason: Annotated[
        str, said("What it waits for; empty: the step itself takes a while.", "waits for port 30000")
    ]


class InstanceReadyChangedData(InstancePlaceData, frozen=True, kw_only=True):
    """Whether a run can be used."""

    incarnation: Incarnation
    ready: Ready
    reason: Reason


class InstanceEndedData(InstancePlaceData, frozen=True, kw_only=True):
    """How a run ended."""

    incarnation: Incarnation
    reason: Reason
    exit: Annotated[
        ExitRecord | None,
        said(
            "How it ended; null: it is not known.",
            {
                "known": True,
                "code": 1,
                "signal": None,
                "crashed": True,
                "outcome": "crashed",
                "summary": "exit code 1",
                "ended_at": "2026-01-01T12:00:00Z",
            },
        ),
    ]
    restarted_as: (
        Annotated[int | None, said("The run that its node started in its place.", 1032)] | UnsetType
    ) = UNSET
    crash: (
        Annotated[str | None, said("Id of the crash, where one was reported.", "crs-01JD4ZK7")] | UnsetType
    ) = UNSET
    decision: OptionalDecision = UNSET


class InstanceOfflineData(InstancePlaceData, frozen=True, kw_only=True):
    """The run that is out of reach."""

    incarnation: Incarnation
    from_: Annotated[InstanceState, said("The state it was last known to be in.", "RUNNING")] = field(
        name="from"
    )


class InstanceLostData(InstancePlaceData, frozen=True, kw_only=True):
    """Since when a run is lost."""

    incarnation: Incarnation
    reason: Reason
    lost_at: Annotated[
        str | None, said("Since when it does not count any more.", "2026-01-01T12:01:00+00:00")
    ]
    decision: Decision


class InstanceAdoptedData(InstancePlaceData, frozen=True, kw_only=True):
    """A run that was found."""

    incarnation: Incarnation
    state: Annotated[InstanceState, said("The state it is in.", "RUNNING")]


class InstancePromotedData(InstancePlaceData, frozen=True, kw_only=True):
    """Why a warm instance serves."""

    decision: Decision


class InstanceReservedData(InstancePlaceData, frozen=True, kw_only=True):
    """Why a static instance has its place before it runs."""

    reason: Reason
    decision: Decision


class InstanceCommandData(InstancePlaceData, frozen=True, kw_only=True):
    """What was typed."""

    line: Annotated[str, said("The line as it was typed.", "say hello")]
    by: By
    incarnation: Incarnation
    offset: Annotated[
        int | None,
        said("Where the console was when the line was written; null: the node did not say.", 48213),
    ]


class InstanceRemovedData(InstancePlaceData, frozen=True, kw_only=True):
    """The last state of an instance."""

    state: Annotated[InstanceState, said("The state it was in.", "STOPPED")]


class InstanceSavedData(InstancePlaceData, frozen=True, kw_only=True):
    """The template version that was made of its files."""

    template: Annotated[str, said("Name of the template.", "lobby/base")]
    version: Annotated[int, said("Number of the version.", 15)]


class InstanceFileChangedData(InstancePlaceData, frozen=True, kw_only=True):
    """What was changed among the files of an instance."""

    path: Annotated[str, said("Path of the file or directory.", "config/server.properties")]
    to: (
        Annotated[str, said("Where it was renamed to, or what was unpacked into.", "config/old.properties")]
        | UnsetType
    ) = UNSET
    verb: Annotated[str, said("write, rename, mkdir, delete or unpack.", "write")]
    by: By
    digest: Annotated[str | None, said("SHA-256 of the file now; null: it is not known.", "9f86d081…")]


_T = EventType
SCHEMAS: Final[Mapping[EventType, EventSchema]] = {
    _T.INSTANCE_SCHEDULED: EventSchema("A run was decided and placed.", InstanceRunData),
    _T.INSTANCE_RESERVED: EventSchema(
        "A static instance got its place on a node, and stays stopped until it is started by hand.",
        InstanceReservedData,
    ),
    _T.INSTANCE_PREPARING: EventSchema("The node prepares a run.", InstanceRunData),
    _T.INSTANCE_STAGE: EventSchema(
        "A start takes a while: a step of its preparation lasts longer than a quarter of a second, or it waits for "
        "something. The newest of a second, at most 32 of a run; a quick start has none.",
        InstanceStageData,
    ),
    _T.INSTANCE_STARTING: EventSchema("The process of a run exists.", InstanceRunData),
    _T.INSTANCE_RUNNING: EventSchema(
        "A run runs: its process exists or, of a group with probes, each of them has succeeded; or it drains no more.",
        InstanceRunningData,
    ),
    _T.INSTANCE_DRAINING: EventSchema(
        "An instance takes no more players, and is stopped when it has none.", InstanceRunData
    ),
    _T.INSTANCE_READY_CHANGED: EventSchema(
        "A run became ready, or is not ready any more.", InstanceReadyChangedData
    ),
    _T.INSTANCE_STOPPING: EventSchema("A run is being stopped.", InstanceRunData),
    _T.INSTANCE_STOPPED: EventSchema("Nothing of a run is left, as wanted.", InstanceEndedData),
    _T.INSTANCE_CRASHED: EventSchema("A run ended without being asked to, or never ran.", InstanceEndedData),
    _T.INSTANCE_OFFLINE: EventSchema(
        "The node of a run is out of reach; nothing is assumed about it.", InstanceOfflineData
    ),
    _T.INSTANCE_LOST: EventSchema(
        "The node of an instance is away for longer than its group waits: it does not count any more, and another one "
        "is started in its place, unless it is static.",
        InstanceLostData,
    ),
    _T.INSTANCE_ADOPTED: EventSchema(
        "A node has a run of ours that the store did not know.", InstanceAdoptedData
    ),
    _T.INSTANCE_PROMOTED: EventSchema("A warm instance serves from now on.", InstancePromotedData),
    _T.INSTANCE_COMMAND: EventSchema("A line was accepted into an instance's input.", InstanceCommandData),
    _T.INSTANCE_REMOVED: EventSchema("The record of an ended instance was dropped.", InstanceRemovedData),
    _T.INSTANCE_SAVED: EventSchema("Files of an instance became a template version.", InstanceSavedData),
    _T.INSTANCE_FILE_CHANGED: EventSchema(
        "A file of an instance was changed through the API.", InstanceFileChangedData
    ),
}
