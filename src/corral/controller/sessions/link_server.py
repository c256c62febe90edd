"""The controller's gRPC side: both servers with all their services, from bind to drain."""

from __future__ import annotations

from typing import Final

import grpc

from corral.controller.sessions.address_guard import AddressGuard, Bound
from corral.controller.sessions.bootstrap_service import BootstrapService
from corral.controller.sessions.daemon_service import DaemonService
from corral.controller.sessions.data_service import DataService
from corral.controller.sessions.grpc_service import LeaderLookup
from corral.controller.sessions.join_services import AdminService
from corral.controller.sessions.server import ServerCertificates, bind
from corral.system.aio.tasks import Tasks
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.system.config_schema import ControllerConfig
from corral.system.connection_shares import affordable
from corral.system.entropy import Entropy
from corral.wire.channels import server_options
from corral.wire.frames import CountingServer
from corral.wire.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server
from corral.wire.v1.bootstrap_pb2_grpc import add_BootstrapServiceServicer_to_server
from corral.wire.v1.data_pb2_grpc import add_DataServiceServicer_to_server
from corral.wire.v1.link_pb2_grpc import add_DaemonServiceServicer_to_server

_DRAIN_SECONDS: Final = 1.0
_JOIN_IDLE_SECONDS: Final = 30.0
"""Who has exchanged his token has nothing more to say here."""


class LinkServer:
    """Listens for daemons and for hosts that want to join. It outlives terms: on a standby it
    answers too, with the way to the leader."""

    def __init__(
        self,
        *,
        config: ControllerConfig,
        lookup: LeaderLookup,
        certificates: ServerCertificates,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._servers: list[grpc.aio.Server] = []
        self._tasks = Tasks()
        self.bootstrap_port = 0
        most = affordable(config.grpc.connections, part=4)
        options = server_options(connections=most, handshake_seconds=config.grpc.handshake_seconds)
        control, self.port = bind(config.grpc.listen, certificates.mutual(), options)
        bounds = {self.port: Bound(config.grpc.connections_per_address, most)}
        self._servers.append(control)
        daemon = DaemonService(lookup=lookup, settings=config.link, clock=clock, entropy=entropy)
        admin = AdminService(lookup=lookup, clock=clock, entropy=entropy)
        counting = CountingServer(control)
        add_DaemonServiceServicer_to_server(daemon, counting)  # type: ignore[no-untyped-call]  # generated
        add_DataServiceServicer_to_server(DataService(lookup=lookup, clock=clock), counting)  # type: ignore[no-untyped-call]
        add_AdminServiceServicer_to_server(admin, control)  # type: ignore[no-untyped-call]
        if config.bootstrap.enabled:
            rate = config.bootstrap.rate_per_minute
            limit = TokenBuckets[str](burst=rate, per_second=rate / 60, monotonic=clock.monotonic)
            most = affordable(config.bootstrap.connections, part=8)
            options = server_options(
                connections=most,
                handshake_seconds=config.grpc.handshake_seconds,
                idle_seconds=_JOIN_IDLE_SECONDS,
            )
            joining, self.bootstrap_port = bind(
                str(config.bootstrap_address), certificates.one_sided(), options
            )
            bounds[self.bootstrap_port] = Bound(config.bootstrap.connections_per_address, most)
            self._servers.append(joining)
            service = BootstrapService(lookup=lookup, limit=limit)
            add_BootstrapServiceServicer_to_server(service, joining)  # type: ignore[no-untyped-call]
        self._guard = AddressGuard(bounds, clock=clock)

    async def start(self) -> None:
        """Listen on both ports."""
        for server in self._servers:
            await server.start()
        self._tasks.spawn(self._guard.run(), name="link/guard-addresses")

    async def stop(self) -> None:
        await self._tasks.close()
        for server in self._servers:
            await server.stop(_DRAIN_SECONDS)
