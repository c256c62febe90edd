"""Stored records of crashes."""

from __future__ import annotations

import datetime as dt
import enum

from corral.domain.groups.instance_records import ExitRecord
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.records import Record


class CrashRecord(Record, frozen=True, kw_only=True):
    """One crash, as its node reported it."""

    id: str
    """`INSTANCE.INCARNATION`; of a second run with the same number, with its nonce behind."""
    instance: InstanceId
    incarnation: Incarnation
    group: GroupName
    node: NodeId
    at: dt.datetime
    exit: ExitRecord
    crash_class: str
    signature: str
    uptime_ms: int
    tail: tuple[str, ...] = ()
    tail_offset: int = 0
    restarted_as: int = 0
    nonce: str = ""
    """Of the run."""
    received_at: dt.datetime | None = None
    """By the controller's clock, which decides how long it is kept. `at` is by the node's."""


class CrashClass(enum.StrEnum):
    OOM = "oom"
    PORT_IN_USE = "port_in_use"
    MISSING_FILE = "missing_file"
    MISSING_CLASS = "missing_class"
    STACK_OVERFLOW = "stack_overflow"
    SIGNAL = "signal"
    CLEAN_EXIT = "clean_exit"
    NEVER_READY = "never_ready"
    UNKNOWN = "unknown"
