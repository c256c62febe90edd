"""Downloads: redirects are checked, interrupted transfers resumed, and only verified files kept."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import structlog

from corral.daemon.cache.download_targets import (
    DownloadTarget,
    NameLookups,
    addresses_of,
    check_host,
    parse_target,
    redirected,
)
from corral.daemon.cache.http_exchange import exchange
from corral.daemon.cache.partial_files import PartFile
from corral.domain.urls import shown_url
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.aio.backoff import doubled, spread
from corral.system.clock import Clock
from corral.system.daemon_config import DownloadsSection
from corral.system.entropy import Entropy
from corral.system.http_exchange import HttpAnswer
from corral.system.threads import to_end

REDIRECTS: Final = 5
LEAST_RATE: Final = 1024
"""Bytes a second, over a window of `downloads.timeout_seconds`: a slower server is given up."""
WORTH_GOING_ON: Final = 1024 * 1024
"""An attempt that got so many bytes further does not count against the limit of attempts."""
_BATCH: Final = 1024 * 1024
"""So many bytes are written at once. Room is made for so many ahead, not for all that a server announces: it may never
send them."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 15.0
_REDIRECTING: Final = frozenset({301, 302, 303, 307, 308})
_LATER: Final = frozenset({408, 425, 429})
_RANGE: Final = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19}|\*)")
_log = structlog.get_logger("corral.daemon.cache")

Expect = Callable[[int, int], Awaitable[None]]
"""Receives a size before the file grows to it, and the whole size if it is known; an exception it raises ends the
download."""


class Downloads:
    """Fetches files by http and https; any number may be under way."""

    def __init__(
        self,
        *,
        settings: DownloadsSection,
        clock: Clock,
        entropy: Entropy,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._tls = tls
        self._lookups = NameLookups()

    async def fetch(
        self, url: str, target: pathlib.Path, *, sha256: str, size: int = 0, expect: Expect | None = None
    ) -> int:
        """Download to `target`; returns the size. The file appears only when its digest, and its size where one is
        known, are right. An interrupted download is resumed, also by a later call.

        Rejected: ARTIFACT_REFUSED (this address is not allowed), ARTIFACT_DIGEST_MISMATCH, CACHE_DOWNLOAD_FAILED (the
        server refuses). Retryable: CACHE_DOWNLOAD_FAILED. OSError when the disk refuses.
        """
        if self._tls is None:
            self._tls = await to_end(ssl.create_default_context)
        _log.debug("download.started", url=shown_url(url), size=size)
        part = PartFile(target)
        download = _Download(
            settings=self._settings,
            clock=self._clock,
            tls=self._tls,
            lookups=self._lookups,
            part=part,
            sha256=sha256,
            size=size,
            expect=expect,
        )
        try:
            await to_end(part.open)
            if part.digest != sha256:  # else only its name is missing: the daemon was killed right before
                await self._persist(download, url)
            await to_end(part.finish)
        finally:
            await to_end(part.close)
        _log.info("download.finished", url=shown_url(url), size=part.size)
        return part.size

    async def _persist(self, download: _Download, url: str) -> None:
        fruitless = furthest = 0
        while True:
            try:
                await download.attempt(url)
                return
            except Rejected:
                await to_end(download.part.discard)
                raise
            except Retryable as error:
                if error.code is Code.CACHE_FULL:  # nothing is wrong with the server
                    raise
                gained = (
                    download.part.size - furthest
                )  # not the bytes received: a server may send the same for ever
                fruitless = 0 if gained >= WORTH_GOING_ON else fruitless + 1
                furthest = max(furthest, download.part.size)
                if fruitless >= self._settings.attempts:
                    raise _given_up(error, fruitless) from error
                pause = max(error.retry_after or 0, doubled(_FIRST_PAUSE, fruitless - 1))
                pause = spread(min(_LONGEST_PAUSE, pause), self._entropy.fraction())
                _log.warning("download.retried", url=shown_url(url), reason=str(error), pause=round(pause, 1))
            await asyncio.sleep(pause)


class _Download:
    """One file, over as many attempts as it takes."""

    def __init__(
        self,
        *,
        settings: DownloadsSection,
        clock: Clock,
        tls: ssl.SSLContext,
        lookups: NameLookups,
        part: PartFile,
        sha256: str,
        size: int,
        expect: Expect | None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._tls = tls
        self._lookups = lookups
        self._sha256 = sha256
        self._size = size
        self._expect = expect
        self._validator = ""
        """The server's identifier of its current version of the file."""
        self._announced = 0
        self.part = part

    async def attempt(self, url: str) -> None:
        """Fetch what is missing and verify the whole. Retryable: another attempt may continue."""
        headers: dict[str, str] = {}
        resumed = self.part.size
        if resumed:
            headers["Range"] = f"bytes={resumed}-"
            if self._validator:
                headers["If-Range"] = self._validator
        async with self._answer(url, headers) as (target, answer):
            if answer.status == 416:
                if not resumed:
                    raise _refused(target, f"it answered {answer.phrase}")
                await to_end(self.part.clear)
                raise _broken(target, "the server has no more than we have, and that is not the file")
            await self._begin(target, answer)
            await self._receive(target, answer)
            await self._check(target, answer, resumed=resumed > 0)

    @contextlib.asynccontextmanager
    async def _answer(
        self, url: str, headers: dict[str, str]
    ) -> AsyncIterator[tuple[DownloadTarget, HttpAnswer]]:
        """Follow redirects to an answer with content; every hop is checked like the first one."""
        target = parse_target(url)
        for _ in range(REDIRECTS + 1):
            check_host(target, self._settings.allow_hosts)
            timeout = float(self._settings.timeout_seconds)
            addresses = await addresses_of(
                target, self._lookups, allow_private=self._settings.allow_private, timeout=timeout
            )
            async with exchange(target, addresses, headers, timeout=timeout, tls=self._tls) as answer:
                if answer.status not in _REDIRECTING:
                    _check_status(target, answer)
                    yield target, answer
                    return
                location = answer.headers.get("location", "")
            if not location:
                raise _refused(target, f"it answered {answer.phrase} without saying where to go")
            target = redirected(target, location)
        raise _refused(parse_target(url), f"it redirects more than {REDIRECTS} times")

    async def _begin(self, target: DownloadTarget, answer: HttpAnswer) -> None:
        """Check the answer against the partial file, which is cleared unless the answer continues it, and against the
        expected and the allowed size."""
        whole = answer.content_length
        if answer.status == 206:
            found = _RANGE.fullmatch(answer.headers.get("content-range", ""))
            if found is None or int(found[1]) != self.part.size:
                await to_end(self.part.clear)
                raise _broken(target, "it continued the file at another place than it was asked to")
            whole = None if found[3] == "*" else int(found[3])
        elif self.part.size:
            await to_end(self.part.clear)
        etag = answer.headers.get("etag", "")
        strong = etag if etag and not etag.startswith("W/") else ""
        self._validator = strong or answer.headers.get("last-modified", "")
        if whole is not None and self._size and whole != self._size:
            raise _wrong(target, answer, f"has {whole} bytes, not {self._size}")
        if whole is not None and whole > self._settings.max_bytes:
            raise self._too_large(target)
        self._announced = whole or 0
        await self._make_room(1)

    async def _receive(self, target: DownloadTarget, answer: HttpAnswer) -> None:
        limit = min(self._size or self._settings.max_bytes, self._settings.max_bytes)
        waiting = bytearray()
        window, seen = self._clock.monotonic(), 0
        try:
            async with contextlib.aclosing(answer.blocks()) as blocks:
                async for block in blocks:
                    waiting += block
                    seen += len(block)
                    if self.part.size + len(waiting) > limit:
                        raise self._too_large(target)
                    if len(waiting) >= _BATCH:
                        await self._write(waiting)
                    if (passed := self._clock.monotonic() - window) >= self._settings.timeout_seconds:
                        if seen < LEAST_RATE * passed:
                            why = f"it sent less than {LEAST_RATE // 1024} KiB a second for {passed:.0f} s"
                            raise _broken(target, why)
                        window, seen = self._clock.monotonic(), 0
        finally:
            await self._write(waiting)

    async def _write(self, waiting: bytearray) -> None:
        if waiting:
            await self._make_room(len(waiting))
            block = bytes(waiting)
            waiting.clear()
            await to_end(self.part.write, block)

    async def _make_room(self, more: int) -> None:
        size = self.part.size + more
        if self._expect is not None and self._announced:
            ahead = min(self._announced, -(-size // _BATCH) * _BATCH)
            await self._expect(max(size, ahead), self._announced)
        elif self._expect is not None:
            await self._expect(size, 0)

    async def _check(self, target: DownloadTarget, answer: HttpAnswer, *, resumed: bool) -> None:
        if self._size and self.part.size < self._size:
            raise _broken(target, f"it ended after {self.part.size} of {self._size} bytes")
        if self.part.digest == self._sha256:
            return
        found, size = self.part.digest, self.part.size
        await to_end(self.part.clear)
        why = f"has digest {found[:12]}… ({size} bytes), not {self._sha256[:12]}…"
        if resumed:
            raise Retryable(
                Code.ARTIFACT_DIGEST_MISMATCH, f"{target.shown} {why}, put together of two answers"
            )
        if answer.content_length is None and "transfer-encoding" not in answer.headers:
            why += "; the server named no length, so it may have been cut short"
            raise Retryable(Code.ARTIFACT_DIGEST_MISMATCH, f"{target.shown} {why}")
        raise _wrong(target, answer, why)

    def _too_large(self, target: DownloadTarget) -> Rejected:
        if self._size:
            return _refused(target, f"it sends more than the {self._size} bytes it should have")
        return _refused(target, f"it is larger than downloads.max_bytes ({self._settings.max_bytes} bytes)")


def _check_status(target: DownloadTarget, answer: HttpAnswer) -> None:
    if answer.status in (200, 206, 416):
        return
    if answer.status >= 500 or answer.status in _LATER:
        error = _broken(target, f"it answered {answer.phrase}")
        after = answer.headers.get("retry-after", "")
        error.retry_after = float(after) if after.isascii() and after.isdigit() and len(after) < 6 else None
        raise error
    hints = {
        401: "it wants credentials: use a URL that needs none, or upload the file to the catalog",
        403: "it forbids this node to have it: use another URL, or upload the file to the catalog",
        404: "check the URL in the catalog",
        410: "it is gone for good: find another URL",
    }
    raise _refused(target, f"it answered {answer.phrase}", hint=hints.get(answer.status))


def _broken(target: DownloadTarget, why: str) -> Retryable:
    return Retryable(Code.CACHE_DOWNLOAD_FAILED, f"{target.shown} cannot be downloaded: {why}")


def _refused(target: DownloadTarget, why: str, *, hint: str | None = None) -> Rejected:
    return Rejected(Code.CACHE_DOWNLOAD_FAILED, f"{target.shown} cannot be downloaded: {why}", hint=hint)


def _wrong(target: DownloadTarget, answer: HttpAnswer, why: str) -> Rejected:
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    page = kind in ("text/html", "application/xhtml+xml")
    packed = answer.headers.get("content-encoding", "identity").strip().lower()
    if packed not in ("", "identity"):
        why += f"; the server has packed it ({packed[:20]}), though it was asked not to"
    return Rejected(
        Code.ARTIFACT_DIGEST_MISMATCH,
        f"what {target.shown} sends {why}" + (": it is an HTML page" if page else ""),
        hint="perhaps a login or error page; use the URL of the file itself"
        if page
        else "correct the digest in the catalog if the file was replaced on purpose",
    )


def _given_up(error: CorralError, attempts: int) -> CorralError:
    """The final error after so many attempts: a digest that stayed wrong is Rejected, everything else Retryable."""
    text = f"{error.message} (after {attempts} attempts)" if attempts > 1 else error.message
    if error.code is Code.ARTIFACT_DIGEST_MISMATCH:
        return Rejected(error.code, text, hint="correct the digest in the catalog if the file was replaced")
    return Retryable(error.code, text, hint="it is tried again", retry_after=error.retry_after or 10.0)
