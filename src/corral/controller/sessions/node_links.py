"""The link to the nodes, as those see it who send something to a node now and then."""

from __future__ import annotations

import asyncio
from typing import Protocol

from corral.domain.ids import NodeId
from corral.wire.peer_support import PeerSupport
from corral.wire.v1.link_pb2 import ControllerMessage


class LinkFacts(Protocol):
    @property
    def supports(self) -> PeerSupport: ...


class LinkOutbox(Protocol):
    @property
    def waiting_bytes(self) -> int:
        """What was queued and not yet sent."""

    def replace(self, key: str, message: ControllerMessage, /) -> bool:
        """Queue state of which only the latest value counts; never blocks."""


class NodeLink(Protocol):
    """The present session of a node."""

    @property
    def facts(self) -> LinkFacts: ...

    @property
    def outbox(self) -> LinkOutbox: ...

    @property
    def over(self) -> asyncio.Event:
        """Set when the session has ended."""

    def send(self, message: ControllerMessage, /) -> bool:
        """Queue a message; False when the session is over. Never blocks."""


class NodeLinks(Protocol):
    def find(self, node_id: NodeId, /) -> NodeLink | None:
        """The node's session; None while it is not connected."""
