"""Shared parts of the gRPC services: the leader's term, the lookup of the leader, the caller, and errors as
statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol
from urllib.parse import unquote

import grpc
import msgspec
import structlog

from corral.controller.sessions.enrolment import Enrolment
from corral.controller.sessions.fetches import Fetches
from corral.controller.sessions.frame_receivers import ConsoleSink, FileTraffic, ModuleTraffic, NodeReports
from corral.controller.sessions.session_registry import Sessions
from corral.controller.sessions.uploads import Uploads
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Ledger
from corral.domain.ids import Epoch
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.pki.names import Peer, read_peer
from corral.wire.rpc_errors import abort

_GRPC_ENDS: Final = (grpc.RpcError, grpc.aio.AbortError, grpc.aio.UsageError)
_GOODBYE_SECONDS: Final = 5.0
_log = structlog.get_logger("corral.controller.sessions")


class LinkTerm(msgspec.Struct, frozen=True, kw_only=True):
    """The services of one term that the link uses."""

    epoch: Epoch
    ledger: Ledger
    sessions: Sessions
    enrolment: Enrolment
    fetches: Fetches
    uploads: Uploads
    reports: NodeReports
    consoles: ConsoleSink
    files: FileTraffic
    modules: ModuleTraffic
    trusted_ca_pem: bytes

    @property
    def state(self) -> ClusterState:
        return self.ledger.state


class LeaderLookup(Protocol):
    """Whether this controller leads, and otherwise which one does."""

    def leading(self) -> LinkTerm | None: ...

    def leader_address(self) -> str:
        """The leader's gRPC address, or empty when none is known."""

    def controller_addresses(self) -> Sequence[str]:
        """The gRPC addresses of all known controllers."""

    def bootstrap_addresses(self) -> Sequence[str]:
        """The addresses where hosts exchange a join token; empty when this controller does not offer it."""

    def api_port(self) -> int: ...


def require_leading(lookup: LeaderLookup) -> LinkTerm:
    leading = lookup.leading()
    if leading is None:
        address = lookup.leader_address()
        raise Retryable(
            Code.NOT_LEADER,
            "this controller does not lead",
            hint=f"the leader is at {address}" if address else "nobody leads right now; try again",
            retry_after=1.0,
        )
    return leading


def authenticated(context: Any) -> Peer:
    """The peer whose certificate the TLS layer verified."""
    certificates = context.auth_context().get("x509_pem_cert")
    if not certificates:
        raise Rejected(Code.CERTIFICATE_REFUSED, "a client certificate is required")
    return read_peer(certificates[0])


class translated:  # noqa: N801 - reads as a statement: `async with translated(context, ...)`
    """Translates Corral's errors into statuses; any other exception is a bug, logged here and not shown to
    the peer."""

    def __init__(self, context: Any, call: str) -> None:
        self._context = context
        self._call = call

    async def __aenter__(self) -> None:
        return

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or not isinstance(error, Exception) or isinstance(error, _GRPC_ENDS):
            return
        peer = self._context.peer()
        if isinstance(error, CorralError):
            _log.info("grpc.refused", call=self._call, peer=peer, code=error.code.name, reason=error.message)
            await self._part(abort(self._context, error))
            return
        _log.error("grpc.failed", call=self._call, peer=peer, exc_info=error)
        internal = grpc.StatusCode.INTERNAL
        await self._part(self._context.abort(internal, "internal error; see the controller's log"))

    async def _part(self, goodbye: Awaitable[object]) -> None:
        """Send the last message within a deadline: a peer that does not read must not keep the call open."""
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await goodbye
        except TimeoutError:
            _log.warning("grpc_goodbye.failed", call=self._call, peer=self._context.peer())


def peer_address(peer: str) -> str:
    """`ipv4:1.2.3.4:5678` or `ipv6:%5B::1%5D:5678` as the bare address, so that one host counts as one
    caller."""
    family, _, rest = peer.partition(":")
    if family not in ("ipv4", "ipv6"):
        return peer
    return unquote(rest).rsplit(":", 1)[0].strip("[]")
