"""Lists for pages and scripts: some ids, a search, an order, and a compact view with the number of all items.

A cursor names its list and its order, and the last item by the values it was ordered by: what comes, goes or changes between
two pages moves nothing else, and an item whose own value changes may be listed at its old place, its new one, or both.
Searches and orders use open fields alone: whoever may not see a value cannot find out about it by asking for it.
"""

from __future__ import annotations

import bisect
import datetime as dt
import enum
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Generic, TypeVar

import msgspec

from corral.controller.http.messages.paging import (
    MOST_OF_PAGE,
    Page,
    PageItems,
    PageQuery,
    decode_cursor,
    encode_cursor,
    invalid_cursor,
    page_of,
)
from corral.controller.state.cluster_state import Mirror, StoredRecord
from corral.domain.records import Record
from corral.domain.spec import invalid
from corral.errors import Code, unknown_choice

T = TypeVar("T")
R = TypeVar("R", bound=Record)
E = TypeVar("E", bound=enum.StrEnum)

MOST_SUMMARIES: Final = 5000
SUMMARY_BYTES: Final = 4 * 1024 * 1024
"""A page of summaries ends before the item that would make it longer."""
MOST_IDS: Final = 500
ITEMS_A_REQUEST: Final = 500
"""Of a list: so many items of the page that is asked for count as one request more."""
_DESCENDING: Final = "-"
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

ListLimit = Annotated[
    int,
    msgspec.Meta(
        ge=1,
        le=MOST_SUMMARIES,
        description=f"Most items of a page: {MOST_OF_PAGE}, of summaries {MOST_SUMMARIES}.",
    ),
]
Ids = Annotated[
    str,
    msgspec.Meta(
        max_length=4000,  # also encoded, and beside all other parameters, it fits into the head of a request
        pattern=r"^[A-Za-z0-9._:/@,-]*(?!\n)$",
        description=f"Only these, separated by commas, at most {MOST_IDS}; one that does not exist is left out.",
    ),
]
SearchText = Annotated[
    str,
    msgspec.Meta(
        max_length=100,
        description="Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and "
        "capital letters are the same.",
    ),
]
Choices = Annotated[
    tuple[Annotated[str, msgspec.Meta(max_length=200, pattern=r"^[A-Z_,]*(?!\n)$")], ...],
    msgspec.Meta(max_length=16),
]
"""Several values of an enumeration, given several times or separated by commas: see `chosen`."""
SortValue = str | int | float | None
SORT: Final = (
    "The order, descending with `-`. What has no such value comes last, equals are in the order of ids."
)


class View(enum.StrEnum):
    FULL = "full"
    SUMMARY = "summary"


class ListQuery(PageQuery, frozen=True, kw_only=True):
    """Query of a list; subclasses add `sort` with the names of their orders."""

    limit: ListLimit = 100
    ids: Ids | None = None
    q: SearchText | None = None
    view: Annotated[
        View,
        msgspec.Meta(description="`summary`: compact items without sensitive fields, and `total`."),
    ] = View.FULL

    walk_cost: ClassVar[int] = 4

    @property
    def order(self) -> str:
        """The name of the order that is asked for; empty: by id."""
        return getattr(self, "sort", None) or ""

    @property
    def extra_cost(self) -> int:
        """As how many requests more it counts: a search or an order looks at every item."""
        return self.walk_cost if self.q or self.order else 0


class SummaryPage(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some summaries of a list; `total` counts all that the query finds and the caller may see, on all pages."""

    items: list[T]
    next: str | None
    total: int


@dataclass(frozen=True)
class SortField(Generic[R]):
    """An order by one field."""

    kind: type[str] | type[float]
    value: Callable[[R], SortValue]


@dataclass(frozen=True, kw_only=True)
class ListSource(Generic[R]):
    """A collection as a list sees it."""

    mirror: Mirror[R]
    texts: Callable[[R], Iterable[str]]
    """What a search looks at, beside the id."""
    sorts: Mapping[str, SortField[R]]
    accepts: Callable[[R], bool] | None = None
    """Filters and the caller's scope; None: everything."""
    among: Sequence[str] | None = None
    """Ids in order that hold all that `accepts` accepts, from an index."""


def chosen(kind: type[E], given: Choices, *, field: str) -> frozenset[E]:
    """The members that were named; none: all are meant. INVALID_FIELD lists those there are."""
    names = [name for text in given for name in text.split(",") if name]
    known = {member.value for member in kind}
    for name in names:
        if name not in known:
            raise unknown_choice(
                f"value of parameter '{field}':", name[:80], list(kind), code=Code.INVALID_FIELD, field=field
            )
    return frozenset(kind(name) for name in names)


def list_page(source: ListSource[R], query: ListQuery, shape: Callable[[StoredRecord[R]], T]) -> Page[T]:
    """A page of whole items. INVALID_FIELD, INVALID_CURSOR."""
    if query.limit > MOST_OF_PAGE:
        raise invalid(
            "limit",
            f"a page has at most {MOST_OF_PAGE} whole items, not {query.limit}",
            f"ask for fewer, or for view=summary, which has up to {MOST_SUMMARIES}",
        )
    accepts = _accepting(source, query)
    if not query.order:
        everything = accepts or (lambda _: True)
        return page_of(source.mirror, query, accepts=everything, shape=shape, among=_among(source, query))
    ids, _ = _rest(source, query, _accepted(source, query, accepts))
    found = PageItems[T](query.limit)
    for index, id in enumerate(ids):
        if found.is_full or not found.takes(shape(source.mirror.require(id))):
            return Page(items=found.items, next=_cursor(source, query, ids[index - 1]))
    return Page(items=found.items, next=None)


def summary_page(
    source: ListSource[R], query: ListQuery, encoded: Callable[[StoredRecord[R]], bytes]
) -> SummaryPage[msgspec.Raw]:
    """A page of summaries that `encoded` has encoded already. INVALID_FIELD, INVALID_CURSOR."""
    accepted = _accepted(source, query, _accepting(source, query))
    ids, total = _rest(source, query, accepted)
    items: list[msgspec.Raw] = []
    size = 0
    for id in ids[: query.limit]:
        body = encoded(source.mirror.require(id))
        size += len(body) + 1
        if items and size > SUMMARY_BYTES:
            break
        items.append(msgspec.Raw(body))
    more = len(items) < len(ids)
    return SummaryPage(
        items=items, next=_cursor(source, query, ids[len(items) - 1]) if more else None, total=total
    )


def named_ids(mirror: Mirror[R], text: str) -> list[str]:
    """The ids of a list that exist, each once and in order. INVALID_FIELD when there are too many."""
    named = sorted({each for each in text.split(",") if each})
    if len(named) > MOST_IDS:
        raise invalid(
            "ids", f"{len(named)} were given, and {MOST_IDS} are possible", "ask for fewer at a time"
        )
    return [each for each in named if mirror.find(each) is not None]


def has_text(texts: Iterable[str], wanted: str) -> bool:
    """Whether one of the texts has this part, whatever its capitals."""
    wanted = wanted.casefold()
    return any(wanted in text.casefold() for text in texts)


def _among(source: ListSource[R], query: ListQuery) -> Sequence[str]:
    """The ids in order among which all that are asked for are."""
    if query.ids is not None:
        return named_ids(source.mirror, query.ids)
    return source.mirror.ids() if source.among is None else source.among


def _accepting(source: ListSource[R], query: ListQuery) -> Callable[[R], bool] | None:
    if query.q is None:
        return source.accepts
    wanted, accepts, texts = query.q, source.accepts, source.texts

    def found(record: R) -> bool:
        return has_text(texts(record), wanted) and (accepts is None or accepts(record))

    return found


def _accepted(source: ListSource[R], query: ListQuery, accepts: Callable[[R], bool] | None) -> Sequence[str]:
    among = _among(source, query)
    if accepts is None:
        return among
    require = source.mirror.require
    return [id for id in among if accepts(require(id).record)]


def _rest(source: ListSource[R], query: ListQuery, ids: Sequence[str]) -> tuple[Sequence[str], int]:
    """The ids behind the cursor in the order that is asked for, and the number of all."""
    if not query.order:
        after = decode_cursor(source.mirror.collection.name, query.cursor)
        return (ids if after is None else ids[bisect.bisect_right(ids, after) :]), len(ids)
    order = _Order(source, query)
    keyed = [(order.key(id), id) for id in ids]
    if query.cursor is not None:
        last = order.position(query.cursor)
        keyed = [each for each in keyed if order.is_behind(each, last)]
    keyed.sort(key=lambda each: each[0], reverse=order.descending)
    return [id for _, id in keyed], len(ids)


def _cursor(source: ListSource[R], query: ListQuery, id: str) -> str:
    if not query.order:
        return encode_cursor(source.mirror.collection.name, id)
    order = _Order(source, query)
    position = msgspec.json.encode((order.value(id), id)).decode()
    return encode_cursor(order.kind, position)


Key = tuple[bool, str | int | float]


class _Order(Generic[R]):
    """One order of a list: keys by which Python sorts, those without a value last in both directions."""

    def __init__(self, source: ListSource[R], query: ListQuery) -> None:
        self.descending = query.order.startswith(_DESCENDING)
        self._field = source.sorts[query.order.removeprefix(_DESCENDING)]
        self._mirror = source.mirror
        self.kind = f"{source.mirror.collection.name}?sort={query.order}"

    def value(self, id: str) -> SortValue:
        found = self._field.value(self._mirror.require(id).record)
        return None if isinstance(found, float) and not math.isfinite(found) else found

    def key(self, id: str) -> Key:
        return self._key_of(self.value(id))

    def _key_of(self, value: SortValue) -> Key:
        empty: str | float = self._field.kind()
        return (value is None) is not self.descending, empty if value is None else value

    def position(self, cursor: str) -> tuple[Key, str]:
        """The last item of the page before. INVALID_CURSOR."""
        text = decode_cursor(self.kind, cursor)
        assert text is not None
        try:
            if self._field.kind is str:
                value, id = msgspec.json.decode(text, type=tuple[str | None, str])
                return self._key_of(value), id
            number, id = msgspec.json.decode(text, type=tuple[int | float | None, str])
            return self._key_of(number), id
        except (msgspec.DecodeError, UnicodeError):
            raise invalid_cursor() from None

    def is_behind(self, item: tuple[Key, str], last: tuple[Key, str]) -> bool:
        if item[0] == last[0]:
            return item[1] > last[1]
        return item[0] < last[0] if self.descending else item[0] > last[0]


def moment(at: dt.datetime | None) -> int | None:
    """A time as a value to sort by."""
    return None if at is None else (at - _EPOCH) // _MICROSECOND


def label_texts(labels: Mapping[str, str]) -> list[str]:
    """Labels as a search finds them."""
    return [f"{key}={value}" for key, value in labels.items()]
