"""The data of modules, as the engine and the controller see them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import structlog

from corral.controller.modules.data.collection_facts import read_facts
from corral.controller.modules.data.document_operations import DocumentCalls
from corral.controller.modules.data.generations import Generations
from corral.controller.modules.data.key_value_calls import KeyValueCalls
from corral.controller.modules.data.key_values import KeyValueEngine
from corral.controller.modules.data.spaces import Space
from corral.controller.modules.data.stored_keys import StoredKeys
from corral.controller.modules.data.valkey_keys import ValkeyKeys
from corral.controller.state.ledger import Ledger
from corral.errors import CorralError
from corral.modules.services.host_operations import Operation
from corral.sdk import storage_messages as said
from corral.store.port import ReadEngine
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock
from corral.system.entropy import Entropy, SystemEntropy

log = structlog.get_logger(__name__)


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a module's storage holds; sizes as they count against its limits."""

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
        """Tell an external storage who leads. When it does not answer, the first write will."""
        if self._valkey is None:
            return
        try:
            await self._valkey.open()
        except CorralError as error:
            log.warning("module_data.key_value_unavailable", why=str(error))

    async def close(self) -> None:
        await self._keys.close()

    def operations(self) -> list[Operation]:
        """What modules may ask, for the engine's table."""
        documents, keys = self._documents, self._key_values
        return [
            Operation(method=said.CREATE, body=said.CreateCollection, handler=documents.create),
            Operation(method=said.COLLECTIONS, body=said.ListCollections, handler=documents.collections),
            Operation(method=said.DROP, body=said.DropCollection, handler=documents.drop),
            Operation(method=said.INSERT, body=said.InsertDocuments, handler=documents.insert),
            Operation(method=said.GET, body=said.GetDocuments, handler=documents.get),
            Operation(method=said.FIND, body=said.FindDocuments, handler=documents.find),
            Operation(method=said.COUNT, body=said.CountDocuments, handler=documents.count),
            Operation(method=said.UPDATE_MANY, body=said.UpdateMany, handler=documents.update_many),
            Operation(method=said.DELETE_MANY, body=said.DeleteMany, handler=documents.delete_many),
            Operation(method=said.TRANSACTION, body=said.RunTransaction, handler=documents.transaction),
            Operation(method=said.KV_GET, body=said.KeyBody, handler=keys.get),
            Operation(method=said.KV_PUT, body=said.PutKey, handler=keys.put),
            Operation(method=said.KV_COMPARE_AND_SET, body=said.CompareAndSet, handler=keys.compare_and_set),
            Operation(method=said.KV_DELETE, body=said.KeyBody, handler=keys.delete),
            Operation(method=said.KV_INCREMENT, body=said.IncrementKey, handler=keys.increment),
            Operation(method=said.KV_EXPIRE, body=said.ExpireKey, handler=keys.expire),
            Operation(method=said.KV_KEYS, body=said.ListKeys, handler=keys.keys),
        ]

    # generations

    async def copy(self, module: str, source: int, target: int) -> None:
        """Make generation `target` what `source` is, documents and keys."""
        await self._generations.copy(Space(module, source), Space(module, target))

    async def drop(self, module: str, generation: int) -> None:
        await self._generations.drop(Space(module, generation))

    async def drop_all(self, module: str) -> None:
        for space in await self._generations.of(module):
            await self._generations.drop(space)

    async def generations(self, module: str) -> list[int]:
        """Those that hold anything: a module that is installed again goes on with the last of them."""
        return [space.generation for space in await self._generations.of(module)]

    async def sweep(self, live: Mapping[str, int]) -> None:
        """Drop generations of installed modules that are not the live one, and expired keys."""
        await self._generations.sweep(live)

    async def usage(self, module: str, generation: int | None = None) -> Usage:
        """Of this generation, else of the newest."""
        if generation is None:
            known = await self.generations(module)
            if not known:
                return Usage()
            generation = known[-1]
        space = Space(module, generation)
        facts = await read_facts(self._reads, space)
        keys = await self._keys.usage(space)
        return Usage(
            documents=facts.count,
            document_bytes=facts.bytes,
            collections=sum(facts.find(name) is not None for name in facts.collections),
            keys=keys.count,
            key_value_bytes=keys.bytes,
        )
