"""How far a module's durable subscription has come."""

from __future__ import annotations

import datetime as dt

from corral.domain.records import Record


class ModuleCursor(Record, frozen=True, kw_only=True):
    """Everything up to `cursor` was confirmed by the module, or was nothing it wanted."""

    cursor: str
    at: dt.datetime
