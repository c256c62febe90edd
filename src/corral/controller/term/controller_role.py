"""The role of this controller: leading, with the services of its term, or standby, knowing who leads."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from corral.controller.http.setting import IssuedCertificate, LeaderView, Leading, MemberView
from corral.controller.sessions.grpc_service import LinkTerm, require_leading
from corral.controller.state.ledger import Actor
from corral.controller.term.leader_term import LeaderTerm
from corral.domain.ids import Epoch, node_id
from corral.errors import Bug
from corral.pki.keys import read_csr
from corral.store.port import LeaseRow
from corral.version import VERSION


class ControllerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller tells the others about itself, in the lease it holds."""

    http: str
    grpc: str
    bootstrap: str = ""
    version: str = VERSION


class ControllerRole:
    """The present standing of this controller; its fields change only in the leadership loop."""

    def __init__(self, *, holder: str) -> None:
        self.holder = holder
        self.own = ControllerInfo(http="", grpc="")
        self.term: LeaderTerm | None = None
        self.lease: LeaseRow | None = None

    def http_gate(self) -> Leading | None:
        return self.term.http if self.term else None

    def leading(self) -> LinkTerm | None:
        return self.term.link if self.term else None

    def leader_info(self) -> ControllerInfo | None:
        if self.term is not None:
            return self.own
        if self.lease is None or not self.lease.info:
            return None
        return msgspec.json.decode(self.lease.info, type=ControllerInfo)

    def leader_address(self) -> str:
        info = self.leader_info()
        return info.grpc if info else ""

    def leader_http(self) -> str:
        """Of another controller that leads."""
        info = None if self.term is not None else self.leader_info()
        return info.http if info else ""

    def controller_addresses(self) -> Sequence[str]:
        leader = self.leader_address()
        return list(dict.fromkeys(address for address in (leader, self.own.grpc) if address))

    def api_port(self) -> int:
        return int(self.own.http.rsplit(":", 1)[-1] or 0)

    def bootstrap_addresses(self) -> Sequence[str]:
        return [self.own.bootstrap] if self.own.bootstrap else []

    def leader_view(self) -> LeaderView:
        assert self.term is not None, "only a leading controller answers for the cluster"
        return LeaderView(holder=self.holder, epoch=self.term.epoch, http=self.own.http, grpc=self.own.grpc)

    def members(self) -> Sequence[MemberView]:
        return [
            MemberView(
                id=self.holder,
                role="leader",
                http=self.own.http,
                grpc=self.own.grpc,
                version=self.own.version,
            )
        ]


_ADMIN_LIFE: Final = dt.timedelta(days=30)


class Cluster:
    """Answers from this controller's place; raising the epoch is the leadership loop's work."""

    def __init__(
        self, *, place: ControllerRole, store: str, raise_epoch: Callable[[Actor], Awaitable[Epoch]]
    ) -> None:
        self._place = place
        self._raise_epoch = raise_epoch
        self.store = store

    def leader(self) -> LeaderView:
        return self._place.leader_view()

    def members(self) -> Sequence[MemberView]:
        return self._place.members()

    def bootstrap_addresses(self) -> Sequence[str]:
        return self._place.bootstrap_addresses()

    async def raise_epoch(self, *, actor: Actor) -> Epoch:
        return await self._raise_epoch(actor)

    async def issue_certificate(self, *, name: str, csr_pem: str) -> IssuedCertificate:
        """An administrator's certificate, for `AdminService`."""
        link = require_leading(self._place)
        if self._place.term is None:
            raise Bug("a leading controller has a term")
        admin = node_id(name, field="name")  # the same letters as in any other name of ours
        issued = self._place.term.authority.issue_admin(admin, read_csr(csr_pem.encode()), life=_ADMIN_LIFE)
        return IssuedCertificate(
            certificate_pem=issued.certificate_pem.decode(),
            ca_pem=link.trusted_ca_pem.decode(),
            serial=issued.serial,
            expires_at=issued.not_after,
        )
