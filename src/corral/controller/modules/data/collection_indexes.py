"""Creation and removal of collections and indexes, in steps that can be resumed.

An index that is being built is updated by every writer from its first moment, and no query uses it until all
documents are in it. The progress is stored, so another builder resumes after one that died.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from corral.controller.modules.data.collection_facts import (
    CollectionFacts,
    DocumentFacts,
    EntryBody,
    IndexEntry,
    IndexFacts,
    read_facts,
)
from corral.controller.modules.data.document_writer import MAX_COLLECTIONS, busy, registration, taken
from corral.controller.modules.data.evaluation import Evaluation
from corral.controller.modules.data.spaces import PAGE_BYTES, ROWS, Space, checked_collection, erase
from corral.controller.state.ledger import Ledger
from corral.domain.modules.document_values import invalid, parse_path
from corral.errors import Rejected
from corral.sdk.protocol.storage_messages import IndexBody
from corral.store.port import Document, Put, ReadEngine
from corral.store.store_errors import Conflict
from corral.system.aio.keyed_locks import KeyedLocks

MAX_INDEXES: Final = 8
MAX_FIELDS: Final = 4
_ATTEMPTS: Final = 10

_Change = Callable[[CollectionFacts], CollectionFacts | None]


class CollectionIndexes:
    """Collections of all spaces. The methods take the lock of a space by themselves, unless they say
    otherwise."""

    def __init__(
        self, reads: ReadEngine, ledger: Ledger, evaluation: Evaluation, locks: KeyedLocks[str]
    ) -> None:
        self._reads = reads
        self._ledger = ledger
        self._evaluation = evaluation
        self._locks = locks

    async def create(self, space: Space, name: str, indexes: Sequence[IndexBody]) -> CollectionFacts:
        """Create the collection with exactly these indexes, all of them built. ALREADY_EXISTS when a unique
        one cannot be built: then that index does not exist, and everything else does."""
        checked_collection(name)
        requested = parse_indexes(indexes)
        async with self._locks.hold(space.id):
            await self.finish_drop(space, name)
            facts = await self._change(space, name, lambda known: _with_indexes(known, requested))
            for index in facts.indexes:
                if index.name not in {each.name for each in requested}:
                    await self._remove_index(space, name, index)
        for index in requested:
            while not await self._build_some(space, name, index):
                pass
        return (await read_facts(self._reads, space)).find(name) or CollectionFacts()

    async def drop(self, space: Space, name: str) -> bool:
        """Drop the collection; returns whether there was one. Readers do not see it any more from that moment
        on."""
        checked_collection(name)
        async with self._locks.hold(space.id):
            there = (await read_facts(self._reads, space)).find(name) is not None
            if there:
                await self._change(space, name, lambda known: msgspec.structs.replace(known, dropping=True))
            await self.finish_drop(space, name)
        return there

    async def finish_drop(self, space: Space, name: str) -> None:
        """Delete the rows of a collection that is being dropped. The caller holds the lock."""
        known = (await read_facts(self._reads, space)).collections.get(name)
        if known is None or not known.dropping:
            return
        for index in known.indexes:
            await erase(self._reads, self._ledger, space.index(name, index.name))
        await erase(self._reads, self._ledger, space.documents(name))
        await self._change(space, name, lambda _known: None)

    # indexes

    async def _build_some(self, space: Space, name: str, index: IndexFacts) -> bool:
        """Put the next documents into the index; True when it is built, or no longer requested."""
        async with self._locks.hold(space.id):
            facts = (await read_facts(self._reads, space)).find(name)
            found = None if facts is None else _named(facts, index.name)
            if facts is None or found is None or found.built:
                return True
            page = await self._reads.scan(
                space.documents(name), after=found.through, limit=ROWS, size=PAGE_BYTES
            )
            try:
                puts = await self._entries(space, name, found, page)
            except Rejected:
                await self._remove_index(space, name, found)
                raise
            through = msgspec.structs.replace(
                found, built=not page, through=page[-1].id if page else found.through
            )
            await self._change(space, name, lambda known: _replaced(known, through), *puts)
            return not page

    async def _entries(
        self, space: Space, name: str, index: IndexFacts, page: Sequence[Document]
    ) -> list[Put]:
        collection = space.index(name, index.name)
        owned = await self._evaluation.run(
            sum(len(document.body) for document in page),
            lambda: [
                (document.id, index.entry(document.id, msgspec.json.decode(document.body)))
                for document in page
            ],
        )
        owners: dict[str, tuple[str, IndexEntry]] = {}
        for owner, entry in owned:
            if entry.id in owners:
                raise taken(name, index)
            owners[entry.id] = (owner, entry)
        for held in await self._reads.get_many(collection, [e.id for _, e in owned if e.alone]):
            if msgspec.json.decode(held.body, type=EntryBody).owner != owners[held.id][0]:
                raise taken(name, index)
        return [
            Put(
                collection=collection,
                id=entry.id,
                body=msgspec.json.encode(EntryBody(owner, entry.cut)),
                expect=None,
            )
            for owner, entry in owned
        ]

    async def _remove_index(self, space: Space, name: str, index: IndexFacts) -> None:
        """First not used by queries, then emptied, then forgotten: wherever this is cut short, the index can
        be built anew."""
        unbuilt = msgspec.structs.replace(index, built=False, through="")
        await self._change(space, name, lambda known: _replaced(known, unbuilt))
        await erase(self._reads, self._ledger, space.index(name, index.name))
        await self._change(space, name, lambda known: _replaced(known, unbuilt, forget=True))

    async def _change(self, space: Space, name: str, change: _Change, *puts: Put) -> CollectionFacts:
        for _ in range(_ATTEMPTS):
            facts: DocumentFacts = await read_facts(self._reads, space)
            before = facts.collections.get(name)
            after = change(before or CollectionFacts())
            if after == before and not puts:
                return after or CollectionFacts()
            changed = facts.with_collection(name, after)
            if len(changed.collections) > MAX_COLLECTIONS:
                raise invalid(f"a module may have {MAX_COLLECTIONS} collections at most")
            try:
                await self._ledger.commit(changed.put(space), *registration(space, facts.revision), *puts)
            except Conflict:
                continue
            return after or CollectionFacts()
        raise busy(space)


def parse_indexes(bodies: Sequence[IndexBody]) -> list[IndexFacts]:
    if len(bodies) > MAX_INDEXES:
        raise invalid(f"a collection may have {MAX_INDEXES} indexes at most")
    found: list[IndexFacts] = []
    for body in bodies:
        fields = tuple(map(parse_path, body.fields))
        if not 0 < len(fields) <= MAX_FIELDS or len(set(fields)) != len(fields) or ("_id",) in fields:
            raise invalid(f"an index takes 1 to {MAX_FIELDS} different fields; '_id' needs none")
        index = IndexFacts(fields=fields, unique=body.unique)
        if index.name not in {known.name for known in found}:
            found.append(index)
    return found


def _with_indexes(known: CollectionFacts, requested: Sequence[IndexFacts]) -> CollectionFacts:
    names = {index.name for index in known.indexes}
    added = tuple(
        msgspec.structs.replace(index, built=not known.count)
        for index in requested
        if index.name not in names
    )
    return msgspec.structs.replace(known, indexes=known.indexes + added)


def _named(facts: CollectionFacts, name: str) -> IndexFacts | None:
    return next((index for index in facts.indexes if index.name == name), None)


def _replaced(known: CollectionFacts, index: IndexFacts, *, forget: bool = False) -> CollectionFacts:
    kept = (index if each.name == index.name else each for each in known.indexes)
    return msgspec.structs.replace(
        known, indexes=tuple(each for each in kept if not (forget and each.name == index.name))
    )
