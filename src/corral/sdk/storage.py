"""Documents of a module: typed values in collections, found by filters, changed in transactions.

```python
class Player(msgspec.Struct):
    name: str
    score: int = 0

storage = ctx.require_document_storage()
players = await storage.create("players", Player, indexes=[Index("score"), Index("name", unique=True)])
await players.insert(Player(name="Ada"), id="ada")
await players.update("ada", inc={"score": 3})
for best in await players.find(F.score > 0, sort=["-score"], limit=10):
    print(best.id, best.value.name)
```
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack

import msgspec

from corral.sdk.documents import Changes, Found, Index, Stored, decoder_of, update_document
from corral.sdk.filters import Filter, filter_document
from corral.sdk.key_values import ABSENT, KeyValueStorage
from corral.sdk.protocol import storage_messages as messages
from corral.sdk.runner_port import HostLink

__all__ = [
    "ABSENT",
    "Changes",
    "Collection",
    "DocumentStorage",
    "Found",
    "Index",
    "KeyValueStorage",
    "Stored",
    "Transaction",
]

T = TypeVar("T")

NEW: Final = 0
"""As `expect`: the document must not exist yet."""
_PART_BYTES: Final = 2 * 1024 * 1024


class DocumentStorage:
    """The collections of a module. They outlive its process and its upgrades.

    ```python
    storage = ctx.require_document_storage()
    players = storage.collection("players", Player)
    ```
    """

    def __init__(self, link: HostLink) -> None:
        self._link = link

    def collection(self, name: str, type: type[T]) -> Collection[T]:
        """A collection by its name, without a call to the host; it is created at its first write.

        ```python
        players = storage.collection("players", Player)
        ```
        """
        return Collection(self._link, name, type)

    async def create(self, name: str, type: type[T], *, indexes: Iterable[Index] = ()) -> Collection[T]:
        """Create a collection with exactly these indexes. New ones are built from the present documents,
        which may take a while; those that are no longer named are removed.

        ```python
        players = await storage.create("players", Player, indexes=[Index("game", "score")])
        ```
        """
        bodies = tuple(messages.IndexBody(fields=index.fields, unique=index.unique) for index in indexes)
        body = messages.CreateCollection(collection=name, indexes=bodies)
        await self._link.call(messages.CREATE, body, messages.CollectionBody, deadline=600.0)
        return Collection(self._link, name, type)

    async def collections(self) -> list[str]:
        """The names of all collections: `await storage.collections()`."""
        found = await self._link.call(
            messages.COLLECTIONS, messages.ListCollections(), messages.CollectionList
        )
        return [each.name for each in found.collections]

    async def drop(self, name: str) -> bool:
        """Delete a collection with all its documents; returns whether there was one: `await
        storage.drop("players")`."""
        body = messages.DropCollection(collection=name)
        return (await self._link.call(messages.DROP, body, messages.Done, deadline=600.0)).done

    def transaction(self) -> Transaction:
        """Several changes, all of them or none; they are sent when the block ends.

        ```python
        async with storage.transaction() as tx:
            tx.update(players, "ada", inc={"coins": -5}, expect=ada.revision)
            tx.insert(trades, Trade(buyer="ada", price=5))
        ```
        """
        return Transaction(self._link)


class Collection(Generic[T]):
    """Documents of one type. Get one from a `DocumentStorage`.

    `expect`, wherever it is a parameter, is the revision that the stored document must have, as it was read;
    0: the document must not exist. Otherwise `Refused` with REVISION_MISMATCH, NOT_FOUND or ALREADY_EXISTS.

    ```python
    ada = await players.get("ada")
    await players.replace("ada", Player(name="Ada", score=3), expect=ada.revision)
    ```
    """

    def __init__(self, link: HostLink, name: str, type: type[T]) -> None:
        self._link = link
        self.name = name
        self._decode = decoder_of(type)

    async def insert(self, value: T, *, id: str = "") -> str:
        """Add a document and get its id, which the host generates unless you give one.

        ```python
        id = await players.insert(Player(name="Ada"))
        ```
        """
        new = messages.NewDocument(id=id, body=msgspec.json.encode(value))
        body = messages.InsertDocuments(collection=self.name, documents=(new,))
        return (await self._link.call(messages.INSERT, body, messages.Written)).ids[0]

    async def insert_many(self, values: Iterable[T]) -> list[str]:
        """Add many documents. They are sent in parts, each of which is added as a whole or not at all.

        ```python
        ids = await players.insert_many(Player(name=name) for name in names)
        ```
        """
        ids: list[str] = []
        part: list[messages.NewDocument] = []
        size = 0
        for value in values:
            encoded = msgspec.json.encode(value)
            if part and (len(part) >= messages.MAX_STEPS or size + len(encoded) > _PART_BYTES):
                ids += await self._insert(part)
                part, size = [], 0
            part.append(messages.NewDocument(body=encoded))
            size += len(encoded)
        return ids + await self._insert(part) if part else ids

    async def _insert(self, part: Sequence[messages.NewDocument]) -> list[str]:
        body = messages.InsertDocuments(collection=self.name, documents=tuple(part))
        return list((await self._link.call(messages.INSERT, body, messages.Written)).ids)

    async def get(self, id: str) -> Stored[T] | None:
        """A document by its id, or None: `ada = await players.get("ada")`."""
        body = messages.GetDocuments(collection=self.name, ids=(id,))
        page = await self._link.call(messages.GET, body, messages.DocumentPage)
        return self._decode(page.documents[0]) if page.documents else None

    def find(
        self, wanted: Filter = None, *, sort: Sequence[str] = (), limit: int | None = None, skip: int = 0
    ) -> Found[T]:
        """Matching documents: `await` it for a list, or iterate with `async for`, page by page.

        `sort` names fields, with `-` before those that go down; ties are ordered by id.

        ```python
        best = await players.find(F.score > 0, sort=["-score"], limit=10)
        async for player in players.find(): ...
        ```
        """
        body = messages.FindDocuments(
            collection=self.name, filter=filter_document(wanted), sort=tuple(sort), skip=skip
        )
        return Found(self._link, body, self._decode, limit)

    async def find_one(self, wanted: Filter = None, *, sort: Sequence[str] = ()) -> Stored[T] | None:
        """The first match, or None: `await players.find_one(F.name == "Ada")`."""
        found = await self.find(wanted, sort=sort, limit=1)
        return found[0] if found else None

    async def count(self, wanted: Filter = None) -> int:
        """Number of matches: `await players.count(F.score >= 10)`."""
        body = messages.CountDocuments(collection=self.name, filter=filter_document(wanted))
        return (await self._link.call(messages.COUNT, body, messages.Counted, deadline=120.0)).count

    async def replace(self, id: str, value: T, *, expect: int | None = None, upsert: bool = False) -> int:
        """Replace a document's value and get its new revision. `upsert`: create it if there is none;
        otherwise that is `Refused`, NOT_FOUND.

        ```python
        await players.replace("ada", Player(name="Ada", score=1), upsert=True)
        ```
        """
        return await self._step(_replace_step(self.name, id, value, expect, upsert))

    async def update(
        self, id: str, *, expect: int | None = None, upsert: bool = False, **changes: Unpack[Changes]
    ) -> int:
        """Change fields of a document in place and get its new revision; see `Changes`. `upsert`: if there is
        none, begin with an empty one.

        ```python
        await players.update("ada", inc={"score": 1}, set={"seen": "lobby-1"})
        ```
        """
        return await self._step(_update_step(self.name, id, expect, upsert, changes))

    async def update_many(self, wanted: Filter, **changes: Unpack[Changes]) -> int:
        """Change all matches, each by itself, and get how many: `await players.update_many(None,
        set={"score": 0})`."""
        body = messages.UpdateMany(
            collection=self.name, filter=filter_document(wanted), update=update_document(changes)
        )
        return (await self._link.call(messages.UPDATE_MANY, body, messages.Counted, deadline=600.0)).count

    async def delete(self, id: str, *, expect: int | None = None) -> bool:
        """Delete a document; returns whether there was one: `await players.delete("ada")`."""
        return await self._step(_delete_step(self.name, id, expect)) > 0

    async def delete_many(self, wanted: Filter) -> int:
        """Delete all matches and get how many: `await players.delete_many(F.score < 1)`."""
        body = messages.DeleteMany(collection=self.name, filter=filter_document(wanted))
        return (await self._link.call(messages.DELETE_MANY, body, messages.Counted, deadline=600.0)).count

    async def _step(self, step: messages.Step) -> int:
        body = messages.RunTransaction(steps=(step,))
        return (await self._link.call(messages.TRANSACTION, body, messages.Written)).revision


class Transaction:
    """Changes that are collected, and sent together when the block ends without an exception.

    ```python
    async with storage.transaction() as tx:
        tx.check(players, "ada", expect=ada.revision)
        tx.delete(players, "bob")
    print(tx.revision)
    ```
    """

    def __init__(self, link: HostLink) -> None:
        self._link = link
        self._steps: list[messages.Step] = []
        self.revision = 0
        """Revision of every document that was written, once the block has ended."""
        self.ids: tuple[str, ...] = ()
        """The ids of all steps in their order, once the block has ended."""

    def insert(self, collection: Collection[T], value: T, *, id: str = "") -> None:
        """As `Collection.insert`: `tx.insert(players, Player(name="Ada"), id="ada")`."""
        body = msgspec.json.encode(value)
        self._steps.append(messages.Step(kind="insert", collection=collection.name, id=id, body=body))

    def replace(
        self, collection: Collection[T], id: str, value: T, *, expect: int | None = None, upsert: bool = False
    ) -> None:
        """As `Collection.replace`: `tx.replace(players, "ada", changed, expect=ada.revision)`."""
        self._steps.append(_replace_step(collection.name, id, value, expect, upsert))

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
        self._steps.append(_update_step(collection.name, id, expect, upsert, changes))

    def delete(self, collection: Collection[Any], id: str, *, expect: int | None = None) -> None:
        """As `Collection.delete`: `tx.delete(players, "ada")`."""
        self._steps.append(_delete_step(collection.name, id, expect))

    def check(self, collection: Collection[Any], id: str, *, expect: int) -> None:
        """Change nothing, but require that this document is unchanged: `tx.check(players, "ada",
        expect=7)`."""
        self._steps.append(messages.Step(kind="check", collection=collection.name, id=id, expect=expect))

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
        body = messages.RunTransaction(steps=tuple(self._steps))
        done = await self._link.call(messages.TRANSACTION, body, messages.Written)
        self.revision, self.ids = done.revision, done.ids


def _replace_step(collection: str, id: str, value: object, expect: int | None, upsert: bool) -> messages.Step:
    body = msgspec.json.encode(value)
    return messages.Step(
        kind="replace", collection=collection, id=id, body=body, expect=expect, upsert=upsert
    )


def _update_step(
    collection: str, id: str, expect: int | None, upsert: bool, changes: Changes
) -> messages.Step:
    update = update_document(changes)
    return messages.Step(
        kind="update", collection=collection, id=id, update=update, expect=expect, upsert=upsert
    )


def _delete_step(collection: str, id: str, expect: int | None) -> messages.Step:
    return messages.Step(kind="delete", collection=collection, id=id, expect=expect)
