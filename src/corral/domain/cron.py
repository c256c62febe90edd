"""Cron schedules in five fields: minute, hour, day of the month, month, day of the week. All in UTC.

A field is `*`, or a list of numbers, names (`JAN`, `MON`), ranges (`1-5`) and steps (`*/15`, `10-40/10`,
`5/20`). Sunday is 0 and 7. As everywhere since Vixie's cron, a schedule that restricts both the day of the
month and the day of the week means days that fit either; a field that begins with `*` restricts nothing.
"""

from __future__ import annotations

import calendar
import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from corral.errors import Code, Rejected

TEXT_MAX: Final = 256
HORIZON_YEARS: Final = 50
"""The rarest schedule, 29 February on one weekday, comes at least every 40 years."""
_LONGEST_MONTH: Final = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS: Final = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS: Final = {name: number for number, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_NICKNAMES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    low: int
    high: int
    names: Mapping[str, int] = {}


_FIELDS: Final = (
    _Field(name="minute", low=0, high=59),
    _Field(name="hour", low=0, high=23),
    _Field(name="day of the month", low=1, high=31),
    _Field(name="month", low=1, high=12, names=_MONTHS),
    _Field(name="day of the week", low=0, high=7, names=_DAYS),
)


class Cron(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that matches some time; every field is sorted and not empty."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: frozenset[int]
    either: bool
    """Day of the month or day of the week; otherwise both must match."""

    def matches(self, at: dt.datetime) -> bool:
        """Whether this minute is one of the schedule."""
        return (
            at.minute in self.minutes
            and at.hour in self.hours
            and at.month in self.months
            and self._fits(at.date())
        )

    def _fits(self, day: dt.date) -> bool:
        by_month = day.day in self.days
        by_week = day.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either else by_month and by_week

    def next_after(self, at: dt.datetime) -> dt.datetime | None:
        """The first minute of the schedule after `at`, in UTC; None: not before the calendar ends."""
        start = at.astimezone(dt.UTC).replace(second=0, microsecond=0)
        for day in self._days_from(start.date()):
            today = day == start.date()
            for hour in self.hours:
                if today and hour < start.hour:
                    continue
                for minute in self.minutes:
                    if not today or (hour, minute) > (start.hour, start.minute):
                        return dt.datetime(day.year, day.month, day.day, hour, minute, tzinfo=dt.UTC)
        return None

    def _days_from(self, first: dt.date) -> Iterator[dt.date]:
        for year in range(first.year, min(first.year + HORIZON_YEARS, dt.MAXYEAR) + 1):
            for month in self.months:
                if (year, month) < (first.year, first.month):
                    continue
                for number in range(1, calendar.monthrange(year, month)[1] + 1):
                    day = dt.date(year, month, number)
                    if day >= first and self._fits(day):
                        yield day


def parse_cron(text: str, *, field: str = "cron") -> Cron:
    """The schedule, or INVALID_FIELD with the field that is wrong."""
    if len(text) > TEXT_MAX:
        raise _refused(text, f"it is longer than {TEXT_MAX} characters", field)
    parts = _NICKNAMES.get(text.strip().lower(), text).split()
    if len(parts) != len(_FIELDS):
        raise _refused(text, f"it has {len(parts)} fields and not {len(_FIELDS)}", field)
    values: list[tuple[int, ...]] = []
    for spec, part in zip(_FIELDS, parts, strict=True):
        try:
            values.append(tuple(sorted(_values(spec, part))))
        except ValueError as why:
            raise _refused(text, f"{spec.name}: {why}", field) from None
    cron = Cron(
        text=" ".join(parts),
        minutes=values[0],
        hours=values[1],
        days=values[2],
        months=values[3],
        weekdays=frozenset(day % 7 for day in values[4]),
        either=not parts[2].startswith("*") and not parts[4].startswith("*"),
    )
    if not cron.either and not any(
        day <= _LONGEST_MONTH[month] for month in cron.months for day in cron.days
    ):
        raise _refused(text, "no month of it has such a day", field)
    return cron


def _values(spec: _Field, part: str) -> set[int]:
    found: set[int] = set()
    for item in part.split(","):
        span, _, step_text = item.partition("/")
        step = _number(step_text) if "/" in item else 1
        if step < 1:
            raise ValueError(f"'{item}' steps by nothing")
        low, high = _span(spec, span, open_ended="/" in item)
        if not spec.low <= low <= spec.high or not spec.low <= high <= spec.high:
            raise ValueError(f"'{item}' is not within {spec.low}-{spec.high}")
        if low > high:
            raise ValueError(f"'{item}' runs backwards")
        found.update(range(low, high + 1, step))
    return found


def _span(spec: _Field, span: str, *, open_ended: bool) -> tuple[int, int]:
    if span == "*":
        return spec.low, spec.high
    first, dash, last = span.partition("-")
    low = _value(spec, first)
    if dash:
        high = _value(spec, last)
        return low, 7 if spec.high == 7 and high == 0 and low else high  # MON-SUN
    return low, spec.high if open_ended else low


def _value(spec: _Field, text: str) -> int:
    named = spec.names.get(text.upper())
    return _number(text) if named is None else named


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 4):
        raise ValueError(f"'{text[:20]}' is not a number")
    return int(text)


def _refused(text: str, why: str, field: str) -> Rejected:
    return Rejected(
        Code.INVALID_FIELD,
        f"'{text[:80]}' is not a schedule: {why}",
        hint="write five fields, minute hour day month weekday, such as '*/5 * * * *'",
        field=field,
    )
