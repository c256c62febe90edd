"""Points in time as people write them: `--since 2h`, `--until 10:00`, and as they read them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from corral.cli.failure import WrongUsage
from corral.cli.terminal.values import span_seconds

if TYPE_CHECKING:
    import datetime as dt

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
    """What somebody means by a text at the moment `now`; None when it is no time. ValueError or OverflowError for one
    that no calendar has."""
    import datetime as dt

    text = text.strip()
    seconds = None if text.isdecimal() else span_seconds(text)
    if seconds is not None:
        return now - dt.timedelta(seconds=seconds)
    days = {"now": None, "today": 0, "yesterday": 1}
    if text.lower() in days:
        back = days[text.lower()]
        return now if back is None else _local(now.date() - dt.timedelta(days=back), dt.time())
    if clock := _CLOCK.fullmatch(text):
        at = dt.time(int(clock[1]), int(clock[2]), int(clock[3] or 0))
        today = _local(now.date(), at)
        return today if today <= now else _local(now.date() - dt.timedelta(days=1), at)
    if _DATED.fullmatch(text) is None:
        return None
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo else _local(found.date(), found.time())


def _local(day: dt.date, at: dt.time) -> dt.datetime:
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
