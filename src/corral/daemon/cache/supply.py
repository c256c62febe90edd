"""Supply of templates and artifacts: from the cache, else fetched; the same work requested several times at once is
done once. `CacheUse` is what a preparation takes from the cache."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from corral.daemon.cache.artifact_sync import ArtifactSync, described
from corral.daemon.cache.bootstrap_store import BootstrapKey
from corral.daemon.cache.contents import ARTIFACT, BOOTSTRAP, TEMPLATE, CacheContents
from corral.daemon.cache.quota import CacheQuota, Pin
from corral.daemon.cache.sealed_files import is_digest
from corral.daemon.cache.template_sync import TemplateSync
from corral.domain.groups.plans import PlanArtifact
from corral.domain.templates import TemplateManifest
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.aio.tasks import Tasks, cancel_and_wait, first_of
from corral.system.clock import Clock
from corral.system.threads import to_end

V = TypeVar("V")


class _SharedTask(Generic[V]):
    def __init__(self, task: asyncio.Task[V]) -> None:
        self.task = task
        self.waiting = 0
        self.ending = False
        """It has no waiting caller any more: it was cancelled, and may need a moment."""


class SharedWork(Generic[V]):
    """A call for work that is under way waits for its end and shares its result. When no caller waits any more, the
    work is cancelled; and it is not begun again before it has ended."""

    def __init__(self) -> None:
        self._tasks = Tasks()
        self._under_way: dict[Hashable, _SharedTask[V]] = {}

    async def run(self, key: Hashable, begin: Callable[[], Coroutine[Any, Any, V]], *, name: str) -> V:
        while (work := self._under_way.get(key)) is not None and work.ending:
            await asyncio.wait([work.task])
        if work is None:
            work = self._under_way[key] = _SharedTask(self._tasks.spawn(begin(), name=name, awaited=True))
            work.task.add_done_callback(lambda _: self._under_way.pop(key, None))
        work.waiting += 1
        try:
            return await asyncio.shield(work.task)
        finally:
            work.waiting -= 1
            if not work.waiting and not work.task.done():
                await self._end(work)

    async def close(self) -> None:
        """Cancel all that is under way, with its callers."""
        await asyncio.gather(*(self._end(work) for work in list(self._under_way.values())))

    @staticmethod
    async def _end(work: _SharedTask[V]) -> None:
        work.ending = True
        await cancel_and_wait(work.task)


_log = structlog.get_logger("corral.daemon.cache")


class Supply:
    """Lookup and fetch are separate: after a fetch there is another lookup, and only what it finds, complete and
    pinned, is used."""

    def __init__(
        self,
        *,
        stores: CacheContents,
        room: CacheQuota,
        templates: TemplateSync,
        artifacts: ArtifactSync,
        clock: Clock,
    ) -> None:
        self._stores = stores
        self._room = room
        self._templates = templates
        self._artifacts = artifacts
        self._clock = clock
        self._last_ms = 0
        self._joined: SharedWork[str] = SharedWork()
        self._looking: SharedWork[TemplateManifest | None] = SharedWork()
        self._waiting: set[tuple[str, asyncio.Event]] = set()
        """Digests of artifacts, each with an event that is set when it was stored, whichever URL it came from."""

    async def close(self) -> None:
        await self._joined.close()
        await self._looking.close()

    def now_ms(self) -> int:
        """Later than any value returned before: uses keep their order within a millisecond, and when the clock is set
        back."""
        self._last_ms = max(self._last_ms + 1, int(self._clock.now().timestamp() * 1000))
        return self._last_ms

    async def pinned_template(self, hash: str, pins: list[Pin]) -> TemplateManifest | None:
        """The version, if it is here and complete; pinned whenever it is here."""
        async with self._room.lock:
            found = self._stores.templates.find(hash)
            _log.debug("template_lookup.finished", hash=hash[:12], found=found is not None)
            if found is None:
                return None
            self._pin(TEMPLATE, hash, pins)
        manifest = self._stores.whole_at_a_glance(hash) or await self._look(hash)
        if manifest is not None:
            self._stores.templates.used(hash, now_ms=self.now_ms())
        return manifest

    async def _look(self, hash: str) -> TemplateManifest | None:
        """Look up a version: once for a hundred starts of one group."""
        return await self._looking.run(
            hash, lambda: to_end(self._stores.whole, hash), name=f"cache/look/{hash[:12]}"
        )

    async def pinned_artifact(self, sha256: str, pins: list[Pin]) -> pathlib.Path | None:
        async with self._room.lock:
            known = self._stores.artifacts.find(sha256)
            if known is None:
                return None
            self._pin(ARTIFACT, sha256, pins)
        if not await to_end(self._stores.artifacts.files.sound, sha256, known.facts.size):
            if self._stores.artifacts.find(sha256) is known:  # else another call found it, too
                self._stores.artifacts.forget(sha256)
                self._stores.removed(known.facts.size)
            return None
        self._stores.artifacts.used(sha256, now_ms=self.now_ms())
        return self._stores.artifacts.path(sha256)

    def pinned_bootstrap(self, key: BootstrapKey, pins: list[Pin]) -> pathlib.Path | None:
        if self._stores.bootstraps.find(key) is None:
            return None
        self._pin(BOOTSTRAP, key.name, pins)
        self._stores.bootstraps.used(key, now_ms=self.now_ms())
        return self._stores.bootstraps.tree(key)

    def newest_hash(self, name: str) -> str:
        newest = self._stores.templates.newest(name)
        return newest.hash if newest else ""

    def content_path(self, digest: str) -> pathlib.Path:
        return self._stores.contents.path(digest)

    async def bring_template(self, name: str, hash: str) -> str:
        return await self._joined.run(
            (TEMPLATE, name, hash), lambda: self._templates.bring(name, hash), name=f"cache/template/{name}"
        )

    async def bring_artifact(self, artifact: PlanArtifact) -> None:
        """Fetch it, or wait until it was stored from another URL. Callers share a fetch if they name the same URL:
        nobody waits for another one's server, or gets its failure."""
        sha256, name = artifact.sha256, f"cache/artifact/{artifact.sha256[:12]}"
        stored = asyncio.Event()

        async def bring() -> str:
            await self._artifacts.bring(artifact)
            for digest, waiting in self._waiting:
                if digest == sha256:
                    waiting.set()
            return sha256

        self._waiting.add((sha256, stored))
        try:
            fetching = self._joined.run((ARTIFACT, sha256, artifact.url), bring, name=name)
            fetched, *_ = await first_of(fetching, stored, name=name)
            if fetched is not None:
                fetched.result()
        except CorralError:
            if not stored.is_set():
                raise
        finally:
            self._waiting.discard((sha256, stored))

    async def settle(self) -> None:
        await self._room.settle()

    def _pin(self, kind: str, key: str, pins: list[Pin]) -> None:
        if (kind, key) not in pins:
            self._room.pin(kind, key)
            pins.append((kind, key))


_LOOKS: Final = 3


class NamedVersion(Protocol):
    """A version of a template; an empty hash means the current one."""

    @property
    def name(self) -> str: ...

    @property
    def hash(self) -> str: ...


class CacheUse:
    """Cache entries that one preparation uses. See `NodeCache.use`. Everything it returns is pinned until the end."""

    def __init__(self, supply: Supply, pins: list[Pin]) -> None:
        self._supply = supply
        self._pins = pins

    async def template(self, template: NamedVersion) -> TemplateManifest:
        """The files of this version, all of them in the cache and verified; `content` gives the paths.

        A cached version needs no controller. Else: Retryable TEMPLATE_UNAVAILABLE, CACHE_FULL or DISK_FULL, Rejected
        TEMPLATE_NOT_FOUND, PATH_REFUSED, ARCHIVE_INVALID, ARCHIVE_TOO_LARGE or CACHE_FULL.
        """
        _check_hash(template.name, template.hash)
        if template.hash:
            return await self._present(template.name, template.hash)
        try:
            hash = await self._supply.bring_template(template.name, "")
        except Retryable:
            if not (hash := self._supply.newest_hash(template.name)):
                raise
            _log.warning("template_version.chosen", template=template.name, hash=hash[:12])
        return await self._present(template.name, hash)

    async def fresh_template(self, name: str, hash: str) -> TemplateManifest:
        """Like `template`, but without a controller there is no current version."""
        _check_hash(name, hash)
        return await self._present(name, hash or await self._supply.bring_template(name, ""))

    def content(self, digest: str) -> pathlib.Path:
        """The path of a file of a template of this use. It is for reading, cloning and, when it is marked read-only,
        linking; a write to it or a change of its times makes it useless."""
        return self._supply.content_path(digest)

    async def artifact(self, artifact: PlanArtifact) -> pathlib.Path:
        """The verified file. Rejected ARTIFACT_REFUSED, ARTIFACT_NOT_FOUND, ARTIFACT_DIGEST_MISMATCH or
        CACHE_DOWNLOAD_FAILED; Retryable CACHE_DOWNLOAD_FAILED, TEMPLATE_UNAVAILABLE or CACHE_FULL."""
        for _ in range(_LOOKS):
            path = await self._supply.pinned_artifact(artifact.sha256, self._pins)
            if path is not None:
                await self._supply.settle()
                return path
            await self._supply.bring_artifact(artifact)
        raise _unstable(described(artifact))

    def bootstrap(self, key: BootstrapKey) -> pathlib.Path | None:
        """A tree of files that a first run created, to be copied; None when there is none."""
        return self._supply.pinned_bootstrap(key, self._pins)

    async def _present(self, name: str, hash: str) -> TemplateManifest:
        for _ in range(_LOOKS):
            manifest = await self._supply.pinned_template(hash, self._pins)
            if manifest is not None:
                await self._supply.settle()
                return manifest
            await self._supply.bring_template(name, hash)
        raise _unstable(f"template '{name}'")


def _check_hash(name: str, hash: str) -> None:
    """Check the hash, which becomes the name of a file."""
    if hash and not is_digest(hash):
        raise Rejected(
            Code.INVALID_FIELD,
            f"template '{name}' is named with {hash[:80]!r}, which is no hash",
            field="hash",
        )


def _unstable(subject: str) -> Retryable:
    return Retryable(
        Code.TEMPLATE_UNAVAILABLE,
        f"{subject} was fetched, and is not there",
        hint="does something else remove files from this node's cache?",
    )
