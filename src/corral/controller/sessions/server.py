"""The two gRPC servers: one for peers with a certificate, one for those who come to get one."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Final

import grpc

from corral.errors import Code, Rejected
from corral.pki.authority import Authority, ServerIdentity
from corral.system.clock import Clock
from corral.wire.channels import Options, server_options

_LIFE: Final = dt.timedelta(days=30)


class ServerCertificates:
    """The controller's own certificate, made anew before it expires, without a restart.

    gRPC asks at each TLS handshake, from its own threads.
    """

    def __init__(self, *, authority: Authority, holder: str, trusted_ca_pem: bytes, clock: Clock) -> None:
        self._authority = authority
        self._holder = holder
        self._trusted = trusted_ca_pem
        self._clock = clock
        self._lock = threading.Lock()
        self._identity = authority.issue_controller(holder, life=_LIFE)

    def mutual(self) -> grpc.ServerCredentials:
        """Peers must show a certificate of ours."""
        return self._credentials(require_client=True)

    def one_sided(self) -> grpc.ServerCredentials:
        return self._credentials(require_client=False)

    def _credentials(self, *, require_client: bool) -> grpc.ServerCredentials:
        delivered = self._current()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            # None means "unchanged". A new configuration makes gRPC rebuild its TLS context, and
            # handshakes under way at that moment fail: so only when there really is a new one.
            nonlocal delivered
            current = self._current()
            if current is delivered:
                return None
            delivered = current
            return self._configuration(current)

        return grpc.dynamic_ssl_server_credentials(
            self._configuration(delivered),
            fetch,  # type: ignore[arg-type]  # the stubs do not know that None is allowed
            require_client_authentication=require_client,
        )

    def _current(self) -> ServerIdentity:
        with self._lock:
            if self._clock.now() >= self._identity.renew_at:
                self._identity = self._authority.issue_controller(self._holder, life=_LIFE)
            return self._identity

    def _configuration(self, identity: ServerIdentity) -> grpc.ServerCertificateConfiguration:
        pair = (identity.key_pem, identity.certificate_pem)
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=self._trusted)


def bind(
    listen: str, credentials: grpc.ServerCredentials, options: Options | None = None
) -> tuple[grpc.aio.Server, int]:
    """A server on an address of ours; the port it really got."""
    server = grpc.aio.server(options=server_options() if options is None else options)
    try:
        port = server.add_secure_port(listen, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise Rejected(
            Code.PORT_IN_USE,
            f"cannot listen on {listen}: it is in use or not an address of this machine",
            hint="stop what holds it, or choose another with --grpc and --bootstrap",
        )
    return server, port
