"""Evaluation: decodes documents and matches them against filters without blocking the event loop.

Large amounts go to a thread, and all modules together use only a few threads: a module that reads everything
takes turns with the other modules, and the loop stays free for the API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from corral.controller.modules.data.query_plan import Sort, ties_go_down
from corral.domain.modules.document_filters import Filter, field_of, matches
from corral.domain.modules.document_values import Order, order
from corral.store.port import Document
from corral.system.threads import to_end

T = TypeVar("T")

_AT_ONCE: Final = 2
_INLINE: Final = 2 * 1024
"""Bytes of JSON that are decoded faster than handed to a thread, also under concurrent calls."""


class Descending:
    """Inverts the order of a value inside of tuples that are compared."""

    __slots__ = ("inner",)

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __lt__(self, other: Descending) -> bool:
        return bool(other.inner < self.inner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(other.inner == self.inner)

    def __hash__(self) -> int:
        return hash(self.inner)


Place = tuple[Any, ...]
"""Position of a document in the requested order; no two documents have the same."""


class DocumentHit(msgspec.Struct, frozen=True):
    """A matching document. `values` are those of the sort fields, for the cursor. Its content is left out
    where many hits are held to choose from."""

    id: str
    revision: int
    body: bytes | None
    values: tuple[Any, ...]
    place: Place


class Evaluation:
    """Slots for evaluating documents, shared by all modules of a host."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def run(self, weight: int, work: Callable[[], T]) -> T:
        """Do pure work on so many bytes of JSON, on the loop or in a thread."""
        if weight <= _INLINE:
            await asyncio.sleep(0)
            return work()
        async with self._turns:
            return await to_end(work)

    async def hits(
        self,
        documents: Sequence[Document],
        where: Filter,
        sort: Sort,
        take: Callable[[Iterable[DocumentHit]], T],
    ) -> T:
        """Results of `take` for the matching documents, in their order."""
        return await self.run(
            sum(256 + len(document.body) for document in documents),
            lambda: take(hit for each in documents if (hit := matching(each, where, sort)) is not None),
        )


def matching(document: Document, where: Filter, sort: Sort) -> DocumentHit | None:
    value = msgspec.json.decode(document.body)
    if not matches(where, document.id, value):
        return None
    values = tuple(field_of(document.id, value, field.path) for field in sort)
    return DocumentHit(
        document.id, document.revision, document.body, values, place_of(document.id, values, sort)
    )


def place_of(id: str, values: Sequence[Any], sort: Sort) -> Place:
    fields = [_turned(order(value), field.down) for value, field in zip(values, sort, strict=True)]
    return (*fields, _turned((0, id), ties_go_down(sort)))


def _turned(order: Order, down: bool) -> Any:
    return Descending(order) if down else order
