"""Times, spans and sizes as people write and read them: `--since 2h`, `90s`, `15 Nov 08:01`, `1.5 MiB`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from corral.cli.failure import WrongUsage
from corral.system.spans import span_seconds

if TYPE_CHECKING:
    import datetime as dt


_LONGEST: Final = 100 * 366 * 86_400


class SpanType(click.ParamType[int]):
    """`90s`, `30m`, `1h30m`, `7d`: whole seconds; a bare number is seconds."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        seconds = span_seconds(str(value))
        if seconds is None:
            self.fail(f"'{value}' is not a span of time; write it like 90s, 30m, 1h or 7d", param, ctx)
        if not 0 < seconds <= _LONGEST:
            self.fail(f"'{value}' is not a usable span of time", param, ctx)
        return seconds


def age(time: Any) -> str:
    """How long ago an RFC 3339 time was: `12s`, `5m`, `3h`, `4d`; a dash when there is none."""
    if not time:
        return "-"
    import datetime as dt

    try:
        then = dt.datetime.fromisoformat(str(time))
        seconds = int((dt.datetime.now(dt.UTC) - then).total_seconds())
    except (ValueError, TypeError):
        return str(time)
    if seconds < 0:
        return f"in {_length(-seconds)}"
    return _length(seconds)


def short_time(time: Any) -> str:
    """When an RFC 3339 time was, on this machine's clock: `08:01:07` of today, else `15 Nov 08:01`, of
    another year `2025-11-15`. Where that clock is not UTC its zone is named: texts of the controller are in UTC."""
    then = _local(time)
    if then is None:
        return str(time) if time else "-"
    today = _now(then)
    zone = f" {then:%Z}" if then.utcoffset() else ""
    if then.date() == today.date():
        return then.strftime("%H:%M:%S") + zone
    return then.strftime("%d %b %H:%M") + zone if then.year == today.year else then.strftime("%Y-%m-%d")


def full_time(time: Any) -> str:
    """An RFC 3339 time in full, on this machine's clock with its zone, and how long ago it was."""
    then = _local(time)
    if then is None:
        return str(time) if time else "-"
    past = age(time)
    return f"{then:%Y-%m-%d %H:%M:%S %Z} ({past if past.startswith('in ') else f'{past} ago'})"


def _local(time: Any) -> dt.datetime | None:
    import datetime as dt

    try:
        return dt.datetime.fromisoformat(str(time)).astimezone() if time else None
    except (ValueError, OverflowError, OSError):
        return None


def _now(like: dt.datetime) -> dt.datetime:
    return type(like).now(like.tzinfo)


def natural_order(text: str) -> list[tuple[bool, int, str]]:
    """A sorting key under which numbers within a text count as such: w-6 before w-10."""
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in re.split(r"([0-9]+)", text)
        if part
    ]


def _length(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 7200:
        return f"{seconds // 60}m"
    if seconds < 172_800:
        return f"{seconds // 3600}h"
    return f"{seconds // 86_400}d"


def duration(start: Any, end: Any) -> str:
    """How long something lasted, `12s`, `5m`; up to now when it has not ended; a dash when it never began."""
    if not start:
        return "-"
    if not end:
        return age(start)
    began, ended = _local(start), _local(end)
    return _length(max(0, int((ended - began).total_seconds()))) if began and ended else "-"


def size_text(size: Any) -> str:
    """Bytes as people read them."""
    value = float(size or 0)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return ""


def pairs(given: tuple[str, ...]) -> dict[str, str]:
    """`K=V` each."""
    found: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise WrongUsage(f"'{text}' is not NAME=VALUE")
        found[key] = value
    return found


def shortened(text: str, most: int) -> str:
    """Its beginning, of one that is longer than `most`."""
    return text if len(text) <= most else text[: most - 1] + "…"


F = TypeVar("F", bound=Callable[..., Any])

_CLOCK: Final = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?")
_DATED: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ].*)?")
FORMS: Final = "2h, 1d, 10:00, yesterday, 2026-11-15 or 2026-11-15T10:00"


class Moment(click.ParamType[str]):
    """A point in time, given to the API as RFC 3339 in UTC.

    `2h`, `1d`, `1h30m`: so long ago. `10:00`, `10:00:30`: the last time the clock here showed it. `now`, `today`,
    `yesterday`: days begin at midnight here. A date, or a date and a time: here, unless it names its zone.
    """

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import datetime as dt

        text = str(value).strip()
        try:
            found = moment(text, dt.datetime.now().astimezone())
        except (ValueError, OverflowError):
            found = None
        if found is None:
            self.fail(f"'{value}' is no time; write it like {FORMS}", param, ctx)
        return rfc3339(found)


def moment(text: str, now: dt.datetime) -> dt.datetime | None:
    """The time that a text means at the moment `now`; None when it is no time. ValueError or OverflowError for one
    that no calendar has."""
    import datetime as dt

    text = text.strip()
    seconds = None if text.isdecimal() else span_seconds(text)
    if seconds is not None:
        return now - dt.timedelta(seconds=seconds)
    days = {"now": None, "today": 0, "yesterday": 1}
    if text.lower() in days:
        back = days[text.lower()]
        return now if back is None else _local_clock(now.date() - dt.timedelta(days=back), dt.time())
    if clock := _CLOCK.fullmatch(text):
        at = dt.time(int(clock[1]), int(clock[2]), int(clock[3] or 0))
        today = _local_clock(now.date(), at)
        return today if today <= now else _local_clock(now.date() - dt.timedelta(days=1), at)
    if _DATED.fullmatch(text) is None:
        return None
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else _local_clock(found.date(), found.time())


def _local_clock(day: dt.date, at: dt.time) -> dt.datetime:
    """A time of the clock here; the host's zone knows the offset of that day."""
    import datetime as dt

    return dt.datetime.combine(day, at).astimezone()


def rfc3339(time: dt.datetime) -> str:
    """In UTC and of one length, so that texts compare as times do."""
    import datetime as dt

    return time.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_before(time: Any, other: str) -> bool:
    """Whether a time of the API is earlier than one that `Moment` made; False when there is none."""
    if not time:
        return False
    import datetime as dt

    try:
        return dt.datetime.fromisoformat(str(time)) < dt.datetime.fromisoformat(other)
    except (ValueError, TypeError):
        return False


def moment_of(time: Any) -> dt.datetime:
    """A time of the API, to sort by; what is none comes first."""
    import datetime as dt

    try:
        return dt.datetime.fromisoformat(str(time)).astimezone(dt.UTC)
    except (ValueError, OverflowError):
        return dt.datetime.min.replace(tzinfo=dt.UTC)


def local_time(time: Any) -> str:
    """A time of the API as the clock here shows it, `2026-11-15T10:00:00.250+01:00`; a dash when there is none."""
    if not time:
        return "-"
    import datetime as dt

    try:
        return dt.datetime.fromisoformat(str(time)).astimezone().isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):
        return str(time)


def time_options(what: str) -> Callable[[F], F]:
    """`--since` and `--until`, which come as `since` and `until`: RFC 3339 in UTC for the API's parameters of these
    names, or None. `check_times` refuses a pair that is the wrong way round."""

    def add(command: F) -> F:
        until = click.option("--until", type=Moment(), metavar="TIME", help=f"Only {what} before then.")
        since = click.option(
            "--since", type=Moment(), metavar="TIME", help=f"Only {what} since then: {FORMS}."
        )
        return since(until(command))

    return add


def check_times(since: str | None, until: str | None) -> None:
    if since is not None and until is not None and since >= until:
        raise WrongUsage(
            f"--since ({local_time(since)}) is not before --until ({local_time(until)})",
            hint="a clock time like 10:00 is the last time the clock showed it",
        )
