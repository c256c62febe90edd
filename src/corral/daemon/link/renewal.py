"""Renewal of the node's certificate while the link is up.

The key is created and stored before it is sent: if the answer is lost, the next attempt requests a certificate for the
same key and receives the same one. The new identity is on disk before it is used, and the old certificate stays valid
until the new one has been used successfully.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib
from typing import Final

import msgspec
import structlog
from cryptography import x509

from corral.daemon.link.connection import LinkConnection
from corral.daemon.node.durable_files import store
from corral.daemon.node.identity import StoredIdentity, with_certificate
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.pki.authority import renewal_time
from corral.pki.keys import key_pem, load_key, make_csr, new_key
from corral.pki.names import read_peer
from corral.system.clock import Clock
from corral.system.files import read_versioned
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import CertificateIssued, CertificateRequest

_FILE: Final = "renewal.json"
_FORMAT: Final = "corral-renewal"
_VERSION: Final = 1
_LOOK_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 30.0
_SPACING_SECONDS: Final = 3600.0
_log = structlog.get_logger("corral.daemon.link")


def seconds_to_renewal(
    certificate_pem: bytes, *, now: dt.datetime, in_use: float, since_renewal: float | None
) -> float:
    """Seconds until this certificate is due for renewal, 0 when it is due.

    It is due two thirds into its life, by the wall clock or by the time it has been in use, whichever is earlier: a
    clock that is behind must not let it expire. But never sooner than an hour (or a third of its life) after the last
    renewal: a clock that is ahead must not cause endless renewals.
    """
    due = renewal_time(certificate_pem)
    expires = x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc
    life = 3 * (expires - due).total_seconds()
    until_due = min((due - now).total_seconds(), life * 2 / 3 - in_use)
    allowed = 0.0 if since_renewal is None else min(_SPACING_SECONDS, life / 3) - since_renewal
    return max(0.0, until_due, allowed)


class _PendingRenewal(msgspec.Struct, frozen=True, kw_only=True):
    """A renewal under way: its key, and the serial of the certificate it replaces."""

    replaces: str
    key_pem: str


class NodeCertificateRenewal:
    """Watches the certificate in use and replaces it in time."""

    def __init__(self, *, data: pathlib.Path, identity: StoredIdentity, clock: Clock) -> None:
        self._path = data / _FILE
        self._identity = identity
        self._clock = clock
        self._in_use_since = clock.boottime()
        self._renewed_at: float | None = None
        self._answer: asyncio.Future[CertificateIssued] | None = None

    def issued(self, answer: CertificateIssued) -> None:
        """Handle the controller's answer to the request under way; a late answer is dropped, and the certificate
        requested again."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    async def run(self, connection: LinkConnection) -> None:
        """Return once a renewed identity is stored and in use for the next connection."""
        while not connection.supports.renewal or (left := self._seconds_left()) > 0:
            # Wall clocks jump: check often rather than sleep once until the date.
            pause = min(_LOOK_SECONDS, left) if connection.supports.renewal else _LOOK_SECONDS
            await asyncio.sleep(pause)
        while True:
            try:
                return await self._renew(connection)
            except CorralError as error:
                _log.warning("certificate_renewal.retried", reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    def _seconds_left(self) -> float:
        since = None if self._renewed_at is None else self._clock.boottime() - self._renewed_at
        return seconds_to_renewal(
            self._identity.current.certificate_pem.encode(),
            now=self._clock.now(),
            in_use=self._clock.boottime() - self._in_use_since,
            since_renewal=since,
        )

    async def _renew(self, connection: LinkConnection) -> None:
        key = self._pending_key()
        answer = await self._ask(connection, make_csr(load_key(key.encode()), self._identity.current.node_id))
        try:
            renewed = with_certificate(
                self._identity.current,
                key_pem=key,
                certificate_pem=answer.certificate_pem,
                trusted_ca_pem=answer.trusted_ca_pem,
            )
        except Rejected:
            self._path.unlink(missing_ok=True)  # a request for the same key would get the same answer
            raise
        self._identity.replace(renewed)
        self._in_use_since = self._renewed_at = self._clock.boottime()
        self._path.unlink(missing_ok=True)
        _log.info("certificate.renewed", node=renewed.node_id)

    def _pending_key(self) -> str:
        """The key of the renewal under way, or a new one, stored before it is sent. A stored key that was to replace
        another certificate than the current one is discarded: its renewal is complete."""
        replaces = read_peer(self._identity.current.certificate_pem.encode()).serial
        try:
            pending = read_versioned(self._path, _PendingRenewal, name=_FORMAT, version=_VERSION)
            if pending is not None and pending.replaces == replaces:
                load_key(pending.key_pem.encode())
                return pending.key_pem
        except (Rejected, ValueError) as error:
            _log.warning("pending_key_read.failed", reason=str(error))
        fresh = _PendingRenewal(replaces=replaces, key_pem=key_pem(new_key()).decode())
        store(self._path, fresh, name=_FORMAT, version=_VERSION)
        return fresh.key_pem

    async def _ask(self, connection: LinkConnection, csr_pem: bytes) -> CertificateIssued:
        self._answer = asyncio.get_running_loop().create_future()
        try:
            connection.send(DaemonMessage(certificate_request=CertificateRequest(csr_pem=csr_pem)))
            async with asyncio.timeout(_ANSWER_SECONDS):
                return await self._answer
        except TimeoutError:
            raise Retryable(Code.TIMEOUT, "the controller did not renew our certificate") from None
        finally:
            self._answer = None
