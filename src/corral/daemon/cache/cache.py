"""Cache of this node as the rest of the daemon uses it, and its status as reported to the controller."""

from __future__ import annotations

import contextlib
import heapq
import pathlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import structlog

from corral.daemon.cache.artifact_sync import ArtifactSync
from corral.daemon.cache.bootstrap_store import BootstrapKey, FileGuard
from corral.daemon.cache.contents import CacheContents
from corral.daemon.cache.downloads import Downloads
from corral.daemon.cache.prewarm import PrewarmOrders
from corral.daemon.cache.quota import CacheQuota, Pin
from corral.daemon.cache.supply import CacheUse, SharedWork, Supply
from corral.daemon.cache.template_session import TemplateSessions
from corral.daemon.cache.template_sync import TemplateSync
from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import Order, Reply
from corral.daemon.link.published_controller import TEMPLATE_SECONDS
from corral.domain.file_paths import Globs
from corral.domain.groups.plans import PlanArtifact
from corral.errors import CorralError
from corral.system.clock import Clock
from corral.system.daemon_config import CacheSection, DaemonConfig
from corral.system.entropy import Entropy
from corral.system.threads import to_end
from corral.wire.v1 import plan_pb2
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.plan_pb2 import (
    BootstrapCacheEntry,
    CacheFailure,
    CacheStatus,
    JarCacheEntry,
    TemplateCacheEntry,
)

MOST_ENTRIES: Final = 2000
"""Most entries of each kind in a status, the last used ones: an answer has to fit into a frame."""


def cache_status(
    stores: CacheContents, room: CacheQuota, *, request_id: str = "", failures: Iterable[CacheFailure] = ()
) -> CacheStatus:
    templates = heapq.nlargest(MOST_ENTRIES, stores.templates.all(), key=lambda one: one.used_ms)
    artifacts = heapq.nlargest(MOST_ENTRIES, stores.artifacts.all(), key=lambda one: one.used_ms)
    bootstraps = heapq.nlargest(MOST_ENTRIES, stores.bootstraps.all(), key=lambda one: one.used_ms)
    return CacheStatus(
        templates=[
            TemplateCacheEntry(name=one.name, hash=one.hash, size_bytes=one.size, last_used_ms=one.used_ms)
            for one in templates
        ],
        jars=[
            JarCacheEntry(
                platform=one.facts.platform,
                version=one.facts.version,
                jar_file=one.facts.file,
                size_bytes=one.facts.size,
                sha256=one.facts.sha256,
                cached_at_ms=one.facts.cached_at_ms,
            )
            for one in artifacts
        ],
        bootstraps=[
            BootstrapCacheEntry(
                config_format=config_format_number(one.key.config_format),
                version=one.key.version,
                has_cds=one.has_cds,
                size_bytes=one.size,
            )
            for one in bootstraps
        ],
        total_size_bytes=stores.size,
        request_id=request_id,
        failures=failures,
        quota_bytes=room.quota,
    )


def config_format_number(name: str) -> Any:
    """The wire's value for a configuration format; unspecified for one that the wire does not have."""
    known = dict(plan_pb2.ConfigFormat.items())
    return known.get(f"CONFIG_FORMAT_{name.upper()}", plan_pb2.CONFIG_FORMAT_UNSPECIFIED)


LINK_WAIT_SECONDS: Final = 10.0
_log = structlog.get_logger("corral.daemon.cache")


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
        answer_seconds: float = TEMPLATE_SECONDS,
    ) -> None:
        self._stores = CacheContents(root)
        self._room = CacheQuota(self._stores, quota=settings.quota_bytes)
        self._sessions = TemplateSessions(patience=link_wait, answer_seconds=answer_seconds)
        templates = TemplateSync(stores=self._stores, room=self._room, sessions=self._sessions, clock=clock)
        artifacts = ArtifactSync(
            stores=self._stores,
            room=self._room,
            sessions=self._sessions,
            downloads=downloads,
            clock=clock,
        )
        self._supply = Supply(
            stores=self._stores,
            room=self._room,
            templates=templates,
            artifacts=artifacts,
            clock=clock,
        )
        self._bootstrap_saves: SharedWork[int] = SharedWork()
        self._prewarming = PrewarmOrders(self)
        self.handlers: dict[str, Order] = {
            "template_data": lambda _, message: self._sessions.answered(message.template_data),
            "template_up_to_date": lambda _, message: self._sessions.answered(message.template_up_to_date),
            "template_unavailable": lambda _, message: self._sessions.answered(message.template_unavailable),
            "pre_warm_cache": lambda reply, message: self._prewarming.begin(reply, message.pre_warm_cache),
            "request_cache_status": self._send_status,
        }

    async def __aenter__(self) -> NodeCache:
        await to_end(self._stores.scan)
        await self._room.settle()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sessions.end()
        await self._prewarming.close()
        await self._supply.close()
        await self._bootstrap_saves.close()

    def on_connected(self, connection: LinkConnection) -> None:
        self._sessions.begin(connection)

    def on_disconnected(self) -> None:
        self._sessions.end()

    @contextlib.asynccontextmanager
    async def use(self) -> AsyncIterator[CacheUse]:
        """Everything requested within it stays in the cache until its end, whatever else needs room."""
        pins: list[Pin] = []
        try:
            yield CacheUse(self._supply, pins)
        finally:
            for pin in pins:
                self._room.unpin(*pin)

    def status(self, request_id: str = "", failures: list[CacheFailure] | None = None) -> CacheStatus:
        return cache_status(self._stores, self._room, request_id=request_id, failures=failures or ())

    async def keep_bootstrap(
        self, key: BootstrapKey, root: pathlib.Path, *, owner: int, guard: FileGuard
    ) -> int:
        """Store those files of an ended run that the key selects and `guard` lets pass; returns their size. All of them
        belong to this owner, which is no other workload's. It is an optimisation: a failure is logged, and the result
        is 0."""
        if self._stores.bootstraps.find(key) is not None or not key.paths:
            return 0
        return await self._bootstrap_saves.run(
            key,
            lambda: self._keep_bootstrap(key, root, owner, guard),
            name=f"cache/bootstrap/{key.version}",
        )

    async def _keep_bootstrap(
        self, key: BootstrapKey, root: pathlib.Path, owner: int, guard: FileGuard
    ) -> int:
        store = self._stores.bootstraps
        try:
            size = await to_end(
                store.copy_aside,
                key,
                root,
                Globs(key.paths),
                owner=owner,
                guard=guard,
                limit=self._room.quota,
            )
            async with self._room.reserving(size, subject="a first run") as reservation:
                await to_end(store.put, key, now_ms=self._supply.now_ms())
                reservation.arrived(size)
        except CorralError as error:
            _log.warning("bootstrap_save.failed", group=key.group, version=key.version, reason=str(error))
            await to_end(store.drop_aside, key)
            return 0
        return size

    async def warm_template(self, name: str, hash: str) -> None:
        async with self.use() as use:
            await use.fresh_template(name, hash)

    async def warm_artifact(self, artifact: PlanArtifact) -> None:
        async with self.use() as use:
            await use.artifact(artifact)

    def _send_status(self, reply: Reply, message: ControllerMessage) -> None:
        reply(DaemonMessage(cache_status=self.status(message.request_cache_status.request_id)))


def open_cache(config: DaemonConfig, clock: Clock, entropy: Entropy) -> NodeCache:
    """The cache of this node, to be entered."""
    downloads = Downloads(settings=config.downloads, clock=clock, entropy=entropy)
    return NodeCache(root=config.data / "cache", settings=config.cache, downloads=downloads, clock=clock)
