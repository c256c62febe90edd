"""Documents of a collection: stored values, indexes, changes in place, and results of a search."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from typing import Any, Final, Generic, TypedDict, TypeVar

import msgspec

from corral.sdk.protocol import storage_messages as messages
from corral.sdk.runner_port import HostLink

T = TypeVar("T")


class Stored(msgspec.Struct, Generic[T], frozen=True):
    """A document: its id, its value, and its stored revision.

    ```python
    ada = await players.get("ada")
    await players.replace(ada.id, changed, expect=ada.revision)
    ```
    """

    id: str
    revision: int
    value: T


class Index:
    """Fields by which documents are found and sorted quickly, in this order. `unique`: no two documents
    that have all of these fields may have the same values in them.

    ```python
    Index("game", "score")        # game == …, game == … and score > …, the best of a game
    Index("name", unique=True)
    ```
    """

    __slots__ = ("fields", "unique")

    def __init__(self, *fields: str, unique: bool = False) -> None:
        self.fields = fields
        self.unique = unique


class Changes(TypedDict, total=False):
    """Parameters of `update`, each by path: `await players.update("ada", inc={"stats.wins": 1}, unset=["draft"])`."""

    set: Mapping[str, Any]
    """Set these values."""
    unset: Sequence[str]
    """Remove these fields."""
    inc: Mapping[str, float]
    """Add to numbers; a missing one counts as 0."""
    min: Mapping[str, Any]
    """Set the value if it is less than the present one."""
    max: Mapping[str, Any]
    """Set the value if it is greater than the present one."""
    push: Mapping[str, Any]
    """Append the value to an array."""
    pull: Mapping[str, Any]
    """Remove all elements equal to the value from an array."""


def update_document(changes: Changes) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(dict(changes))
    return document


def decoder_of(type: type[T]) -> Callable[[messages.DocumentBody], Stored[T]]:
    decoder = msgspec.json.Decoder(type)

    def decode(document: messages.DocumentBody) -> Stored[T]:
        return Stored(document.id, document.revision, decoder.decode(document.body))

    return decode


_PAGE: Final = 200


class Found(Generic[T]):
    """The result of `find`: a list when awaited, one document after the other with `async for`.

    ```python
    ten = await players.find(limit=10)
    async for player in players.find(F.score > 3):
        print(player.value.name)
    ```
    """

    def __init__(
        self,
        link: HostLink,
        body: messages.FindDocuments,
        decode: Callable[[messages.DocumentBody], Stored[T]],
        limit: int | None,
    ) -> None:
        self._link = link
        self._body = body
        self._decode = decode
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[Stored[T]]:
        body, left = self._body, self._limit
        while left is None or left > 0:
            page = await self._page(body, _PAGE if left is None else min(left, messages.MAX_PAGE))
            for document in page.documents:
                yield self._decode(document)
            if left is not None:
                left -= len(page.documents)
            if not page.next:
                return
            body = msgspec.structs.replace(body, skip=0, after=page.next)

    def __await__(self) -> Generator[Any, Any, list[Stored[T]]]:
        return self._all().__await__()

    async def _all(self) -> list[Stored[T]]:
        return [document async for document in self]

    async def _page(self, body: messages.FindDocuments, limit: int) -> messages.DocumentPage:
        asked = msgspec.structs.replace(body, limit=limit)
        return await self._link.call(messages.FIND, asked, messages.DocumentPage, deadline=120.0)
