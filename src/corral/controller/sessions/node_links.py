"""The session of a node, for other components: find it, send to it, and wait for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from corral.domain.ids import NodeId, SessionId
from corral.errors import Code, CorralError, Retryable
from corral.system.aio.tasks import first_of
from corral.wire.features import PeerSupport
from corral.wire.v1.instance_pb2 import ConsolePosition
from corral.wire.v1.link_pb2 import ControllerMessage

T = TypeVar("T")


class LinkFacts(Protocol):
    @property
    def supports(self) -> PeerSupport: ...


class LinkOutbox(Protocol):
    @property
    def waiting_bytes(self) -> int:
        """Bytes that are queued and not yet sent."""

    def replace(self, key: str, message: ControllerMessage, /) -> bool:
        """Queue a state: what is queued under the same key and not yet sent is superseded. Never blocks."""


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

    def confirm_consoles(self, positions: Sequence[ConsolePosition], /) -> None:
        """Send the node confirmed positions of its consoles; of each only the latest counts. Never blocks."""


class NodeLinks(Protocol):
    def find(self, node_id: NodeId, /) -> NodeLink | None:
        """The node's session; None while it is not connected."""


class ModuleLinkFacts(LinkFacts, Protocol):
    @property
    def id(self) -> SessionId: ...

    @property
    def node_id(self) -> NodeId: ...


class ModuleOutbox(LinkOutbox, Protocol):
    def __len__(self) -> int:
        """How many messages are queued and not yet sent."""


class ModuleLink(NodeLink, Protocol):
    """One session of a node, for modules on nodes; a later session of the same node is another link."""

    @property
    def facts(self) -> ModuleLinkFacts: ...

    @property
    def outbox(self) -> ModuleOutbox: ...

    def report(self, error: CorralError, /, *, context: str) -> None:
        """Send the node an error that does not end the session."""


def offline(node_id: NodeId) -> CorralError:
    return Retryable(
        Code.NODE_OFFLINE,
        f"node '{node_id}' is not connected",
        hint="wait until it is back, or look at it with 'corral node info'",
        retry_after=5.0,
    )


async def answer_of(answer: asyncio.Future[T], *, over: asyncio.Event, gone: CorralError) -> T:
    """The answer; raises `gone` when the session ends first. The caller sets the deadline.

    Afterwards the future is done or cancelled: an answer that comes later is dropped.
    """
    try:
        answered, *_ = await first_of(answer, over, name="sessions/over")
        if answered is None:
            raise gone
        return answered.result()
    finally:
        answer.cancel()


def no_longer_leading() -> Retryable:
    """The error for requests that end with the term; the next leader may be elected within moments."""
    return Retryable(Code.NOT_LEADER, "this controller no longer leads", retry_after=1.0)


def dismiss(answers: Iterable[asyncio.Future[Any]]) -> None:
    """Fail these answers at the end of the term: none of them will arrive."""
    for answer in answers:
        if not answer.done():
            answer.set_exception(no_longer_leading())
