"""Quota of the cache: reservations for transfers, pins of what is in use, and eviction to make room."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Collection, Iterator, Mapping

import structlog

from corral.daemon.cache.contents import (
    ARTIFACT,
    BOOTSTRAP,
    TEMPLATE,
    CacheContents,
    Eviction,
    EvictionCandidate,
    choose,
)
from corral.domain.templates import TemplateManifest
from corral.errors import Code, Rejected, Retryable
from corral.system.threads import to_end

_log = structlog.get_logger("corral.daemon.cache")
Pin = tuple[str, str]
"""Kind and key."""


class CacheReservation:
    """Room for a transfer under way; bytes that have arrived are counted as held instead."""

    def __init__(self, room: CacheQuota, stores: CacheContents, *, subject: str) -> None:
        self._room = room
        self._stores = stores
        self._subject = subject
        self._size = 0
        self.left = 0

    async def expect(self, size: int, whole: int = 0) -> None:
        """The transfer comes to so many bytes now, and perhaps to `whole`; CACHE_FULL as for a new reservation."""
        if size > self._size:
            whole = max(size, whole)
            await self._room.make(size - self._size, subject=self._subject, whole=whole, of=self)
            self._size = size

    def arrived(self, size: int) -> None:
        self._stores.added(size)
        self.left = max(0, self.left - size)


class CacheQuota:
    """Counts what the cache holds and makes room under its quota. Belongs to the loop's thread.

    A caller that checks what is there and then relies on it does both under `lock`: nothing is evicted meanwhile, and
    what is pinned or protected then stays afterwards.
    """

    def __init__(self, stores: CacheContents, *, quota: int) -> None:
        self._stores = stores
        self._pins: collections.Counter[Pin] = collections.Counter()
        self._protected: collections.Counter[str] = collections.Counter()
        self._reservations: list[CacheReservation] = []
        self.quota = quota
        self.lock = asyncio.Lock()

    def pin(self, kind: str, key: str) -> None:
        self._pins[kind, key] += 1

    def unpin(self, kind: str, key: str) -> None:
        self._pins[kind, key] -= 1
        if not self._pins[kind, key]:
            del self._pins[kind, key]

    @contextlib.contextmanager
    def protecting(self, manifest: TemplateManifest) -> Iterator[None]:
        """Contents of a version that is being fetched: those that are here already stay here."""
        digests = {file.digest for file in manifest.files}
        self._protected.update(digests)
        try:
            yield
        finally:
            self._protected.subtract(digests)
            self._protected = +self._protected

    @contextlib.asynccontextmanager
    async def reserving(self, size: int, *, subject: str) -> AsyncIterator[CacheReservation]:
        """Room for so many bytes that are about to arrive. CACHE_FULL: Rejected when they are more than the quota,
        Retryable when what is in use leaves too little."""
        reservation = CacheReservation(self, self._stores, subject=subject)
        self._reservations.append(reservation)
        try:
            if self._stores.parts_due():
                await to_end(self._stores.drop_old_parts)
            await reservation.expect(size)
            yield reservation
        finally:
            self._reservations.remove(reservation)

    async def make(self, size: int, *, subject: str, whole: int, of: CacheReservation) -> None:
        """Make room for so many more bytes of something that has `whole` of them in total."""
        if whole > self.quota:
            raise Rejected(
                Code.CACHE_FULL,
                f"{subject} needs {whole} bytes, the cache of this node may hold {self.quota}",
                hint="raise cache.quota_bytes on the node",
            )
        async with self.lock:
            await self._make(size, subject=subject)
            of.left += size

    async def settle(self) -> None:
        """Return below the quota as far as possible: a transfer may have been larger than was known."""
        if self._excess(0) <= 0:
            return
        async with self.lock:
            with contextlib.suppress(Retryable):
                await self._make(0, subject="")

    async def _make(self, size: int, *, subject: str) -> None:
        excess = self._excess(size)
        if excess <= 0:
            return
        eviction = await to_end(self._choose, excess, frozenset(self._pins), frozenset(self._protected))
        if eviction.freed < excess and size:
            raise Retryable(
                Code.CACHE_FULL,
                f"{subject} needs {size} bytes; what is in use leaves too little of the "
                f"{self.quota} bytes this node's cache may hold",
                hint="raise cache.quota_bytes on the node, or try again later",
                retry_after=10.0,
            )
        await self._evict(eviction)

    def _excess(self, size: int) -> int:
        reserved = sum(reservation.left for reservation in self._reservations)
        return self._stores.size + reserved + size - self.quota

    def _choose(self, excess: int, pins: Collection[Pin], protected: Collection[str]) -> Eviction:
        stores = self._stores
        candidates: list[EvictionCandidate] = []
        kept: list[Mapping[str, int]] = []
        for template in stores.templates.all():
            manifest = stores.templates.manifest(template.hash)
            contents = {file.digest: file.size for file in manifest.files} if manifest else {}
            if (TEMPLATE, template.hash) in pins:
                kept.append(contents)
                continue
            candidates.append(
                EvictionCandidate(
                    kind=TEMPLATE,
                    key=template.hash,
                    used_ms=template.used_ms,
                    size=template.stored,
                    contents=contents,
                )
            )
        for artifact in stores.artifacts.all():
            if (ARTIFACT, artifact.facts.sha256) not in pins:
                candidates.append(
                    EvictionCandidate(
                        kind=ARTIFACT,
                        key=artifact.facts.sha256,
                        used_ms=artifact.used_ms,
                        size=artifact.facts.size,
                    )
                )
        for bootstrap in stores.bootstraps.all():
            if (BOOTSTRAP, bootstrap.key.name) not in pins:
                candidates.append(
                    EvictionCandidate(
                        kind=BOOTSTRAP,
                        key=bootstrap.key.name,
                        used_ms=bootstrap.used_ms,
                        size=bootstrap.size,
                    )
                )
        present = dict(stores.contents.all())
        return choose(excess, candidates=candidates, kept=kept, present=present, protected=protected)

    async def _evict(self, eviction: Eviction) -> None:
        eviction = eviction.without(self._pins)
        for entry in eviction.entries:
            self._stores.forget(entry.kind, entry.key)
            _log.info("cache_entry.evicted", kind=entry.kind, key=entry.key[:12], used_ms=entry.used_ms)
        await to_end(self._stores.discard, eviction)
        self._stores.removed(eviction.freed)
