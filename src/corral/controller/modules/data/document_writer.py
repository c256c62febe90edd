"""Document writer: steps, their index entries and the metadata of the collections, in one commit.

Writes of one space are serialised; readers never wait for them. The documents are read under the lock, and
the commit expects their revisions, so even a commit whose caller was cancelled cannot lead to a lost update:
the store refuses the next writer, which then reads again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from corral.controller.modules.data.collection_facts import (
    CollectionFacts,
    DocumentFacts,
    EntryBody,
    IndexFacts,
    cost,
    read_facts,
)
from corral.controller.modules.data.evaluation import Evaluation
from corral.controller.modules.data.spaces import SPACES, Space, space_from
from corral.controller.modules.data.transaction_steps import DocumentName, Edit, Intent, enter, fold
from corral.controller.state.ledger import Ledger, Step
from corral.domain.modules.document_values import invalid
from corral.errors import Code, Rejected, Retryable
from corral.store.port import ABSENT, Delete, Document, Put, ReadEngine
from corral.store.store_errors import Conflict

MAX_COLLECTIONS: Final = 64
_ATTEMPTS: Final = 10
_LOADED_BYTES: Final = 16 * 1024 * 1024
_LOADED_ROWS: Final = 16
_SPACES_A_PAGE: Final = 500


class DocumentWriter:
    """Applies steps to the documents of a space, all of them or none."""

    def __init__(
        self,
        reads: ReadEngine,
        ledger: Ledger,
        evaluation: Evaluation,
        *,
        finish_drop: Callable[[Space, str], Awaitable[None]],
    ) -> None:
        self._reads = reads
        self._ledger = ledger
        self._evaluation = evaluation
        self._finish_drop = finish_drop

    async def apply(self, space: Space, intents: Sequence[Intent], *, quota: int) -> tuple[int, int]:
        """Apply the steps; returns how many documents were written, and under which revision. The caller
        holds the lock.

        Refusals: ALREADY_EXISTS (also by a unique index), NOT_FOUND, REVISION_MISMATCH, BODY_TOO_LARGE,
        QUERY_INVALID, STORAGE_QUOTA; `Fenced` and `StoreUnavailable` as the store raises them.
        """
        for _ in range(_ATTEMPTS):
            facts = await self._facts(space, intents)
            edits = await self._edits(space, intents, facts)
            if not edits:
                return 0, 0
            steps = await self._steps(space, facts, edits, quota)
            try:
                commit = await self._ledger.commit(*steps)
            except Conflict:
                continue
            return len(edits), commit.number
        raise busy(space)

    async def _facts(self, space: Space, intents: Sequence[Intent]) -> DocumentFacts:
        """The space's metadata, after deleting the rest of collections that were being dropped and are
        written to again."""
        facts = await read_facts(self._reads, space)
        left = [name for name, known in facts.collections.items() if known.dropping]
        returning = {intent.name[0] for intent in intents}.intersection(left)
        for name in returning:
            await self._finish_drop(space, name)
        return await read_facts(self._reads, space) if returning else facts

    async def _edits(self, space: Space, intents: Sequence[Intent], facts: DocumentFacts) -> list[Edit]:
        stored = await self._load(space, intents)
        weight = sum(len(document.body) for document in stored.values())
        weight += sum(512 + intent.weight for intent in intents)

        def work() -> list[Edit]:
            edits = fold(intents, stored)
            enter(edits, facts)
            return edits

        return await self._evaluation.run(weight, work)

    async def _load(self, space: Space, intents: Sequence[Intent]) -> dict[DocumentName, Document]:
        by_collection: dict[str, list[str]] = {}
        for collection, id in dict.fromkeys(intent.name for intent in intents if not intent.fresh):
            by_collection.setdefault(collection, []).append(id)
        found: dict[DocumentName, Document] = {}
        size = 0
        for collection, ids in by_collection.items():
            for start in range(0, len(ids), _LOADED_ROWS):
                part = ids[start : start + _LOADED_ROWS]
                for document in await self._reads.get_many(space.documents(collection), part):
                    found[collection, document.id] = document
                    size += len(document.body)
                if size > _LOADED_BYTES:
                    raise Rejected(
                        Code.BODY_TOO_LARGE,
                        f"a transaction touches more than {_LOADED_BYTES} bytes of documents",
                        hint="split it into several",
                    )
        return found

    async def _steps(
        self, space: Space, facts: DocumentFacts, edits: Sequence[Edit], quota: int
    ) -> list[Step]:
        steps: list[Step] = []
        before = facts.bytes
        for name in dict.fromkeys(edit.name[0] for edit in edits):
            known = facts.find(name) or CollectionFacts()
            of_collection = [edit for edit in edits if edit.name[0] == name]
            steps += [_document_write(space, edit) for edit in of_collection]
            for index in known.indexes:
                steps += await self._index_writes(space, name, index, of_collection)
            facts = facts.with_collection(name, _recounted(known, of_collection))
        if len(facts.collections) > MAX_COLLECTIONS:
            raise invalid(f"a module may have {MAX_COLLECTIONS} collections at most")
        if facts.bytes > quota and facts.bytes > before:
            raise quota_reached(space, "documents", quota)
        return [*steps, facts.put(space), *registration(space, facts.revision)]

    async def _index_writes(
        self, space: Space, name: str, index: IndexFacts, edits: Sequence[Edit]
    ) -> list[Put | Delete]:
        """The writes in one index. A key that one document gives up another document may take."""
        key = index.name
        collection = space.index(name, key)
        given_up = {
            before.id: edit.name[1] for edit in edits if (before := edit.entries[key].before) is not None
        }
        claims: dict[str, EntryBody] = {}
        for edit in edits:
            entry = edit.entries[key].after
            if entry is None:
                continue
            if entry.id in claims:
                raise taken(name, index)
            claims[entry.id] = EntryBody(edit.name[1], entry.cut)
        if index.unique:
            held = await self._holders(collection, [*given_up, *claims])
            if any(
                held.get(id, body.owner) not in (body.owner, given_up.get(id)) for id, body in claims.items()
            ):
                raise taken(name, index)
            # While the index is built, an entry may belong to another document.
            given_up = {id: owner for id, owner in given_up.items() if held.get(id) == owner}
        puts = [
            Put(collection=collection, id=id, body=msgspec.json.encode(body), expect=None)
            for id, body in claims.items()
            if given_up.get(id) != body.owner
        ]
        return puts + [
            Delete(collection=collection, id=id, expect=None) for id in given_up.keys() - claims.keys()
        ]

    async def _holders(self, collection: str, entries: Sequence[str]) -> dict[str, str]:
        found = await self._reads.get_many(collection, list(dict.fromkeys(entries)))
        return {entry.id: msgspec.json.decode(entry.body, type=EntryBody).owner for entry in found}


def registration(space: Space, revision: int) -> list[Put]:
    """The write that lists the space, for the commit that first puts something into it."""
    if revision != ABSENT:
        return []
    return [Put(collection=SPACES, id=space.id, body=b"{}", expect=None)]


async def registered(reads: ReadEngine) -> list[Space]:
    """Every space that may hold anything in the store."""
    found: list[Space] = []
    after = ""
    while page := await reads.scan(SPACES, after=after, limit=_SPACES_A_PAGE):
        found += (space_from(document.id) for document in page)
        after = page[-1].id
    return found


def busy(space: Space) -> Retryable:
    return Retryable(
        Code.CONFLICT, f"the storage of module '{space.module}' changes too fast", retry_after=1.0
    )


def taken(collection: str, index: IndexFacts) -> Rejected:
    fields = ", ".join(".".join(path) for path in index.fields)
    return Rejected(
        Code.ALREADY_EXISTS,
        f"another document of '{collection}' has the same value in its unique index ({fields})",
    )


def quota_reached(space: Space, kind: str, quota: int) -> Rejected:
    return Rejected(
        Code.STORAGE_QUOTA,
        f"the {kind} of module '{space.module}' would take more than {quota // (1024 * 1024)} MiB",
        hint="delete some, or raise storage.limits in the manifest",
    )


def _document_write(space: Space, edit: Edit) -> Put | Delete:
    collection, id = space.documents(edit.name[0]), edit.name[1]
    revision = ABSENT if edit.stored is None else edit.stored.revision
    if edit.after is None:
        return Delete(collection=collection, id=id, expect=revision)
    return Put(collection=collection, id=id, body=edit.body, expect=revision)


def _recounted(facts: CollectionFacts, edits: Sequence[Edit]) -> CollectionFacts:
    count, size = facts.count, facts.bytes
    for edit in edits:
        if edit.stored is not None:
            count -= 1
            size -= cost(edit.name[1], len(edit.stored.body))
        if edit.after is not None:
            count += 1
            size += cost(edit.name[1], len(edit.body))
    return msgspec.structs.replace(facts, count=count, bytes=size)
