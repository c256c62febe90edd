"""Lists in pages: a limit, an opaque cursor, and an order that stands still."""

from __future__ import annotations

import base64
import binascii
import bisect
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Generic, TypeVar

import msgspec

from corral.controller.http.call import Query
from corral.controller.state.cluster_state import Mirror, Stored
from corral.domain.records import Record
from corral.errors import Code, Rejected

T = TypeVar("T")
R = TypeVar("R", bound=Record)
S = TypeVar("S")

Limit = Annotated[int, msgspec.Meta(ge=1, le=500, description="Most items of a page.")]
PageCursor = Annotated[
    str, msgspec.Meta(max_length=512, description="`next` of the page before; empty: from the start.")
]

DEFAULT_LIMIT: Final = 100


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: list[T]
    next: str | None


class PageQuery(Query, frozen=True, kw_only=True):
    limit: Limit = DEFAULT_LIMIT
    cursor: PageCursor | None = None


def encode_cursor(kind: str, position: str) -> str:
    """A position as text that says nothing to those who would build one by hand."""
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
        raise Rejected(
            Code.INVALID_CURSOR,
            "the cursor is not one of this list",
            hint="use `next` of the page before, or none to start over",
            field="cursor",
        )
    return position


def page_of(
    mirror: Mirror[R],
    query: PageQuery,
    *,
    wanted: Callable[[R], bool],
    shape: Callable[[Stored[R]], T],
) -> Page[T]:
    """A page of a collection in the order of ids: what comes or goes meanwhile moves nothing else."""
    items = mirror.items()
    after = decode_cursor(mirror.collection.name, query.cursor)
    begin = 0 if after is None else bisect.bisect_right(items, after, key=lambda item: item[0])
    found: list[T] = []
    for index in range(begin, len(items)):
        _, stored = items[index]
        if not wanted(stored.record):
            continue
        if len(found) == query.limit:
            return Page(items=found, next=encode_cursor(mirror.collection.name, items[index - 1][0]))
        found.append(shape(stored))
    return Page(items=found, next=None)


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
    shown = items[begin : begin + query.limit]
    more = begin + query.limit < len(items)
    return Page(
        items=[shape(item) for item in shown],
        next=encode_cursor(kind, key(shown[-1])) if more else None,
    )


def everything(_: object) -> bool:
    return True
