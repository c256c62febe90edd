"""`AdminService` makes join tokens for administrators; `BootstrapService` exchanges one for a certificate.

The exchange is the one call that needs no client certificate; it has a port of its own.
"""

from __future__ import annotations

from typing import Any, Final

from corral.controller.sessions import handshake as greeting
from corral.controller.sessions.enrolment import new_join_token
from corral.controller.sessions.grpc_service import (
    LeaderLookup,
    LinkTerm,
    authenticated,
    peer_address,
    require_leading,
    translated,
)
from corral.controller.state.collections import JOIN_TOKENS
from corral.controller.state.ledger import Actor, audit
from corral.domain.events import Draft, EventType
from corral.errors import Code, Rejected, Retryable
from corral.pki.names import Peer, PeerKind
from corral.store.port import ABSENT
from corral.system.aio.token_bucket import TokenBuckets
from corral.system.clock import Clock
from corral.system.entropy import Entropy
from corral.wire.v1.admin_pb2 import (
    CreateJoinTokenRequest,
    CreateJoinTokenResponse,
    JoinTokenInfo,
    ListJoinTokensRequest,
    ListJoinTokensResponse,
    RevokeJoinTokenRequest,
    RevokeJoinTokenResponse,
)
from corral.wire.v1.admin_pb2_grpc import AdminServiceServicer
from corral.wire.v1.bootstrap_pb2 import ExchangeJoinTokenRequest, ExchangeJoinTokenResponse
from corral.wire.v1.bootstrap_pb2_grpc import BootstrapServiceServicer

_DEFAULT_TTL: Final = 3600
_MAX_TTL: Final = 7 * 24 * 3600


class AdminService(AdminServiceServicer):
    def __init__(
        self,
        *,
        lookup: LeaderLookup,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._lookup = lookup
        self._clock = clock
        self._entropy = entropy

    async def CreateJoinToken(  # noqa: N802 - the name of the RPC
        self, request: CreateJoinTokenRequest, context: Any
    ) -> CreateJoinTokenResponse:
        async with translated(context, "CreateJoinToken"):
            leading, actor = self._admitted(context)
            ttl = request.ttl_seconds or _DEFAULT_TTL
            if not 0 < ttl <= _MAX_TTL:
                raise Rejected(
                    Code.INVALID_FIELD, f"ttl_seconds must be 1 to {_MAX_TTL}", field="ttl_seconds"
                )
            record, text = new_join_token(
                leading.state,
                node_id=request.node_id or None,
                replace=request.replace,
                ttl_seconds=ttl,
                created_by=actor.name,
                now=self._clock.now(),
                entropy=self._entropy,
                bootstrap_addresses=self._lookup.bootstrap_addresses(),
            )
            await leading.ledger.commit(
                JOIN_TOKENS.put(record.id, record, expect=ABSENT),
                Draft(
                    type=EventType.JOIN_TOKEN_CREATED,
                    subject=record.id,
                    data={"node_id": record.node_id, "replace": record.replace},
                ),
                audit(actor, "join_tokens.create", record.id),
            )
            return CreateJoinTokenResponse(
                token_id=record.id,
                join_token=text,
                expires_at_epoch_ms=int(record.expires_at.timestamp() * 1000),
            )

    async def RevokeJoinToken(  # noqa: N802 - the name of the RPC
        self, request: RevokeJoinTokenRequest, context: Any
    ) -> RevokeJoinTokenResponse:
        async with translated(context, "RevokeJoinToken"):
            leading, actor = self._admitted(context)
            stored = leading.state.join_tokens.require(request.token_id)
            await leading.ledger.commit(
                JOIN_TOKENS.delete(stored.record.id, expect=stored.revision),
                Draft(type=EventType.JOIN_TOKEN_REVOKED, subject=stored.record.id),
                audit(actor, "join_tokens.revoke", stored.record.id),
            )
            return RevokeJoinTokenResponse()

    async def ListJoinTokens(  # noqa: N802 - the name of the RPC
        self, _: ListJoinTokensRequest, context: Any
    ) -> ListJoinTokensResponse:
        async with translated(context, "ListJoinTokens"):
            leading, _actor = self._admitted(context)
            now = self._clock.now()
            tokens = [
                JoinTokenInfo(
                    token_id=token_id,
                    node_id=stored.record.node_id or "",
                    expires_at_epoch_ms=int(stored.record.expires_at.timestamp() * 1000),
                    expired=stored.record.expires_at <= now,
                )
                for token_id, stored in leading.state.join_tokens.items()
                if stored.record.used_at is None
            ]
            return ListJoinTokensResponse(tokens=tokens)

    def _admitted(self, context: Any) -> tuple[LinkTerm, Actor]:
        leading = require_leading(self._lookup)
        peer = authenticated(context)
        greeting.authorise(leading.state, peer, kind=PeerKind.ADMIN, now=self._clock.now())
        return leading, Actor(name=self._name(leading, peer), address=peer_address(context.peer()))

    @staticmethod
    def _name(leading: LinkTerm, peer: Peer) -> str:
        """The administrator's name from the token: the name in a certificate was chosen freely."""
        issued = leading.state.admin_certificates.require(peer.serial).record
        return f"certificate:{peer.name} (token:{issued.token_id})"


_MAX_TEXT: Final = 256


class BootstrapService(BootstrapServiceServicer):
    def __init__(self, *, lookup: LeaderLookup, limit: TokenBuckets[str]) -> None:
        self._lookup = lookup
        self._limit = limit

    async def ExchangeJoinToken(  # noqa: N802 - the name of the RPC
        self, request: ExchangeJoinTokenRequest, context: Any
    ) -> ExchangeJoinTokenResponse:
        async with translated(context, "ExchangeJoinToken"):
            address = peer_address(context.peer())
            if not self._limit.take(address):
                raise Retryable(
                    Code.RATE_LIMITED, "too many enrolments from this address", hint="wait a minute"
                )
            leading = require_leading(self._lookup)
            if not request.join_token:
                raise Rejected(Code.MISSING_FIELD, "join_token is empty", field="join_token")
            admitted = await leading.enrolment.exchange(
                token_text=request.join_token,
                node_id=request.node_id,
                csr_pem=request.csr_pem,
                machine_id=request.machine_id[:_MAX_TEXT],
                address=address,
            )
            return ExchangeJoinTokenResponse(
                pkcs12=admitted.pkcs12,
                pkcs12_password=admitted.pkcs12_password,
                ca_certificate_pem=leading.trusted_ca_pem,
                certificate_pem=admitted.certificate_pem,
                node_id=admitted.node_id,
                cluster_id=leading.state.identity.id,
                controller_grpc_addrs=self._lookup.controller_addresses(),
            )
