"""What modules on nodes need of a node's session."""

from __future__ import annotations

import asyncio
from typing import Protocol

from corral.domain.ids import NodeId, SessionId
from corral.errors import CorralError
from corral.wire.peer_support import PeerSupport
from corral.wire.v1.link_pb2 import ControllerMessage


class ModuleLinkFacts(Protocol):
    @property
    def id(self) -> SessionId: ...

    @property
    def node_id(self) -> NodeId: ...

    @property
    def supports(self) -> PeerSupport: ...


class ModuleOutbox(Protocol):
    @property
    def waiting_bytes(self) -> int:
        """What was queued and not yet sent."""

    def __len__(self) -> int:
        """How many messages these are."""

    def replace(self, key: str, message: ControllerMessage, /) -> bool:
        """Queue state: what was queued under this key before and not sent is superseded."""


class ModuleLink(Protocol):
    """One session of a node; a later one of the same node is another."""

    @property
    def facts(self) -> ModuleLinkFacts: ...

    @property
    def outbox(self) -> ModuleOutbox: ...

    @property
    def over(self) -> asyncio.Event:
        """Set when the session has ended."""

    def send(self, message: ControllerMessage, /) -> bool:
        """Queue a message; False when the session is over. Never blocks."""

    def report(self, error: CorralError, /, *, context: str) -> None:
        """Tell the node of trouble that does not end the session."""
