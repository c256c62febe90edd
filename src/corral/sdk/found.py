"""Documents on their way from the host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, Generic, TypeVar

import msgspec

from corral.sdk.documents import Stored
from corral.sdk.protocol import storage_messages as said
from corral.sdk.runner_port import HostLink

T = TypeVar("T")

_PAGE: Final = 200


class Found(Generic[T]):
    """The answer to `find`: a list when awaited, one document after the other with `async for`.

    ```python
    ten = await players.find(limit=10)
    async for player in players.find(F.score > 3):
        print(player.value.name)
    ```
    """

    def __init__(
        self,
        link: HostLink,
        body: said.FindDocuments,
        decode: Callable[[said.DocumentBody], Stored[T]],
        limit: int | None,
    ) -> None:
        self._link = link
        self._body = body
        self._decode = decode
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[Stored[T]]:
        body, left = self._body, self._limit
        while left is None or left > 0:
            page = await self._page(body, _PAGE if left is None else min(left, said.MAX_PAGE))
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

    async def _page(self, body: said.FindDocuments, limit: int) -> said.DocumentPage:
        asked = msgspec.structs.replace(body, limit=limit)
        return await self._link.call(said.FIND, asked, said.DocumentPage, deadline=120.0)
