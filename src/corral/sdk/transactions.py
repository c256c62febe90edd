"""Several changes of documents as one."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import msgspec

from corral.sdk import storage_messages as said
from corral.sdk.host_link import HostLink
from corral.sdk.stored import Changes, update_document

if TYPE_CHECKING:
    from corral.sdk.storage import Collection

T = TypeVar("T")


class Transaction:
    """Changes that are collected, and made together when the block ends without an exception.

    ```python
    async with storage.transaction() as tx:
        tx.check(players, "ada", expect=ada.revision)
        tx.delete(players, "bob")
    print(tx.revision)
    ```
    """

    def __init__(self, link: HostLink) -> None:
        self._link = link
        self._steps: list[said.Step] = []
        self.revision = 0
        """Of every document that was written, once the block has ended."""
        self.ids: tuple[str, ...] = ()
        """The ids of all steps in their order, once the block has ended."""

    def insert(self, collection: Collection[T], value: T, *, id: str = "") -> None:
        """As `Collection.insert`: `tx.insert(players, Player(name="Ada"), id="ada")`."""
        body = msgspec.json.encode(value)
        self._steps.append(said.Step(kind="insert", collection=collection.name, id=id, body=body))

    def replace(
        self, collection: Collection[T], id: str, value: T, *, expect: int | None = None, upsert: bool = False
    ) -> None:
        """As `Collection.replace`: `tx.replace(players, "ada", changed, expect=ada.revision)`."""
        self._steps.append(replacing(collection.name, id, value, expect, upsert))

    def update(
        self,
        collection: Collection[Any],
        id: str,
        *,
        expect: int | None = None,
        upsert: bool = False,
        **changes: Unpack[Changes],
    ) -> None:
        """As `Collection.update`: `tx.update(players, "ada", inc={"coins": -5})`."""
        self._steps.append(updating(collection.name, id, expect, upsert, changes))

    def delete(self, collection: Collection[Any], id: str, *, expect: int | None = None) -> None:
        """As `Collection.delete`: `tx.delete(players, "ada")`."""
        self._steps.append(deleting(collection.name, id, expect))

    def check(self, collection: Collection[Any], id: str, *, expect: int) -> None:
        """Change nothing, but insist that this document is as it was: `tx.check(players, "ada", expect=7)`."""
        self._steps.append(said.Step(kind="check", collection=collection.name, id=id, expect=expect))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None or not self._steps:
            return
        body = said.RunTransaction(steps=tuple(self._steps))
        done = await self._link.call(said.TRANSACTION, body, said.Written)
        self.revision, self.ids = done.revision, done.ids


def replacing(collection: str, id: str, value: object, expect: int | None, upsert: bool) -> said.Step:
    body = msgspec.json.encode(value)
    return said.Step(kind="replace", collection=collection, id=id, body=body, expect=expect, upsert=upsert)


def updating(collection: str, id: str, expect: int | None, upsert: bool, changes: Changes) -> said.Step:
    update = update_document(changes)
    return said.Step(kind="update", collection=collection, id=id, update=update, expect=expect, upsert=upsert)


def deleting(collection: str, id: str, expect: int | None) -> said.Step:
    return said.Step(kind="delete", collection=collection, id=id, expect=expect)
