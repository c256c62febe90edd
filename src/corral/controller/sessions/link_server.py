"""The controller's gRPC side: its certificate, and both servers with all their services, from bind to drain.

One server is for peers with a certificate, the other for hosts that come to get one.
"""

from __future__ import annotations

import datetime as dt
import threading
from typing import Final

import grpc

from corral.controller.sessions.address_guard import AddressGuard, Bound
from corral.controller.sessions.daemon_service import DaemonService
from corral.controller.sessions.data_service import DataService
from corral.controller.sessions.grpc_service import LeaderLookup
from corral.controller.sessions.join_services import AdminService, BootstrapService
from corral.errors import Code, Rejected
from corral.pki.authority import Authority, ServerIdentity
from corral.system.addresses import affordable
from corral.system.aio.tasks import Tasks, to_completion
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.system.controller_config import ControllerConfig
from corral.system.entropy import Entropy
from corral.wire.channels import Options, server_options
from corral.wire.frames import CountingServer
from corral.wire.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server
from corral.wire.v1.bootstrap_pb2_grpc import add_BootstrapServiceServicer_to_server
from corral.wire.v1.data_pb2_grpc import add_DataServiceServicer_to_server
from corral.wire.v1.link_pb2_grpc import add_DaemonServiceServicer_to_server

_LIFE: Final = dt.timedelta(days=30)


class ServerCertificates:
    """The controller's own certificate, renewed before it expires, without a restart.

    gRPC requests it at each TLS handshake, from its own threads.
    """

    def __init__(self, *, authority: Authority, holder: str, trusted_ca_pem: bytes, clock: Clock) -> None:
        self._authority = authority
        self._holder = holder
        self._trusted = trusted_ca_pem
        self._clock = clock
        self._lock = threading.Lock()
        self._identity = authority.issue_controller(holder, life=_LIFE)

    def mutual(self) -> grpc.ServerCredentials:
        """TLS credentials that require a client certificate of this cluster."""
        return self._credentials(require_client=True)

    def one_sided(self) -> grpc.ServerCredentials:
        return self._credentials(require_client=False)

    def _credentials(self, *, require_client: bool) -> grpc.ServerCredentials:
        delivered = self._current()

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            # None means "unchanged". A new configuration makes gRPC rebuild its TLS context, and handshakes
            # in progress then fail: so it is returned only when there is a new certificate.
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
    """A server on a listen address, and the port it got."""
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


_DRAIN_SECONDS: Final = 1.0
_JOIN_IDLE_SECONDS: Final = 30.0
"""Short, because a host sends nothing more here after it has exchanged its token."""


class LinkServer:
    """Listens for daemons and for joining hosts. It outlives terms: on a standby it redirects them to the
    leader."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        lookup: LeaderLookup,
        certificates: ServerCertificates,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._config = config
        self._lookup = lookup
        self._certificates = certificates
        self._clock = clock
        self._entropy = entropy
        self._servers: list[grpc.aio.Server] = []
        """Those that have their port and were not stopped."""
        self._tasks = Tasks()

    async def start(self) -> None:
        """Listen on both ports. PORT_IN_USE when one of them is taken. After a failure, `stop` frees the other."""
        bounds = self._bind_control()
        if self._config.bootstrap.enabled:
            bounds |= self._bind_bootstrap()
        for server in self._servers:
            await _start(server)
        self._tasks.spawn(AddressGuard(bounds, clock=self._clock).run(), name="link/guard-addresses")

    def _bind_control(self) -> dict[int, Bound]:
        config, lookup, clock, entropy = self._config, self._lookup, self._clock, self._entropy
        most = affordable(config.grpc.connections, part=4)
        options = server_options(connections=most, handshake_seconds=config.grpc.handshake_seconds)
        control, port = bind(config.grpc.listen, self._certificates.mutual(), options)
        self._servers.append(control)
        daemon = DaemonService(lookup=lookup, settings=config.link, clock=clock, entropy=entropy)
        admin = AdminService(lookup=lookup, clock=clock, entropy=entropy)
        counting = CountingServer(control)
        add_DaemonServiceServicer_to_server(daemon, counting)  # type: ignore[no-untyped-call]  # generated
        add_DataServiceServicer_to_server(DataService(lookup=lookup, clock=clock), counting)  # type: ignore[no-untyped-call]
        add_AdminServiceServicer_to_server(admin, control)  # type: ignore[no-untyped-call]
        return {port: Bound(config.grpc.connections_per_address, most)}

    def _bind_bootstrap(self) -> dict[int, Bound]:
        config = self._config
        rate = config.bootstrap.rate_per_minute
        limit = TokenBuckets[str](burst=rate, per_second=rate / 60, monotonic=self._clock.monotonic)
        most = affordable(config.bootstrap.connections, part=8)
        options = server_options(
            connections=most,
            handshake_seconds=config.grpc.handshake_seconds,
            idle_seconds=_JOIN_IDLE_SECONDS,
        )
        joining, port = bind(str(config.bootstrap_address), self._certificates.one_sided(), options)
        self._servers.append(joining)
        service = BootstrapService(lookup=self._lookup, limit=limit)
        add_BootstrapServiceServicer_to_server(service, joining)  # type: ignore[no-untyped-call]
        return {port: Bound(config.bootstrap.connections_per_address, most)}

    async def stop(self) -> None:
        """Drain, then free the ports. Idempotent."""
        await self._tasks.close()
        for server in list(self._servers):
            await _start(server)  # only a started server frees its port
            await server.stop(_DRAIN_SECONDS)
            self._servers.remove(server)


async def _start(server: grpc.aio.Server) -> None:
    """Idempotent. A start that is cancelled would leave gRPC with a server that can never be stopped."""
    await to_completion(server.start(), name="link/listen")
