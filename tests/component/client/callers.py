"""Both clients behind one set of verbs, so that one suite tests both."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

from corral.client import AsyncClient, Client


class Caller:
    """A client of either kind. What blocks runs in a thread: the controller runs in this one."""

    def __init__(self, corral: Any) -> None:
        self.corral = corral

    async def call(self, ask: Callable[[Any], Any]) -> Any:
        """The result of a method."""
        if isinstance(self.corral, AsyncClient):
            result = ask(self.corral)
            return await result if inspect.isawaitable(result) else result
        return await asyncio.to_thread(ask, self.corral)

    async def items(self, ask: Callable[[Any], Any], *, most: int | None = None) -> list[Any]:
        """The items of an iterator, at most so many; a stream is closed then."""
        if isinstance(self.corral, AsyncClient):
            found = []
            source = ask(self.corral)
            if most == 0:
                return found
            async for item in source:
                found.append(item)
                if len(found) == most:
                    break
            if hasattr(source, "close"):
                source.close()
            return found
        return await asyncio.to_thread(self._items, ask, most)

    def _items(self, ask: Callable[[Any], Any], most: int | None) -> list[Any]:
        found = []
        source = ask(self.corral)
        for item in source:
            found.append(item)
            if len(found) == most:
                break
        if hasattr(source, "close"):
            source.close()
        return found


@contextlib.asynccontextmanager
async def calling(kind: str, url: str, **options: Any) -> AsyncIterator[Caller]:
    """A caller of that kind: `sync` or `async`."""
    if kind == "async":
        async with AsyncClient(url, **options) as corral:
            yield Caller(corral)
        return
    with Client(url, **options) as corral:
        yield Caller(corral)
