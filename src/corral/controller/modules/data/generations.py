"""Generations of a module's data: copied for an upgrade, dropped with whoever lost."""

from __future__ import annotations

from collections.abc import Mapping

import structlog

from corral.controller.modules.data.collection_facts import DocumentFacts, read_facts
from corral.controller.modules.data.document_writer import registered, registration
from corral.controller.modules.data.erasing import copy, erase
from corral.controller.modules.data.key_values import KeyValueEngine
from corral.controller.modules.data.spaces import SPACES, USAGE, Space
from corral.controller.state.ledger import Ledger
from corral.store.port import ABSENT, Delete, ReadEngine
from corral.system.aio.keyed_locks import KeyedLocks

log = structlog.get_logger(__name__)


class Generations:
    """All spaces of all modules, as wholes. Every verb can be repeated after it was cut short."""

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
        """Make the target what the source is. Until its record names it, it is swept at the next boot."""
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
        # First what names the parts, so that a copy cut short can be dropped.
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
        """Delete everything; its name goes last."""
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
        """The spaces of a module that hold anything, the oldest first."""
        found = {space for space in await self.all() if space.module == module}
        return sorted(found, key=lambda space: space.generation)

    async def all(self) -> list[Space]:
        found = {*await self._keys.spaces(), *await registered(self._reads)}
        return sorted(found, key=lambda space: (space.module, space.generation))

    async def sweep(self, live: Mapping[str, int]) -> None:
        """Drop generations of installed modules that no record names, and what has expired in the live
        ones. Data of modules that are not installed stay until somebody drops them."""
        for space in await self.all():
            generation = live.get(space.module)
            if generation == space.generation:
                self._made.discard(space)
                await self._keys.sweep(space)
            elif generation is not None and space not in self._made:
                log.info("module_data.swept", module=space.module, generation=space.generation)
                await self.drop(space)
