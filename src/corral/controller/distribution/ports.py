"""What distribution needs of the link to the nodes, and of those who hold templates."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Protocol

from corral.domain.ids import NodeId
from corral.domain.templates import Manifest, TemplateVersion
from corral.errors import Code, CorralError, Retryable
from corral.wire.peer_support import PeerSupport
from corral.wire.v1.link_pb2 import ControllerMessage


class LinkFacts(Protocol):
    @property
    def supports(self) -> PeerSupport: ...


class LinkOutbox(Protocol):
    @property
    def waiting_bytes(self) -> int:
        """What was queued and not yet sent."""


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


class Versions(Protocol):
    """The files of template versions."""

    async def tree_of(self, version: TemplateVersion, /) -> Manifest: ...

    def archive(self, version: TemplateVersion, /) -> AsyncIterator[bytes]:
        """The version's tar.gz, byte for byte what its hash was computed over."""


class FileUploads(Protocol):
    def expect_file(
        self, transfer_id: str, *, node_id: NodeId, max_bytes: int
    ) -> asyncio.Future[pathlib.Path]:
        """Allow this node one upload; the future holds the file, and its owner removes it."""


def offline(node_id: NodeId) -> CorralError:
    return Retryable(
        Code.NODE_OFFLINE,
        f"node '{node_id}' is not connected",
        hint="wait until it is back, or look at it with 'corral node show'",
        retry_after=5.0,
    )
