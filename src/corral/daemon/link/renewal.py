"""Renewing the node's certificate while the link is up.

The new identity is on disk before it is used, and the old certificate stays valid until the new
one has proven itself: the controller accepts the newest two.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib
from typing import Final

import msgspec
import structlog

from corral.daemon.identity import Identity, save_identity, verified
from corral.daemon.link.connection import Connection
from corral.errors import Code, Retryable
from corral.pki.authority import renewal_time
from corral.pki.keys import key_pem, make_csr, new_key
from corral.system.clock import Clock
from corral.wire import features
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import CertificateIssued, CertificateRequest

_LOOK_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 30.0
_log = structlog.get_logger("corral.daemon.renewal")


class Renewal:
    """Watches one connection's certificate and replaces it in time."""

    def __init__(self, *, data: pathlib.Path, clock: Clock) -> None:
        self._data = data
        self._clock = clock
        self._answer: asyncio.Future[CertificateIssued] | None = None

    def issued(self, answer: CertificateIssued) -> None:
        """The controller's answer to the request under way; a late one is of no use to anybody."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    async def wait(self, connection: Connection) -> Identity:
        """Return a renewed, stored identity once two thirds of the present one's life have passed."""
        due = renewal_time(connection.identity.certificate_pem.encode())
        while features.RENEW not in connection.features or (left := due - self._clock.now()) > dt.timedelta():
            # Wall clocks jump: look often rather than sleep once until the date.
            remaining = left.total_seconds() if features.RENEW in connection.features else _LOOK_SECONDS
            await asyncio.sleep(min(_LOOK_SECONDS, remaining))
        while True:
            try:
                return await self._renew(connection)
            except Retryable as error:
                _log.warning("certificate.renewal_delayed", reason=str(error))
                await asyncio.sleep(_LOOK_SECONDS)

    async def _renew(self, connection: Connection) -> Identity:
        key = new_key()
        csr = make_csr(key, connection.identity.node_id)
        self._answer = asyncio.get_running_loop().create_future()
        try:
            connection.outbox.send(DaemonMessage(certificate_request=CertificateRequest(csr_pem=csr)))
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await self._answer
        except TimeoutError:
            raise Retryable(Code.TIMEOUT, "the controller did not renew our certificate") from None
        finally:
            self._answer = None
        identity = verified(
            msgspec.structs.replace(
                connection.identity,
                key_pem=key_pem(key).decode(),
                certificate_pem=answer.certificate_pem.decode(),
                trusted_ca_pem=answer.trusted_ca_pem.decode() or connection.identity.trusted_ca_pem,
            )
        )
        save_identity(self._data, identity)
        _log.info("certificate.renewed", node=identity.node_id)
        return identity
