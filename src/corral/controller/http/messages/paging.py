"""Pages of lists: a limit, an opaque cursor and a stable order; and pages of journals by time (`since`, `until`).

The entry numbers of a journal are exact, clocks are not: a clock may have been set back between two entries. A search
by time therefore starts a little before the requested time and ends a little after it, and checks each entry.
"""

from __future__ import annotations

import base64
import binascii
import bisect
import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, Generic, TypeVar

import msgspec

from corral.controller.http.messages.call import Query
from corral.controller.http.messages.responses import encode
from corral.controller.state.cluster_state import Mirror, StoredRecord
from corral.domain.ids import MAX_COUNTER
from corral.domain.records import Record
from corral.errors import Code, Rejected
from corral.store.port import Entry, ReadEngine

T = TypeVar("T")
R = TypeVar("R", bound=Record)
S = TypeVar("S")

MOST_OF_PAGE: Final = 500
Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST_OF_PAGE, description="Most items of a page.")]
PageCursor = Annotated[
    str, msgspec.Meta(max_length=512, description="`next` of the page before; empty: from the start.")
]

DEFAULT_LIMIT: Final = 100
PAGE_BYTES: Final = 2 * 1024 * 1024
"""A page ends before the item that would make it longer, unless that is its first."""


_CLOCK_STEP: Final = dt.timedelta(minutes=10)
_SCANS: Final = 20
_FILTERED: Final = 500
"""Entries that are read at a time where some are filtered out."""
MOST_MISPLACED: Final = 2000
"""So many entries behind a moment are looked at for those that a clock which was set back has put there."""
Since = Annotated[dt.datetime, msgspec.Meta(tz=True, description="Only what happened at this time or later.")]
Until = Annotated[dt.datetime, msgspec.Meta(tz=True, description="Only what happened before this time.")]
TimeAt = Callable[[int], Awaitable[dt.datetime | None]]
"""The time of the first entry with this number or a higher one; None when there is none."""


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: list[T]
    next: str | None


class PageQuery(Query, frozen=True, kw_only=True):
    limit: Limit = DEFAULT_LIMIT
    cursor: PageCursor | None = None


def encode_cursor(kind: str, position: str) -> str:
    """A position as an opaque text: callers do not build one by hand."""
    return base64.urlsafe_b64encode(msgspec.json.encode((kind, position))).decode().rstrip("=")


def decode_cursor(kind: str, cursor: str | None) -> str | None:
    """The position; INVALID_CURSOR when the text is not one of this kind of list."""
    if cursor is None:
        return None
    try:
        raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        found, position = msgspec.json.decode(raw, type=tuple[str, str])
    except (binascii.Error, msgspec.DecodeError, UnicodeError, ValueError):
        found, position = "", ""
    if found != kind:
        raise invalid_cursor()
    return position


def invalid_cursor() -> Rejected:
    return Rejected(
        Code.INVALID_CURSOR,
        "the cursor is not one of this list, or of another order of it",
        hint="use `next` of the page before, or none to start over",
        field="cursor",
    )


def page_of(
    mirror: Mirror[R],
    query: PageQuery,
    *,
    accepts: Callable[[R], bool],
    shape: Callable[[StoredRecord[R]], T],
    among: Sequence[str] | None = None,
) -> Page[T]:
    """A page of a collection in the order of ids: what comes or goes meanwhile moves nothing else. `among`: ids in
    order that hold all that `accepts` accepts, from an index."""
    ids = mirror.ids() if among is None else among
    after = decode_cursor(mirror.collection.name, query.cursor)
    begin = 0 if after is None else bisect.bisect_right(ids, after)
    found = PageItems[T](query.limit)
    for index in range(begin, len(ids)):
        stored = mirror.require(ids[index])
        if not accepts(stored.record):
            continue
        if found.is_full or not found.takes(shape(stored)):
            return Page(items=found.items, next=encode_cursor(mirror.collection.name, ids[index - 1]))
    return Page(items=found.items, next=None)


def page_of_sorted(
    items: Sequence[S],
    query: PageQuery,
    *,
    kind: str,
    key: Callable[[S], str],
    shape: Callable[[S], T],
) -> Page[T]:
    """A page of things that are not documents, sorted by `key`, each with one of its own."""
    after = decode_cursor(kind, query.cursor)
    begin = 0 if after is None else bisect.bisect_right(items, after, key=key)
    found = PageItems[T](query.limit)
    for index in range(begin, len(items)):
        if found.is_full or not found.takes(shape(items[index])):
            return Page(items=found.items, next=encode_cursor(kind, key(items[index - 1])))
    return Page(items=found.items, next=None)


class PageItems(Generic[T]):
    """The items of one page, bounded by number and by bytes: some documents are a thousand times as long as others."""

    def __init__(self, limit: int) -> None:
        self.items: list[T] = []
        self._limit = limit
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return len(self.items) == self._limit

    def takes(self, item: T) -> bool:
        """Add an item, unless the page would be too long; a page has at least one."""
        self._bytes += len(encode(item))
        if self.items and self._bytes > PAGE_BYTES:
            return False
        self.items.append(item)
        return True


def everything(_: object) -> bool:
    return True


class TimeRange(msgspec.Struct, frozen=True):
    """From `since` on and before `until`; each may be open."""

    since: dt.datetime | None = None
    until: dt.datetime | None = None

    @property
    def bounded(self) -> bool:
        return self.since is not None or self.until is not None

    def holds(self, at: dt.datetime) -> bool:
        return (self.since is None or at >= self.since) and (self.until is None or at < self.until)

    def is_after(self, at: dt.datetime) -> bool:
        """Whether what lies behind an entry of this time is too late for certain."""
        return self.until is not None and at >= _moved(self.until, _CLOCK_STEP)

    def is_before(self, at: dt.datetime) -> bool:
        return self.since is not None and at < _moved(self.since, -_CLOCK_STEP)

    async def first_at(self, time_at: TimeAt, *, oldest: int, newest: int) -> int:
        """The lowest number from which on entries are not before this range; exact where no clock was set back."""
        since = self.since
        return oldest if since is None else await _search(time_at, oldest, newest, lambda at: at < since)

    async def end_at(self, time_at: TimeAt, *, oldest: int, newest: int) -> int:
        """The lowest number from which on entries are behind this range; exact where no clock was set back."""
        until = self.until
        return newest + 1 if until is None else await _search(time_at, oldest, newest, lambda at: at < until)

    async def first_number(self, time_at: TimeAt, *, oldest: int, newest: int) -> int:
        """The lowest number from which on something may lie in this range."""
        return oldest if self.since is None else await _search(time_at, oldest, newest, self.is_before)

    async def end_number(self, time_at: TimeAt, *, oldest: int, newest: int) -> int:
        """A number that all in this range lie below: behind the first that is too late there are at most
        `MOST_MISPLACED` others."""
        until = self.until
        if until is None:
            return newest + 1
        late = await _search(time_at, oldest, newest, lambda at: at < until)
        return min(
            await _search(time_at, late, newest, lambda at: not self.is_after(at)), late + MOST_MISPLACED
        )


class TimedPageQuery(PageQuery, frozen=True, kw_only=True):
    since: Since | None = None
    until: Until | None = None


async def newest_entries(
    reads: ReadEngine,
    journal: str,
    query: TimedPageQuery,
    *,
    prefix: bool = False,
    once: Callable[[Entry], str] | None = None,
    accepts: Callable[[Entry], bool] | None = None,
) -> tuple[list[Entry], str | None]:
    """A page of a journal, or of all whose name begins so, the newest first, and the cursor of the next page.
    A search is bounded: a page may be short, or even empty, and still have a next one. `once`: of entries for which
    it is the same, only the newest is listed; they must follow one another, so that no page ends among them. `accepts`: only
    these are listed."""
    span = TimeRange(query.since, query.until)
    before = _number(decode_cursor(journal, query.cursor))
    if before is None and span.until is not None:
        before = await _below(reads, journal, span, prefix=prefix)
    found: list[Entry] = []
    last = ""
    size = query.limit + 1 if accepts is None else max(query.limit + 1, _FILTERED)
    for _ in range(_SCANS):
        entries = await reads.entries(journal, before=before, limit=size, newest=True, prefix=prefix)
        for entry in reversed(entries):
            if span.is_before(entry.at):
                return found, None
            if once is not None and found and once(entry) == last:
                before = entry.number
                continue
            if len(found) == query.limit:
                return found, encode_cursor(journal, str(before))
            before = entry.number
            if span.holds(entry.at) and (accepts is None or accepts(entry)):
                found.append(entry)
                last = once(entry) if once is not None else ""
        if len(entries) < size:
            return found, None
    return found, encode_cursor(journal, str(before))


async def _below(reads: ReadEngine, journal: str, span: TimeRange, *, prefix: bool) -> int | None:
    async def time_at(number: int) -> dt.datetime | None:
        entries = await reads.entries(journal, after=number - 1, limit=1, prefix=prefix)
        return entries[0].at if entries else None

    oldest = await reads.entries(journal, limit=1, prefix=prefix)
    newest = await reads.entries(journal, limit=1, newest=True, prefix=prefix)
    if not oldest or not newest:
        return None
    return await span.end_number(time_at, oldest=oldest[0].number, newest=newest[0].number)


async def _search(time_at: TimeAt, low: int, high: int, is_early: Callable[[dt.datetime], bool]) -> int:
    """The lowest number in low…high+1 whose time is not early, by halving."""
    high += 1
    while low < high:
        middle = (low + high) // 2
        at = await time_at(middle)
        if at is not None and is_early(at):
            low = middle + 1
        else:
            high = middle
    return low


def _number(position: str | None) -> int | None:
    if position is None:
        return None
    if not (position.isascii() and position.isdecimal() and len(position) < 19):
        raise invalid_cursor()
    return min(int(position), MAX_COUNTER)


def _moved(at: dt.datetime, by: dt.timedelta) -> dt.datetime:
    try:
        return at + by
    except OverflowError:
        return at
