"""The node's cache, as the rest of the daemon sees it."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import AsyncIterator, Iterable
from typing import Final, Protocol

import structlog

from corral.daemon.cache.artifact_sync import ArtifactSync, described
from corral.daemon.cache.bootstraps import BootstrapKey
from corral.daemon.cache.joined import Joined
from corral.daemon.cache.prewarming import Prewarming
from corral.daemon.cache.reporting import cache_status
from corral.daemon.cache.room import Pin, Room
from corral.daemon.cache.sealed_files import is_digest
from corral.daemon.cache.shelves import ARTIFACT, BOOTSTRAP, TEMPLATE, Shelves
from corral.daemon.cache.template_session import ANSWER_SECONDS, Sessions
from corral.daemon.cache.template_sync import TemplateSync
from corral.daemon.downloads.downloads import Downloads
from corral.daemon.link.connection import Connection
from corral.daemon.link.link import Order, Reply
from corral.daemon.threads import to_end
from corral.domain.file_paths import Globs
from corral.domain.plans import PlanArtifact
from corral.domain.templates import Manifest
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.clock import Clock
from corral.system.config_schema import CacheSection
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.plan_pb2 import CacheFailure, CacheStatus

LINK_WAIT_SECONDS: Final = 10.0
_LOOKS: Final = 3
_log = structlog.get_logger("corral.daemon.cache")


class NamedVersion(Protocol):
    """A version of a template; an empty hash means the current one."""

    @property
    def name(self) -> str: ...

    @property
    def hash(self) -> str: ...


class NodeCache:
    """Templates, artifacts and first-run results of this node, under one quota. Use as `async with`.

    Nothing in it is authoritative: it may be removed while the daemon is down, and is fetched again.
    All methods belong to the loop's thread; what takes long happens in worker threads.
    """

    def __init__(
        self,
        *,
        root: pathlib.Path,
        settings: CacheSection,
        downloads: Downloads,
        clock: Clock,
        link_wait: float = LINK_WAIT_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._clock = clock
        self._shelves = Shelves(root)
        self._room = Room(self._shelves, quota=settings.quota_bytes)
        self._sessions = Sessions(patience=link_wait, answer_seconds=answer_seconds)
        self._templates = TemplateSync(
            shelves=self._shelves, room=self._room, sessions=self._sessions, clock=clock
        )
        self._artifacts = ArtifactSync(
            shelves=self._shelves,
            room=self._room,
            sessions=self._sessions,
            downloads=downloads,
            clock=clock,
        )
        self._joined: Joined[str] = Joined()
        self._keeping: Joined[int] = Joined()
        self._prewarming = Prewarming(self)
        self.handlers: dict[str, Order] = {
            "template_data": self._answered,
            "template_up_to_date": self._answered,
            "template_unavailable": self._answered,
            "pre_warm_cache": lambda reply, message: self._prewarming.begin(reply, message.pre_warm_cache),
            "request_cache_status": self._tell_status,
        }

    async def __aenter__(self) -> NodeCache:
        await to_end(self._shelves.scan)
        await self._room.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sessions.end()
        await self._prewarming.close()
        await self._joined.close()
        await self._keeping.close()

    def on_connected(self, connection: Connection) -> None:
        self._sessions.begin(connection)

    def on_disconnected(self) -> None:
        self._sessions.end()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[CacheUse]:
        """What is asked for within stays until the end, whatever else needs room."""
        pins: list[Pin] = []
        try:
            yield CacheUse(self, pins)
        finally:
            for pin in pins:
                self._room.unpin(*pin)

    def status(self, request_id: str = "", failures: list[CacheFailure] | None = None) -> CacheStatus:
        return cache_status(self._shelves, self._room, request_id=request_id, failures=failures or ())

    def missing_bytes(self, templates: Iterable[NamedVersion], artifacts: Iterable[PlanArtifact]) -> int:
        """What would have to be fetched first, as far as that is known without asking."""
        known = self._shelves
        size = sum(artifact.size for artifact in artifacts if known.artifacts.find(artifact.sha256) is None)
        for template in templates:
            if known.templates.find(template.hash) is None and (
                other := known.templates.newest(template.name)
            ):
                size += other.size
        return size

    async def keep_bootstrap(self, key: BootstrapKey, root: pathlib.Path, patterns: tuple[str, ...]) -> int:
        """Keep the files of a finished first run that match; returns their size. It is an optimisation:
        when they cannot be kept, that is logged, and 0."""
        if self._shelves.bootstraps.find(key) is not None or not patterns:
            return 0
        return await self._keeping.run(
            key, lambda: self._keep_bootstrap(key, root, patterns), name=f"cache/bootstrap/{key.version}"
        )

    async def _keep_bootstrap(self, key: BootstrapKey, root: pathlib.Path, patterns: tuple[str, ...]) -> int:
        shelf = self._shelves.bootstraps
        try:
            size = await to_end(shelf.copy_aside, key, root, Globs(patterns), limit=self._room.quota)
            async with self._room.reserving(size, subject="a first run") as reservation:
                await to_end(shelf.put, key, now_ms=self.now_ms())
                reservation.arrived(size)
        except CorralError as error:
            _log.warning("cache.bootstrap_not_kept", version=key.version, reason=str(error))
            await to_end(shelf.drop_aside, key)
            return 0
        return size

    async def warm_template(self, name: str, hash: str) -> None:
        async with self.use() as use:
            await use.fresh_template(name, hash)

    async def warm_artifact(self, artifact: PlanArtifact) -> None:
        async with self.use() as use:
            await use.artifact(artifact)

    def now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    def _answered(self, _: Reply, message: ControllerMessage) -> None:
        self._sessions.answered(message)

    def _tell_status(self, reply: Reply, message: ControllerMessage) -> None:
        reply(DaemonMessage(cache_status=self.status(message.request_cache_status.request_id)))

    # For CacheUse.

    async def pinned_template(self, hash: str, pins: list[Pin]) -> Manifest | None:
        """The version, if it is here and whole; pinned in any case that it is here."""
        async with self._room.lock:
            if self._shelves.templates.find(hash) is None:
                return None
            self._pin(TEMPLATE, hash, pins)
        manifest = await to_end(self._shelves.whole, hash)
        if manifest is not None:
            self._shelves.templates.used(hash, now_ms=self.now_ms())
        return manifest

    async def pinned_artifact(self, sha256: str, pins: list[Pin]) -> pathlib.Path | None:
        async with self._room.lock:
            known = self._shelves.artifacts.find(sha256)
            if known is None:
                return None
            self._pin(ARTIFACT, sha256, pins)
        if not await to_end(self._shelves.artifacts.files.sound, sha256, known.facts.size):
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


class CacheUse:
    """What one preparation uses. See `NodeCache.use`."""

    def __init__(self, cache: NodeCache, pins: list[Pin]) -> None:
        self._cache = cache
        self._pins = pins

    async def template(self, template: NamedVersion) -> Manifest:
        """The files of this version, all of them in the cache and verified; `content` says where.

        What is here needs no controller. Else: Retryable TEMPLATE_UNAVAILABLE, CACHE_FULL or DISK_FULL,
        Rejected TEMPLATE_NOT_FOUND, PATH_REFUSED, ARCHIVE_INVALID, ARCHIVE_TOO_LARGE or CACHE_FULL.
        """
        _check_hash(template.name, template.hash)
        if template.hash:
            return await self._present(template.name, template.hash)
        try:
            hash = await self._cache.bring_template(template.name, "")
        except Retryable:
            if not (hash := self._cache.newest_hash(template.name)):
                raise
            _log.warning("cache.version_assumed", template=template.name, hash=hash[:12])
        return await self._present(template.name, hash)

    async def fresh_template(self, name: str, hash: str) -> Manifest:
        """Like `template`, but without a controller there is no current version."""
        _check_hash(name, hash)
        return await self._present(name, hash or await self._cache.bring_template(name, ""))

    def content(self, digest: str) -> pathlib.Path:
        """Where a file of a template of this use lies. It is for reading, cloning and, when it is marked
        read-only, linking; whoever writes to it or changes its times makes it useless."""
        return self._cache.content_path(digest)

    async def artifact(self, artifact: PlanArtifact) -> pathlib.Path:
        """The verified file. Rejected ARTIFACT_REFUSED, ARTIFACT_NOT_FOUND, ARTIFACT_DIGEST_MISMATCH or
        CACHE_DOWNLOAD_FAILED; Retryable CACHE_DOWNLOAD_FAILED, TEMPLATE_UNAVAILABLE or CACHE_FULL."""
        for _ in range(_LOOKS):
            path = await self._cache.pinned_artifact(artifact.sha256, self._pins)
            if path is not None:
                await self._cache.settle()
                return path
            await self._cache.bring_artifact(artifact)
        raise _unstable(described(artifact))

    def bootstrap(self, key: BootstrapKey) -> pathlib.Path | None:
        """A tree of files that a first run made, to be copied; None when there is none."""
        return self._cache.pinned_bootstrap(key, self._pins)

    async def _present(self, name: str, hash: str) -> Manifest:
        for _ in range(_LOOKS):
            manifest = await self._cache.pinned_template(hash, self._pins)
            if manifest is not None:
                await self._cache.settle()
                return manifest
            await self._cache.bring_template(name, hash)
        raise _unstable(f"template '{name}'")


def _check_hash(name: str, hash: str) -> None:
    """It becomes the name of a file."""
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
