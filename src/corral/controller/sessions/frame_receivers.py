"""What sessions need of those who understand what nodes say about instances."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import msgspec

from corral.controller.state.ledger import Step
from corral.domain.ids import NodeId, SessionId
from corral.wire.frame_table import NodeFrame
from corral.wire.v1.instance_pb2 import InstanceStatusUpdate, RunName, RunningInstance, SendCommandAck


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What reports change, and what is to be done once that is stored."""

    steps: tuple[Step, ...] = ()
    strays: tuple[Any, ...] = ()
    over: tuple[str, ...] = ()
    """Ids of runs that are not the node's by any record, and that it says have ended."""
    refused: dict[str, int] = {}
    """By kind, how many were about what is not the node's."""


class NodeReports(Protocol):
    """Understands reports. The folds are pure: they look at the state and describe a change."""

    def opening(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> AsyncIterator[Reported]:
        """The runs that a connecting node lists as alive, in portions: each is committed before the next is
        asked for. Begun anew after a conflict it changes what is not changed yet. Raises what a commit raises."""

    def judgement(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> AsyncIterator[Reported]:
        """In portions likewise: the node's spool is taken in as far as it reached at the handshake, so that what
        it did not list is decided."""

    async def unaccounted(self, node_id: NodeId, listed: Sequence[RunningInstance]) -> list[RunName]:
        """The runs of this node that the records have alive, and that it did not list."""

    def fold(self, node_id: NodeId, frames: Sequence[NodeFrame]) -> Reported:
        """Reports in the order in which they came; one that makes no sense changes nothing."""

    def stored(self, node_id: NodeId, reported: Reported) -> None:
        """What was folded is committed now."""

    def opened(self, node_id: NodeId) -> None:
        """The runs that the node listed are taken in."""

    def judged(self, node_id: NodeId, session_id: SessionId) -> None:
        """The judgement is committed: the records say what the node has."""

    def heard(self, node_id: NodeId, update: InstanceStatusUpdate) -> None:
        """What a report says about the moment alone: stage and players. Nothing of it is stored."""

    def order_answered(self, node_id: NodeId, id: str, incarnation: int) -> None:
        """A node answered an order; what it said about the run is folded apart."""

    def command_answered(self, node_id: NodeId, ack: SendCommandAck) -> None: ...
