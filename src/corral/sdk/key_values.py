"""Keys and values of a module: counters, caches, locks, anything found by its name only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar, overload

import msgspec

from corral.sdk.protocol import storage_messages as messages
from corral.sdk.runner_port import HostLink

T = TypeVar("T")


class Absent:
    """No value at all, which is not the same as the value None."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()
"""For `compare_and_set`: there is no value, or there shall be none."""


class KeyValueStorage:
    """Values by key, some of them for a time. All of it belongs to the module and outlives its process.

    Values are whatever msgspec can encode; give the type to get it back. Times to live are seconds.

    ```python
    kv = ctx.require_key_value_storage()
    await kv.put("motd", "Welcome", ttl=3600)
    motd = await kv.get("motd", str)
    joins = await kv.increment("joins:today", ttl=86400)
    if await kv.put_if_absent("leader", me, ttl=10): ...
    ```
    """

    def __init__(self, link: HostLink) -> None:
        self._link = link

    @overload
    async def get(self, key: str) -> Any: ...
    @overload
    async def get(self, key: str, type: type[T]) -> T | None: ...
    async def get(self, key: str, type: Any = Any) -> Any:
        """The value, or None when there is none: `await kv.get("motd", str)`."""
        found = await self._link.call(messages.KV_GET, messages.KeyBody(key=key), messages.KeyValue)
        return None if found.value is None else msgspec.msgpack.decode(found.value, type=type)

    async def expires_in(self, key: str) -> float | None:
        """Seconds until the value expires; None when there is none, or it never expires: `await
        kv.expires_in("motd")`."""
        found = await self._link.call(messages.KV_GET, messages.KeyBody(key=key), messages.KeyValue)
        return None if found.expires_in_ms is None else found.expires_in_ms / 1000

    async def put(self, key: str, value: object, *, ttl: float | None = None) -> None:
        """Store a value, for ever or for so many seconds: `await kv.put("motd", "Hello", ttl=60)`."""
        body = messages.PutKey(key=key, value=_packed(value), ttl_ms=_milliseconds(ttl))
        await self._link.call(messages.KV_PUT, body, messages.Done)

    async def put_if_absent(self, key: str, value: object, *, ttl: float | None = None) -> bool:
        """Store a value unless there is one; returns whether it was stored: `await kv.put_if_absent("leader",
        me, ttl=10)`."""
        body = messages.PutKey(key=key, value=_packed(value), ttl_ms=_milliseconds(ttl), if_absent=True)
        return (await self._link.call(messages.KV_PUT, body, messages.Done)).done

    async def compare_and_set(
        self, key: str, expected: object, value: object, *, ttl: float | None = None
    ) -> bool:
        """Replace only the value that you expect: `await kv.compare_and_set("turn", "red", "blue")`. `ABSENT`
        as `expected`: there is none; as `value`: delete it."""
        body = messages.CompareAndSet(
            key=key,
            expected=None if expected is ABSENT else _packed(expected),
            value=None if value is ABSENT else _packed(value),
            ttl_ms=_milliseconds(ttl),
        )
        return (await self._link.call(messages.KV_COMPARE_AND_SET, body, messages.Done)).done

    async def delete(self, key: str) -> bool:
        """Delete a value; returns whether there was one: `await kv.delete("motd")`."""
        return (await self._link.call(messages.KV_DELETE, messages.KeyBody(key=key), messages.Done)).done

    async def increment(self, key: str, by: int = 1, *, ttl: float | None = None) -> int:
        """Add to a counter, which begins at 0, and get the sum. `ttl` applies to a new counter: `await
        kv.increment("joins:today", ttl=86400)`."""
        body = messages.IncrementKey(key=key, by=by, ttl_ms=_milliseconds(ttl))
        return (await self._link.call(messages.KV_INCREMENT, body, messages.Incremented)).value

    async def expire(self, key: str, ttl: float | None) -> bool:
        """Change when a value expires, None: never. Returns whether there is one: `await kv.expire("motd",
        60)`."""
        body = messages.ExpireKey(key=key, ttl_ms=_milliseconds(ttl))
        return (await self._link.call(messages.KV_EXPIRE, body, messages.Done)).done

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        """All keys with this prefix, sorted: `async for key in kv.keys("joins:"): ...`."""
        after, most = "", 1000
        while True:
            body = messages.ListKeys(prefix=prefix, after=after, limit=most)
            page = (await self._link.call(messages.KV_KEYS, body, messages.KeyList)).keys
            for key in page:
                yield key
            if len(page) < most:
                return
            after = page[-1]


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")


def _packed(value: object) -> bytes:
    return _ENCODER.encode(value)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000)) if seconds > 0 else 0
