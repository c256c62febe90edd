"""Enrolment: joining a cluster with a join token, and the identity that results or was stored before.

The key is created and stored before the token is sent: if the answer is lost, the next attempt sends the same token
with the same key and is answered again.
"""

from __future__ import annotations

import asyncio
import pathlib
import socket
from collections.abc import Callable, Sequence
from typing import Final

import grpc
import msgspec
import structlog

from corral.daemon.node.durable_files import store
from corral.daemon.node.identity import Identity, load_identity, save_identity, verified
from corral.daemon.node.known_controllers import KnownControllers
from corral.domain.ids import ClusterId, NodeId
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.pki.join_token import JoinToken
from corral.pki.keys import key_pem, load_key, make_csr, new_key
from corral.pki.names import controller_host
from corral.system.daemon_config import DaemonConfig
from corral.system.files import read_versioned
from corral.wire.channels import channel_options
from corral.wire.rpc_errors import from_rpc
from corral.wire.v1.bootstrap_pb2 import ExchangeJoinTokenRequest, ExchangeJoinTokenResponse
from corral.wire.v1.bootstrap_pb2_grpc import BootstrapServiceStub

_FILE: Final = "enrolment.json"
_FORMAT: Final = "corral-enrolment"
_VERSION: Final = 1
_CALL_SECONDS: Final = 10.0
_ROUNDS: Final = 5
_PAUSE_SECONDS: Final = 1.0

_log = structlog.get_logger("corral.daemon.node")


class _PendingEnrolment(msgspec.Struct, frozen=True, kw_only=True):
    """An enrolment under way: the key that belongs to this token."""

    join_token_id: str
    key_pem: str


class Enrolled(msgspec.Struct, frozen=True, kw_only=True):
    identity: Identity
    controllers: tuple[str, ...]


async def enrol(
    data: pathlib.Path,
    *,
    token_text: str,
    node_id: NodeId,
    machine_id: str,
    learn: Callable[[Sequence[str]], None] | None = None,
) -> Enrolled | None:
    """Exchange the token for an identity. None: this data directory already joined with it.

    `learn` receives the controllers' addresses before the identity is stored: a node with an identity never enrols
    again, so by then it must know the addresses.
    """
    token = JoinToken.parse(token_text)
    present = load_identity(data)
    if present is not None and present.join_token_id == token.id:
        return None
    key = _pending_key(data, token)
    request = ExchangeJoinTokenRequest(
        join_token=token_text.strip(),
        node_id=node_id,
        csr_pem=make_csr(load_key(key.encode()), node_id),
        machine_id=machine_id,
    )
    response = await _exchange(token, request)
    identity = verified(
        Identity(
            node_id=NodeId(response.node_id),
            cluster=ClusterId(response.cluster_id),
            key_pem=key,
            certificate_pem=response.certificate_pem.decode(),
            trusted_ca_pem=response.ca_certificate_pem.decode(),
            join_token_id=token.id,
        )
    )
    if learn is not None:
        learn(response.controller_grpc_addrs)
    save_identity(data, identity)
    (data / _FILE).unlink(missing_ok=True)
    _log.info("node.enrolled", node=identity.node_id, cluster=identity.cluster)
    return Enrolled(identity=identity, controllers=tuple(response.controller_grpc_addrs))


def _pending_key(data: pathlib.Path, token: JoinToken) -> str:
    pending = read_versioned(data / _FILE, _PendingEnrolment, name=_FORMAT, version=_VERSION)
    if pending is not None and pending.join_token_id == token.id:
        return pending.key_pem
    fresh = _PendingEnrolment(join_token_id=token.id, key_pem=key_pem(new_key()).decode())
    store(data / _FILE, fresh, name=_FORMAT, version=_VERSION)
    return fresh.key_pem


async def _exchange(token: JoinToken, request: ExchangeJoinTokenRequest) -> ExchangeJoinTokenResponse:
    """Try each bootstrap address in turn, for a few rounds; a refusal is final at once."""
    last: CorralError = Rejected(Code.JOIN_TOKEN_INVALID, "the join token names no controller")
    for attempt in range(_ROUNDS):
        for address in token.bootstrap:
            try:
                return await _call(token, address, request)
            except Retryable as error:
                last = error
                _log.warning("enrolment.retried", address=address, attempt=attempt + 1, reason=str(error))
        await asyncio.sleep(_PAUSE_SECONDS)
    raise last


async def _call(
    token: JoinToken, address: str, request: ExchangeJoinTokenRequest
) -> ExchangeJoinTokenResponse:
    credentials = grpc.ssl_channel_credentials(root_certificates=token.authority_pem)
    options = channel_options(controller_host(ClusterId(token.cluster)))
    async with grpc.aio.secure_channel(address, credentials, options=options) as channel:
        stub = BootstrapServiceStub(channel)  # type: ignore[no-untyped-call]  # generated code
        try:
            answer: ExchangeJoinTokenResponse = await stub.ExchangeJoinToken(request, timeout=_CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error, peer=f"the controller at {address}") from error
    return answer


async def identify(
    config: DaemonConfig, memory: KnownControllers, *, machine_id: str, join: str | None
) -> Identity:
    """The identity in the data directory, after enrolling where there is a token. NOT_FOUND without either,
    INVALID_CONFIG where the configuration names another node, or no controller."""
    data = config.data
    if join:
        node_id = config.node_id(host_name=socket.gethostname())
        await enrol(data, token_text=join, node_id=node_id, machine_id=machine_id, learn=memory.remember)
    identity = load_identity(data)
    if identity is None:
        raise Rejected(
            Code.NOT_FOUND,
            f"{data} is not enrolled in a cluster",
            hint="run 'corral node join-token' at the controller and start the daemon with --join TOKEN",
        )
    if config.node.id and config.node.id != identity.node_id:
        raise Rejected(
            Code.INVALID_CONFIG,
            f"{data} belongs to node '{identity.node_id}', not '{config.node.id}'",
            hint="use another data directory, or leave node.id out",
            field="node.id",
        )
    if not memory.addresses:
        raise Rejected(
            Code.INVALID_CONFIG,
            "no controller address is known",
            hint="give one with --controller HOST:PORT",
            field="controllers",
        )
    return identity
