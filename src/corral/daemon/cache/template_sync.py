"""Template sync from the controller: requested by hash, transferred with as few bytes as possible, verified."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import hashlib
import pathlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import structlog

from corral.daemon.cache.content_fetch import ContentFetch, PieceSources
from corral.daemon.cache.contents import CacheContents
from corral.daemon.cache.quota import CacheQuota, CacheReservation
from corral.daemon.cache.sealed_files import disk_work, is_digest
from corral.daemon.cache.template_archive import MAX_MANIFEST, ArchiveUnpack, check_manifest, read_manifest
from corral.daemon.cache.template_session import LINK_ERROR_CODES, TemplateSession, TemplateSessions
from corral.daemon.link.data_channel import DataChannel
from corral.domain.template_diff import apply_delta
from corral.domain.templates import TemplateFile, TemplateManifest, manifest_digest
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.aio.backoff import doubled
from corral.system.clock import Clock
from corral.system.threads import to_end
from corral.wire.v1.plan_pb2 import DataOffer, TemplateData, TemplateUnavailable, TemplateUpToDate

T = TypeVar("T")

ATTEMPTS: Final = 4
"""Attempts in a row without progress; one with progress is always followed by another. Also how often a controller may
send something else than was requested."""
_PAUSE: Final = 0.25
_log = structlog.get_logger("corral.daemon.cache")


class TemplateSync:
    """Fetches versions into the cache; several may be under way."""

    def __init__(
        self, *, stores: CacheContents, room: CacheQuota, sessions: TemplateSessions, clock: Clock
    ) -> None:
        self._stores = stores
        self._room = room
        self._sessions = sessions
        self._clock = clock
        self._received: collections.Counter[str] = collections.Counter()
        """Bytes, by template."""
        self._coming: set[str] = set()
        """Digests of contents that are being fetched."""
        self._arrival = asyncio.Event()
        """Set, and replaced, when contents have arrived or a fetch is over, successful or not."""

    async def bring(self, name: str, expected: str) -> str:
        """Make this version (empty: the current one) usable; returns its hash. After a broken connection the transfer
        waits a moment and goes on; TEMPLATE_UNAVAILABLE when that does not help."""
        fruitless = wrong = 0
        while True:
            session, before = await self._sessions.current(), self._received[name]
            try:
                with disk_work(f"template '{name}'"):
                    return await self._bring(session, name, expected)
            except CorralError as error:
                if error.code is Code.ARTIFACT_DIGEST_MISMATCH:
                    wrong += 1
                elif error.code in LINK_ERROR_CODES:
                    fruitless = 0 if self._received[name] > before else fruitless + 1
                else:
                    raise
                if max(fruitless, wrong) >= ATTEMPTS:
                    raise _unavailable(name, str(error)) from error
                _log.warning("cache_transfer.failed", template=name, reason=str(error))
            await asyncio.sleep(doubled(_PAUSE, max(fruitless, wrong)))

    async def _bring(self, session: TemplateSession, name: str, expected: str) -> str:
        at_hand = await to_end(self._stores.templates.manifest, expected) if expected else None
        if at_hand is not None and session.by_digest:
            await self._complete(session, name, expected, at_hand)  # only contents are missing
            return expected
        known = await self._known(session, name)
        match answer := await session.ask(name, known=known, expected=expected):
            case TemplateUnavailable():
                raise _refusal(name, answer)
            case TemplateUpToDate():
                return await self._up_to_date(session, answer, known, expected)
            case TemplateData():
                return await self._take(session, answer, name, known, expected)

    async def _known(self, session: TemplateSession, name: str) -> str:
        """The cached version; for a peer that can send only whole ones, only if it is complete."""
        newest = self._stores.templates.newest(name)
        if newest is None or session.by_digest:
            return newest.hash if newest else ""
        return newest.hash if await to_end(self._stores.whole, newest.hash) is not None else ""

    async def _up_to_date(
        self, session: TemplateSession, answer: TemplateUpToDate, known: str, expected: str
    ) -> str:
        name = answer.template_name
        if (expected and known != expected) or (answer.hash and answer.hash != known):
            raise _unavailable(name, "the controller has another version than the plan")
        manifest = await to_end(self._stores.templates.manifest, known) if known else None
        if manifest is None:
            raise _unavailable(name, "what the controller calls up to date is not here")
        if session.by_digest:
            await self._complete(session, name, known, manifest)
        return known

    async def _take(
        self, session: TemplateSession, data: TemplateData, name: str, known: str, expected: str
    ) -> str:
        hash = data.hash or hashlib.sha256(data.tar_gz).hexdigest()
        if not is_digest(hash) or (expected and hash != expected):
            raise _unavailable(
                name, f"the controller sent version {hash[:12]}…, the plan names {expected[:12]}…"
            )
        if data.HasField("offer"):
            manifest = await self._offered(session, data, name, known)
            await self._complete(session, name, hash, manifest)
        else:
            await self._unpack(data.tar_gz, name, hash)
        return hash

    async def _offered(
        self, session: TemplateSession, data: TemplateData, name: str, known: str
    ) -> TemplateManifest:
        """The manifest: derived from the known one, or fetched."""
        if data.delta and known:
            old = await to_end(self._stores.templates.manifest, known)
            manifest = await to_end(_changed, old, data) if old is not None else None
            if manifest is not None:
                return await to_end(check_manifest, manifest, name=name)
        if not 0 <= data.offer.size_bytes <= MAX_MANIFEST:
            raise Rejected(Code.ARCHIVE_TOO_LARGE, f"the list of files of template '{name}' is too large")
        if not session.by_digest:
            raise _unavailable(name, "the controller offers what it cannot transfer")
        content = await self._transfer(session, name, lambda channel: _whole_blob(channel, data.offer))
        return await to_end(read_manifest, content, digest=data.offer.digest, name=name)

    async def _complete(
        self, session: TemplateSession, name: str, hash: str, manifest: TemplateManifest
    ) -> None:
        """Fetch what is missing of this version and record that it is here. A content that another version needs as
        well is fetched once: the second fetch waits until it is here, and checks again."""
        with self._room.protecting(manifest):
            arrival = self._arrival
            while missing := await self._missing(manifest):
                mine = [file for file in missing if file.digest not in self._coming]
                if mine:
                    await self._fetch(session, name, mine)
                else:
                    await arrival.wait()
                arrival = self._arrival
            await self._note(name, hash, manifest)

    async def _missing(self, manifest: TemplateManifest) -> list[TemplateFile]:
        async with self._room.lock:
            return await to_end(self._stores.missing, manifest)

    async def _fetch(self, session: TemplateSession, name: str, files: Sequence[TemplateFile]) -> None:
        coming = {file.digest for file in files}
        self._coming |= coming
        try:
            size = sum(file.size for file in files)
            async with self._room.reserving(size, subject=f"template '{name}'") as reservation:
                sources = await to_end(self._sources, name)

                async def fetch(channel: DataChannel) -> None:
                    fetching = ContentFetch(
                        channel,
                        stores=self._stores,
                        sources=sources,
                        progress=functools.partial(self._count, name),
                        arrived=functools.partial(self._arrived, reservation),
                    )
                    await fetching.run(files, name=name)

                await self._transfer(session, name, fetch)
        finally:
            self._coming -= coming
            self._wake()

    def _arrived(self, reservation: CacheReservation, size: int) -> None:
        reservation.arrived(size)
        self._wake()

    def _wake(self) -> None:
        self._arrival.set()
        self._arrival = asyncio.Event()

    @staticmethod
    async def _transfer(
        session: TemplateSession, name: str, work: Callable[[DataChannel], Awaitable[T]]
    ) -> T:
        """Transfer; a refusal becomes Retryable: what the controller refuses now it may have later, without a fault of
        the template."""
        try:
            return await session.transfer(work, name=name)
        except Rejected as error:
            raise _unavailable(name, f"the controller does not send all of it: {error}") from error

    async def _unpack(self, archive: bytes, name: str, hash: str) -> None:
        if await to_end(lambda: hashlib.sha256(archive).hexdigest()) != hash:
            raise Retryable(
                Code.ARTIFACT_DIGEST_MISMATCH,
                f"the archive of template '{name}' has another digest than it says",
            )
        self._count(name, len(archive))
        sizes: dict[str, int] = {}
        keep = functools.partial(self._keep, sizes)
        unpacking = ArchiveUnpack(name=name, parts=self._stores.parts, keep=keep, limit=self._room.quota)
        async with self._room.lock:  # nothing is evicted between the contents' arrival and their record
            try:
                manifest = await to_end(unpacking.run, archive)
            finally:
                self._stores.added(sum(sizes.values()))
            await self._note(name, hash, manifest)

    def _keep(self, sizes: dict[str, int], part: pathlib.Path, digest: str) -> None:
        size = part.stat().st_size
        if not self._stores.contents.sound(digest, size):
            self._stores.contents.admit(part, digest)
            sizes[digest] = size

    async def _note(self, name: str, hash: str, manifest: TemplateManifest) -> None:
        now_ms = int(self._clock.now().timestamp() * 1000)
        before = self._stores.templates.find(hash)
        noted = await to_end(self._stores.templates.put, name, hash, manifest, now_ms=now_ms)
        self._stores.added(noted.stored - (before.stored if before else 0))
        _log.info("template.stored", template=name, hash=hash[:12], files=len(manifest.files))

    def _sources(self, name: str) -> PieceSources:
        sources = PieceSources(self._stores)
        for known in self._stores.templates.all():
            if known.name == name and (manifest := self._stores.templates.manifest(known.hash)) is not None:
                sources.learn(manifest)
        return sources

    def _count(self, name: str, size: int) -> None:
        self._received[name] += size


async def _whole_blob(channel: DataChannel, offer: DataOffer) -> bytes:
    """A blob in memory: the caller has checked its size."""
    held = bytearray()
    async with contextlib.aclosing(channel.bundle([offer.digest])) as chunks:
        async for chunk in chunks:
            held += chunk
            if len(held) > offer.size_bytes:
                break
    return bytes(held)


def _changed(old: TemplateManifest, data: TemplateData) -> TemplateManifest | None:
    """The offered manifest, if the changes lead to it; else it is fetched whole."""
    try:
        manifest = apply_delta(old, data.delta)
    except Rejected:
        return None
    return manifest if manifest_digest(manifest) == data.offer.digest else None


def _unavailable(name: str, why: str) -> Retryable:
    return Retryable(
        Code.TEMPLATE_UNAVAILABLE,
        f"template '{name}' cannot be had now: {why}",
        hint="it is tried again",
        retry_after=2.0,
    )


def _refusal(name: str, answer: TemplateUnavailable) -> CorralError:
    why = answer.error_message or "the controller gave no reason"
    code = Code.__members__.get(answer.error_code)
    if code in (Code.TEMPLATE_NOT_FOUND, Code.NOT_FOUND):
        return Rejected(Code.TEMPLATE_NOT_FOUND, f"template '{name}' cannot be had: {why}")
    if code is Code.ARCHIVE_TOO_LARGE:
        return Rejected(code, f"template '{name}' cannot be had: {why}")
    return _unavailable(name, why)
