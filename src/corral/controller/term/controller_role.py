"""The role of this controller: leader, with the services of its term, or standby, with the address of the
leader.

The link and the API read from here which controller leads and which controllers there are, and request
certificates of administrators.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Self

import msgspec
import structlog

from corral.controller.http.pipeline.api_context import TermContext
from corral.controller.http.pipeline.term_ports import IssuedCertificate, LeaderView, MemberView
from corral.controller.sessions.grpc_service import LinkTerm
from corral.controller.sessions.node_links import no_longer_leading
from corral.controller.state.ledger import Actor
from corral.controller.term.leader_term import LeaderTerm
from corral.controller.term.listen_addresses import reachable
from corral.domain.ids import Epoch, node_id
from corral.pki.keys import read_csr
from corral.store.port import LeaseRow
from corral.system.addresses import Address, parse_address
from corral.system.controller_config import ControllerConfig
from corral.version import VERSION

_ADMIN_LIFE: Final = dt.timedelta(days=30)
_log = structlog.get_logger("corral.controller")


class ControllerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses and the version of a controller, as it publishes them in the lease that it holds."""

    http: str
    grpc: str
    bootstrap: str = ""
    version: str = VERSION

    @classmethod
    def of(cls, config: ControllerConfig, http: Address) -> Self:
        """Those of this process, whose API listens there."""
        grpc = config.grpc.advertise or reachable(config.grpc.listen)
        bootstrap = Address(parse_address(grpc).host, config.bootstrap_address.port)
        return cls(
            http=config.http.advertise or reachable(str(http)),
            grpc=grpc,
            bootstrap=str(bootstrap) if config.bootstrap.enabled else "",
        )


class ControllerRole:
    """Leader or standby; only the leadership loop changes it."""

    def __init__(self, *, holder: str) -> None:
        self.holder: Final = holder
        self.term: LeaderTerm | None = None
        """The term that this controller leads; None on a standby."""
        self.lease: LeaseRow | None = None
        """The lease as a standby last read it."""
        self.ordered_to_end: Final = asyncio.Event()
        """Set when an administrator ends this controller."""

    def http_gate(self) -> TermContext | None:
        return self.term.http if self.term else None

    def leading(self) -> LinkTerm | None:
        return self.term.link if self.term else None

    def require_term(self) -> LeaderTerm:
        """The term of this leader; NOT_LEADER when it has ended."""
        if self.term is None:
            raise no_longer_leading()
        return self.term

    def other_leader(self) -> ControllerInfo | None:
        """The leading controller while this one is a standby, if known."""
        if self.term is not None or self.lease is None or not self.lease.info:
            return None
        return msgspec.json.decode(self.lease.info, type=ControllerInfo)

    def leader_http(self) -> str:
        """The HTTP address of another controller that leads; empty when none is known."""
        leader = self.other_leader()
        return leader.http if leader else ""


class LinkDirectory:
    """The leader and all controllers, for daemons and joining hosts: the `LeaderLookup` of the link."""

    def __init__(self, role: ControllerRole, own: ControllerInfo) -> None:
        self._role = role
        self._own = own

    def leading(self) -> LinkTerm | None:
        return self._role.leading()

    def leader_address(self) -> str:
        leader = self._own if self._role.term is not None else self._role.other_leader()
        return leader.grpc if leader else ""

    def controller_addresses(self) -> Sequence[str]:
        addresses = (self.leader_address(), self._own.grpc)
        return list(dict.fromkeys(address for address in addresses if address))

    def bootstrap_addresses(self) -> Sequence[str]:
        return [self._own.bootstrap] if self._own.bootstrap else []

    def api_port(self) -> int:
        return int(self._own.http.rsplit(":", 1)[-1] or 0)


class Cluster:
    """The cluster as a whole, for the API: the `ClusterControl` of its handlers."""

    def __init__(
        self,
        *,
        role: ControllerRole,
        own: ControllerInfo,
        link: LinkDirectory,
        store: str,
        raise_epoch: Callable[[Actor], Awaitable[Epoch]],
    ) -> None:
        self._role = role
        self._own = own
        self._link = link
        self._raise_epoch = raise_epoch
        self.store = store

    def leader(self) -> LeaderView:
        epoch = self._role.require_term().epoch
        return LeaderView(holder=self._role.holder, epoch=epoch, http=self._own.http, grpc=self._own.grpc)

    def members(self) -> Sequence[MemberView]:
        return [
            MemberView(
                id=self._role.holder,
                role="leader",
                http=self._own.http,
                grpc=self._own.grpc,
                version=self._own.version,
            )
        ]

    def bootstrap_addresses(self) -> Sequence[str]:
        return self._link.bootstrap_addresses()

    def shut_down(self, reason: str) -> None:
        _log.warning("shutdown.requested", holder=self._role.holder, reason=reason)
        self._role.ordered_to_end.set()

    async def raise_epoch(self, *, actor: Actor) -> Epoch:
        return await self._raise_epoch(actor)

    async def issue_certificate(self, *, name: str, csr_pem: str) -> IssuedCertificate:
        """An administrator's certificate, for `AdminService`."""
        term = self._role.require_term()
        admin = node_id(name, field="name")  # the same character set as in all other names
        issued = term.authority.issue_admin(admin, read_csr(csr_pem.encode()), life=_ADMIN_LIFE)
        return IssuedCertificate(
            certificate_pem=issued.certificate_pem.decode(),
            ca_pem=term.link.trusted_ca_pem.decode(),
            serial=issued.serial,
            expires_at=issued.not_after,
        )
