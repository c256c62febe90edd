"""Small archives and sidecars, read from the store once for all sessions that need them."""

from __future__ import annotations

import collections
from typing import Final

from corral.controller.modules_on_nodes.order_frames import PackageContent
from corral.domain.module_records import PackageRecord
from corral.store.port import BlobEngine
from corral.system.aio.keyed_locks import KeyedLocks

_HELD_BYTES: Final = 8 * 1024 * 1024


class BlobCache:
    """Reads side by side for different blobs, once for the same; what was used last is held, up to a bound."""

    def __init__(self, blobs: BlobEngine) -> None:
        self._blobs = blobs
        self._held: collections.OrderedDict[str, bytes] = collections.OrderedDict()
        self._bytes = 0
        self._turns = KeyedLocks[str]()

    async def content(self, record: PackageRecord, *, inline: int) -> PackageContent:
        """The signature, and the archive when it has at most `inline` bytes. NOT_FOUND, STORE_UNAVAILABLE."""
        sidecar = record.signature.blob if record.signature else ""
        return PackageContent(
            archive=await self._content(record.sha256) if record.size <= inline else None,
            signature=await self._content(sidecar) if sidecar else b"",
        )

    async def _content(self, digest: str) -> bytes:
        async with self._turns.hold(digest):
            held = self._held.get(digest)
            if held is None:
                held = b"".join([block async for block in self._blobs.read_blob(digest)])
                self._hold(digest, held)
            else:
                self._held.move_to_end(digest)
            return held

    def _hold(self, digest: str, content: bytes) -> None:
        self._held[digest] = content
        self._bytes += len(content)
        while self._bytes > _HELD_BYTES and len(self._held) > 1:
            _, dropped = self._held.popitem(last=False)
            self._bytes -= len(dropped)
