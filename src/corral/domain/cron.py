"""Cron schedules in five fields: minute, hour, day of the month, month, day of the week, in UTC or in a time zone.

A field is `*`, or a list of numbers, names (`JAN`, `MON`), ranges (`1-5`) and steps (`*/15`, `10-40/10`,
`5/20`). Sunday is 0 and 7. As everywhere since Vixie's cron, a schedule that restricts both the day of the
month and the day of the week means days that fit either; a field that begins with `*` restricts nothing.

Where the clocks of a zone are changed, a time of day that does not exist occurs at the end of the gap, and one that
exists twice occurs once, at the first. If the hour begins with `*` the schedule follows elapsed time instead: nothing
occurs in the gap, and the repeated hour has its occurrences twice.
"""

from __future__ import annotations

import bisect
import calendar
import datetime as dt
import functools
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

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


_DAY: Final = dt.timedelta(days=1)
_HOUR: Final = dt.timedelta(hours=1)
_MINUTE: Final = dt.timedelta(minutes=1)
_SECOND: Final = dt.timedelta(seconds=1)
_REACH: Final = dt.timedelta(hours=48)
"""What a local day has lies within so much of its noon in UTC, whatever the zone is, and so do changes over midnight."""
_BEGIN: Final = dt.datetime(2, 1, 1, tzinfo=dt.UTC)
_END: Final = dt.datetime(dt.MAXYEAR, 1, 1, tzinfo=dt.UTC)
"""What the arithmetic of days and zones is sure to stay within."""


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
    any_hour: bool = False
    """The hour begins with `*`: the schedule follows elapsed time where clocks are changed."""

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

    def next_after(self, at: dt.datetime, zone: dt.tzinfo = dt.UTC) -> dt.datetime | None:
        """The first occurrence after `at`, in UTC; None: not before the calendar ends."""
        if not _BEGIN <= at < _END:
            return None
        first, best = at.astimezone(zone).date(), None
        for date in self._days_from(first if zone is dt.UTC else first - _DAY):
            day = _local_day(date, zone)
            found = self._first_of_day(day, at)
            if found is not None:
                best = min(best or found, found)
            if best is not None and day.steady:
                break
        return best

    def last_until(self, at: dt.datetime, zone: dt.tzinfo, *, within: dt.timedelta) -> dt.datetime | None:
        """The latest occurrence at or before `at`, in UTC, if it is younger than `within`."""
        if not _BEGIN + within <= at < _END:
            return None
        earliest, best = at - within, None
        first = earliest.astimezone(zone).date() - _DAY
        date = at.astimezone(zone).date()
        if not _local_day(date, zone).steady:
            date += _DAY  # clocks may have been set back over midnight
        while date >= first:
            day = _local_day(date, zone)
            if date.month in self.months and self._fits(date):
                found = self._last_of_day(day, at)
                best = max(best or found, found) if found is not None else best
            if best is not None and day.steady:
                break
            date -= _DAY
        return best if best is not None and best > earliest else None

    def _first_of_day(self, day: _LocalDay, after: dt.datetime) -> dt.datetime | None:
        """The first occurrence of a local day after this moment."""
        for span in day.spans:
            if span.begins > after and self._in_gap(span):
                return span.begins
            minute = (after - span.midnight) // _MINUTE + 1
            found = self._first_within(max(minute, self._start_of(span)), span.end)
            if found is not None:
                return span.midnight + found * _MINUTE
        return None

    def _last_of_day(self, day: _LocalDay, until: dt.datetime) -> dt.datetime | None:
        """The last occurrence of a local day at or before this moment."""
        for span in reversed(day.spans):
            minute = (until - span.midnight) // _MINUTE
            found = self._last_within(self._start_of(span), min(span.end, minute + 1))
            if found is not None:
                return span.midnight + found * _MINUTE
            if span.begins <= until and self._in_gap(span):
                return span.begins
        return None

    def _start_of(self, span: _Span) -> int:
        """The first minute of a span of which something occurs: what is repeated has occurred before."""
        return span.start if self.any_hour else max(span.start, span.new_from)

    def _in_gap(self, span: _Span) -> bool:
        """Is there an occurrence at the end of the gap before this span?"""
        return not self.any_hour and self._first_within(*span.gap) is not None

    def _first_within(self, start: int, end: int) -> int | None:
        """The first minute of a day that is of the schedule, from `start` until before `end`."""
        if start >= end:
            return None
        hour, minute = divmod(start, 60)
        index = bisect.bisect_left(self.hours, hour)
        found = None
        if index < len(self.hours) and self.hours[index] == hour:
            later = bisect.bisect_left(self.minutes, minute)
            found = hour * 60 + self.minutes[later] if later < len(self.minutes) else None
            index += 1
        if found is None and index < len(self.hours):
            found = self.hours[index] * 60 + self.minutes[0]
        return found if found is not None and found < end else None

    def _last_within(self, start: int, end: int) -> int | None:
        """The last minute of a day that is of the schedule, from `start` until before `end`."""
        if start >= end:
            return None
        hour, minute = divmod(end - 1, 60)
        index = bisect.bisect_right(self.hours, hour) - 1
        found = None
        if index >= 0 and self.hours[index] == hour:
            earlier = bisect.bisect_right(self.minutes, minute) - 1
            found = hour * 60 + self.minutes[earlier] if earlier >= 0 else None
            index -= 1
        if found is None and index >= 0:
            found = self.hours[index] * 60 + self.minutes[-1]
        return found if found is not None and found >= start else None

    def _days_from(self, first: dt.date) -> Iterator[dt.date]:
        for year in range(first.year, min(first.year + HORIZON_YEARS, _END.year - 1) + 1):
            for month in self.months:
                if (year, month) < (first.year, first.month):
                    continue
                length = calendar.monthrange(year, month)[1]
                for number in range(1, length + 1) if self.either else self.days:
                    if number > length:
                        break
                    day = dt.date(year, month, number)
                    if day >= first and self._fits(day):
                        yield day


class _Span(NamedTuple):
    """A part of a local day in which the clocks are not changed. Minutes are counted from the midnight of that day."""

    begins: dt.datetime
    """In UTC; it may have begun on the day before."""
    midnight: dt.datetime
    """When the day would have begun by the clocks of this span, in UTC."""
    start: int
    end: int
    """Its minutes are those before this one."""
    new_from: int
    """The minutes before this one are there for the second time."""
    gap: tuple[int, int]
    """The minutes between the span before and this one that are not there: from, until before."""


class _LocalDay(NamedTuple):
    """A day in a time zone."""

    steady: bool
    """The clocks are changed neither on this day nor beside it."""
    spans: tuple[_Span, ...]
    """In the order of time."""


@functools.lru_cache(maxsize=16_384)
def _local_day(date: dt.date, zone: dt.tzinfo) -> _LocalDay:
    """It is asked for with every schedule of every group, and the same for all in a zone."""
    noon = dt.datetime(date.year, date.month, date.day, 12, tzinfo=dt.UTC)
    midnight, day = noon - 12 * _HOUR, 24 * 60
    changes = [noon - _REACH, *_changes(noon - _REACH, noon + _REACH, zone), noon + _REACH]
    offsets = [each.astimezone(zone).utcoffset() or dt.timedelta() for each in changes]
    spans: list[_Span] = []
    before = 0
    """The first minute that was not there yet."""
    for begin, end, offset in zip(changes, changes[1:], offsets, strict=False):
        start, stop = (-((midnight - each - offset) // _MINUTE) for each in (begin, end))
        gap = (max(before, 0), min(start, day)) if begin != changes[0] else (0, 0)
        span = _Span(
            begins=begin,
            midnight=midnight - offset,
            start=max(start, 0),
            end=min(stop, day),
            new_from=before,
            gap=gap,
        )
        if span.start < span.end or gap[0] < gap[1]:
            spans.append(span)
        before = max(before, stop)
    near = {(noon + days * _DAY).astimezone(zone).utcoffset() for days in (-1, 0, 1)}
    return _LocalDay(steady=len(near) == 1, spans=tuple(spans))


def _changes(begin: dt.datetime, end: dt.datetime, zone: dt.tzinfo) -> Iterator[dt.datetime]:
    """When the clocks of a zone are changed between two moments, in UTC. At most once in twelve hours."""
    while begin < end:
        following = min(begin + 12 * _HOUR, end)
        offset = begin.astimezone(zone).utcoffset()
        if following.astimezone(zone).utcoffset() != offset:
            yield _change(begin, following, zone)
        begin = following


def _change(before: dt.datetime, after: dt.datetime, zone: dt.tzinfo) -> dt.datetime:
    """The moment between these two at which the clocks of a zone are changed."""
    offset, seconds = before.astimezone(zone).utcoffset(), range(int((after - before).total_seconds()) + 1)
    changed = bisect.bisect_left(
        seconds, True, key=lambda each: (before + each * _SECOND).astimezone(zone).utcoffset() != offset
    )
    return before + changed * _SECOND


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
        any_hour=parts[1].startswith("*"),
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
