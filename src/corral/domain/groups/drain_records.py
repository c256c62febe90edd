"""What a drain means for an instance and for its group, as it is stored with them."""

from __future__ import annotations

import datetime as dt

from corral.domain.records import Record


class InstanceDrain(Record, frozen=True, kw_only=True):
    """Why an instance takes no more players, and is stopped when it has none."""

    by: str
    """The `Rule` that it follows."""
    since: dt.datetime
    reason: str


class DrainWait(Record, frozen=True, kw_only=True):
    """Why an instance stays for now on a node that is emptied."""

    instance: str
    reason: str
    room: bool = False
    """No node has room for a replacement."""
