"""Search of documents along a query plan: candidates in pages, matched, counted, sorted, cut to a page."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Final

import msgspec

from corral.controller.modules.data.collection_facts import CollectionFacts, EntryBody
from corral.controller.modules.data.evaluation import DocumentHit, Evaluation, Place, place_of
from corral.controller.modules.data.query_plan import ByIds, Plan, Sort, Walk, plan, resumed
from corral.controller.modules.data.spaces import Space, is_id
from corral.domain.modules.document_filters import Filter
from corral.domain.modules.document_values import MISSING, KeyRange, check_value, invalid
from corral.store.port import Document, ReadEngine

MAX_SKIP: Final = 10_000
_ANSWER_BYTES: Final = 2 * 1024 * 1024
"""Bytes of an answer: below the largest frame to a module, with room for one more document."""
_PAGE_BYTES: Final = 512 * 1024
_PAGE_ROWS: Final = 1000
_ROWS_BY_ID: Final = 16
"""Few enough that even the largest documents together are small."""
_KEPT_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of contents held; hits beyond that are held without their content."""


class DocumentQuery(msgspec.Struct, frozen=True, kw_only=True):
    where: Filter
    sort: Sort = ()
    limit: int
    skip: int = 0
    after: str = ""


class SearchPage(msgspec.Struct, frozen=True):
    hits: list[DocumentHit]
    next: str


class _OutOfOrder(Exception):
    """An index holds keys that were cut: it finds documents, but not in their order."""


class Search:
    """Searches of one collection, with its metadata as of the beginning of the search."""

    def __init__(
        self, reads: ReadEngine, evaluation: Evaluation, space: Space, name: str, facts: CollectionFacts
    ) -> None:
        self._reads = reads
        self._evaluation = evaluation
        self._space = space
        self._name = name
        self._facts = facts
        self._collection = space.documents(name)

    async def find(self, query: DocumentQuery) -> SearchPage:
        """A page of the result; `next` is empty when nothing follows."""
        chosen = plan(query.where, query.sort, self._facts.indexes)
        try:
            hits = await self._first(query, chosen)
        except _OutOfOrder:
            assert isinstance(chosen, Walk)
            hits = await self._first(query, msgspec.structs.replace(chosen, sorted=False))
        return await self._page(query, hits)

    async def count(self, where: Filter) -> int:
        found = 0
        async for ids in self._in_any_order(where):
            found += len(ids)
        return found

    async def ids(self, where: Filter, *, most: int) -> list[str]:
        """The ids of matching documents, at most so many, in any order. Each is returned once, also when the
        document moves along the index meanwhile."""
        found: dict[str, None] = {}
        async for ids in self._in_any_order(where):
            found.update(dict.fromkeys(ids))
            if len(found) >= most:
                break
        return list(found)[:most]

    async def _in_any_order(self, where: Filter) -> AsyncIterator[list[str]]:
        chosen = plan(where, (), self._facts.indexes)
        if isinstance(chosen, Walk):
            chosen = msgspec.structs.replace(chosen, sorted=False)
        async for page in self._pages(chosen, _PAGE_ROWS):
            yield await self._evaluation.hits(page, where, (), lambda hits: [hit.id for hit in hits])

    async def _first(self, query: DocumentQuery, chosen: Plan) -> list[DocumentHit]:
        """The first hits after the cursor, in order: those of the page, and one more if there is one."""
        begin = read_cursor(query.after, query.sort)
        most = query.skip + query.limit + 1
        in_order = isinstance(chosen, Walk) and chosen.sorted
        if isinstance(chosen, Walk) and chosen.sorted and begin is not None:
            chosen = resumed(chosen, begin.id, begin.found, query.sort)
        best = Best(most, after=None if begin is None else place_of(begin.id, begin.found, query.sort))
        async for page in self._pages(chosen, most if in_order else _PAGE_ROWS):
            await self._evaluation.hits(page, query.where, query.sort, best.add)
            if in_order and best.full:
                break
        return best.hits()

    async def _page(self, query: DocumentQuery, hits: list[DocumentHit]) -> SearchPage:
        more = len(hits) > query.skip + query.limit
        shown = hits[query.skip : query.skip + query.limit]
        answer: list[DocumentHit] = []
        size = 0
        for hit in shown:
            whole = hit if hit.body is not None else await self._again(hit, query)
            size += 0 if whole is None else len(whole.body or b"")
            if answer and size > _ANSWER_BYTES:
                return SearchPage(answer, cursor_of(answer[-1], query.sort))
            if whole is not None:
                answer.append(whole)
        return SearchPage(answer, cursor_of(shown[-1], query.sort) if more else "")

    async def _again(self, hit: DocumentHit, query: DocumentQuery) -> DocumentHit | None:
        """Read a hit whose content was not held; None when it does not match any more."""
        found = await self._reads.get_many(self._collection, [hit.id])
        return await self._evaluation.hits(
            found, query.where, query.sort, lambda hits: next(iter(hits), None)
        )

    # candidates

    async def _pages(self, chosen: Plan, most: int) -> AsyncIterator[list[Document]]:
        """Candidates in pages. When `most` of them are enough, the first pages are small ones."""
        if isinstance(chosen, ByIds):
            for ids in _chunks(chosen.ids, _ROWS_BY_ID):
                yield await self._reads.get_many(self._collection, ids)
            return
        for part in chosen.ranges:
            left: KeyRange | None = part
            while left is not None:
                rows = min(most, _PAGE_ROWS)
                page, left = await self._page_of(chosen, left, rows)
                yield page
                most = 4 * rows

    async def _page_of(self, walk: Walk, part: KeyRange, rows: int) -> tuple[list[Document], KeyRange | None]:
        """The next documents of a walk, and the range that is left to walk."""
        after, before = part.after, part.before
        if walk.index is None:
            page = await self._reads.scan(
                self._collection,
                after=after,
                before=before,
                limit=rows,
                size=_PAGE_BYTES,
                newest=walk.down,
            )
            passed = [document.id for document in page]
        else:
            found = await self._reads.scan_index(
                self._space.index(self._name, walk.index.name),
                self._collection,
                after=after,
                before=before,
                limit=rows,
                size=_PAGE_BYTES,
                newest=walk.down,
            )
            if walk.sorted and any(msgspec.json.decode(row.entry.body, type=EntryBody).cut for row in found):
                raise _OutOfOrder
            page = [row.document for row in found if row.document is not None]
            passed = [row.entry.id for row in found]
        if len(passed) < rows and sum(len(document.body) for document in page) < _PAGE_BYTES:
            return page, None
        return page, KeyRange(after, passed[-1]) if walk.down else KeyRange(passed[-1], before)


def _chunks(items: Sequence[Any], size: int) -> list[Any]:
    return [items[start : start + size] for start in range(0, len(items), size)]


class Best:
    """The first so many hits after a place, however many are added, in bounded memory."""

    def __init__(self, most: int, *, after: Place | None) -> None:
        self._most = most
        self._after = after
        self._kept: list[DocumentHit] = []
        self._ids: set[str] = set()
        self._size = 0
        self._last: Place | None = None
        """A hit after this place is not among the first ones."""

    @property
    def full(self) -> bool:
        return len(self._kept) >= self._most

    def add(self, hits: Iterable[DocumentHit]) -> None:
        for hit in hits:
            if hit.id not in self._ids and self._fits(hit.place):
                self._keep(hit)

    def _fits(self, place: Place) -> bool:
        return (self._after is None or self._after < place) and (self._last is None or place < self._last)

    def _keep(self, hit: DocumentHit) -> None:
        if self._size + len(hit.body or b"") > _KEPT_BYTES:
            hit = msgspec.structs.replace(hit, body=None)
        self._size += len(hit.body or b"")
        self._ids.add(hit.id)
        self._kept.append(hit)
        if len(self._kept) >= 2 * self._most:
            self._drop_rest()

    def hits(self) -> list[DocumentHit]:
        self._drop_rest()
        return self._kept

    def _drop_rest(self) -> None:
        self._kept.sort(key=lambda hit: hit.place)
        for hit in self._kept[self._most :]:
            self._ids.discard(hit.id)
            self._size -= len(hit.body or b"")
        del self._kept[self._most :]
        if self.full:
            self._last = self._kept[-1].place


class PageCursor(msgspec.Struct, frozen=True, array_like=True):
    """Cursor: the place where a page ended, sent back with the request for the next page, as a text. A sort
    field's value is in a list, which is empty where the document has none."""

    sort: tuple[str, ...]
    values: tuple[list[Any], ...]
    id: str

    @property
    def found(self) -> list[Any]:
        return [value[0] if value else MISSING for value in self.values]


def cursor_of(last: DocumentHit, sort: Sort) -> str:
    values = tuple([] if value is MISSING else [value] for value in last.values)
    return base64.urlsafe_b64encode(msgspec.json.encode(PageCursor(_named(sort), values, last.id))).decode()


def read_cursor(text: str, sort: Sort) -> PageCursor | None:
    """The cursor; None for the beginning. QUERY_INVALID for a cursor that is not from an answer to the same
    query."""
    if not text:
        return None
    try:
        cursor = msgspec.json.decode(base64.urlsafe_b64decode(text), type=PageCursor)
    except (ValueError, msgspec.DecodeError, RecursionError):
        raise _foreign() from None
    if cursor.sort != _named(sort) or len(cursor.values) != len(sort):
        raise _foreign()
    if not is_id(cursor.id) or any(len(value) > 1 for value in cursor.values):
        raise _foreign()
    for value in cursor.values:
        check_value(value, what="'after'")
    return cursor


def _foreign() -> Exception:
    return invalid("'after' is not from an answer to this query", hint="pass on 'next' as it came")


def _named(sort: Sort) -> tuple[str, ...]:
    return tuple(("-" if field.down else "") + ".".join(field.path) for field in sort)
