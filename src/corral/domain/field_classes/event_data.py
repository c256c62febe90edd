"""Classes of the fields in events' `data`, by type, and the permissions that types need. What the fields mean, and their
types: `corral.domain.event_schemas`.

Every type has a row, an empty one if its events carry no data. A field that is missing here is hidden from callers
without `instances.sensitive`; the ledger reports it, and tests fail by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from corral.domain.events import EventType
from corral.domain.field_classes.field_class import FieldClass, fields
from corral.domain.permissions import Permission

_RUN: Final = fields(open="group node incarnation pid decision", text="reason")
_END: Final = fields(
    open="group node incarnation restarted_as crash decision", text="reason", document="exit"
)
_MODULE: Final = fields(open="id version from to intent at", text="reason")
_DEPLOYMENT: Final = fields(open="group from to by decision", text="reason undone")
_TEMPLATE: Final = fields(open="version hash files size note by")
_CAPABILITY: Final = fields(open="id version provider")

EVENT_DATA: Final[Mapping[EventType, Mapping[str, FieldClass]]] = {
    EventType.CLUSTER_CREATED: fields(),
    EventType.CLUSTER_EPOCH_RAISED: fields(open="epoch"),
    EventType.LEADER_CHANGED: fields(open="holder epoch"),
    EventType.LOG_LEVEL_CHANGED: fields(open="source level"),
    EventType.NODE_ENROLLED: fields(open="replaced"),
    EventType.NODE_ONLINE: fields(open="session version from rebooted"),
    EventType.NODE_DISCONNECTED: fields(open="from", text="reason"),
    EventType.NODE_UNREACHABLE: fields(open="from", text="reason"),
    EventType.NODE_REVOKED: fields(text="reason"),
    EventType.NODE_REMOVED: fields(open="state"),
    EventType.NODE_CORDONED: fields(text="reason"),
    EventType.NODE_UNCORDONED: fields(text="reason"),
    EventType.NODE_DRAINING: fields(open="drain by deadline_at shutdown total decision", text="reason"),
    EventType.NODE_DRAIN_PROGRESS: fields(
        open="drain total moved waiting_players waiting_room waiting_turn stopping unreachable deadline_at"
    ),
    EventType.NODE_DRAINED: fields(open="drain shutdown decision"),
    EventType.NODE_UNDRAINED: fields(open="drain admission decision", text="reason"),
    EventType.NODE_CLAIMS_CHANGED: fields(open="labels memory_mb cpus runtimes"),
    EventType.NODE_CONFIGURED: fields(open="labels withheld memory_mb cpus runtimes"),
    EventType.NODE_CERTIFICATE_RENEWED: fields(open="not_after"),
    # What a node reports is otherwise only in its log.
    EventType.NODE_ERROR_REPORTED: fields(open="code suppressed_before", text="context", sensitive="message"),
    EventType.JOIN_TOKEN_CREATED: fields(open="node_id replace labels"),
    EventType.JOIN_TOKEN_USED: fields(open="node_id"),
    EventType.JOIN_TOKEN_REVOKED: fields(open="node_id"),
    EventType.TOKEN_CREATED: fields(open="name role"),
    EventType.TOKEN_REVOKED: fields(open="name"),
    EventType.SESSION_ENDED: fields(open="user", text="reason"),
    EventType.USER_CREATED: fields(open="bindings"),
    EventType.USER_UPDATED: fields(open="bindings"),
    EventType.USER_LOCKED: fields(open="by", text="reason"),
    EventType.USER_UNLOCKED: fields(),
    EventType.USER_DELETED: fields(),
    EventType.ROLE_CREATED: fields(open="permissions"),
    EventType.ROLE_UPDATED: fields(open="permissions"),
    EventType.ROLE_DELETED: fields(),
    EventType.GROUP_CREATED: fields(open="min max"),
    EventType.GROUP_UPDATED: fields(open="changed"),
    EventType.GROUP_DELETED: fields(),
    EventType.GROUP_SCALED: fields(open="from to rule decision"),
    EventType.GROUP_MAINTENANCE_CHANGED: fields(open="enabled schedule", text="message"),
    EventType.GROUP_HELD: fields(open="by when_empty", text="reason"),
    EventType.GROUP_RELEASED: fields(open="by", text="reason"),
    EventType.GROUP_SHORT: fields(open="wanted", text="reason"),
    EventType.DEPLOYMENT_CREATED: fields(open="group target stable trigger by decision", text="reason"),
    EventType.DEPLOYMENT_PHASE: _DEPLOYMENT,
    EventType.DEPLOYMENT_PAUSED: _DEPLOYMENT,
    EventType.DEPLOYMENT_RESUMED: _DEPLOYMENT,
    EventType.DEPLOYMENT_COMPLETED: _DEPLOYMENT,
    EventType.DEPLOYMENT_FAILED: _DEPLOYMENT,
    EventType.DEPLOYMENT_ROLLED_BACK: _DEPLOYMENT,
    EventType.DEPLOYMENT_CANCELLED: _DEPLOYMENT,
    EventType.DEPLOYMENT_SUPERSEDED: _DEPLOYMENT,
    EventType.CRASH_LOOP_STARTED: fields(open="until pauses decision", text="reason"),
    EventType.CRASH_LOOP_ENDED: fields(open="by decision"),
    EventType.INSTANCE_SCHEDULED: _RUN,
    EventType.INSTANCE_RESERVED: fields(open="group node decision", text="reason"),
    EventType.INSTANCE_PREPARING: _RUN,
    EventType.INSTANCE_STAGE: fields(open="group node incarnation stage", text="reason"),
    EventType.INSTANCE_STARTING: _RUN,
    EventType.INSTANCE_RUNNING: {**_RUN, **fields(open="ready")},
    EventType.INSTANCE_DRAINING: _RUN,
    EventType.INSTANCE_READY_CHANGED: fields(open="group node incarnation ready", text="reason"),
    EventType.INSTANCE_STOPPING: _RUN,
    EventType.INSTANCE_STOPPED: _END,
    EventType.INSTANCE_CRASHED: _END,
    EventType.INSTANCE_OFFLINE: fields(open="group node incarnation from"),
    EventType.INSTANCE_LOST: fields(open="group node incarnation lost_at decision", text="reason"),
    EventType.INSTANCE_ADOPTED: fields(open="group node incarnation state"),
    EventType.INSTANCE_PROMOTED: fields(open="group node decision"),
    EventType.INSTANCE_COMMAND: fields(open="by incarnation group node offset", sensitive="line"),
    EventType.INSTANCE_REMOVED: fields(open="group node state"),
    EventType.INSTANCE_SAVED: fields(open="template version group node"),
    EventType.INSTANCE_FILE_CHANGED: fields(open="verb by group node", sensitive="path to digest"),
    EventType.TEMPLATE_CREATED: _TEMPLATE,
    EventType.TEMPLATE_UPDATED: _TEMPLATE,
    EventType.TEMPLATE_ROLLED_BACK: fields(open="version from hash by"),
    EventType.TEMPLATE_DELETED: fields(open="version versions"),
    EventType.CATALOG_UPDATED: fields(open="file sha256", url="url"),
    EventType.CATALOG_REMOVED: fields(open="sha256"),
    EventType.MODULE_INSTALLED: _MODULE,
    EventType.MODULE_WAITING: _MODULE,
    EventType.MODULE_ACTIVATED: _MODULE,
    EventType.MODULE_STOPPING: _MODULE,
    EventType.MODULE_DEACTIVATED: _MODULE,
    EventType.MODULE_FAILED: _MODULE,
    EventType.MODULE_UNINSTALLED: _MODULE,
    EventType.MODULE_UPGRADED: {**_MODULE, **fields(open="previous_version")},
    # What a module raised is otherwise only in logs.
    EventType.MODULE_UPGRADE_ROLLED_BACK: {**_MODULE, **fields(open="previous_version", sensitive="steps")},
    EventType.MODULE_CONFIGURED: {**_MODULE, **fields(open="changed")},
    EventType.MODULE_STORAGE_DROPPED: fields(open="id"),
    # The children are command lines.
    EventType.MODULE_LEAKED: {**_MODULE, **fields(open="pid killed threads tasks", sensitive="children")},
    EventType.MODULE_NODE_STATE: {**_MODULE, **fields(open="node refused_sha256")},
    # A module answers for what it publishes: its `data` goes to everybody who may read events.
    EventType.MODULE_EVENT: fields(open="module node type subject published_at data"),
    EventType.CAPABILITY_REGISTERED: _CAPABILITY,
    EventType.CAPABILITY_CLEARED: {**_CAPABILITY, **fields(text="reason")},
    EventType.CAPABILITY_REBOUND: _CAPABILITY,
    EventType.CAPABILITY_CONFLICT: fields(open="id version module", text="reason"),
    EventType.EVENT_UNREADABLE: fields(open="type omitted"),
    EventType.DOCUMENT_UNREADABLE: fields(open="collection id revision", text="reason"),
    EventType.STORE_OLDER_THAN_NODE: fields(open="stored confirmed"),
}

EVENT_DOCUMENTS: Final[Mapping[str, str]] = {"exit": "ExitShape"}
"""Documents in events' data, with the schema by whose classes their fields are shown."""

EVENT_PERMISSIONS: Final[Mapping[EventType, Permission]] = {
    EventType.TOKEN_CREATED: Permission.TOKENS_READ,
    EventType.TOKEN_REVOKED: Permission.TOKENS_READ,
    EventType.SESSION_ENDED: Permission.SESSIONS_READ,
    EventType.USER_CREATED: Permission.USERS_READ,
    EventType.USER_UPDATED: Permission.USERS_READ,
    EventType.USER_LOCKED: Permission.USERS_READ,
    EventType.USER_UNLOCKED: Permission.USERS_READ,
    EventType.USER_DELETED: Permission.USERS_READ,
    EventType.ROLE_CREATED: Permission.ROLES_READ,
    EventType.ROLE_UPDATED: Permission.ROLES_READ,
    EventType.ROLE_DELETED: Permission.ROLES_READ,
    EventType.JOIN_TOKEN_CREATED: Permission.NODES_ENROL,
    EventType.JOIN_TOKEN_USED: Permission.NODES_ENROL,
    EventType.JOIN_TOKEN_REVOKED: Permission.NODES_ENROL,
}
"""Types that need a permission of their own; a caller without it never gets them."""

NEVER_ON_NODES: Final = frozenset(EVENT_PERMISSIONS) | {EventType.INSTANCE_COMMAND}
"""Types that no node gets, whatever its modules subscribe to: credentials, and what people type."""

OPEN_TO_NODES: Final = frozenset(
    type for type, classes in EVENT_DATA.items() if all(kind is FieldClass.OPEN for kind in classes.values())
).difference(NEVER_ON_NODES, {EventType.MODULE_EVENT})
"""Types that modules on nodes may subscribe to without a list in their manifest: all of their fields are open. Events of
modules are not among them, for what is in their `data` is up to the module."""
