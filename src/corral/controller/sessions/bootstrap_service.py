"""`BootstrapService`: the one call that needs no client certificate, alone on its port."""

from __future__ import annotations

from typing import Any, Final

from corral.controller.sessions.grpc_service import LeaderLookup, require_leading, translated
from corral.controller.sessions.peers import peer_address
from corral.errors import Code, Rejected, Retryable
from corral.system.aio.token_bucket import TokenBuckets
from corral.wire.v1.bootstrap_pb2 import ExchangeJoinTokenRequest, ExchangeJoinTokenResponse
from corral.wire.v1.bootstrap_pb2_grpc import BootstrapServiceServicer

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
