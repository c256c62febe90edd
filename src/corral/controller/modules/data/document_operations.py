"""Operations of modules on their documents (`documents.*`): checked, planned, searched, written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from corral.controller.modules.data.collection_facts import CollectionFacts, read_facts
from corral.controller.modules.data.collection_indexes import CollectionIndexes
from corral.controller.modules.data.document_search import MAX_SKIP, DocumentQuery, Search
from corral.controller.modules.data.document_writer import DocumentWriter
from corral.controller.modules.data.evaluation import DocumentHit, Evaluation
from corral.controller.modules.data.query_plan import parse_sort
from corral.controller.modules.data.spaces import DataScope, Space, checked_collection, checked_id, space_of
from corral.controller.modules.data.transaction_steps import Intent, understand, update_size
from corral.controller.state.ledger import Ledger
from corral.domain.modules.document_filters import ANY, Filter, parse_filter
from corral.domain.modules.document_updates import parse_update
from corral.domain.modules.document_values import invalid
from corral.errors import Code, Rejected
from corral.sdk.protocol import storage_messages as messages
from corral.store.port import ReadEngine
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock
from corral.system.entropy import Entropy

_MIB: Final = 1024 * 1024
_MOST_AT_ONCE: Final = 50_000
"""Most documents whose ids are held in memory while one call changes or deletes them."""
_ANSWER_BYTES: Final = 3 * _MIB


class DocumentCalls:
    """The handlers of `documents.*`."""

    def __init__(
        self, reads: ReadEngine, ledger: Ledger, *, clock: Clock, entropy: Entropy, locks: KeyedLocks[str]
    ) -> None:
        self._reads = reads
        self._clock = clock
        self._entropy = entropy
        self._locks = locks
        self._evaluation = Evaluation()
        self._keeper = CollectionIndexes(reads, ledger, self._evaluation, locks)
        self._writer = DocumentWriter(reads, ledger, self._evaluation, finish_drop=self._keeper.finish_drop)

    # collections

    async def create(self, scope: DataScope, body: messages.CreateCollection) -> messages.CollectionBody:
        _allow(scope)
        facts = await self._keeper.create(space_of(scope), body.collection, body.indexes)
        return _collection_body(body.collection, facts)

    async def collections(self, scope: DataScope, body: messages.ListCollections) -> messages.CollectionList:  # noqa: ARG002 - the shape of a handler
        _allow(scope)
        facts = await read_facts(self._reads, space_of(scope))
        live = {name: found for name in sorted(facts.collections) if (found := facts.find(name)) is not None}
        return messages.CollectionList(
            collections=tuple(_collection_body(name, found) for name, found in live.items())
        )

    async def drop(self, scope: DataScope, body: messages.DropCollection) -> messages.Done:
        _allow(scope)
        return messages.Done(done=await self._keeper.drop(space_of(scope), body.collection))

    # reading

    async def get(self, scope: DataScope, body: messages.GetDocuments) -> messages.DocumentPage:
        _allow(scope)
        space, name = space_of(scope), checked_collection(body.collection)
        if len(body.ids) > messages.MAX_PAGE:
            raise invalid(f"at most {messages.MAX_PAGE} documents can be asked for at once")
        facts = await self._facts(space, name)
        found: dict[str, messages.DocumentBody] = {}
        size = 0
        ids = list(dict.fromkeys(checked_id(id) for id in body.ids)) if facts is not None else []
        rows = 1 if facts is None else min(100, _rows_at_once(facts))
        for start in range(0, len(ids), rows):
            for each in await self._reads.get_many(space.documents(name), ids[start : start + rows]):
                found[each.id] = messages.DocumentBody(id=each.id, revision=each.revision, body=each.body)
                size += len(each.body)
            if size > _ANSWER_BYTES:
                raise Rejected(
                    Code.BODY_TOO_LARGE, "these documents are too large for one answer", hint="ask for fewer"
                )
        return messages.DocumentPage(documents=tuple(found[id] for id in ids if id in found))

    async def find(self, scope: DataScope, body: messages.FindDocuments) -> messages.DocumentPage:
        _allow(scope)
        if not 0 < body.limit <= messages.MAX_PAGE or not 0 <= body.skip <= MAX_SKIP:
            raise invalid(f"'limit' is between 1 and {messages.MAX_PAGE}, 'skip' at most {MAX_SKIP}")
        query = DocumentQuery(
            where=parse_filter(body.filter),
            sort=parse_sort(body.sort),
            limit=body.limit,
            skip=body.skip,
            after=body.after,
        )
        search = await self._search(scope, body.collection)
        if search is None:
            return messages.DocumentPage(documents=())
        answer = await search.find(query)
        return messages.DocumentPage(documents=tuple(map(_body, answer.hits)), next=answer.next)

    async def count(self, scope: DataScope, body: messages.CountDocuments) -> messages.Counted:
        _allow(scope)
        where = parse_filter(body.filter)
        space, name = space_of(scope), checked_collection(body.collection)
        facts = await self._facts(space, name)
        if facts is None or where == ANY:
            return messages.Counted(count=0 if facts is None else facts.count)
        return messages.Counted(count=await self._searching(space, name, facts).count(where))

    # writing

    async def insert(self, scope: DataScope, body: messages.InsertDocuments) -> messages.Written:
        steps = [
            messages.Step(kind="insert", collection=body.collection, id=new.id, body=new.body)
            for new in body.documents
        ]
        return await self._transact(scope, steps)

    async def transaction(self, scope: DataScope, body: messages.RunTransaction) -> messages.Written:
        return await self._transact(scope, body.steps)

    async def update_many(self, scope: DataScope, body: messages.UpdateMany) -> messages.Counted:
        _allow(scope)
        where, update = parse_filter(body.filter), parse_update(body.update)
        name = checked_collection(body.collection)
        ids = await self._ids(scope, name, where, most=_MOST_AT_ONCE + 1)
        if len(ids) > _MOST_AT_ONCE:
            raise invalid(
                f"more than {_MOST_AT_ONCE} documents fit", hint="change them in parts, by a narrower filter"
            )
        intents = [Intent(kind="update", name=(name, id), update=update, guard=where) for id in ids]
        return messages.Counted(count=await self._in_parts(scope, name, intents))

    async def delete_many(self, scope: DataScope, body: messages.DeleteMany) -> messages.Counted:
        _allow(scope)
        where, name = parse_filter(body.filter), checked_collection(body.collection)
        deleted = 0
        while ids := await self._ids(scope, name, where, most=_MOST_AT_ONCE):
            intents = [Intent(kind="delete", name=(name, id), guard=where) for id in ids]
            deleted += await self._in_parts(scope, name, intents)
            if len(ids) < _MOST_AT_ONCE:
                break
        return messages.Counted(count=deleted)

    async def _transact(self, scope: DataScope, steps: Sequence[messages.Step]) -> messages.Written:
        _allow(scope)
        space = space_of(scope)
        weight = sum(len(step.body) or update_size(step.update) for step in steps)
        intents = await self._evaluation.run(weight, lambda: understand(steps, self._new_id))
        async with self._locks.hold(space.id):
            _, revision = await self._writer.apply(space, intents, quota=_quota(scope))
        return messages.Written(ids=tuple(intent.name[1] for intent in intents), revision=revision)

    async def _in_parts(self, scope: DataScope, name: str, intents: Sequence[Intent]) -> int:
        space, written = space_of(scope), 0
        facts = await self._facts(space, name)
        rows = 1 if facts is None else _rows_at_once(facts)
        for start in range(0, len(intents), rows):
            part = intents[start : start + rows]
            async with self._locks.hold(space.id):
                count, _ = await self._writer.apply(space, part, quota=_quota(scope))
            written += count
        return written

    # parts

    async def _ids(self, scope: DataScope, name: str, where: Filter, *, most: int) -> list[str]:
        search = await self._search(scope, name)
        return [] if search is None else await search.ids(where, most=most)

    async def _facts(self, space: Space, name: str) -> CollectionFacts | None:
        return (await read_facts(self._reads, space)).find(name)

    async def _search(self, scope: DataScope, name: str) -> Search | None:
        space = space_of(scope)
        facts = await self._facts(space, checked_collection(name))
        return None if facts is None else self._searching(space, name, facts)

    def _searching(self, space: Space, name: str, facts: CollectionFacts) -> Search:
        return Search(self._reads, self._evaluation, space, name, facts)

    def _new_id(self) -> str:
        """A new id; ids of later documents sort after those of earlier ones, approximately."""
        return f"{int(self._clock.now().timestamp() * 1000):012x}{self._entropy.secret(8).hex()}"


def _rows_at_once(facts: CollectionFacts) -> int:
    """Rows of about one MiB of documents: many small ones, few large ones."""
    return max(4, min(messages.MAX_STEPS, _MIB // max(1, facts.bytes // max(1, facts.count))))


def _collection_body(name: str, facts: CollectionFacts) -> messages.CollectionBody:
    indexes = tuple(
        messages.IndexBody(fields=tuple(".".join(path) for path in index.fields), unique=index.unique)
        for index in facts.indexes
        if index.built
    )
    return messages.CollectionBody(name=name, indexes=indexes, count=facts.count, bytes=facts.bytes)


def _body(hit: DocumentHit) -> messages.DocumentBody:
    return messages.DocumentBody(id=hit.id, revision=hit.revision, body=hit.body or b"")


def _allow(scope: DataScope) -> None:
    if not scope.manifest.storage.documents:
        raise Rejected(
            Code.STORAGE_UNAVAILABLE,
            f"module '{scope.module_id}' has no document storage",
            hint="declare storage.documents: true in its manifest",
        )


def _quota(scope: DataScope) -> int:
    return scope.manifest.storage.limits.documents_mb * _MIB
