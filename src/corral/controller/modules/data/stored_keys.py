"""Keys and values in the store: one document per entry, and a second one that orders those that expire."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.modules.data.document_writer import busy, quota_reached, registered, registration
from corral.controller.modules.data.key_values import KeyEntry, KeyUsage, Write, entry_cost
from corral.controller.modules.data.spaces import Space, copy, erase
from corral.controller.state.ledger import Ledger, Step
from corral.store.port import ABSENT, Delete, Document, Put, ReadEngine
from corral.store.store_errors import Conflict
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock

_USAGE: Final = "key_value"
_ATTEMPTS: Final = 10
_ROWS: Final = 100


class _KeyRow(msgspec.Struct, frozen=True, array_like=True):
    value: bytes
    expires: int | None = None


class StoredKeys:
    """The `KeyValueEngine` on the store. Writes of one space are serialised."""

    def __init__(self, reads: ReadEngine, ledger: Ledger, clock: Clock) -> None:
        self._reads = reads
        self._ledger = ledger
        self._clock = clock
        self._locks = KeyedLocks[str]()

    async def close(self) -> None:
        return None

    async def read(self, space: Space, key: str) -> KeyEntry | None:
        return self._live(await self._reads.get(space.keys, key))

    async def write(self, space: Space, write: Write, *, quota: int) -> bool:
        async with self._locks.hold(space.id):
            for _ in range(_ATTEMPTS):
                document = await self._reads.get(space.keys, write.key)
                there = self._live(document)
                if not _allowed(write, there):
                    return False
                usage, revision = await self._usage(space)
                after = _after(write, there)
                if after is None and document is None:
                    return False
                counted = _recounted(usage, write.key, document, after)
                if counted.bytes > quota and counted.bytes > usage.bytes:
                    if not await self._sweep(space):
                        raise quota_reached(space, "keys and values", quota)
                    continue
                steps = _steps(space, write.key, document, after)
                try:
                    await self._ledger.commit(
                        *steps, _usage_put(space, counted, revision), *registration(space, revision)
                    )
                except Conflict:
                    continue
                return after is not None or there is not None
        raise busy(space)

    async def expire(self, space: Space, key: str, expires: int | None) -> bool:
        async with self._locks.hold(space.id):
            for _ in range(_ATTEMPTS):
                document = await self._reads.get(space.keys, key)
                there = self._live(document)
                if there is None:
                    return False
                try:
                    await self._ledger.commit(*_steps(space, key, document, KeyEntry(there.value, expires)))
                except Conflict:
                    continue
                return True
        raise busy(space)

    async def keys(self, space: Space, *, prefix: str, after: str, limit: int) -> list[str]:
        found: list[str] = []
        if prefix and after < prefix and await self.read(space, prefix) is not None:
            found.append(prefix)  # a scan excludes its lower bound
        place = max(after, prefix)
        while len(found) < limit:
            page = await self._reads.scan(space.keys, after=place, limit=_ROWS)
            within = [document for document in page if document.id.startswith(prefix)]
            found += (document.id for document in within if self._live(document) is not None)
            if len(within) < _ROWS:
                break
            place = page[-1].id
        return found[:limit]

    async def usage(self, space: Space) -> KeyUsage:
        usage, _ = await self._usage(space)
        return usage

    async def sweep(self, space: Space) -> int:
        async with self._locks.hold(space.id):
            return await self._sweep(space)

    async def copy(self, source: Space, target: Space) -> None:
        await self.drop(target)
        usage, revision = await self._usage(source)
        if revision == ABSENT:
            return
        # The target is listed before it holds anything, so that a copy cut short is found and dropped.
        await self._ledger.commit(_usage_put(target, usage, None), *registration(target, ABSENT))
        await copy(self._reads, self._ledger, source.keys, target.keys)
        await copy(self._reads, self._ledger, source.expiries, target.expiries)

    async def drop(self, space: Space) -> None:
        _, revision = await self._usage(space)
        if revision == ABSENT:
            return
        await erase(self._reads, self._ledger, space.expiries)
        await erase(self._reads, self._ledger, space.keys)
        await self._ledger.commit(Delete(collection=space.usage, id=_USAGE, expect=None))

    async def spaces(self) -> list[Space]:
        return await registered(self._reads)

    # stored documents

    def _live(self, document: Document | None) -> KeyEntry | None:
        if document is None:
            return None
        row = msgspec.msgpack.decode(document.body, type=_KeyRow)
        if row.expires is not None and row.expires <= self._now():
            return None
        return KeyEntry(row.value, row.expires)

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    async def _usage(self, space: Space) -> tuple[KeyUsage, int]:
        document = await self._reads.get(space.usage, _USAGE)
        if document is None:
            return KeyUsage(), ABSENT
        return msgspec.json.decode(document.body, type=KeyUsage), document.revision

    async def _sweep(self, space: Space) -> int:
        swept = 0
        while page := await self._reads.scan(
            space.expiries, before=_expiry(self._now() + 1, ""), limit=_ROWS
        ):
            keys = [entry.id.partition("!")[2] for entry in page]
            dead = [d for d in await self._reads.get_many(space.keys, keys) if self._live(d) is None]
            usage, revision = await self._usage(space)
            for document in dead:
                usage = _recounted(usage, document.id, document, None)
            try:
                await self._ledger.commit(
                    *(Delete(collection=space.keys, id=d.id, expect=d.revision) for d in dead),
                    *(Delete(collection=space.expiries, id=entry.id, expect=None) for entry in page),
                    _usage_put(space, usage, revision),
                )
            except Conflict:
                continue
            swept += len(dead)
        return swept


def _allowed(write: Write, there: KeyEntry | None) -> bool:
    if write.unless_there and there is not None:
        return False
    return write.only_if is None or write.only_if[0] == (None if there is None else there.value)


def _after(write: Write, there: KeyEntry | None) -> KeyEntry | None:
    if write.value is None:
        return None
    keeps = write.keep_expiry and there is not None
    return KeyEntry(write.value, there.expires if keeps and there is not None else write.expires)


def _recounted(usage: KeyUsage, key: str, before: Document | None, after: KeyEntry | None) -> KeyUsage:
    count, size = usage.count, usage.bytes
    if before is not None:
        count -= 1
        size -= entry_cost(key, msgspec.msgpack.decode(before.body, type=_KeyRow).value)
    if after is not None:
        count += 1
        size += entry_cost(key, after.value)
    return KeyUsage(count, size)


def _steps(space: Space, key: str, before: Document | None, after: KeyEntry | None) -> list[Step]:
    """Steps for the entry, and for its document in the expiry order."""
    revision = ABSENT if before is None else before.revision
    was = None if before is None else msgspec.msgpack.decode(before.body, type=_KeyRow).expires
    steps: list[Step] = []
    if after is None:
        steps.append(Delete(collection=space.keys, id=key, expect=revision))
    else:
        body = msgspec.msgpack.encode(_KeyRow(after.value, after.expires))
        steps.append(Put(collection=space.keys, id=key, body=body, expect=revision))
    becomes = None if after is None else after.expires
    if was is not None and was != becomes:
        steps.append(Delete(collection=space.expiries, id=_expiry(was, key), expect=None))
    if becomes is not None and was != becomes:
        steps.append(Put(collection=space.expiries, id=_expiry(becomes, key), body=b"", expect=None))
    return steps


def _expiry(at: int, key: str) -> str:
    return f"{at:016x}!{key}"


def _usage_put(space: Space, usage: KeyUsage, revision: int | None) -> Put:
    return Put(collection=space.usage, id=_USAGE, body=msgspec.json.encode(usage), expect=revision)
