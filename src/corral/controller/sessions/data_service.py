"""`DataService`: bulk transfer for nodes with a live session of the present term."""

from __future__ import annotations

import collections
from collections.abc import Coroutine
from typing import Any, Final

from corral.controller.sessions import handshake as greeting
from corral.controller.sessions.fetches import call_metadata
from corral.controller.sessions.grpc_service import (
    LeaderLookup,
    LinkTerm,
    authenticated,
    require_leading,
    translated,
)
from corral.controller.sessions.session import Session
from corral.domain.ids import NodeId
from corral.errors import Code, Rejected, Retryable
from corral.pki.names import Peer, PeerKind
from corral.system.aio.tasks import first_of
from corral.system.clock import Clock
from corral.wire.transfer import EPOCH_KEY, SESSION_KEY
from corral.wire.v1.data_pb2_grpc import DataServiceServicer

MAX_TRANSFERS: Final = 12


class DataService(DataServiceServicer):
    """Each call belongs to its node's session, and ends with it."""

    def __init__(self, *, lookup: LeaderLookup, clock: Clock) -> None:
        self._lookup = lookup
        self._clock = clock
        self._under_way: collections.Counter[NodeId] = collections.Counter()

    async def Fetch(self, _: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        async with translated(context, "Fetch"):
            leading, session = self._admitted(context)
            await self._run(session, leading.fetches.fetch(context, session.facts.node_id))

    async def Push(self, _: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        async with translated(context, "Push"):
            leading, session = self._admitted(context)
            await self._run(session, leading.uploads.push(context, session.facts.node_id))

    async def _run(self, session: Session, transfer: Coroutine[Any, Any, None]) -> None:
        """Run a transfer for as long as its session lives, within the limit of transfers per node."""
        node_id = session.facts.node_id
        if self._under_way[node_id] >= MAX_TRANSFERS:
            transfer.close()
            raise Retryable(
                Code.RATE_LIMITED,
                f"node '{node_id}' has {MAX_TRANSFERS} transfers under way already",
                retry_after=1.0,
            )
        self._under_way[node_id] += 1
        try:
            moved, *_ = await first_of(transfer, session.over, name=f"data/transfer/{node_id}")
            if moved is None:
                raise Retryable(Code.TRANSFER_INTERRUPTED, f"the session of node '{node_id}' ended")
            moved.result()
        finally:
            self._under_way[node_id] -= 1

    def _admitted(self, context: Any) -> tuple[LinkTerm, Session]:
        """Check that the caller's certificate is valid and that it names its own session."""
        leading = require_leading(self._lookup)
        peer: Peer = authenticated(context)
        greeting.authorise(leading.state, peer, kind=PeerKind.NODE, now=self._clock.now())
        node_id = NodeId(peer.name)
        session = leading.sessions.find(node_id)
        if session is None or call_metadata(context, SESSION_KEY) != session.facts.id:
            raise Rejected(
                Code.CONFLICT, f"node '{node_id}' has no such session", hint="open the control stream first"
            )
        if call_metadata(context, EPOCH_KEY) != str(leading.epoch):
            raise Rejected(Code.STALE_EPOCH, f"this controller leads under epoch {leading.epoch}")
        return leading, session
