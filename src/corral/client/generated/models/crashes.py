"""Structures of `crashes`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct

from corral.client.enums import OpenEnum
from corral.client.generated.models.shared import Exit


class CrashClass(OpenEnum):
    """Crash class."""

    CLEAN_EXIT = "clean_exit"
    MISSING_CLASS = "missing_class"
    MISSING_FILE = "missing_file"
    NEVER_READY = "never_ready"
    OOM = "oom"
    PORT_IN_USE = "port_in_use"
    SIGNAL = "signal"
    STACK_OVERFLOW = "stack_overflow"
    UNKNOWN = "unknown"


class CrashPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Crash, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Crash(Struct, frozen=True, kw_only=True):
    """A crash without its tail. `restarted_as` is the run that took its place, 0: none did."""

    id: str
    """Id of the crash: INSTANCE.INCARNATION."""
    instance: str
    """Id of the instance."""
    incarnation: int
    """Number of the run. Each run of an instance has another one, and none is used twice."""
    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    at: str
    """When the run ended, in UTC."""
    crash_class: str
    """What kind of crash it was, such as `oom`, `signal` or `never_ready`."""
    signature: str
    """The same for crashes that look alike, so that they can be counted."""
    uptime_ms: int
    """How long the run had lived, in milliseconds."""
    restarted_as: int
    """Number of the run that took its place; 0: none did."""
    exit: Exit
    """How the run ended."""


class CrashReport(Struct, frozen=True, kw_only=True):
    """A crash with the last lines of its console; the first of them is at `tail_offset`."""

    id: str
    """Id of the crash: INSTANCE.INCARNATION."""
    instance: str
    """Id of the instance."""
    incarnation: int
    """Number of the run. Each run of an instance has another one, and none is used twice."""
    group: str
    """Name of the group."""
    node: str
    """Id of the node."""
    at: str
    """When the run ended, in UTC."""
    crash_class: str
    """What kind of crash it was, such as `oom`, `signal` or `never_ready`."""
    signature: str
    """The same for crashes that look alike, so that they can be counted."""
    uptime_ms: int
    """How long the run had lived, in milliseconds."""
    restarted_as: int
    """Number of the run that took its place; 0: none did."""
    exit: Exit
    """How the run ended."""
    tail: tuple[str, ...]
    """The last lines of its console."""
    tail_offset: int
    """Console offset of the first of them."""
