"""What is in the cache, and if it is not, how it comes there."""

from __future__ import annotations

import pathlib

import structlog

from corral.daemon.cache.artifact_sync import ArtifactSync
from corral.daemon.cache.bootstrap_store import BootstrapKey
from corral.daemon.cache.contents import ARTIFACT, BOOTSTRAP, TEMPLATE, Shelves
from corral.daemon.cache.quota import Pin, Room
from corral.daemon.cache.shared_work import Joined
from corral.daemon.cache.template_sync import TemplateSync
from corral.domain.plans import PlanArtifact
from corral.domain.templates import Manifest
from corral.system.clock import Clock
from corral.system.threads import to_end

_log = structlog.get_logger("corral.daemon.cache")


class Supply:
    """Looking and fetching are apart: who fetched something looks again, and only what is found there,
    whole and pinned, is used."""

    def __init__(
        self,
        *,
        shelves: Shelves,
        room: Room,
        templates: TemplateSync,
        artifacts: ArtifactSync,
        clock: Clock,
    ) -> None:
        self._shelves = shelves
        self._room = room
        self._templates = templates
        self._artifacts = artifacts
        self._clock = clock
        self._last_ms = 0
        self._joined: Joined[str] = Joined()
        self._looking: Joined[Manifest | None] = Joined()

    async def close(self) -> None:
        await self._joined.close()
        await self._looking.close()

    def now_ms(self) -> int:
        """Later than any that was said before: uses keep their order within a millisecond, and when the
        clock is set back."""
        self._last_ms = max(self._last_ms + 1, int(self._clock.now().timestamp() * 1000))
        return self._last_ms

    async def pinned_template(self, hash: str, pins: list[Pin]) -> Manifest | None:
        """The version, if it is here and whole; pinned in any case that it is here."""
        async with self._room.lock:
            found = self._shelves.templates.find(hash)
            _log.debug("cache.template_looked_up", hash=hash[:12], found=found is not None)
            if found is None:
                return None
            self._pin(TEMPLATE, hash, pins)
        manifest = self._shelves.whole_at_a_glance(hash) or await self._look(hash)
        if manifest is not None:
            self._shelves.templates.used(hash, now_ms=self.now_ms())
        return manifest

    async def _look(self, hash: str) -> Manifest | None:
        """A hundred starts of one group look once."""
        return await self._looking.run(
            hash, lambda: to_end(self._shelves.whole, hash), name=f"cache/look/{hash[:12]}"
        )

    async def pinned_artifact(self, sha256: str, pins: list[Pin]) -> pathlib.Path | None:
        async with self._room.lock:
            known = self._shelves.artifacts.find(sha256)
            if known is None:
                return None
            self._pin(ARTIFACT, sha256, pins)
        if not await to_end(self._shelves.artifacts.files.sound, sha256, known.facts.size):
            if self._shelves.artifacts.find(sha256) is known:  # else another one noticed it, too
                self._shelves.artifacts.forget(sha256)
                self._shelves.removed(known.facts.size)
            return None
        self._shelves.artifacts.used(sha256, now_ms=self.now_ms())
        return self._shelves.artifacts.path(sha256)

    def pinned_bootstrap(self, key: BootstrapKey, pins: list[Pin]) -> pathlib.Path | None:
        if self._shelves.bootstraps.find(key) is None:
            return None
        self._pin(BOOTSTRAP, key.name, pins)
        self._shelves.bootstraps.used(key, now_ms=self.now_ms())
        return self._shelves.bootstraps.tree(key)

    def newest_hash(self, name: str) -> str:
        newest = self._shelves.templates.newest(name)
        return newest.hash if newest else ""

    def content_path(self, digest: str) -> pathlib.Path:
        return self._shelves.contents.path(digest)

    async def bring_template(self, name: str, hash: str) -> str:
        return await self._joined.run(
            (TEMPLATE, name, hash), lambda: self._templates.bring(name, hash), name=f"cache/template/{name}"
        )

    async def bring_artifact(self, artifact: PlanArtifact) -> None:
        async def bring() -> str:
            await self._artifacts.bring(artifact)
            return artifact.sha256

        await self._joined.run(
            (ARTIFACT, artifact.sha256), bring, name=f"cache/artifact/{artifact.sha256[:12]}"
        )

    async def settle(self) -> None:
        await self._room.settle()

    def _pin(self, kind: str, key: str, pins: list[Pin]) -> None:
        if (kind, key) not in pins:
            self._room.pin(kind, key)
            pins.append((kind, key))
