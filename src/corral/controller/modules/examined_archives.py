"""Archives that were uploaded to be examined, kept for a while so that they can be installed by their digest.

Each belongs to who uploaded it, and to nobody else. What is kept is bounded for each of them and in all; an archive that has no
place is examined all the same, and has to be sent again. They are files among those of uploads, so that what a dead process
leaves is removed with these. They end with the term: another leader has other files.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Final

import msgspec
import structlog

from corral.controller.modules.upload_files import link_upload
from corral.errors import Code, Rejected
from corral.signing import Sidecar
from corral.system.clock import Clock
from corral.system.threads import to_end

KEPT_SECONDS: Final = 900.0
KEPT_OF_OWNER: Final = 3
KEPT_IN_ALL: Final = 16
_log = structlog.get_logger("corral.controller.modules")


class ExaminedUpload(msgspec.Struct, frozen=True, kw_only=True):
    """An archive as it was examined."""

    path: Path
    sha256: str
    size: int
    sidecar: Sidecar | None
    expires_at: dt.datetime
    deadline: float
    """The same by the monotonic clock."""


Key = tuple[str, str]
"""Who uploaded it, and its digest."""


class ExaminedArchives:
    """Kept archives by owner and digest."""

    def __init__(self, *, clock: Clock, most_bytes: int) -> None:
        self._clock = clock
        self._most_bytes = most_bytes
        self._kept: dict[Key, ExaminedUpload] = {}
        """The oldest first."""
        self._closed = False

    def __len__(self) -> int:
        return len(self._kept)

    async def keep(
        self, owner: str, file: Path, *, sha256: str, size: int, sidecar: Sidecar | None
    ) -> dt.datetime | None:
        """Keep an archive until the returned time; None when there is no place for it. One that its owner has already is
        kept anew, with this signature. Of an owner the oldest ones make room, those of others do not."""
        await self._drop(self._expired())
        try:
            path = await to_end(link_upload, file)
        except OSError as error:
            _log.warning("module_archive.skipped", sha256=sha256, reason=str(error))
            return None
        now, passed = self._clock.now(), self._clock.monotonic()
        kept = ExaminedUpload(
            path=path,
            sha256=sha256,
            size=size,
            sidecar=sidecar,
            expires_at=now + dt.timedelta(seconds=KEPT_SECONDS),
            deadline=passed + KEPT_SECONDS,
        )
        # no wait from here on: what is counted is what is there
        own = [key for key in self._kept if key[0] == owner and key[1] != sha256]
        leaving = [(owner, sha256), *own[: max(0, len(own) + 1 - KEPT_OF_OWNER)]]
        staying = [each for key, each in self._kept.items() if key not in leaving]
        fits = len(staying) < KEPT_IN_ALL and sum(each.size for each in staying) + size <= self._most_bytes
        gone: list[ExaminedUpload | None] = [kept]
        if fits and not self._closed:
            gone = [self._taken(key) for key in leaving]  # not before it is known that the new one fits
            self._kept[owner, sha256] = kept
        await self._remove(each for each in gone if each is not None)
        return kept.expires_at if self._kept.get((owner, sha256)) is kept else None

    @contextlib.asynccontextmanager
    async def opened(self, owner: str, sha256: str) -> AsyncIterator[ExaminedUpload]:
        """An archive under a name of its own, which lasts as long as it is needed here. NOT_FOUND."""
        await self._drop(self._expired())
        kept = self._kept.get((owner, sha256))
        try:
            path = await to_end(link_upload, kept.path) if kept is not None else None
        except FileNotFoundError:  # dropped meanwhile
            path = None
        if kept is None or path is None:
            raise Rejected(
                Code.NOT_FOUND,
                f"no archive with the digest {sha256[:64]} was examined by this caller in the last "
                f"{KEPT_SECONDS / 60:g} minutes",
                hint="upload it again: POST /api/v1/modules",
                field="sha256",
            )
        try:
            yield msgspec.structs.replace(kept, path=path)
        finally:
            await to_end(path.unlink, missing_ok=True)

    async def forget(self, owner: str, sha256: str) -> None:
        """Drop an archive that was installed. Idempotent."""
        if (owner, sha256) in self._kept:
            await self._drop([(owner, sha256)])

    async def purge(self) -> None:
        """Drop those whose time is over."""
        await self._drop(self._expired())

    async def close(self) -> None:
        """Drop all of them; none is kept any more. Idempotent."""
        self._closed = True
        await self._drop(list(self._kept))

    def _expired(self) -> list[Key]:
        now = self._clock.monotonic()
        return [key for key, kept in self._kept.items() if kept.deadline <= now]

    def _taken(self, key: Key) -> ExaminedUpload | None:
        return self._kept.pop(key, None)

    async def _drop(self, keys: list[Key]) -> None:
        if keys:
            gone = [self._taken(key) for key in keys]
            await self._remove(each for each in gone if each is not None)

    async def _remove(self, gone: Iterable[ExaminedUpload]) -> None:
        paths = [each.path for each in gone]

        def unlink() -> None:
            for path in paths:
                path.unlink(missing_ok=True)

        if paths:
            await to_end(unlink)
