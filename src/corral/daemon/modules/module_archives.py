"""Archives of modules in the node's cache, and their download.

Digest and signature are checked when an archive arrives, and each time it is loaded: an archive that was
changed on disk never runs. Archives are stored beside the rest of the cache, but count towards no quota and
are never evicted: they are removed when no module names them any more. A download uses the data channel of
whichever session there is, and resumes where the last one was cut off.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import structlog

from corral.archives.refusals import MODULE_REFUSALS
from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.data_channel import DataChannel, Expect
from corral.daemon.modules.state_reports import progress_report
from corral.domain.modules.records import SignatureFacts
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.archive.archive_reader import ArchiveFacts, has_digest, inspect_archive
from corral.modules.archive.archive_store import ArchiveStore, disk_faults
from corral.signing import Sidecar, Verifier, sidecar_beside, sidecar_digest
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import first_of
from corral.system.clock import Clock
from corral.system.entropy import Entropy
from corral.system.files import make_directory
from corral.system.threads import to_end

_PASSABLE: Final = 0o711


class VerifiedArchive(msgspec.Struct, frozen=True, kw_only=True):
    """An archive whose digest and signature were verified, and that is stored now."""

    facts: ArchiveFacts
    signature: SignatureFacts | None


class ArchiveCache:
    """The `ArchiveSupply` of a node."""

    def __init__(
        self, directory: Path, *, verifier: Callable[[], Verifier], max_bytes: int, run_as: str = ""
    ) -> None:
        """`directory` is two levels below the cache's own."""
        self._directory = directory
        self._store = ArchiveStore(directory, max_bytes=max_bytes)
        self._verifier = verifier
        self._max_bytes = max_bytes
        self._run_as = run_as
        self._pinned: collections.Counter[str] = collections.Counter()
        self._dropping = asyncio.Lock()

    # --- in -------------------------------------------------------------------------------------
    async def holds(self, sha256: str) -> bool:
        """Is the archive here and undamaged? One that is `pinned` stays here."""
        async with self._dropping:
            pass  # an archive that was not pinned in time is gone by now
        return await to_end(has_digest, self._store.path(sha256), sha256)

    async def receive(self, archive: Path, *, sha256: str, sidecar: Sidecar | None) -> VerifiedArchive:
        """Move an archive here after verification: ARTIFACT_DIGEST_MISMATCH, SIGNATURE_VERIFICATION_FAILED,
        or what `inspect_archive` raises; the file stays where it is then. Without a sidecar the stored one
        counts, if any."""
        received = await to_end(self._prove, archive, sha256, sidecar)
        await self._store.take(archive, expect=sha256)
        await self._keep_sidecar(sha256, sidecar)
        return received

    async def recall(self, *, sha256: str, sidecar: Sidecar | None) -> VerifiedArchive:
        """Verify an archive that `holds` found, as `receive` does."""
        received = await to_end(self._prove, self._store.path(sha256), sha256, sidecar)
        await self._keep_sidecar(sha256, sidecar)
        return received

    async def _keep_sidecar(self, sha256: str, sidecar: Sidecar | None) -> None:
        if sidecar is not None:
            await self._store.put_sidecar(sha256, sidecar.kind, sidecar.content)

    def _prove(self, archive: Path, sha256: str, sidecar: Sidecar | None) -> VerifiedArchive:
        """Verify digest and signature before anything of the archive is read."""
        if not has_digest(archive, sha256):
            raise Rejected(
                Code.ARTIFACT_DIGEST_MISMATCH,
                f"what came is not the archive {sha256}",
                hint="it was changed or cut on its way; it is fetched again at the next session",
            )
        sidecar = sidecar or sidecar_beside(self._store.path(sha256))
        signature = self._verifier().verify(archive, sha256=sha256, sidecar=sidecar)
        facts = inspect_archive(archive, max_bytes=self._max_bytes)
        if signature is None and sidecar is not None:
            signature = SignatureFacts(kind=sidecar.kind)
        if signature is not None:
            signature = msgspec.structs.replace(signature, blob=sidecar_digest(sidecar))
        return VerifiedArchive(facts=facts, signature=signature)

    # --- out ------------------------------------------------------------------------------------
    async def unpacked(self, sha256: str) -> Path:
        """Part of `ArchiveSupply`."""
        with self.pinned(sha256):
            tree = await self._store.unpacked(
                sha256, verify=functools.partial(self._check_signature, sha256=sha256)
            )
            if self._run_as and os.geteuid() == 0:
                await to_end(self._let_pass)
            return tree

    def _check_signature(self, archive: Path, *, sha256: str) -> None:
        self._verifier().verify(archive, sha256=sha256, sidecar=sidecar_beside(archive))

    def _let_pass(self) -> None:
        """Let other users pass to the modules' trees, since modules may run as another user; what else is in
        these directories stays closed to that user."""
        for directory in (self._directory.parent, self._directory.parent.parent):
            directory.chmod(_PASSABLE)

    # --- upkeep ---------------------------------------------------------------------------------
    @contextlib.contextmanager
    def pinned(self, *digests: str) -> Iterator[None]:
        """Keep these archives meanwhile, whether or not anything names them."""
        self._pinned.update(digests)
        try:
            yield
        finally:
            self._pinned.subtract(digests)
            self._pinned = +self._pinned

    async def sweep(self, named: Callable[[], set[str]]) -> list[str]:
        """Remove archives that nothing names; returns them."""
        dropped = []
        for sha256 in sorted(await to_end(self._store.held) - named()):
            async with self._dropping:
                if sha256 in self._pinned or sha256 in named():
                    continue  # it was needed again meanwhile
                with contextlib.suppress(CorralError):  # a disk error: the next sweep removes it
                    await self._store.forget(sha256)
                    dropped.append(sha256)
        return dropped


TRANSFERS: Final = 2
"""Concurrent transfers: the controller allows a node a few, and templates and consoles need some."""
PROGRESS_SECONDS: Final = 1.0
LONGEST_PAUSE: Final = 15.0
PART_AGE_SECONDS: Final = 86_400
_LINK_ERROR_CODES: Final = frozenset({Code.CONFLICT, Code.STALE_EPOCH})
"""Errors of a session that was replaced by the next one; after these, and after all Retryable ones, the
transfer is resumed."""
_LOCAL_ERROR_CODES: Final = frozenset({Code.DISK_FULL, Code.STORAGE_UNAVAILABLE})
"""Errors of this node's disk: another session would not help, so they are reported."""
_log = structlog.get_logger("corral.daemon.modules")


class _Session:
    """One connection, for as long as it lasts."""

    def __init__(self, connection: LinkConnection) -> None:
        self.connection = connection
        self.over = asyncio.Event()


class ArchiveDownloads:
    """Fetches archives into `directory`, which is used by nothing else."""

    def __init__(self, directory: Path, *, max_bytes: int, clock: Clock, entropy: Entropy) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._clock = clock
        self._entropy = entropy
        self._session: _Session | None = None
        self._there = asyncio.Event()
        self._transfers = asyncio.Semaphore(TRANSFERS)
        self.fetched: dict[str, tuple[int, int]] = {}
        """By module: bytes fetched and size, from the request until the archive is here."""

    def open(self) -> None:
        """Remove partial files that were not resumed for a day. Blocking."""
        make_directory(self._directory)
        old = time.time() - PART_AGE_SECONDS  # wall time, as the times of files are
        for path in self._directory.iterdir():
            if path.suffix != ".part" or path.stat().st_mtime < old:
                path.unlink(missing_ok=True)

    def on_connected(self, connection: LinkConnection) -> None:
        self.on_disconnected()
        if connection.supports.bulk:
            self._session = _Session(connection)
            self._there.set()

    def on_disconnected(self) -> None:
        self._there.clear()
        if self._session is not None:
            self._session.over.set()
            self._session = None

    async def write(self, sha256: str, content: bytes) -> Path:
        """Write the file of an archive that came in its frame."""
        path = self._directory / f"{sha256}.zip"
        with disk_faults():
            await to_end(_written, path, content)
        return path

    async def fetch(self, id: str, *, sha256: str, size: int) -> Path:
        """Fetch the file of an archive, over as many sessions as it takes. Raises only what the next attempt
        would raise again: NOT_FOUND, ARTIFACT_DIGEST_MISMATCH, ARCHIVE_TOO_LARGE, or errors of this node's
        disk: Retryable DISK_FULL, STORAGE_UNAVAILABLE. A complete file is not fetched again."""
        path = self._directory / f"{sha256}.zip"
        if await to_end(has_digest, path, sha256):
            return path
        self.fetched[id] = (0, size)
        try:
            await self._brought(id, path, sha256, size)
        finally:
            self.fetched.pop(id, None)
        return path

    async def _brought(self, id: str, path: Path, sha256: str, size: int) -> None:
        """Retry in session after session until the file is complete."""
        backoff = Backoff(longest=LONGEST_PAUSE, entropy=self._entropy)
        while True:
            await self._there.wait()
            session = self._session
            if session is None:
                continue
            try:
                async with self._transfers:
                    await self._transfer(session, id, path, sha256, size)
                return
            except CorralError as error:
                passing = isinstance(error, Retryable) or error.code in _LINK_ERROR_CODES
                if not passing or error.code in _LOCAL_ERROR_CODES:
                    raise
                _log.info("module_fetch.retried", module=id, sha256=sha256, reason=str(error))
                if session is self._session:
                    await asyncio.sleep(backoff.delay())

    async def _transfer(self, session: _Session, id: str, path: Path, sha256: str, size: int) -> None:
        """Transfer within one session; the next session resumes the partial file."""
        moving = self._move(session.connection, id, path, sha256, size)
        moved, *_ = await first_of(moving, session.over, name=f"modules/fetch/{id}")
        if moved is None:
            raise Retryable(Code.UNREACHABLE, f"the link to {session.connection.address} was lost")
        moved.result()

    async def _move(self, connection: LinkConnection, id: str, path: Path, sha256: str, size: int) -> None:
        began = self._clock.monotonic()
        with disk_faults():
            async with DataChannel(connection) as channel:
                total = await channel.fetch(sha256, path, expect=self._counted(connection, id, size))
        took = round(self._clock.monotonic() - began, 3)
        _log.info("module_archive.stored", module=id, sha256=sha256, bytes=total, seconds=took)

    def _counted(self, connection: LinkConnection, id: str, size: int) -> Expect:
        reported_at = self._clock.monotonic()
        limit = min(size or self._max_bytes, self._max_bytes)

        async def count(fetched: int) -> None:
            nonlocal reported_at
            if fetched > limit:
                raise MODULE_REFUSALS.too_large("the module's archive is too large", f"{limit} bytes")
            self.fetched[id] = (fetched, size)
            now = self._clock.monotonic()
            if now - reported_at >= PROGRESS_SECONDS:
                reported_at = now
                message = progress_report(id, fetched=fetched, size=size)
                connection.outbox.replace(f"module-progress/{id}", message)

        return count

    async def drop(self, sha256: str) -> None:
        """Remove the file: the archive is in its place, or no longer needed."""
        await to_end(self._drop, sha256)

    def _drop(self, sha256: str) -> None:
        with contextlib.suppress(OSError):
            for path in self._directory.glob(f"{sha256}.zip*"):
                path.unlink(missing_ok=True)


def _written(path: Path, content: bytes) -> None:
    """Write a new file: one that could not be moved to its place may be read-only."""
    path.unlink(missing_ok=True)
    path.write_bytes(content)
