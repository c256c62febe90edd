"""Module data: the storage of all modules, as the engine and the controller use it.

`Generations` are the versions of a module's data: copied for an upgrade; the losing copy is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from corral.controller.modules.data.collection_facts import DocumentFacts, read_facts
from corral.controller.modules.data.document_operations import DocumentCalls
from corral.controller.modules.data.document_writer import registered, registration
from corral.controller.modules.data.key_values import KeyValueCalls, KeyValueEngine
from corral.controller.modules.data.spaces import SPACES, USAGE, Space, copy, erase
from corral.controller.modules.data.stored_keys import StoredKeys
from corral.controller.modules.data.valkey_keys import ValkeyKeys
from corral.controller.state.ledger import Ledger
from corral.errors import CorralError
from corral.modules.services.host_operations import Operation
from corral.sdk.protocol import storage_messages as messages
from corral.store.port import ABSENT, Delete, ReadEngine
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock
from corral.system.entropy import Entropy, SystemEntropy

log = structlog.get_logger("corral.controller.modules")


class DataUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of a module's storage; sizes as they count against its limits."""

    documents: int = 0
    document_bytes: int = 0
    collections: int = 0
    keys: int = 0
    key_value_bytes: int = 0


class ModuleData:
    """Documents and key-value pairs of all modules, for the term of one leader.

    `namespace` keeps clusters apart that share one Valkey, `epoch` fences a deposed leader there; in the
    store the ledger does that.
    """

    def __init__(
        self,
        *,
        reads: ReadEngine,
        ledger: Ledger,
        clock: Clock,
        entropy: Entropy | None = None,
        key_value_url: str = "",
        namespace: str = "corral",
        epoch: int = 0,
    ) -> None:
        self._reads = reads
        self._valkey = (
            ValkeyKeys(key_value_url, namespace=namespace, epoch=epoch, clock=clock)
            if key_value_url
            else None
        )
        self._keys: KeyValueEngine = self._valkey or StoredKeys(reads, ledger, clock)
        locks = KeyedLocks[str]()
        self._documents = DocumentCalls(
            reads, ledger, clock=clock, entropy=entropy or SystemEntropy(), locks=locks
        )
        self._key_values = KeyValueCalls(self._keys, clock)
        self._generations = Generations(reads, ledger, self._keys, locks)

    async def open(self) -> None:
        """Write the leader's epoch to an external storage. When it does not answer, the first write does
        it."""
        if self._valkey is None:
            return
        try:
            await self._valkey.open()
        except CorralError as error:
            log.warning("key_value_store.failed", why=str(error))

    async def close(self) -> None:
        await self._keys.close()

    def operations(self) -> list[Operation]:
        """Operations that modules may call, for the engine's table."""
        documents, keys = self._documents, self._key_values
        return [
            Operation(method=messages.CREATE, body=messages.CreateCollection, handler=documents.create),
            Operation(
                method=messages.COLLECTIONS, body=messages.ListCollections, handler=documents.collections
            ),
            Operation(method=messages.DROP, body=messages.DropCollection, handler=documents.drop),
            Operation(method=messages.INSERT, body=messages.InsertDocuments, handler=documents.insert),
            Operation(method=messages.GET, body=messages.GetDocuments, handler=documents.get),
            Operation(method=messages.FIND, body=messages.FindDocuments, handler=documents.find),
            Operation(method=messages.COUNT, body=messages.CountDocuments, handler=documents.count),
            Operation(method=messages.UPDATE_MANY, body=messages.UpdateMany, handler=documents.update_many),
            Operation(method=messages.DELETE_MANY, body=messages.DeleteMany, handler=documents.delete_many),
            Operation(
                method=messages.TRANSACTION, body=messages.RunTransaction, handler=documents.transaction
            ),
            Operation(method=messages.KV_GET, body=messages.KeyBody, handler=keys.get),
            Operation(method=messages.KV_PUT, body=messages.PutKey, handler=keys.put),
            Operation(
                method=messages.KV_COMPARE_AND_SET, body=messages.CompareAndSet, handler=keys.compare_and_set
            ),
            Operation(method=messages.KV_DELETE, body=messages.KeyBody, handler=keys.delete),
            Operation(method=messages.KV_INCREMENT, body=messages.IncrementKey, handler=keys.increment),
            Operation(method=messages.KV_EXPIRE, body=messages.ExpireKey, handler=keys.expire),
            Operation(method=messages.KV_KEYS, body=messages.ListKeys, handler=keys.keys),
        ]

    # generations

    async def copy(self, module: str, source: int, target: int) -> None:
        """Replace generation `target` by a copy of `source`, documents and keys."""
        await self._generations.copy(Space(module, source), Space(module, target))

    async def drop(self, module: str, generation: int) -> None:
        await self._generations.drop(Space(module, generation))

    async def drop_all(self, module: str) -> None:
        for space in await self._generations.of(module):
            await self._generations.drop(space)

    async def generations(self, module: str) -> list[int]:
        """Generations that hold anything: a module that is installed again continues with the last of
        them."""
        return [space.generation for space in await self._generations.of(module)]

    async def sweep(self, live: Mapping[str, int]) -> None:
        """Drop generations of installed modules that are not the live one, and expired keys."""
        await self._generations.sweep(live)

    async def usage(self, module: str, generation: int | None = None) -> DataUsage:
        """Usage of this generation, else of the newest."""
        if generation is None:
            known = await self.generations(module)
            if not known:
                return DataUsage()
            generation = known[-1]
        space = Space(module, generation)
        facts = await read_facts(self._reads, space)
        keys = await self._keys.usage(space)
        return DataUsage(
            documents=facts.count,
            document_bytes=facts.bytes,
            collections=sum(facts.find(name) is not None for name in facts.collections),
            keys=keys.count,
            key_value_bytes=keys.bytes,
        )


class Generations:
    """Operations on whole spaces of all modules. Each can be repeated after it was cut short."""

    def __init__(
        self, reads: ReadEngine, ledger: Ledger, keys: KeyValueEngine, locks: KeyedLocks[str]
    ) -> None:
        self._reads = reads
        self._ledger = ledger
        self._keys = keys
        self._locks = locks
        self._made: set[Space] = set()
        """Copies whose upgrade is under way: no record names them yet."""

    async def copy(self, source: Space, target: Space) -> None:
        """Replace the target by a copy of the source. Until a record names the copy, the sweep at the next
        boot drops it."""
        self._made.add(target)
        await self.drop(target, keep_hold=True)
        async with self._locks.hold(source.id):
            facts = await read_facts(self._reads, source)
            if facts.revision != ABSENT:
                await self._copy_documents(source, target, facts)
        await self._keys.copy(source, target)

    async def _copy_documents(self, source: Space, target: Space, facts: DocumentFacts) -> None:
        live = {name: known for name, known in facts.collections.items() if not known.dropping}
        copied = DocumentFacts(collections=live)
        # First the entries that name the parts, so that a copy cut short can be dropped.
        await self._ledger.commit(copied.put(target), *registration(target, ABSENT))
        for name, known in live.items():
            await copy(self._reads, self._ledger, source.documents(name), target.documents(name))
            for index in known.indexes:
                await copy(
                    self._reads,
                    self._ledger,
                    source.index(name, index.name),
                    target.index(name, index.name),
                )

    async def drop(self, space: Space, *, keep_hold: bool = False) -> None:
        """Delete everything in the space; the entry that names it goes last."""
        async with self._locks.hold(space.id):
            facts = await read_facts(self._reads, space)
            for name, known in facts.collections.items():
                for index in known.indexes:
                    await erase(self._reads, self._ledger, space.index(name, index.name))
                await erase(self._reads, self._ledger, space.documents(name))
            await self._keys.drop(space)
            if await self._reads.get(SPACES, space.id) is not None:
                await self._ledger.commit(
                    Delete(collection=space.usage, id=USAGE, expect=None),
                    Delete(collection=SPACES, id=space.id, expect=None),
                )
        if not keep_hold:
            self._made.discard(space)

    async def of(self, module: str) -> list[Space]:
        """Spaces of a module that hold anything, the oldest first."""
        found = {space for space in await self.all() if space.module == module}
        return sorted(found, key=lambda space: space.generation)

    async def all(self) -> list[Space]:
        found = {*await self._keys.spaces(), *await registered(self._reads)}
        return sorted(found, key=lambda space: (space.module, space.generation))

    async def sweep(self, live: Mapping[str, int]) -> None:
        """Drop generations of installed modules that no record names, and expired keys of the live ones. Data
        of modules that are not installed stay until an operator drops them."""
        for space in await self.all():
            generation = live.get(space.module)
            if generation == space.generation:
                self._made.discard(space)
                await self._keys.sweep(space)
            elif generation is not None and space not in self._made:
                log.info("module_data.removed", module=space.module, generation=space.generation)
                await self.drop(space)
