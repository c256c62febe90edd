"""Structures of `events`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

from corral.client.answers import UnknownData
from corral.client.enums import OpenEnum
from corral.client.generated.models.shared import (
    Admission,
    DeploymentState,
    ExitRecord,
    InstanceState,
    ModuleIntent,
    ModulePhase,
    NodeState,
    Permission,
    Role,
)


class ResourceKind(OpenEnum):
    """Resources that an event can be about."""

    DEPLOYMENT = "deployment"
    GROUP = "group"
    INSTANCE = "instance"
    MODULE = "module"
    NODE = "node"


class EventType(OpenEnum):
    """Stable names; a type is listed only once something publishes it."""

    CAPABILITY_CLEARED = "CAPABILITY_CLEARED"
    CAPABILITY_CONFLICT = "CAPABILITY_CONFLICT"
    CAPABILITY_REBOUND = "CAPABILITY_REBOUND"
    CAPABILITY_REGISTERED = "CAPABILITY_REGISTERED"
    CATALOG_REMOVED = "CATALOG_REMOVED"
    CATALOG_UPDATED = "CATALOG_UPDATED"
    CLUSTER_CREATED = "CLUSTER_CREATED"
    CLUSTER_EPOCH_RAISED = "CLUSTER_EPOCH_RAISED"
    CRASH_LOOP_ENDED = "CRASH_LOOP_ENDED"
    CRASH_LOOP_STARTED = "CRASH_LOOP_STARTED"
    DEPLOYMENT_CANCELLED = "DEPLOYMENT_CANCELLED"
    DEPLOYMENT_COMPLETED = "DEPLOYMENT_COMPLETED"
    DEPLOYMENT_CREATED = "DEPLOYMENT_CREATED"
    DEPLOYMENT_FAILED = "DEPLOYMENT_FAILED"
    DEPLOYMENT_PAUSED = "DEPLOYMENT_PAUSED"
    DEPLOYMENT_PHASE = "DEPLOYMENT_PHASE"
    DEPLOYMENT_RESUMED = "DEPLOYMENT_RESUMED"
    DEPLOYMENT_ROLLED_BACK = "DEPLOYMENT_ROLLED_BACK"
    DEPLOYMENT_SUPERSEDED = "DEPLOYMENT_SUPERSEDED"
    DOCUMENT_UNREADABLE = "DOCUMENT_UNREADABLE"
    EVENT_UNREADABLE = "EVENT_UNREADABLE"
    GROUP_CREATED = "GROUP_CREATED"
    GROUP_DELETED = "GROUP_DELETED"
    GROUP_HELD = "GROUP_HELD"
    GROUP_MAINTENANCE_CHANGED = "GROUP_MAINTENANCE_CHANGED"
    GROUP_RELEASED = "GROUP_RELEASED"
    GROUP_SCALED = "GROUP_SCALED"
    GROUP_SHORT = "GROUP_SHORT"
    GROUP_UPDATED = "GROUP_UPDATED"
    INSTANCE_ADOPTED = "INSTANCE_ADOPTED"
    INSTANCE_COMMAND = "INSTANCE_COMMAND"
    INSTANCE_CRASHED = "INSTANCE_CRASHED"
    INSTANCE_DRAINING = "INSTANCE_DRAINING"
    INSTANCE_FILE_CHANGED = "INSTANCE_FILE_CHANGED"
    INSTANCE_LOST = "INSTANCE_LOST"
    INSTANCE_OFFLINE = "INSTANCE_OFFLINE"
    INSTANCE_PREPARING = "INSTANCE_PREPARING"
    INSTANCE_PROMOTED = "INSTANCE_PROMOTED"
    INSTANCE_READY_CHANGED = "INSTANCE_READY_CHANGED"
    INSTANCE_REMOVED = "INSTANCE_REMOVED"
    INSTANCE_RESERVED = "INSTANCE_RESERVED"
    INSTANCE_RUNNING = "INSTANCE_RUNNING"
    INSTANCE_SAVED = "INSTANCE_SAVED"
    INSTANCE_SCHEDULED = "INSTANCE_SCHEDULED"
    INSTANCE_STAGE = "INSTANCE_STAGE"
    INSTANCE_STARTING = "INSTANCE_STARTING"
    INSTANCE_STOPPED = "INSTANCE_STOPPED"
    INSTANCE_STOPPING = "INSTANCE_STOPPING"
    JOIN_TOKEN_CREATED = "JOIN_TOKEN_CREATED"
    JOIN_TOKEN_REVOKED = "JOIN_TOKEN_REVOKED"
    JOIN_TOKEN_USED = "JOIN_TOKEN_USED"
    LEADER_CHANGED = "LEADER_CHANGED"
    LOG_LEVEL_CHANGED = "LOG_LEVEL_CHANGED"
    MODULE_ACTIVATED = "MODULE_ACTIVATED"
    MODULE_CONFIGURED = "MODULE_CONFIGURED"
    MODULE_DEACTIVATED = "MODULE_DEACTIVATED"
    MODULE_EVENT = "MODULE_EVENT"
    MODULE_FAILED = "MODULE_FAILED"
    MODULE_INSTALLED = "MODULE_INSTALLED"
    MODULE_LEAKED = "MODULE_LEAKED"
    MODULE_NODE_STATE = "MODULE_NODE_STATE"
    MODULE_STOPPING = "MODULE_STOPPING"
    MODULE_STORAGE_DROPPED = "MODULE_STORAGE_DROPPED"
    MODULE_UNINSTALLED = "MODULE_UNINSTALLED"
    MODULE_UPGRADED = "MODULE_UPGRADED"
    MODULE_UPGRADE_ROLLED_BACK = "MODULE_UPGRADE_ROLLED_BACK"
    MODULE_WAITING = "MODULE_WAITING"
    NODE_CERTIFICATE_RENEWED = "NODE_CERTIFICATE_RENEWED"
    NODE_CLAIMS_CHANGED = "NODE_CLAIMS_CHANGED"
    NODE_CONFIGURED = "NODE_CONFIGURED"
    NODE_CORDONED = "NODE_CORDONED"
    NODE_DISCONNECTED = "NODE_DISCONNECTED"
    NODE_DRAINED = "NODE_DRAINED"
    NODE_DRAINING = "NODE_DRAINING"
    NODE_DRAIN_PROGRESS = "NODE_DRAIN_PROGRESS"
    NODE_ENROLLED = "NODE_ENROLLED"
    NODE_ERROR_REPORTED = "NODE_ERROR_REPORTED"
    NODE_ONLINE = "NODE_ONLINE"
    NODE_REMOVED = "NODE_REMOVED"
    NODE_REVOKED = "NODE_REVOKED"
    NODE_UNCORDONED = "NODE_UNCORDONED"
    NODE_UNDRAINED = "NODE_UNDRAINED"
    NODE_UNREACHABLE = "NODE_UNREACHABLE"
    ROLE_CREATED = "ROLE_CREATED"
    ROLE_DELETED = "ROLE_DELETED"
    ROLE_UPDATED = "ROLE_UPDATED"
    SESSION_ENDED = "SESSION_ENDED"
    STORE_OLDER_THAN_NODE = "STORE_OLDER_THAN_NODE"
    TEMPLATE_CREATED = "TEMPLATE_CREATED"
    TEMPLATE_DELETED = "TEMPLATE_DELETED"
    TEMPLATE_ROLLED_BACK = "TEMPLATE_ROLLED_BACK"
    TEMPLATE_UPDATED = "TEMPLATE_UPDATED"
    TOKEN_CREATED = "TOKEN_CREATED"
    TOKEN_REVOKED = "TOKEN_REVOKED"
    USER_CREATED = "USER_CREATED"
    USER_DELETED = "USER_DELETED"
    USER_LOCKED = "USER_LOCKED"
    USER_UNLOCKED = "USER_UNLOCKED"
    USER_UPDATED = "USER_UPDATED"


class EventPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Event, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Event(Struct, frozen=True, kw_only=True):
    """An event as the API shows it, in lists and as the data of a stream's frame."""

    id: str
    """EPOCH-SEQUENCE: for `after`, and for `Last-Event-ID` of a stream."""
    type: str
    """Type of the event, as in docs/reference/events.md."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: dict[str, Any]
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The resource that it is about, as of this event or later; only in streams with `with=resource`."""


class EventResource(Struct, frozen=True, kw_only=True):
    """The resource that an event is about, as of the event's commit or later. Of one that is gone `summary` is null, and
    `revision` the number of a commit in which it was gone: lower revisions of it are older."""

    kind: ResourceKind
    """What it is: instance, group, node, deployment or module."""
    id: str
    """Its id, or name; the subject of the event."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""
    summary: dict[str, Any] | None
    """The resource in short, as its kind has it; null: it is gone."""


class DeploymentSummary(Struct, frozen=True, kw_only=True):
    """A deployment in short."""

    id: str
    """Id of the deployment."""
    group: str
    """Name of the group."""
    state: DeploymentState
    """`PENDING`, `CANARY`, `GATE`, `ROLLING`, `PAUSED`, `ROLLING_BACK`; `COMPLETED`, `FAILED`, `ROLLED_BACK`, `CANCELLED` or `SUPERSEDED` when it has ended."""
    target: int
    """Number of the revision that the instances come to."""
    stable: int
    """Number of the revision that a rollback leads to; 0: there is none."""
    waiting: str
    """What it waits for, as a sentence; empty: it has ended, or is about to act."""
    outcome: str
    """Why it failed, goes back, was cancelled or superseded, as a sentence; empty: none of these."""
    failed: int
    """How many instances of the target have crashed or were refused."""
    created_at: str
    """When it was made, in UTC."""
    ended_at: str | None
    """When it ended, in UTC; null: it has not."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class ModuleSummary(Struct, frozen=True, kw_only=True):
    """A module in short, as it is on the controller."""

    id: str
    """Id of the module, as its manifest has it."""
    version: str
    """Version that is installed."""
    phase: ModulePhase
    """Phase of its part on the controller."""
    intent: ModuleIntent
    """What shall be: `active`, `inactive` or `paused`."""
    reason: str
    """Why it is in this phase."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class Ticket(Struct, frozen=True, kw_only=True):
    """A credential for one stream, socket or download, soon."""

    ticket: str
    """For `?ticket=` of one stream, where a header cannot be set."""
    expires_at: str
    """When it stops being valid, in UTC; null: never."""


class EventTypePage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[EventTypeShape, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class EventTypeShape(Struct, frozen=True, kw_only=True):
    """A type of event."""

    type: EventType
    """Name of the type, as in events and filters."""
    meaning: str
    """When an event of this type is published."""
    permission: Permission
    """What a caller needs to get it, beside `events.read`."""
    resource: ResourceKind | None
    """Kind of the resource whose id is the event's subject, and that `with=resource` adds; null: none."""
    to_nodes: bool
    """Whether modules on nodes may get it."""
    fields: tuple[EventField, ...]
    """The fields of its data; those that are always there come first."""


class EventField(Struct, frozen=True, kw_only=True):
    """A field of the data of events of a type."""

    name: str
    """Name of the field in `data`."""
    type: str
    """JSON type of its values."""
    required: bool
    """Whether every event of the type has it."""
    class_: str = field(name="class")
    """Who sees it: `open`, or what is hidden from callers without `instances.sensitive`."""
    meaning: str
    """What the field says."""
    example: Any
    """A value that it may have."""


class NoData(Struct, frozen=True, kw_only=True):
    """Events whose type and subject say everything."""


class ClusterEpochRaisedData(Struct, frozen=True, kw_only=True):
    """The new epoch of a cluster."""

    epoch: int
    """The new epoch."""


class LeaderChangedData(Struct, frozen=True, kw_only=True):
    """Who leads."""

    holder: str
    """The controller that leads."""
    epoch: int
    """The epoch of its term."""


class LogLevelChangedData(Struct, frozen=True, kw_only=True):
    """The level of a log."""

    source: str
    """Whose log: `controller` or `node:ID`."""
    level: str
    """The level from now on."""


class EventUnreadableData(Struct, frozen=True, kw_only=True):
    """What is known of an event of another version."""

    type: str
    """The name of its type."""
    omitted: str
    """Why its data is omitted."""


class DocumentUnreadableData(Struct, frozen=True, kw_only=True):
    """A document of the store that cannot be read."""

    collection: str
    """The collection it is in."""
    id: str
    """Id of the document."""
    revision: int
    """The revision under which it is stored."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""


class StoreOlderThanNodeData(Struct, frozen=True, kw_only=True):
    """How far the store is behind."""

    stored: int
    """Number of the last report that the store has."""
    confirmed: int
    """Number of the last report that was confirmed to the node."""


class TemplateVersionData(Struct, frozen=True, kw_only=True):
    """The new version of a template."""

    version: int
    """Number of the version."""
    hash: str
    """Hash of its content."""
    files: int
    """How many files it has."""
    size: int
    """Their size in bytes."""
    note: str
    """A word on the change, for people."""
    by: str
    """Who did it."""


class TemplateRolledBackData(Struct, frozen=True, kw_only=True):
    """From which version to which."""

    version: int
    """The version that new starts use now."""
    from_: int = field(name="from")
    """The version that they used before."""
    hash: str
    """Hash of the content in use now."""
    by: str
    """Who did it."""


class TemplateDeletedData(Struct, frozen=True, kw_only=True):
    """What a deleted template had."""

    version: int
    """The version in use at last."""
    versions: int
    """How many versions were deleted."""


class CatalogUpdatedData(Struct, frozen=True, kw_only=True):
    """The entry of a catalog."""

    file: str
    """Name of the file."""
    sha256: str
    """SHA-256 of its content."""
    url: str
    """Where nodes get it; empty: from the controller."""


class CatalogRemovedData(Struct, frozen=True, kw_only=True):
    """The removed entry."""

    sha256: str
    """SHA-256 of the content."""


class ModuleEventData(Struct, frozen=True, kw_only=True):
    """What a module published."""

    module: str
    """Id of the module."""
    node: str | UnsetType = UNSET
    """The node on which it was published; absent: on the controller."""
    type: str
    """The module's own name of the event."""
    subject: str
    """What it is about, as the module says."""
    published_at: str | UnsetType = UNSET
    """When the module on the node published it."""
    data: dict[str, Any]
    """The module's own data."""


class NodeEnrolledData(Struct, frozen=True, kw_only=True):
    """How a node came in."""

    replaced: bool
    """Whether it took over an id."""


class NodeOnlineData(Struct, frozen=True, kw_only=True):
    """The session that opened."""

    session: str
    """Id of the session."""
    version: str
    """Version of its daemon."""
    from_: NodeState = field(name="from")
    """The state it was in before."""
    rebooted: bool
    """Whether the host started anew since the last session."""


class NodeAwayData(Struct, frozen=True, kw_only=True):
    """Why a node is away."""

    reason: str
    """Why, as a sentence for people; empty: there is none."""
    from_: NodeState = field(name="from")
    """The state it was in before."""


class NodeReasonData(Struct, frozen=True, kw_only=True):
    """Why an operator did it."""

    reason: str
    """Why, as a sentence for people; empty: there is none."""


class NodeRemovedData(Struct, frozen=True, kw_only=True):
    """The state a forgotten node was in."""

    state: NodeState
    """The state it was in."""


class NodeDrainingData(Struct, frozen=True, kw_only=True):
    """A drain as it was ordered."""

    drain: str
    """Id of the drain; empty: one of an earlier version."""
    by: str
    """Who did it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    deadline_at: str | None
    """When what is left is stopped; null: never."""
    shutdown: bool
    """Whether its daemon is shut down when it is empty."""
    total: int
    """The instances that lived there at the beginning."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class NodeDrainProgressData(Struct, frozen=True, kw_only=True):
    """How far a drain is; each instance that has not ended is counted once."""

    drain: str
    """Id of the drain; empty: one of an earlier version."""
    total: int
    """The instances that lived there at the beginning."""
    moved: int
    """Those of them that have ended."""
    waiting_players: int
    """They take no more players, and still have some."""
    waiting_room: int
    """No node has room for a replacement."""
    waiting_turn: int
    """Their replacements start, or others come first."""
    stopping: int
    """They are being stopped."""
    unreachable: int
    """The node is out of reach: it is not known whether they live."""
    deadline_at: str | None
    """When what is left is stopped; null: never."""


class NodeDrainedData(Struct, frozen=True, kw_only=True):
    """The drain that is finished."""

    drain: str
    """Id of the drain; empty: one of an earlier version."""
    shutdown: bool
    """Whether its daemon is shut down when it is empty."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class NodeUndrainedData(Struct, frozen=True, kw_only=True):
    """The drain that is ended."""

    drain: str
    """Id of the drain; empty: one of an earlier version."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    admission: Admission
    """Whether it takes instances now; `cordoned` if it was before."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class NodeClaimsChangedData(Struct, frozen=True, kw_only=True):
    """By field, what the node claimed before and claims now; a field that is the same is left out."""

    labels: tuple[dict[str, str], ...] | UnsetType = UNSET
    """Labels, before and now."""
    memory_mb: tuple[int, ...] | UnsetType = UNSET
    """Memory in MiB, before and now."""
    cpus: tuple[int, ...] | UnsetType = UNSET
    """Processors, before and now."""
    runtimes: tuple[tuple[str, ...], ...] | UnsetType = UNSET
    """Runtimes, before and now."""


class NodeConfiguredData(Struct, frozen=True, kw_only=True):
    """An operator's settings as they are now; one that is not set is left out."""

    labels: dict[str, str] | UnsetType = UNSET
    """Labels that it has, whatever it claims."""
    withheld: tuple[str, ...] | UnsetType = UNSET
    """Keys of labels that it does not have, whatever it claims."""
    memory_mb: int | UnsetType = UNSET
    """At most so many MiB of memory count."""
    cpus: int | UnsetType = UNSET
    """At most so many processors count."""
    runtimes: tuple[str, ...] | UnsetType = UNSET
    """Only these runtimes count."""


class NodeCertificateRenewedData(Struct, frozen=True, kw_only=True):
    """The new certificate."""

    not_after: str
    """When it ends."""


class NodeErrorReportedData(Struct, frozen=True, kw_only=True):
    """What a node reported."""

    code: str
    """Code of the error."""
    message: str
    """What happened, as the node says it."""
    context: str
    """Where it happened."""
    suppressed_before: int
    """How many reports were left out before this one, as too many."""


class JoinTokenCreatedData(Struct, frozen=True, kw_only=True):
    """What a join token is for."""

    node_id: str | None
    """The node id that it is bound to; null: any."""
    replace: bool
    """Whether a host with it may take over an existing id."""
    labels: dict[str, str] | UnsetType = UNSET
    """Labels that its node gets."""


class JoinTokenUsedData(Struct, frozen=True, kw_only=True):
    """Who used a join token."""

    node_id: str
    """The node that used it."""


class JoinTokenRevokedData(Struct, frozen=True, kw_only=True):
    """What a join token was for."""

    node_id: str | UnsetType | None = UNSET
    """The node id that it was bound to; null: any."""


class TokenCreatedData(Struct, frozen=True, kw_only=True):
    """An API token."""

    name: str
    """What the token is called."""
    role: Role
    """The most that it allows."""


class TokenRevokedData(Struct, frozen=True, kw_only=True):
    """An API token that is gone."""

    name: str
    """What the token was called."""


class SessionEndedData(Struct, frozen=True, kw_only=True):
    """Whose session ended."""

    user: str
    """The user whose session it was."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""


class UserBindingsData(Struct, frozen=True, kw_only=True):
    """The roles of a user."""

    bindings: tuple[str, ...] | UnsetType = UNSET
    """The roles; `(scoped)` behind those that hold within a scope."""


class UserLockedData(Struct, frozen=True, kw_only=True):
    """Who locked a user."""

    by: str
    """Who did it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""


class RolePermissionsData(Struct, frozen=True, kw_only=True):
    """What a role grants."""

    permissions: tuple[str, ...]
    """The permissions that it grants."""


class GroupCreatedData(Struct, frozen=True, kw_only=True):
    """The bounds of a new group."""

    min: int
    """At least so many instances are kept."""
    max: int | None
    """At most so many; null: no bound."""


class GroupUpdatedData(Struct, frozen=True, kw_only=True):
    """What changed."""

    changed: tuple[str, ...]
    """The fields that changed."""


class GroupScaledData(Struct, frozen=True, kw_only=True):
    """From how many instances to how many."""

    from_: int = field(name="from")
    """The number before."""
    to: int
    """The number from now on."""
    rule: str | UnsetType = UNSET
    """The rule by which load decided; absent: an operator did."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class GroupMaintenanceChangedData(Struct, frozen=True, kw_only=True):
    """Whether players may join."""

    enabled: bool
    """Whether it is closed to players."""
    message: str
    """What players are told."""
    schedule: str
    """The schedule that says so; empty: the document."""


class GroupHeldData(Struct, frozen=True, kw_only=True):
    """How a group is held."""

    by: str
    """Who did it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    when_empty: bool
    """Whether instances may wait until their players are gone."""


class GroupReleasedData(Struct, frozen=True, kw_only=True):
    """The hold that ended."""

    by: str
    """Who did it."""
    reason: str
    """The reason of the hold."""


class GroupShortData(Struct, frozen=True, kw_only=True):
    """What a group lacks."""

    reason: str
    """Why, as a sentence for people; empty: there is none."""
    wanted: int
    """How many instances are wanted."""


class CrashLoopStartedData(Struct, frozen=True, kw_only=True):
    """The pause of a group."""

    until: str
    """When it is tried again."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    pauses: int
    """The number of pauses in a row."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class CrashLoopEndedData(Struct, frozen=True, kw_only=True):
    """What ended a pause."""

    by: str
    """What ended it: `time`, `operator`, `deployment`, `rollback`, or `change` of what its instances start with."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class DeploymentCreatedData(Struct, frozen=True, kw_only=True):
    """A deployment as it begins."""

    group: str
    """Name of the group."""
    target: int
    """The revision that instances get."""
    stable: int
    """The revision to go back to; 0: none."""
    trigger: str
    """`manual`, `restart`, `rollback`, or what had changed: `document`, `template`, `catalog`, `module`."""
    by: str
    """Who did it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class DeploymentStepData(Struct, frozen=True, kw_only=True):
    """A step of a deployment."""

    group: str
    """Name of the group."""
    from_: DeploymentState = field(name="from")
    """The state it was in."""
    to: DeploymentState
    """The state it is in now."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    undone: str | UnsetType = UNSET
    """What was taken back."""
    by: str | UnsetType = UNSET
    """Who did it."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class InstanceRunData(Struct, frozen=True, kw_only=True):
    """A run, and why it is in this state."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    incarnation: int
    """Number of the run."""
    pid: int | UnsetType = UNSET
    """Id of its process on the node; 0: there is none."""
    reason: str | UnsetType = UNSET
    """Why, as a sentence for people; empty: there is none."""
    decision: str | UnsetType = UNSET
    """Id of the decision behind it; empty: there is none."""


class InstanceReservedData(Struct, frozen=True, kw_only=True):
    """Why a static instance has its place before it runs."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class InstanceStageData(Struct, frozen=True, kw_only=True):
    """How far a start is."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    incarnation: int
    """Number of the run."""
    stage: str
    """The step of its preparation; empty: its process runs, and is not ready."""
    reason: str
    """What it waits for; empty: the step itself takes a while."""


class InstanceRunningData(Struct, frozen=True, kw_only=True):
    """A run that runs."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    incarnation: int
    """Number of the run."""
    pid: int | UnsetType = UNSET
    """Id of its process on the node; 0: there is none."""
    reason: str | UnsetType = UNSET
    """Why, as a sentence for people; empty: there is none."""
    decision: str | UnsetType = UNSET
    """Id of the decision behind it; empty: there is none."""
    ready: bool | UnsetType = UNSET
    """Whether it can be used."""


class InstanceReadyChangedData(Struct, frozen=True, kw_only=True):
    """Whether a run can be used."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    incarnation: int
    """Number of the run."""
    ready: bool
    """Whether it can be used."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""


class InstanceEndedData(Struct, frozen=True, kw_only=True):
    """How a run ended."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    incarnation: int
    """Number of the run."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    exit: ExitRecord | None
    """How it ended; null: it is not known."""
    restarted_as: int | UnsetType | None = UNSET
    """The run that its node started in its place."""
    crash: str | UnsetType | None = UNSET
    """Id of the crash, where one was reported."""
    decision: str | UnsetType = UNSET
    """Id of the decision behind it; empty: there is none."""


class InstanceOfflineData(Struct, frozen=True, kw_only=True):
    """The run that is out of reach."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    incarnation: int
    """Number of the run."""
    from_: InstanceState = field(name="from")
    """The state it was last known to be in."""


class InstanceLostData(Struct, frozen=True, kw_only=True):
    """Since when a run is lost."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    incarnation: int
    """Number of the run."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    lost_at: str | None
    """Since when it does not count any more."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class InstanceAdoptedData(Struct, frozen=True, kw_only=True):
    """A run that was found."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    incarnation: int
    """Number of the run."""
    state: InstanceState
    """The state it is in."""


class InstancePromotedData(Struct, frozen=True, kw_only=True):
    """Why a warm instance serves."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    decision: str
    """Id of the decision behind it; empty: there is none."""


class InstanceCommandData(Struct, frozen=True, kw_only=True):
    """What was typed."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    line: str
    """The line as it was typed."""
    by: str
    """Who did it."""
    incarnation: int
    """Number of the run."""
    offset: int | None
    """Where the console was when the line was written; null: the node did not say."""


class InstanceRemovedData(Struct, frozen=True, kw_only=True):
    """The last state of an instance."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    state: InstanceState
    """The state it was in."""


class InstanceSavedData(Struct, frozen=True, kw_only=True):
    """The template version that was made of its files."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    template: str
    """Name of the template."""
    version: int
    """Number of the version."""


class InstanceFileChangedData(Struct, frozen=True, kw_only=True):
    """What was changed among the files of an instance."""

    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    path: str
    """Path of the file or directory."""
    to: str | UnsetType = UNSET
    """Where it was renamed to, or what was unpacked into."""
    verb: str
    """write, rename, mkdir, delete or unpack."""
    by: str
    """Who did it."""
    digest: str | None
    """SHA-256 of the file now; null: it is not known."""


class ModuleStepData(Struct, frozen=True, kw_only=True):
    """A step of a module on the controller."""

    id: str
    """Id of the module."""
    version: str
    """Version of the module."""
    from_: ModulePhase | None = field(name="from")
    """The phase it was in; null: it was not there."""
    to: ModulePhase
    """The phase it is in now."""
    intent: ModuleIntent
    """What an operator wants of it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    at: str
    """When it happened, in UTC."""


class ModuleUpgradedData(Struct, frozen=True, kw_only=True):
    """From which version to which."""

    id: str
    """Id of the module."""
    version: str
    """Version of the module."""
    from_: ModulePhase | None = field(name="from")
    """The phase it was in; null: it was not there."""
    to: ModulePhase
    """The phase it is in now."""
    intent: ModuleIntent
    """What an operator wants of it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    at: str
    """When it happened, in UTC."""
    previous_version: str
    """The version before."""


class ModuleUpgradeRolledBackData(Struct, frozen=True, kw_only=True):
    """Why the new version does not serve."""

    id: str
    """Id of the module."""
    version: str
    """Version of the module."""
    from_: ModulePhase | None = field(name="from")
    """The phase it was in; null: it was not there."""
    to: ModulePhase
    """The phase it is in now."""
    intent: ModuleIntent
    """What an operator wants of it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    at: str
    """When it happened, in UTC."""
    previous_version: str
    """The version before."""
    steps: tuple[str, ...]
    """What was done, step by step."""


class ModuleConfiguredData(Struct, frozen=True, kw_only=True):
    """Which settings changed."""

    id: str
    """Id of the module."""
    version: str
    """Version of the module."""
    from_: ModulePhase | None = field(name="from")
    """The phase it was in; null: it was not there."""
    to: ModulePhase
    """The phase it is in now."""
    intent: ModuleIntent
    """What an operator wants of it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    at: str
    """When it happened, in UTC."""
    changed: tuple[str, ...]
    """Keys of the settings that changed."""


class ModuleStorageDroppedData(Struct, frozen=True, kw_only=True):
    """Whose data is gone."""

    id: str
    """Id of the module."""


class ModuleLeakedData(Struct, frozen=True, kw_only=True):
    """What kept a process from ending; of a removed module only its id is known."""

    id: str
    """Id of the module."""
    at: str
    """When it happened, in UTC."""
    version: str | UnsetType = UNSET
    """Version of the module."""
    from_: ModulePhase | UnsetType | None = field(default=UNSET, name="from")
    """The phase it was in; null: it was not there."""
    to: ModulePhase | UnsetType = UNSET
    """The phase it is in now."""
    intent: ModuleIntent | UnsetType = UNSET
    """What an operator wants of it."""
    reason: str | UnsetType = UNSET
    """Why, as a sentence for people; empty: there is none."""
    pid: int
    """Id of the process."""
    killed: bool
    """Whether it was killed."""
    threads: tuple[str, ...]
    """Names of threads that went on."""
    tasks: tuple[str, ...]
    """Names of tasks that went on."""
    children: tuple[str, ...]
    """Command lines of processes that it left."""


class ModuleNodeStateData(Struct, frozen=True, kw_only=True):
    """A step of a module on a node."""

    id: str
    """Id of the module."""
    node: str
    """Id of the node."""
    version: str
    """Version of the module."""
    from_: ModulePhase | None = field(name="from")
    """The phase it was in; null: it was not there."""
    to: ModulePhase
    """The phase it is in now."""
    intent: ModuleIntent
    """What an operator wants of it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    refused_sha256: str
    """SHA-256 of an archive that the node refused; empty: none."""
    at: str
    """When it happened, in UTC."""


class CapabilityData(Struct, frozen=True, kw_only=True):
    """A capability and who provides it."""

    id: str
    """Id of the capability."""
    version: str
    """Its version."""
    provider: str
    """Id of the module that provides it."""


class CapabilityClearedData(Struct, frozen=True, kw_only=True):
    """A capability that nobody provides any more."""

    id: str
    """Id of the capability."""
    version: str
    """Its version."""
    provider: str
    """Id of the module that provides it."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""


class CapabilityConflictData(Struct, frozen=True, kw_only=True):
    """A capability that two modules want to provide."""

    id: str
    """Id of the capability."""
    version: str
    """The version that is refused."""
    module: str
    """Id of the module that is refused."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""


class ClusterCreatedEvent(Struct, frozen=True, kw_only=True):
    """A controller founded the cluster: identity, authority, first administrator."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NoData
    """What belongs to this type."""


class ClusterEpochRaisedEvent(Struct, frozen=True, kw_only=True):
    """An administrator lifted the epoch."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ClusterEpochRaisedData
    """What belongs to this type."""


class LeaderChangedEvent(Struct, frozen=True, kw_only=True):
    """A controller began to lead."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: LeaderChangedData
    """What belongs to this type."""


class LogLevelChangedEvent(Struct, frozen=True, kw_only=True):
    """A log level was switched at run time."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: LogLevelChangedData
    """What belongs to this type."""


class NodeEnrolledEvent(Struct, frozen=True, kw_only=True):
    """A host exchanged a join token."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeEnrolledData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeOnlineEvent(Struct, frozen=True, kw_only=True):
    """A session opened."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeOnlineData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeDisconnectedEvent(Struct, frozen=True, kw_only=True):
    """A node's stream ended."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeAwayData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeUnreachableEvent(Struct, frozen=True, kw_only=True):
    """A node left too many pings unanswered."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeAwayData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeRevokedEvent(Struct, frozen=True, kw_only=True):
    """A node's certificates are refused from now on."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeReasonData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeRemovedEvent(Struct, frozen=True, kw_only=True):
    """A node was forgotten."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeRemovedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeCordonedEvent(Struct, frozen=True, kw_only=True):
    """A node takes no new instances."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeReasonData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeUncordonedEvent(Struct, frozen=True, kw_only=True):
    """A node takes new instances again."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeReasonData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeDrainingEvent(Struct, frozen=True, kw_only=True):
    """A node is emptied. Once more when an operator changes something of the drain."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeDrainingData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeDrainProgressEvent(Struct, frozen=True, kw_only=True):
    """Instances have left a node that is emptied, or wait for something else. At most one every five seconds for a node."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeDrainProgressData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeDrainedEvent(Struct, frozen=True, kw_only=True):
    """The last instance on a node that was emptied has ended."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeDrainedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeUndrainedEvent(Struct, frozen=True, kw_only=True):
    """A node is not emptied any more."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeUndrainedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeClaimsChangedEvent(Struct, frozen=True, kw_only=True):
    """A node connected and reports other values than the last time."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeClaimsChangedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeConfiguredEvent(Struct, frozen=True, kw_only=True):
    """An operator set labels or limits of a node."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeConfiguredData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeCertificateRenewedEvent(Struct, frozen=True, kw_only=True):
    """A node got a new certificate."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeCertificateRenewedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class NodeErrorReportedEvent(Struct, frozen=True, kw_only=True):
    """A node reported trouble."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NodeErrorReportedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The node, with `with=resource`."""


class JoinTokenCreatedEvent(Struct, frozen=True, kw_only=True):
    """A join token was made."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: JoinTokenCreatedData
    """What belongs to this type."""


class JoinTokenUsedEvent(Struct, frozen=True, kw_only=True):
    """A join token was exchanged."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: JoinTokenUsedData
    """What belongs to this type."""


class JoinTokenRevokedEvent(Struct, frozen=True, kw_only=True):
    """A join token was made useless before it was used."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: JoinTokenRevokedData
    """What belongs to this type."""


class TokenCreatedEvent(Struct, frozen=True, kw_only=True):
    """An API token was made."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: TokenCreatedData
    """What belongs to this type."""


class TokenRevokedEvent(Struct, frozen=True, kw_only=True):
    """An API token was revoked; its open streams end."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: TokenRevokedData
    """What belongs to this type."""


class SessionEndedEvent(Struct, frozen=True, kw_only=True):
    """A session was ended; its open streams end."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: SessionEndedData
    """What belongs to this type."""


class UserCreatedEvent(Struct, frozen=True, kw_only=True):
    """A user was made."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: UserBindingsData
    """What belongs to this type."""


class UserUpdatedEvent(Struct, frozen=True, kw_only=True):
    """Something of a user changed; streams of whose rights changed end."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: UserBindingsData
    """What belongs to this type."""


class UserLockedEvent(Struct, frozen=True, kw_only=True):
    """A user was locked; its open streams end."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: UserLockedData
    """What belongs to this type."""


class UserUnlockedEvent(Struct, frozen=True, kw_only=True):
    """The lock of a user was ended."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NoData
    """What belongs to this type."""


class UserDeletedEvent(Struct, frozen=True, kw_only=True):
    """A user was removed, with its tokens."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NoData
    """What belongs to this type."""


class RoleCreatedEvent(Struct, frozen=True, kw_only=True):
    """A role was made."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: RolePermissionsData
    """What belongs to this type."""


class RoleUpdatedEvent(Struct, frozen=True, kw_only=True):
    """What a role grants changed; streams of whose rights changed end."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: RolePermissionsData
    """What belongs to this type."""


class RoleDeletedEvent(Struct, frozen=True, kw_only=True):
    """A role was removed."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NoData
    """What belongs to this type."""


class GroupCreatedEvent(Struct, frozen=True, kw_only=True):
    """A group was made."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: GroupCreatedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class GroupUpdatedEvent(Struct, frozen=True, kw_only=True):
    """A group's document changed."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: GroupUpdatedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class GroupDeletedEvent(Struct, frozen=True, kw_only=True):
    """A group was deleted."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: NoData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class GroupScaledEvent(Struct, frozen=True, kw_only=True):
    """The number of instances of a group was set by an operator, or changed because of its load."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: GroupScaledData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class GroupMaintenanceChangedEvent(Struct, frozen=True, kw_only=True):
    """A group is closed to players now, or open again."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: GroupMaintenanceChangedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class GroupHeldEvent(Struct, frozen=True, kw_only=True):
    """An operator holds a group: its instances are stopped and stay so."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: GroupHeldData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class GroupReleasedEvent(Struct, frozen=True, kw_only=True):
    """A group is held no longer."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: GroupReleasedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class GroupShortEvent(Struct, frozen=True, kw_only=True):
    """A group has fewer instances than wanted and cannot get more."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: GroupShortData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class DeploymentCreatedEvent(Struct, frozen=True, kw_only=True):
    """A deployment of a group to a revision began."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentCreatedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class DeploymentPhaseEvent(Struct, frozen=True, kw_only=True):
    """A deployment is in another state."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class DeploymentPausedEvent(Struct, frozen=True, kw_only=True):
    """An operator paused a deployment."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class DeploymentResumedEvent(Struct, frozen=True, kw_only=True):
    """An operator let a paused deployment go on."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class DeploymentCompletedEvent(Struct, frozen=True, kw_only=True):
    """Every instance within reach runs by the target of a deployment."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class DeploymentFailedEvent(Struct, frozen=True, kw_only=True):
    """A deployment failed and was not taken back."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class DeploymentRolledBackEvent(Struct, frozen=True, kw_only=True):
    """Every instance within reach runs by the stable revision again."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class DeploymentCancelledEvent(Struct, frozen=True, kw_only=True):
    """An operator ended a deployment where it was, or its group was deleted."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class DeploymentSupersededEvent(Struct, frozen=True, kw_only=True):
    """A later deployment of the group took the place of one; `by` is the id of the later one."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DeploymentStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The deployment, with `with=resource`."""


class CrashLoopStartedEvent(Struct, frozen=True, kw_only=True):
    """A group failed too often and is left alone."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: CrashLoopStartedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class CrashLoopEndedEvent(Struct, frozen=True, kw_only=True):
    """A group's pause is over."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: CrashLoopEndedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The group, with `with=resource`."""


class InstanceScheduledEvent(Struct, frozen=True, kw_only=True):
    """A run was decided and placed."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceRunData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceReservedEvent(Struct, frozen=True, kw_only=True):
    """A static instance got its place on a node, and stays stopped until it is started by hand."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceReservedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstancePreparingEvent(Struct, frozen=True, kw_only=True):
    """The node prepares a run."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceRunData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceStageEvent(Struct, frozen=True, kw_only=True):
    """A start takes a while: a step of its preparation lasts longer than a quarter of a second, or it waits for something. The newest of a second, at most 32 of a run; a quick start has none."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceStageData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceStartingEvent(Struct, frozen=True, kw_only=True):
    """The process of a run exists."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceRunData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceRunningEvent(Struct, frozen=True, kw_only=True):
    """A run runs: its process exists or, of a group with probes, each of them has succeeded; or it drains no more."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceRunningData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceDrainingEvent(Struct, frozen=True, kw_only=True):
    """An instance takes no more players, and is stopped when it has none."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceRunData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceReadyChangedEvent(Struct, frozen=True, kw_only=True):
    """A run became ready, or is not ready any more."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceReadyChangedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceStoppingEvent(Struct, frozen=True, kw_only=True):
    """A run is being stopped."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceRunData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceStoppedEvent(Struct, frozen=True, kw_only=True):
    """Nothing of a run is left, as wanted."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceEndedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceCrashedEvent(Struct, frozen=True, kw_only=True):
    """A run ended without being asked to, or never ran."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceEndedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceOfflineEvent(Struct, frozen=True, kw_only=True):
    """The node of a run is out of reach; nothing is assumed about it."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceOfflineData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceLostEvent(Struct, frozen=True, kw_only=True):
    """The node of an instance is away for longer than its group waits: it does not count any more, and another one is started in its place, unless it is static."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceLostData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceAdoptedEvent(Struct, frozen=True, kw_only=True):
    """A node has a run of ours that the store did not know."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceAdoptedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstancePromotedEvent(Struct, frozen=True, kw_only=True):
    """A warm instance serves from now on."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstancePromotedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceCommandEvent(Struct, frozen=True, kw_only=True):
    """A line was accepted into an instance's input."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceCommandData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceRemovedEvent(Struct, frozen=True, kw_only=True):
    """The record of an ended instance was dropped."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceRemovedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceSavedEvent(Struct, frozen=True, kw_only=True):
    """Files of an instance became a template version."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceSavedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class InstanceFileChangedEvent(Struct, frozen=True, kw_only=True):
    """A file of an instance was changed through the API."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: InstanceFileChangedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The instance, with `with=resource`."""


class TemplateCreatedEvent(Struct, frozen=True, kw_only=True):
    """A template was made."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: TemplateVersionData
    """What belongs to this type."""


class TemplateUpdatedEvent(Struct, frozen=True, kw_only=True):
    """A template has a new version."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: TemplateVersionData
    """What belongs to this type."""


class TemplateRolledBackEvent(Struct, frozen=True, kw_only=True):
    """New starts use an earlier version again."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: TemplateRolledBackData
    """What belongs to this type."""


class TemplateDeletedEvent(Struct, frozen=True, kw_only=True):
    """A template was deleted with all its versions."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: TemplateDeletedData
    """What belongs to this type."""


class CatalogUpdatedEvent(Struct, frozen=True, kw_only=True):
    """An entry of the catalog was made or changed."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: CatalogUpdatedData
    """What belongs to this type."""


class CatalogRemovedEvent(Struct, frozen=True, kw_only=True):
    """An entry of the catalog was removed."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: CatalogRemovedData
    """What belongs to this type."""


class ModuleInstalledEvent(Struct, frozen=True, kw_only=True):
    """A package was accepted, or recovered."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleWaitingEvent(Struct, frozen=True, kw_only=True):
    """A module is loaded and waits for capabilities; `reason` names the first."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleActivatedEvent(Struct, frozen=True, kw_only=True):
    """A module started: its routes, capabilities and subscriptions are in force."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleStoppingEvent(Struct, frozen=True, kw_only=True):
    """A module is being stopped."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleDeactivatedEvent(Struct, frozen=True, kw_only=True):
    """A module is installed and does not run; nothing it registered is left."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleFailedEvent(Struct, frozen=True, kw_only=True):
    """A module failed and stays so until an operator acts."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleUninstalledEvent(Struct, frozen=True, kw_only=True):
    """A package was removed."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleStepData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleUpgradedEvent(Struct, frozen=True, kw_only=True):
    """A module runs in another version."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleUpgradedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleUpgradeRolledBackEvent(Struct, frozen=True, kw_only=True):
    """A new version did not become active; the old one serves again, its documents as before."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleUpgradeRolledBackData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleConfiguredEvent(Struct, frozen=True, kw_only=True):
    """A module's settings changed."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleConfiguredData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleStorageDroppedEvent(Struct, frozen=True, kw_only=True):
    """The data of an uninstalled module was deleted."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleStorageDroppedData
    """What belongs to this type."""


class ModuleLeakedEvent(Struct, frozen=True, kw_only=True):
    """A module's process did not end by itself and was killed."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleLeakedData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleNodeStateEvent(Struct, frozen=True, kw_only=True):
    """A module took a step on a node. What it failed of is with the module, for those who may read logs."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleNodeStateData
    """What belongs to this type."""
    resource: EventResource | UnsetType = UNSET
    """The module, with `with=resource`."""


class ModuleEventEvent(Struct, frozen=True, kw_only=True):
    """A module published an event; `subject` is `ID/TYPE`."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: ModuleEventData
    """What belongs to this type."""


class CapabilityRegisteredEvent(Struct, frozen=True, kw_only=True):
    """A capability has a provider."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: CapabilityData
    """What belongs to this type."""


class CapabilityClearedEvent(Struct, frozen=True, kw_only=True):
    """A capability has no provider any more."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: CapabilityClearedData
    """What belongs to this type."""


class CapabilityReboundEvent(Struct, frozen=True, kw_only=True):
    """A capability is provided by another version; handles stay good."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: CapabilityData
    """What belongs to this type."""


class CapabilityConflictEvent(Struct, frozen=True, kw_only=True):
    """A second provider of a capability was refused, or failed; the first one goes on."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: CapabilityConflictData
    """What belongs to this type."""


class EventUnreadableEvent(Struct, frozen=True, kw_only=True):
    """Stands in for an event whose type this version of Corral does not know; it is shown and never stored."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: EventUnreadableData
    """What belongs to this type."""


class DocumentUnreadableEvent(Struct, frozen=True, kw_only=True):
    """A document of the store could not be read when the leader began. It is left as it is; the rest works."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: DocumentUnreadableData
    """What belongs to this type."""


class StoreOlderThanNodeEvent(Struct, frozen=True, kw_only=True):
    """A node has the confirmation of reports that the store does not know: what was stored after the last report known is lost."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: StoreOlderThanNodeData
    """What belongs to this type."""


class ResyncRequiredEvent(Struct, frozen=True, kw_only=True):
    """The position is lost: read the state again. Not in the log."""

    id: str
    """EPOCH-SEQUENCE, as the frame's `id`."""
    type: str
    """Type of the event."""
    subject: str
    """Id of what it is about."""
    at: str
    """When it happened, in UTC."""
    data: dict[str, Any]
    """`after`: the position that was lost."""


EVENT_KINDS: Final[Mapping[str, type[Struct]]] = {
    "CLUSTER_CREATED": ClusterCreatedEvent,
    "CLUSTER_EPOCH_RAISED": ClusterEpochRaisedEvent,
    "LEADER_CHANGED": LeaderChangedEvent,
    "LOG_LEVEL_CHANGED": LogLevelChangedEvent,
    "NODE_ENROLLED": NodeEnrolledEvent,
    "NODE_ONLINE": NodeOnlineEvent,
    "NODE_DISCONNECTED": NodeDisconnectedEvent,
    "NODE_UNREACHABLE": NodeUnreachableEvent,
    "NODE_REVOKED": NodeRevokedEvent,
    "NODE_REMOVED": NodeRemovedEvent,
    "NODE_CORDONED": NodeCordonedEvent,
    "NODE_UNCORDONED": NodeUncordonedEvent,
    "NODE_DRAINING": NodeDrainingEvent,
    "NODE_DRAIN_PROGRESS": NodeDrainProgressEvent,
    "NODE_DRAINED": NodeDrainedEvent,
    "NODE_UNDRAINED": NodeUndrainedEvent,
    "NODE_CLAIMS_CHANGED": NodeClaimsChangedEvent,
    "NODE_CONFIGURED": NodeConfiguredEvent,
    "NODE_CERTIFICATE_RENEWED": NodeCertificateRenewedEvent,
    "NODE_ERROR_REPORTED": NodeErrorReportedEvent,
    "JOIN_TOKEN_CREATED": JoinTokenCreatedEvent,
    "JOIN_TOKEN_USED": JoinTokenUsedEvent,
    "JOIN_TOKEN_REVOKED": JoinTokenRevokedEvent,
    "TOKEN_CREATED": TokenCreatedEvent,
    "TOKEN_REVOKED": TokenRevokedEvent,
    "SESSION_ENDED": SessionEndedEvent,
    "USER_CREATED": UserCreatedEvent,
    "USER_UPDATED": UserUpdatedEvent,
    "USER_LOCKED": UserLockedEvent,
    "USER_UNLOCKED": UserUnlockedEvent,
    "USER_DELETED": UserDeletedEvent,
    "ROLE_CREATED": RoleCreatedEvent,
    "ROLE_UPDATED": RoleUpdatedEvent,
    "ROLE_DELETED": RoleDeletedEvent,
    "GROUP_CREATED": GroupCreatedEvent,
    "GROUP_UPDATED": GroupUpdatedEvent,
    "GROUP_DELETED": GroupDeletedEvent,
    "GROUP_SCALED": GroupScaledEvent,
    "GROUP_MAINTENANCE_CHANGED": GroupMaintenanceChangedEvent,
    "GROUP_HELD": GroupHeldEvent,
    "GROUP_RELEASED": GroupReleasedEvent,
    "GROUP_SHORT": GroupShortEvent,
    "DEPLOYMENT_CREATED": DeploymentCreatedEvent,
    "DEPLOYMENT_PHASE": DeploymentPhaseEvent,
    "DEPLOYMENT_PAUSED": DeploymentPausedEvent,
    "DEPLOYMENT_RESUMED": DeploymentResumedEvent,
    "DEPLOYMENT_COMPLETED": DeploymentCompletedEvent,
    "DEPLOYMENT_FAILED": DeploymentFailedEvent,
    "DEPLOYMENT_ROLLED_BACK": DeploymentRolledBackEvent,
    "DEPLOYMENT_CANCELLED": DeploymentCancelledEvent,
    "DEPLOYMENT_SUPERSEDED": DeploymentSupersededEvent,
    "CRASH_LOOP_STARTED": CrashLoopStartedEvent,
    "CRASH_LOOP_ENDED": CrashLoopEndedEvent,
    "INSTANCE_SCHEDULED": InstanceScheduledEvent,
    "INSTANCE_RESERVED": InstanceReservedEvent,
    "INSTANCE_PREPARING": InstancePreparingEvent,
    "INSTANCE_STAGE": InstanceStageEvent,
    "INSTANCE_STARTING": InstanceStartingEvent,
    "INSTANCE_RUNNING": InstanceRunningEvent,
    "INSTANCE_DRAINING": InstanceDrainingEvent,
    "INSTANCE_READY_CHANGED": InstanceReadyChangedEvent,
    "INSTANCE_STOPPING": InstanceStoppingEvent,
    "INSTANCE_STOPPED": InstanceStoppedEvent,
    "INSTANCE_CRASHED": InstanceCrashedEvent,
    "INSTANCE_OFFLINE": InstanceOfflineEvent,
    "INSTANCE_LOST": InstanceLostEvent,
    "INSTANCE_ADOPTED": InstanceAdoptedEvent,
    "INSTANCE_PROMOTED": InstancePromotedEvent,
    "INSTANCE_COMMAND": InstanceCommandEvent,
    "INSTANCE_REMOVED": InstanceRemovedEvent,
    "INSTANCE_SAVED": InstanceSavedEvent,
    "INSTANCE_FILE_CHANGED": InstanceFileChangedEvent,
    "TEMPLATE_CREATED": TemplateCreatedEvent,
    "TEMPLATE_UPDATED": TemplateUpdatedEvent,
    "TEMPLATE_ROLLED_BACK": TemplateRolledBackEvent,
    "TEMPLATE_DELETED": TemplateDeletedEvent,
    "CATALOG_UPDATED": CatalogUpdatedEvent,
    "CATALOG_REMOVED": CatalogRemovedEvent,
    "MODULE_INSTALLED": ModuleInstalledEvent,
    "MODULE_WAITING": ModuleWaitingEvent,
    "MODULE_ACTIVATED": ModuleActivatedEvent,
    "MODULE_STOPPING": ModuleStoppingEvent,
    "MODULE_DEACTIVATED": ModuleDeactivatedEvent,
    "MODULE_FAILED": ModuleFailedEvent,
    "MODULE_UNINSTALLED": ModuleUninstalledEvent,
    "MODULE_UPGRADED": ModuleUpgradedEvent,
    "MODULE_UPGRADE_ROLLED_BACK": ModuleUpgradeRolledBackEvent,
    "MODULE_CONFIGURED": ModuleConfiguredEvent,
    "MODULE_STORAGE_DROPPED": ModuleStorageDroppedEvent,
    "MODULE_LEAKED": ModuleLeakedEvent,
    "MODULE_NODE_STATE": ModuleNodeStateEvent,
    "MODULE_EVENT": ModuleEventEvent,
    "CAPABILITY_REGISTERED": CapabilityRegisteredEvent,
    "CAPABILITY_CLEARED": CapabilityClearedEvent,
    "CAPABILITY_REBOUND": CapabilityReboundEvent,
    "CAPABILITY_CONFLICT": CapabilityConflictEvent,
    "EVENT_UNREADABLE": EventUnreadableEvent,
    "DOCUMENT_UNREADABLE": DocumentUnreadableEvent,
    "STORE_OLDER_THAN_NODE": StoreOlderThanNodeEvent,
    "RESYNC_REQUIRED": ResyncRequiredEvent,
}
"""The structure of an event by its type."""

EventFrame: TypeAlias = (
    ClusterCreatedEvent
    | ClusterEpochRaisedEvent
    | LeaderChangedEvent
    | LogLevelChangedEvent
    | NodeEnrolledEvent
    | NodeOnlineEvent
    | NodeDisconnectedEvent
    | NodeUnreachableEvent
    | NodeRevokedEvent
    | NodeRemovedEvent
    | NodeCordonedEvent
    | NodeUncordonedEvent
    | NodeDrainingEvent
    | NodeDrainProgressEvent
    | NodeDrainedEvent
    | NodeUndrainedEvent
    | NodeClaimsChangedEvent
    | NodeConfiguredEvent
    | NodeCertificateRenewedEvent
    | NodeErrorReportedEvent
    | JoinTokenCreatedEvent
    | JoinTokenUsedEvent
    | JoinTokenRevokedEvent
    | TokenCreatedEvent
    | TokenRevokedEvent
    | SessionEndedEvent
    | UserCreatedEvent
    | UserUpdatedEvent
    | UserLockedEvent
    | UserUnlockedEvent
    | UserDeletedEvent
    | RoleCreatedEvent
    | RoleUpdatedEvent
    | RoleDeletedEvent
    | GroupCreatedEvent
    | GroupUpdatedEvent
    | GroupDeletedEvent
    | GroupScaledEvent
    | GroupMaintenanceChangedEvent
    | GroupHeldEvent
    | GroupReleasedEvent
    | GroupShortEvent
    | DeploymentCreatedEvent
    | DeploymentPhaseEvent
    | DeploymentPausedEvent
    | DeploymentResumedEvent
    | DeploymentCompletedEvent
    | DeploymentFailedEvent
    | DeploymentRolledBackEvent
    | DeploymentCancelledEvent
    | DeploymentSupersededEvent
    | CrashLoopStartedEvent
    | CrashLoopEndedEvent
    | InstanceScheduledEvent
    | InstanceReservedEvent
    | InstancePreparingEvent
    | InstanceStageEvent
    | InstanceStartingEvent
    | InstanceRunningEvent
    | InstanceDrainingEvent
    | InstanceReadyChangedEvent
    | InstanceStoppingEvent
    | InstanceStoppedEvent
    | InstanceCrashedEvent
    | InstanceOfflineEvent
    | InstanceLostEvent
    | InstanceAdoptedEvent
    | InstancePromotedEvent
    | InstanceCommandEvent
    | InstanceRemovedEvent
    | InstanceSavedEvent
    | InstanceFileChangedEvent
    | TemplateCreatedEvent
    | TemplateUpdatedEvent
    | TemplateRolledBackEvent
    | TemplateDeletedEvent
    | CatalogUpdatedEvent
    | CatalogRemovedEvent
    | ModuleInstalledEvent
    | ModuleWaitingEvent
    | ModuleActivatedEvent
    | ModuleStoppingEvent
    | ModuleDeactivatedEvent
    | ModuleFailedEvent
    | ModuleUninstalledEvent
    | ModuleUpgradedEvent
    | ModuleUpgradeRolledBackEvent
    | ModuleConfiguredEvent
    | ModuleStorageDroppedEvent
    | ModuleLeakedEvent
    | ModuleNodeStateEvent
    | ModuleEventEvent
    | CapabilityRegisteredEvent
    | CapabilityClearedEvent
    | CapabilityReboundEvent
    | CapabilityConflictEvent
    | EventUnreadableEvent
    | DocumentUnreadableEvent
    | StoreOlderThanNodeEvent
    | ResyncRequiredEvent
    | UnknownData
)
"""An event of the stream; `UnknownData` for a type that this client does not know."""
