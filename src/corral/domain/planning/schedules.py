"""Schedules of a group: which of them is active is a function of the time alone, so that no start of one can be missed."""

from __future__ import annotations

import datetime as dt
import functools
import zoneinfo
from typing import Any, Final

import msgspec

from corral.domain.cron import Cron, parse_cron
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.scaling_spec import OVERLAID, MaintenanceSpec, ScalingMode, ScheduleSpec
from corral.domain.spec import MOST_COUNTED

_FAR: Final = dt.timedelta(days=366)
_GROUPS: Final = 16_384
_CRONS: Final = 16_384
"""More groups than a cluster has, and most of what they can have: what falls out is computed at every look."""
_AGAIN: Final = dt.timedelta(days=1)
"""After so long it is computed anew what is active where nothing changes within a year."""


class ScheduledValues(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a group that a schedule can change, as they are at one moment."""

    min: int
    max: int | None
    warm: int
    mode: ScalingMode
    maintenance: MaintenanceSpec
    by: dict[str, str] = {}
    """By the name of a field, the schedule that set it."""
    active: tuple[str, ...] = ()
    """The names of the active schedules, in the order in which they began."""
    changes_at: dt.datetime | None = None
    """When a schedule begins or ends next; None: not within a year."""

    def bounded(self, count: int) -> int:
        """At most `max`; without one, at most what `max` could be."""
        return min(MOST_COUNTED if self.max is None else self.max, count)


def scheduled(spec: GroupSpec, now: dt.datetime) -> ScheduledValues:
    """The values of the group with those of its active schedules. Of several that set the same field the one that began
    last counts, then the one that comes first in the document. `max` is never below `min`."""
    values = ScheduledValues(
        min=spec.min,
        max=spec.max,
        warm=spec.warm,
        mode=spec.scaling.mode,
        maintenance=spec.maintenance,
    )
    if not spec.schedules:
        return values
    phase = _phase_of(spec.schedules, now)
    values = msgspec.structs.replace(
        values, **phase.written, by=phase.by, active=phase.active, changes_at=phase.changes_at
    )
    if values.max is not None and values.max < values.min:
        values = msgspec.structs.replace(values, max=values.min)
    return values


class _Phase(msgspec.Struct, frozen=True, kw_only=True):
    """The active schedules between two changes."""

    since: dt.datetime
    """It holds from here on, perhaps also before."""
    until: dt.datetime
    written: dict[str, Any]
    """What the active schedules set, by field."""
    by: dict[str, str]
    active: tuple[str, ...]
    changes_at: dt.datetime | None


def _phase_of(schedules: tuple[ScheduleSpec, ...], now: dt.datetime) -> _Phase:
    """The phase at this moment. It is asked for often and computed once: schedules may be many, and long."""
    kept = _last_phase(schedules)
    if kept and kept[0].since <= now < kept[0].until:
        return kept[0]
    begun: list[tuple[dt.datetime, ScheduleSpec]] = []
    moments: list[dt.datetime] = []
    for each in reversed(schedules):
        cron, zone = _parsed(each)
        lasts = dt.timedelta(seconds=each.duration_seconds)
        began, following = cron.last_until(now, zone, within=lasts), cron.next_after(now, zone)
        if began is not None:
            begun.append((began, each))
            moments.append(began + lasts)
        if following is not None:
            moments.append(following)
    soon = [each for each in moments if each - now < _FAR]
    changes_at = min(soon, default=None)
    # of two that began together the first of the document comes last, and counts
    active = [each for _, each in sorted(begun, key=lambda item: item[0])]
    written: dict[str, Any] = {}
    by: dict[str, str] = {}
    for each in active:
        set_here = {name: value for name in OVERLAID if (value := getattr(each, name)) is not None}
        written |= set_here
        by |= dict.fromkeys(set_here, each.name)
    phase = _Phase(
        since=now,
        until=changes_at or now + _AGAIN,
        written=written,
        by=by,
        active=tuple(each.name for each in active),
        changes_at=changes_at,
    )
    kept[:] = [phase]
    return phase


@functools.lru_cache(maxsize=_GROUPS)
def _last_phase(schedules: tuple[ScheduleSpec, ...]) -> list[_Phase]:
    """Room for the phase of these schedules that was computed last."""
    del schedules
    return []


def _parsed(schedule: ScheduleSpec) -> tuple[Cron, zoneinfo.ZoneInfo]:
    return _parse(schedule.cron, schedule.time_zone)


@functools.lru_cache(maxsize=_CRONS)
def _parse(cron: str, zone: str) -> tuple[Cron, zoneinfo.ZoneInfo]:
    return parse_cron(cron), zoneinfo.ZoneInfo(zone)
