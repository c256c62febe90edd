"""The closed list of event types, and the position of an event in the log."""

from __future__ import annotations

import datetime as dt
import enum
import re
from typing import Any, Final

import msgspec

from corral.domain.json_limits import MAX_DEPTH
from corral.errors import Code, Rejected


class EventType(enum.StrEnum):
    """Stable names; a type is listed only once something publishes it."""

    CLUSTER_CREATED = "CLUSTER_CREATED"
    CLUSTER_EPOCH_RAISED = "CLUSTER_EPOCH_RAISED"
    LEADER_CHANGED = "LEADER_CHANGED"
    LOG_LEVEL_CHANGED = "LOG_LEVEL_CHANGED"
    NODE_ENROLLED = "NODE_ENROLLED"
    NODE_ONLINE = "NODE_ONLINE"
    NODE_DISCONNECTED = "NODE_DISCONNECTED"
    NODE_UNREACHABLE = "NODE_UNREACHABLE"
    NODE_REVOKED = "NODE_REVOKED"
    NODE_REMOVED = "NODE_REMOVED"
    NODE_CORDONED = "NODE_CORDONED"
    NODE_UNCORDONED = "NODE_UNCORDONED"
    NODE_DRAINING = "NODE_DRAINING"
    NODE_DRAIN_PROGRESS = "NODE_DRAIN_PROGRESS"
    NODE_DRAINED = "NODE_DRAINED"
    NODE_UNDRAINED = "NODE_UNDRAINED"
    NODE_CLAIMS_CHANGED = "NODE_CLAIMS_CHANGED"
    NODE_CONFIGURED = "NODE_CONFIGURED"
    NODE_CERTIFICATE_RENEWED = "NODE_CERTIFICATE_RENEWED"
    NODE_ERROR_REPORTED = "NODE_ERROR_REPORTED"
    JOIN_TOKEN_CREATED = "JOIN_TOKEN_CREATED"
    JOIN_TOKEN_USED = "JOIN_TOKEN_USED"
    JOIN_TOKEN_REVOKED = "JOIN_TOKEN_REVOKED"
    TOKEN_CREATED = "TOKEN_CREATED"
    TOKEN_REVOKED = "TOKEN_REVOKED"
    SESSION_ENDED = "SESSION_ENDED"
    USER_CREATED = "USER_CREATED"
    USER_UPDATED = "USER_UPDATED"
    USER_LOCKED = "USER_LOCKED"
    USER_UNLOCKED = "USER_UNLOCKED"
    USER_DELETED = "USER_DELETED"
    ROLE_CREATED = "ROLE_CREATED"
    ROLE_UPDATED = "ROLE_UPDATED"
    ROLE_DELETED = "ROLE_DELETED"
    GROUP_CREATED = "GROUP_CREATED"
    GROUP_UPDATED = "GROUP_UPDATED"
    GROUP_DELETED = "GROUP_DELETED"
    GROUP_SCALED = "GROUP_SCALED"
    GROUP_MAINTENANCE_CHANGED = "GROUP_MAINTENANCE_CHANGED"
    GROUP_HELD = "GROUP_HELD"
    GROUP_RELEASED = "GROUP_RELEASED"
    GROUP_SHORT = "GROUP_SHORT"
    DEPLOYMENT_CREATED = "DEPLOYMENT_CREATED"
    DEPLOYMENT_PHASE = "DEPLOYMENT_PHASE"
    DEPLOYMENT_PAUSED = "DEPLOYMENT_PAUSED"
    DEPLOYMENT_RESUMED = "DEPLOYMENT_RESUMED"
    DEPLOYMENT_COMPLETED = "DEPLOYMENT_COMPLETED"
    DEPLOYMENT_FAILED = "DEPLOYMENT_FAILED"
    DEPLOYMENT_ROLLED_BACK = "DEPLOYMENT_ROLLED_BACK"
    DEPLOYMENT_CANCELLED = "DEPLOYMENT_CANCELLED"
    DEPLOYMENT_SUPERSEDED = "DEPLOYMENT_SUPERSEDED"
    CRASH_LOOP_STARTED = "CRASH_LOOP_STARTED"
    CRASH_LOOP_ENDED = "CRASH_LOOP_ENDED"
    INSTANCE_SCHEDULED = "INSTANCE_SCHEDULED"
    INSTANCE_RESERVED = "INSTANCE_RESERVED"
    INSTANCE_PREPARING = "INSTANCE_PREPARING"
    INSTANCE_STAGE = "INSTANCE_STAGE"
    INSTANCE_STARTING = "INSTANCE_STARTING"
    INSTANCE_RUNNING = "INSTANCE_RUNNING"
    INSTANCE_DRAINING = "INSTANCE_DRAINING"
    INSTANCE_READY_CHANGED = "INSTANCE_READY_CHANGED"
    INSTANCE_STOPPING = "INSTANCE_STOPPING"
    INSTANCE_STOPPED = "INSTANCE_STOPPED"
    INSTANCE_CRASHED = "INSTANCE_CRASHED"
    INSTANCE_OFFLINE = "INSTANCE_OFFLINE"
    INSTANCE_LOST = "INSTANCE_LOST"
    INSTANCE_ADOPTED = "INSTANCE_ADOPTED"
    INSTANCE_PROMOTED = "INSTANCE_PROMOTED"
    INSTANCE_COMMAND = "INSTANCE_COMMAND"
    INSTANCE_REMOVED = "INSTANCE_REMOVED"
    INSTANCE_SAVED = "INSTANCE_SAVED"
    INSTANCE_FILE_CHANGED = "INSTANCE_FILE_CHANGED"
    TEMPLATE_CREATED = "TEMPLATE_CREATED"
    TEMPLATE_UPDATED = "TEMPLATE_UPDATED"
    TEMPLATE_ROLLED_BACK = "TEMPLATE_ROLLED_BACK"
    TEMPLATE_DELETED = "TEMPLATE_DELETED"
    CATALOG_UPDATED = "CATALOG_UPDATED"
    CATALOG_REMOVED = "CATALOG_REMOVED"
    MODULE_INSTALLED = "MODULE_INSTALLED"
    MODULE_WAITING = "MODULE_WAITING"
    MODULE_ACTIVATED = "MODULE_ACTIVATED"
    MODULE_STOPPING = "MODULE_STOPPING"
    MODULE_DEACTIVATED = "MODULE_DEACTIVATED"
    MODULE_FAILED = "MODULE_FAILED"
    MODULE_UNINSTALLED = "MODULE_UNINSTALLED"
    MODULE_UPGRADED = "MODULE_UPGRADED"
    MODULE_UPGRADE_ROLLED_BACK = "MODULE_UPGRADE_ROLLED_BACK"
    MODULE_CONFIGURED = "MODULE_CONFIGURED"
    MODULE_STORAGE_DROPPED = "MODULE_STORAGE_DROPPED"
    MODULE_LEAKED = "MODULE_LEAKED"
    MODULE_NODE_STATE = "MODULE_NODE_STATE"
    MODULE_EVENT = "MODULE_EVENT"
    CAPABILITY_REGISTERED = "CAPABILITY_REGISTERED"
    CAPABILITY_CLEARED = "CAPABILITY_CLEARED"
    CAPABILITY_REBOUND = "CAPABILITY_REBOUND"
    CAPABILITY_CONFLICT = "CAPABILITY_CONFLICT"
    EVENT_UNREADABLE = "EVENT_UNREADABLE"
    DOCUMENT_UNREADABLE = "DOCUMENT_UNREADABLE"
    STORE_OLDER_THAN_NODE = "STORE_OLDER_THAN_NODE"


FORMER_NAMES: Final = {
    "CAPABILITY_UNREGISTERED": EventType.CAPABILITY_CLEARED,
    "CAPABILITY_SWAPPED": EventType.CAPABILITY_REBOUND,
}
"""Names that types had: in older events of the log, and for callers, modules and nodes that still use them."""
_FORMERLY: Final = {type.value: name for name, type in FORMER_NAMES.items()}


def event_type(name: str) -> EventType | None:
    """The type of this name, also by one that it had."""
    return EventType.__members__.get(name) or FORMER_NAMES.get(name)


def present_name(name: str) -> str:
    """The name of a type as it is now; others, such as those of modules' own events, as they are."""
    return FORMER_NAMES.get(name, name)


def former_name(name: str) -> str:
    """The contrary, for readers that know no other."""
    return _FORMERLY.get(name, name)


_CURSOR: Final = re.compile(r"(0|[1-9][0-9]{0,17})-(0|[1-9][0-9]{0,17})")
"""Numbers of at most 18 digits, which every store accepts."""


class Cursor(msgspec.Struct, frozen=True, order=True, gc=False):
    """A position in the event log. Sequences grow across epochs, and are assigned without a hole; a hole is
    where an event that a module published was dropped later."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"

    @property
    def storable(self) -> bool:
        """Whether a store can be queried with it; a peer may send larger numbers."""
        return max(self.epoch, self.sequence) < 2**63

    @classmethod
    def parse(cls, text: str, *, field: str = "after") -> Cursor:
        match = _CURSOR.fullmatch(text)
        if match is None:
            raise Rejected(
                Code.INVALID_CURSOR,
                f"{text[:80]!r} is not an event cursor",
                hint="use EPOCH-SEQUENCE, as in an event's 'id'",
                field=field,
            )
        return cls(int(match[1]), int(match[2]))


START: Final = Cursor(0, 0)
"""Before the first event."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event before the store has numbered it."""

    type: EventType
    subject: str
    data: dict[str, Any] = {}


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened, in the same transaction as the state it describes."""

    cursor: Cursor
    type: EventType
    subject: str
    at: dt.datetime
    data: dict[str, Any]


class MissedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """Events between two cursors that a reader cannot get: the log lost them, or they cannot be read. The
    last of them is at or before `until`."""

    after: Cursor
    until: Cursor


DATA_DEPTH: Final = 2 * MAX_DEPTH
"""Depth of an event's data in the log: free values of others lie some levels deep in ours."""
OMITTED: Final = "omitted"
"""The only key of stand-in data for data that could not be shown; its value is the reason."""


def without_data(event: Event, why: str) -> Event:
    """The stand-in of an event whose data cannot be encoded: everything else is as it was, as far as it is
    text that can be encoded."""
    subject = event.subject.encode(errors="replace").decode()
    return msgspec.structs.replace(event, subject=subject, data={OMITTED: why})
