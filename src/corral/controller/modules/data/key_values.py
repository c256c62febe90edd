"""Keys and values of modules: the port `KeyValueEngine`, whose adapters for the store and for Valkey behave
alike, and the checked operations `kv.*` on it.

Values are opaque bytes. An expired entry is absent, whether or not it has been removed yet. Each write is
atomic; writes of a deposed leader are refused (`Fenced`).
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from corral.controller.modules.data.document_writer import busy
from corral.controller.modules.data.spaces import DataScope, Space, checked_id, checked_prefix, space_of
from corral.domain.modules.document_values import check_number, invalid
from corral.errors import Code, Rejected
from corral.sdk.protocol import storage_messages as messages
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.clock import Clock

MAX_VALUE: Final = 1024 * 1024
MAX_KEYS: Final = 1000
ENTRY: Final = 64
"""Bytes that an entry counts besides key and value."""


class KeyEntry(msgspec.Struct, frozen=True):
    """`expires` in milliseconds since 1970; None: never."""

    value: bytes
    expires: int | None = None


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Set a key to `value` (None: remove it).

    `unless_there`: do nothing when there is a value already. `only_if`: do nothing unless the value equals this
    one, given in a tuple, where None stands for no value. `keep_expiry`: keep the present expiry, else
    `expires`.
    """

    key: str
    value: bytes | None
    expires: int | None = None
    keep_expiry: bool = False
    unless_there: bool = False
    only_if: tuple[bytes | None] | None = None


class KeyUsage(msgspec.Struct, frozen=True):
    count: int = 0
    bytes: int = 0


class KeyValueEngine(Protocol):
    """Failures to reach the engine are Retryable: STORAGE_UNAVAILABLE, or what the store raises."""

    async def read(self, space: Space, key: str) -> KeyEntry | None: ...

    async def write(self, space: Space, write: Write, *, quota: int) -> bool:
        """Whether the conditions held and the write is done; for a removal: whether there was a value.
        Rejected STORAGE_QUOTA when the space would grow beyond its quota."""

    async def expire(self, space: Space, key: str, expires: int | None) -> bool:
        """Set the expiry; returns whether there is such a key."""

    async def keys(self, space: Space, *, prefix: str, after: str, limit: int) -> list[str]:
        """Keys, in the order of code points."""

    async def usage(self, space: Space) -> KeyUsage: ...

    async def sweep(self, space: Space) -> int:
        """Remove expired entries; returns how many."""

    async def copy(self, source: Space, target: Space) -> None:
        """Copy all entries into the target, which is emptied first."""

    async def drop(self, space: Space) -> None: ...

    async def spaces(self) -> list[Space]:
        """All spaces that hold anything."""

    async def close(self) -> None: ...


def entry_cost(key: str, value: bytes) -> int:
    return ENTRY + len(key.encode()) + len(value)


def check_size(value: bytes) -> None:
    if len(value) > MAX_VALUE:
        raise Rejected(
            Code.BODY_TOO_LARGE,
            f"a value of {len(value)} bytes is larger than allowed ({MAX_VALUE})",
            hint="keep large things in documents, or in several keys",
        )


_MIB: Final = 1024 * 1024
_LONGEST_TTL: Final = 20 * 366 * 86_400_000
_ATTEMPTS: Final = 10


class KeyValueCalls:
    """The handlers of `kv.*`."""

    def __init__(self, engine: KeyValueEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._counting = KeyedLocks[str]()

    async def get(self, scope: DataScope, body: messages.KeyBody) -> messages.KeyValue:
        _allow(scope)
        found = await self._engine.read(space_of(scope), checked_id(body.key, "key"))
        if found is None:
            return messages.KeyValue()
        left = None if found.expires is None else max(0, found.expires - self._now())
        return messages.KeyValue(value=found.value, expires_in_ms=left)

    async def put(self, scope: DataScope, body: messages.PutKey) -> messages.Done:
        return await self._write(
            scope,
            Write(
                key=body.key,
                value=body.value,
                expires=self._expiry(body.ttl_ms),
                unless_there=body.if_absent,
            ),
        )

    async def compare_and_set(self, scope: DataScope, body: messages.CompareAndSet) -> messages.Done:
        write = Write(
            key=body.key, value=body.value, expires=self._expiry(body.ttl_ms), only_if=(body.expected,)
        )
        if body.value is None and body.expected is None:
            _allow(scope)
            found = await self._engine.read(space_of(scope), checked_id(body.key, "key"))
            return messages.Done(done=found is None)
        return await self._write(scope, write)

    async def delete(self, scope: DataScope, body: messages.KeyBody) -> messages.Done:
        return await self._write(scope, Write(key=body.key, value=None))

    async def increment(self, scope: DataScope, body: messages.IncrementKey) -> messages.Incremented:
        _allow(scope)
        space, key = space_of(scope), checked_id(body.key, "key")
        async with self._counting.hold(space.id):
            for _ in range(_ATTEMPTS):
                found = await self._engine.read(space, key)
                value = (0 if found is None else _number(key, found.value)) + body.by
                check_number(value, what=f"'{key}'")
                write = Write(
                    key=key,
                    value=msgspec.msgpack.encode(value),
                    expires=self._expiry(body.ttl_ms),
                    keep_expiry=found is not None,
                    only_if=(None if found is None else found.value,),
                )
                if await self._engine.write(space, write, quota=_quota(scope)):
                    return messages.Incremented(value=value)
        raise busy(space)

    async def expire(self, scope: DataScope, body: messages.ExpireKey) -> messages.Done:
        _allow(scope)
        key = checked_id(body.key, "key")
        return messages.Done(done=await self._engine.expire(space_of(scope), key, self._expiry(body.ttl_ms)))

    async def keys(self, scope: DataScope, body: messages.ListKeys) -> messages.KeyList:
        _allow(scope)
        if not 0 < body.limit <= MAX_KEYS:
            raise invalid(f"'limit' is between 1 and {MAX_KEYS}")
        found = await self._engine.keys(
            space_of(scope),
            prefix=checked_prefix(body.prefix),
            after=checked_prefix(body.after),
            limit=body.limit,
        )
        return messages.KeyList(keys=tuple(found))

    async def _write(self, scope: DataScope, write: Write) -> messages.Done:
        _allow(scope)
        checked_id(write.key, "key")
        check_size(write.value or b"")
        return messages.Done(done=await self._engine.write(space_of(scope), write, quota=_quota(scope)))

    def _expiry(self, ttl_ms: int | None) -> int | None:
        if ttl_ms is None:
            return None
        if not 0 < ttl_ms <= _LONGEST_TTL:
            raise invalid("a time to live is more than 0 and at most 20 years")
        return self._now() + ttl_ms

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)


def _number(key: str, value: bytes) -> int:
    try:
        return msgspec.msgpack.decode(value, type=int)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise invalid(f"the value of '{key}' is not a whole number", hint="delete it to begin at 0") from None


def _allow(scope: DataScope) -> None:
    if not scope.manifest.storage.key_value:
        raise Rejected(
            Code.STORAGE_UNAVAILABLE,
            f"module '{scope.module_id}' has no key-value storage",
            hint="declare storage.keyValue: true in its manifest",
        )


def _quota(scope: DataScope) -> int:
    return scope.manifest.storage.limits.key_value_mb * _MIB
