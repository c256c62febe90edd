"""Artifact sync: downloaded from the plan's URL, or fetched from the controller; stored when verified."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import pathlib
from typing import Final

import structlog

from corral.daemon.cache.artifact_store import ArtifactFacts
from corral.daemon.cache.contents import CacheContents
from corral.daemon.cache.downloads import Downloads
from corral.daemon.cache.quota import CacheQuota, CacheReservation
from corral.daemon.cache.sealed_files import disk_work, is_digest
from corral.daemon.cache.template_session import LINK_ERROR_CODES, TemplateSessions
from corral.daemon.link.data_channel import DataChannel
from corral.domain.groups.plans import PlanArtifact
from corral.domain.urls import shown_url
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.aio.backoff import doubled
from corral.system.clock import Clock
from corral.system.threads import to_end

ATTEMPTS: Final = 4
_PAUSE: Final = 0.25
_log = structlog.get_logger("corral.daemon.cache")


def described(artifact: PlanArtifact) -> str:
    named = " ".join(part for part in (artifact.platform, artifact.version) if part)
    return f"artifact '{named or artifact.file}'"


class ArtifactSync:
    def __init__(
        self,
        *,
        stores: CacheContents,
        room: CacheQuota,
        sessions: TemplateSessions,
        downloads: Downloads,
        clock: Clock,
    ) -> None:
        self._stores = stores
        self._room = room
        self._sessions = sessions
        self._downloads = downloads
        self._clock = clock

    async def bring(self, artifact: PlanArtifact) -> None:
        """Make an artifact usable. A file whose digest differs from the plan's is not stored. When its size is unknown,
        room is made during the transfer. Each URL has a partial file of its own. It is removed when the artifact was
        stored meanwhile from another one, and after a failure when all partial files are larger than half of the quota."""
        if not is_digest(artifact.sha256):
            raise Rejected(
                Code.ARTIFACT_REFUSED,
                f"{described(artifact)} has no SHA-256 digest",
                hint="name one: nothing is run that cannot be checked",
                field="sha256",
            )
        source = hashlib.sha256(artifact.url.encode()).hexdigest()[:16]
        part = self._stores.parts / f"artifact-{artifact.sha256}-{source}"
        try:
            await self._bring(artifact, part)
        finally:
            stored = self._stores.artifacts.find(artifact.sha256) is not None
            if stored or await to_end(_bytes_in, self._stores.parts) > self._room.quota // 2:
                await to_end(_remove, part)

    async def _bring(self, artifact: PlanArtifact, part: pathlib.Path) -> None:
        async with self._room.reserving(artifact.size, subject=described(artifact)) as reservation:
            with disk_work(described(artifact)):
                size = (
                    await self._download(artifact, part, reservation)
                    if artifact.url
                    else await self._fetch(artifact, part, reservation)
                )
                await self._keep(artifact, part, size, reservation)

    async def _download(
        self, artifact: PlanArtifact, part: pathlib.Path, reservation: CacheReservation
    ) -> int:
        return await self._downloads.fetch(
            artifact.url, part, sha256=artifact.sha256, size=artifact.size, expect=reservation.expect
        )

    async def _keep(
        self, artifact: PlanArtifact, part: pathlib.Path, size: int, reservation: CacheReservation
    ) -> None:
        facts = ArtifactFacts(
            platform=artifact.platform,
            version=artifact.version,
            file=artifact.file,
            url=shown_url(artifact.url) if artifact.url else "",
            sha256=artifact.sha256,
            size=size,
            cached_at_ms=int(self._clock.now().timestamp() * 1000),
        )
        async with self._room.lock:
            if self._stores.artifacts.find(artifact.sha256) is not None:
                return  # another URL was faster
            await to_end(self._stores.artifacts.put, part, facts)
            reservation.arrived(size)
        _log.info("artifact.stored", artifact=artifact.file, sha256=artifact.sha256[:12], size=size)

    async def _fetch(self, artifact: PlanArtifact, part: pathlib.Path, reservation: CacheReservation) -> int:
        """Fetch from the controller; resumed when the connection breaks, for as long as there is any progress."""
        fruitless, before = 0, -1
        while True:
            session = await self._sessions.current()
            if not session.bulk:
                raise Rejected(
                    Code.ARTIFACT_REFUSED,
                    f"{described(artifact)} has no URL, and this controller cannot send it",
                    hint="add it to the catalog with a URL",
                )

            async def fetch(channel: DataChannel) -> int:
                return await channel.fetch(artifact.sha256, part, expect=reservation.expect)

            try:
                return await session.transfer(fetch, name=artifact.sha256[:12])
            except CorralError as error:
                if error.code is Code.NOT_FOUND:
                    raise Rejected(
                        Code.ARTIFACT_NOT_FOUND,
                        f"the controller has no file for {described(artifact)}",
                        hint="upload it to the catalog again; for an extension, install its module again",
                    ) from error
                if error.code not in LINK_ERROR_CODES:
                    raise
                now = sum(path.stat().st_size for path in part.parent.glob(f"{part.name}.*"))
                fruitless, before = (0 if now > before else fruitless + 1), now
                if fruitless >= ATTEMPTS:
                    raise Retryable(
                        Code.CACHE_DOWNLOAD_FAILED,
                        f"{described(artifact)} cannot be had from the controller: {error}",
                        hint="it is tried again",
                        retry_after=2.0,
                    ) from error
                _log.warning("cache_transfer.failed", artifact=artifact.file, reason=str(error))
            await asyncio.sleep(doubled(_PAUSE, fruitless))


def _bytes_in(directory: pathlib.Path) -> int:
    found = 0
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            with contextlib.suppress(OSError):  # it got its own name just now
                found += path.lstat().st_size
    return found


def _remove(part: pathlib.Path) -> None:
    with contextlib.suppress(OSError):  # then it is deleted with the old ones
        for path in part.parent.glob(f"{part.name}*"):
            path.unlink(missing_ok=True)
