"""Where this controller stands: leading with its term's parts, or waiting and knowing who leads."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from corral.controller.http.setting import LeaderView, Leading, MemberView
from corral.controller.sessions.grpc_service import LinkTerm
from corral.controller.term.leader_term import LeaderTerm
from corral.store.port import LeaseRow
from corral.version import VERSION


class ControllerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a controller tells the others about itself, in the lease it holds."""

    http: str
    grpc: str
    bootstrap: str = ""
    version: str = VERSION


class Place:
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
