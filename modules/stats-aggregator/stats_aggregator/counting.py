"""From one event to what it adds; no storage, no clock."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from corral.sdk import Event

_COUNTED: Final = {"INSTANCE_RUNNING": "starts", "INSTANCE_STOPPED": "stops", "INSTANCE_CRASHED": "crashes"}


def day_of(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).date().isoformat()


def document_id(group: str, day: str) -> str:
    """Days sort within a group, and `:` is no letter of a group's name."""
    return f"{group}:{day}"


def added(event: Event, since: dt.datetime | None) -> dict[str, float] | None:
    """What an event adds to the day of its group; None when it says nothing to us. `since`: when the run
    that it ends became ready, where that is known."""
    field = _COUNTED.get(event.type)
    if field is None or not group_of(event):
        return None
    if field == "starts" or since is None:
        return {field: 1}
    return {field: 1, "run_seconds": max(0.0, round((event.at - since).total_seconds(), 3))}


def group_of(event: Event) -> str:
    group: Any = event.data.get("group")
    return group if isinstance(group, str) else ""


def oldest_kept(now: dt.datetime, keep_days: int) -> str:
    return day_of(now - dt.timedelta(days=keep_days - 1))
