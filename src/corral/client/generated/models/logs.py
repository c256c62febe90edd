"""Structures of `logs`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct

from corral.client.enums import OpenEnum


class LogLevel(OpenEnum):
    """Log level."""

    DEBUG = "DEBUG"
    ERROR = "ERROR"
    INFO = "INFO"
    TRACE = "TRACE"
    WARN = "WARN"


class LogPage(Struct, frozen=True, kw_only=True):
    """Some records of a log. Those before `kept_since` are not there any more, or are of a former process."""

    items: tuple[Log, ...]
    """The records, oldest first."""
    next: str | None
    """Value of `after` for the next page; null: this is the last one."""
    kept_since: str | None = None
    """Time of the oldest record that is kept; earlier ones are not shown. A controller has its own log in memory, so they are those since its start at most; null: none is kept."""


class Log(Struct, frozen=True, kw_only=True):
    """A log record; `dropped_before` counts those that were lost right before it."""

    number: int
    """Position in the log, for `after`."""
    at: str
    """When it happened, in UTC."""
    level: str
    """TRACE, DEBUG, INFO, WARN or ERROR."""
    logger: str
    """Part of Corral that wrote it."""
    message: str
    """The fact, such as `node.enrolled`."""
    thread: str
    """Thread that wrote it; empty: unknown."""
    throwable: str
    """The traceback; empty: none."""
    fields: dict[str, str]
    """What belongs to the fact, by name."""
    dropped_before: int
    """How many records were lost right before this one."""


class LogLevelShape(Struct, frozen=True, kw_only=True):
    """Log level shape."""

    source: str
    """`controller` or `node:ID`."""
    level: str
    """Level that is in force."""
