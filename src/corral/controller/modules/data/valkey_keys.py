"""Keys and values in Valkey (or Redis), when the configuration names one.

All keys are below `corral:v1:kv:NAMESPACE:MODULE:GENERATION:`; a module id holds no colon, so no module's
names begin with another's. Writes carry the leader's epoch: once a successor has written or opened, writes of
the deposed leader are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final
from urllib.parse import urlsplit

from corral.controller.modules.data import valkey_scripts as scripts
from corral.controller.modules.data.document_writer import quota_reached
from corral.controller.modules.data.key_values import KeyEntry, KeyUsage, Write
from corral.controller.modules.data.spaces import Space
from corral.errors import Code, Rejected, Retryable
from corral.store.store_errors import Fenced
from corral.system.clock import Clock

PREFIX: Final = "corral:v1:kv"
_SCHEMES: Final = frozenset({"valkey", "valkeys", "redis", "rediss", "unix"})
_SECONDS: Final = 3.0
_CONNECTIONS: Final = 8


def check_url(url: str) -> None:
    """INVALID_CONFIG for an address that no client could use."""
    if urlsplit(url).scheme not in _SCHEMES:
        raise Rejected(
            Code.INVALID_CONFIG,
            "modules.key_value.url is not an address of Valkey or Redis",
            hint="for example valkey://127.0.0.1:6379/0",
            field="modules.key_value.url",
        )


class ValkeyKeys:
    """The `KeyValueEngine` on Valkey. Connects on first use."""

    def __init__(self, url: str, *, namespace: str, epoch: int, clock: Clock) -> None:
        check_url(url)
        self._url = url
        self._namespace = namespace.replace(":", "_")
        self._epoch = epoch
        self._clock = clock
        self._client: Any = None

    async def open(self) -> None:
        """Fence the predecessor: its writes are refused from now on."""
        await self._run(scripts.RAISE, Space("", 0))

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose(close_connection_pool=True)

    async def read(self, space: Space, key: str) -> KeyEntry | None:
        names = self._names(space)
        async with self._deadline() as client, client.pipeline(transaction=True) as pipeline:
            pipeline.hget(names[0], key)
            pipeline.zscore(names[2], key)
            value, due = await pipeline.execute()
        if value is None or (due is not None and int(due) <= self._now()):
            return None
        return KeyEntry(value, None if due is None else int(due))

    async def write(self, space: Space, write: Write, *, quota: int) -> bool:
        condition, expected = "", b""
        if write.only_if is not None:
            (previous,) = write.only_if
            condition, expected = ("absent", b"") if previous is None else ("equal", previous)
        answer = await self._run(
            scripts.WRITE,
            space,
            write.key,
            "0" if write.value is None else "1",
            write.value or b"",
            "" if write.expires is None else str(write.expires),
            "1" if write.unless_there else "0",
            condition,
            expected,
            str(quota),
            space.id,
            "1" if write.keep_expiry else "0",
        )
        if answer[0] == b"quota":
            raise quota_reached(space, "keys and values", quota)
        return bool(answer[0] == b"yes")

    async def expire(self, space: Space, key: str, expires: int | None) -> bool:
        answer = await self._run(scripts.EXPIRE, space, key, "" if expires is None else str(expires))
        return bool(answer[0] == b"yes")

    async def keys(self, space: Space, *, prefix: str, after: str, limit: int) -> list[str]:
        names = self._names(space)
        found: list[str] = []
        low = b"(" + after.encode() if after >= prefix and after else b"[" + prefix.encode()
        high = b"(" + prefix.encode() + b"\xff"
        while len(found) < limit:
            async with self._deadline() as client:
                page = await client.zrangebylex(names[1], low, high, start=0, num=limit)
                dues = await client.zmscore(names[2], page) if page else []
            now = self._now()
            found += (
                key.decode() for key, due in zip(page, dues, strict=True) if due is None or int(due) > now
            )
            if len(page) < limit:
                break
            low = b"(" + page[-1]
        return found[:limit]

    async def usage(self, space: Space) -> KeyUsage:
        names = self._names(space)
        async with self._deadline() as client:
            return KeyUsage(int(await client.hlen(names[0])), int(await client.get(names[3]) or 0))

    async def sweep(self, space: Space) -> int:
        swept = 0
        while dead := int((await self._run(scripts.SWEEP, space))[1]):
            swept += dead
        return swept

    async def copy(self, source: Space, target: Space) -> None:
        await self._run(scripts.COPY, source, target.id, more=self._names(target)[:4])

    async def drop(self, space: Space) -> None:
        await self._run(scripts.DROP, space, space.id)

    async def spaces(self) -> list[Space]:
        async with self._deadline() as client:
            members = await client.smembers(f"{PREFIX}:{self._namespace}::spaces")
        parts = [member.decode().partition("/") for member in members]
        return sorted((Space(module, int(generation)) for module, _, generation in parts), key=lambda s: s.id)

    # connection

    def _names(self, space: Space) -> list[str]:
        base = f"{PREFIX}:{self._namespace}"
        own = f"{base}:{space.module}:{space.generation}"
        return [
            *(f"{own}:{part}" for part in ("values", "names", "expiries", "bytes")),
            f"{base}::epoch",
            f"{base}::spaces",
        ]

    async def _run(self, script: str, space: Space, *args: str | bytes, more: list[str] | None = None) -> Any:
        names = self._names(space) + (more or [])
        async with self._deadline() as client:
            answer = await client.register_script(script)(
                keys=names, args=[str(self._epoch), str(self._now()), *args]
            )
        if answer[0] == b"fenced":
            raise Fenced(self._epoch, int(float(answer[1])))
        return answer

    def _now(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    @contextlib.asynccontextmanager
    async def _deadline(self) -> AsyncIterator[Any]:
        """The client, within a deadline; every failure becomes the same error."""
        # Imported here: only installations that configure Valkey need the client.
        from valkey.exceptions import ValkeyError

        try:
            async with asyncio.timeout(_SECONDS):
                yield self._connected()
        except (ValkeyError, OSError, TimeoutError) as error:
            raise Retryable(
                Code.STORAGE_UNAVAILABLE,
                f"the key-value storage does not answer: {str(error) or type(error).__name__}",
                hint="see modules.key_value.url; a write may have been done all the same",
                retry_after=1.0,
            ) from error

    def _connected(self) -> Any:
        if self._client is None:
            from valkey.asyncio import BlockingConnectionPool, Valkey

            pool = BlockingConnectionPool.from_url(
                self._url, max_connections=_CONNECTIONS, timeout=_SECONDS, socket_connect_timeout=_SECONDS
            )
            self._client = Valkey(connection_pool=pool)
        return self._client
