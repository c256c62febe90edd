"""Fields that every event about a module has."""

from __future__ import annotations

import datetime as dt

from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.records import PackageRecord


def phase_fields(
    record: PackageRecord,
    *,
    at: dt.datetime,
    reason: str = "",
    to: ModulePhase | None = None,
    version: str = "",
) -> dict[str, object]:
    """Fields of an event that is no step of the table, or sums up several: the module's phase before and
    after. `version` is that of the event's subject, where it is not the record's own."""
    return {
        "id": record.id,
        "version": version or record.version,
        "from": record.phase.value,
        "to": (to or record.phase).value,
        "intent": record.intent.value,
        "reason": reason,
        "at": at.isoformat(),
    }


def changed_keys(old: dict[str, object], new: dict[str, object]) -> list[str]:
    """Names of the changed settings; values may be secrets and are not published."""
    absent = object()
    return sorted(key for key in {*old, *new} if old.get(key, absent) != new.get(key, absent))
