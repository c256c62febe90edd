"""Sources of the certificate of HTTP: two files of the operator, which are looked at again and again, or the cluster's
authority, which issues a new one before the old one ends or when the names of the machine have changed."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import pathlib
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn, Protocol

import structlog

from corral.controller.http.server.served_certificate import (
    MAX_PEM,
    CertificatePair,
    LoadedPair,
    ServedCertificate,
    load_pair,
    unusable,
)
from corral.errors import Rejected
from corral.pki.authority import Authority, ServerIdentity
from corral.system.clock import Clock
from corral.system.files import atomic_write
from corral.system.threads import to_end

_log = structlog.get_logger("corral.controller.http")
_LIFE: Final = dt.timedelta(days=30)
_LOOK_AT_FILES_SECONDS: Final = 2.0
_LOOK_AT_NAMES_SECONDS: Final = 60.0

FileStamp = tuple[int, int, int, int]
"""Device, inode, size and time of change. Equal: nobody has written the file since."""
Stamp = tuple[FileStamp | None, ...]
"""Of both files; None for one that is not there."""


class CertificateSource(Protocol):
    """Brings a certificate, and the next one in time."""

    async def open(self) -> None:
        """Serve the first one, if there can be one yet. INVALID_CONFIG when it cannot be used."""

    async def follow(self) -> None:
        """Replace it for as long as the listener is there; never returns."""


async def _repeat(look: Callable[[], Awaitable[None]], seconds: float) -> NoReturn:
    """Look again and again, whatever fails: the last certificate would end one day."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await look()
        except Exception:
            _log.exception("http_certificate.failed")


class CertificateFiles:
    """A certificate and a key in files. Both are read again when one has changed: a pair that cannot be used is refused,
    and logged if it stays like that, because the two are rarely written in one moment."""

    def __init__(
        self,
        served: ServedCertificate,
        *,
        certificate: pathlib.Path,
        key: pathlib.Path,
        clock: Clock,
        seconds: float = _LOOK_AT_FILES_SECONDS,
    ) -> None:
        self._served = served
        self._certificate = certificate
        self._key = key
        self._clock = clock
        self._seconds = seconds
        self._stamp: Stamp = ()
        self._refused: Rejected | None = None
        """Of the present files, and not logged yet."""

    async def open(self) -> None:
        self._stamp = await to_end(self._stamp_now)
        loaded = await to_end(self._read)
        if loaded.not_after <= self._clock.now():
            _log.warning("http_certificate.expired", certificate=str(self._certificate))
        self._served.replace(loaded)

    async def follow(self) -> None:
        await _repeat(self.look, self._seconds)

    async def look(self) -> None:
        """Take in what has changed since the last look."""
        stamp = await to_end(self._stamp_now)
        if stamp == self._stamp:
            self._log_refused()
            return
        self._stamp, self._refused = stamp, None
        try:
            loaded = await to_end(self._read)
            if loaded.not_after <= self._clock.now():
                raise unusable(str(self._certificate), "it has expired")
        except Rejected as refused:
            self._refused = refused
            return
        self._served.replace(loaded)
        _log.info("http_certificate.replaced", serial=loaded.serial, expires=loaded.not_after.isoformat())

    def _log_refused(self) -> None:
        if self._refused is not None:
            _log.warning("http_certificate.refused", reason=str(self._refused))
            self._refused = None

    def _read(self) -> LoadedPair:
        pair = CertificatePair(
            certificate_pem=_content(self._certificate),
            key_pem=_content(self._key),
            source=f"{self._certificate} and {self._key}",
        )
        return load_pair(pair)

    def _stamp_now(self) -> Stamp:
        return tuple(_stamp_of(path) for path in (self._certificate, self._key))


def _stamp_of(path: pathlib.Path) -> FileStamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _content(path: pathlib.Path) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            content = file.read(MAX_PEM + 1) or b""
    except OSError as error:
        raise unusable(str(path), error.strerror or "it cannot be read") from None
    if len(content) > MAX_PEM:
        raise unusable(str(path), f"it has more than {MAX_PEM} bytes")
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # a FIFO would never open


class ClusterCertificates:
    """Certificates of the cluster's authority, for the names that `names` returns. The authority is known once there is
    a cluster: `use` brings it. Keys are made here and stay in memory."""

    def __init__(
        self,
        served: ServedCertificate,
        *,
        names: Callable[[], frozenset[str]],
        published: pathlib.Path,
        clock: Clock,
        seconds: float = _LOOK_AT_NAMES_SECONDS,
    ) -> None:
        """`published`: where the authority's certificate is written to, for those who have to trust it."""
        self._served = served
        self._names = names
        self._published = published
        self._clock = clock
        self._seconds = seconds
        self.trusted_ca_pem = b""
        """The certificates of the authorities that are in use."""
        self._authority: Authority | None = None
        self._identity: ServerIdentity | None = None
        self._issued_for: frozenset[str] = frozenset()

    async def open(self) -> None:
        """Nothing can be issued before the authority is known."""

    async def use(self, authority: Authority, trusted_ca_pem: bytes) -> None:
        """Serve a certificate of this authority from now on."""
        self._authority = authority
        await to_end(self._publish, trusted_ca_pem)
        await self._issue()
        self.trusted_ca_pem = trusted_ca_pem

    async def follow(self) -> None:
        await _repeat(self.look, self._seconds)

    async def look(self) -> None:
        """Issue a new certificate if it is time, or the names are others."""
        if self._authority is None or self._identity is None:
            return
        names = await to_end(self._names)
        if self._clock.now() >= self._identity.renew_at or not names <= self._issued_for:
            await self._issue()

    async def _issue(self) -> None:
        assert self._authority is not None
        authority = self._authority
        names = await to_end(self._names)
        identity = await to_end(authority.issue_https, names, life=_LIFE)
        pair = CertificatePair(
            certificate_pem=identity.certificate_pem,
            key_pem=identity.key_pem,
            source="the cluster's authority",
        )
        loaded = await to_end(load_pair, pair)
        self._identity, self._issued_for = identity, names
        self._served.replace(loaded)
        _log.info("http_certificate.replaced", serial=loaded.serial, expires=loaded.not_after.isoformat())

    def _publish(self, trusted_ca_pem: bytes) -> None:
        path = self._published
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not path.exists() or path.read_bytes() != trusted_ca_pem:
                atomic_write(path, trusted_ca_pem, mode=0o644)
        except OSError as error:  # a full disk is no reason not to serve
            _log.warning("authority_certificate.failed", path=str(path), reason=str(error))
