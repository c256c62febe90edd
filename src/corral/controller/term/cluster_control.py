"""What the API may ask of the cluster as a whole."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from corral.controller.http.setting import IssuedCertificate, LeaderView, MemberView
from corral.controller.sessions.grpc_service import require_leading
from corral.controller.state.ledger import Actor
from corral.controller.term.controller_role import Place
from corral.domain.ids import Epoch, node_id
from corral.errors import Bug
from corral.pki.keys import read_csr

_ADMIN_LIFE: Final = dt.timedelta(days=30)


class Cluster:
    """Answers from this controller's place; raising the epoch is the leadership loop's work."""

    def __init__(self, *, place: Place, store: str, raise_epoch: Callable[[Actor], Awaitable[Epoch]]) -> None:
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
