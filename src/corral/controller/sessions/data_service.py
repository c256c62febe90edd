"""`DataService`: bulk transfer for nodes with a live session of the present term."""

from __future__ import annotations

from typing import Any

from corral.controller.sessions import handshake as greeting
from corral.controller.sessions.door import LinkTerm, Standing, authenticated, require_leading, translated
from corral.controller.sessions.transfers import call_metadata
from corral.domain.ids import NodeId
from corral.errors import Code, Rejected
from corral.pki.names import Peer, PeerKind
from corral.wire.transfer import EPOCH_KEY, SESSION_KEY
from corral.wire.v1.data_pb2_grpc import DataServiceServicer


class DataService(DataServiceServicer):
    def __init__(self, standing: Standing) -> None:
        self._standing = standing

    async def Fetch(self, _: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        async with translated(context, "Fetch"):
            leading, _node = self._admitted(context)
            await leading.transfers.fetch(context)

    async def Push(self, _: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        async with translated(context, "Push"):
            leading, node_id = self._admitted(context)
            await leading.transfers.push(context, node_id)

    def _admitted(self, context: Any) -> tuple[LinkTerm, NodeId]:
        """The caller's certificate is good and it names the session it belongs to."""
        leading = require_leading(self._standing)
        peer: Peer = authenticated(context)
        greeting.authorise(leading.state, peer, kind=PeerKind.NODE)
        node_id = NodeId(peer.name)
        session = leading.sessions.find(node_id)
        if session is None or call_metadata(context, SESSION_KEY) != session.facts.id:
            raise Rejected(
                Code.CONFLICT, f"node '{node_id}' has no such session", hint="open the control stream first"
            )
        if call_metadata(context, EPOCH_KEY) != str(leading.epoch):
            raise Rejected(Code.STALE_EPOCH, f"this controller leads under epoch {leading.epoch}")
        return leading, node_id
