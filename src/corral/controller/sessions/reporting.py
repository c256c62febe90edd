"""What sessions need of those who understand what nodes say about instances."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, Protocol

import msgspec

from corral.controller.ledger import Step
from corral.domain.ids import NodeId, SessionId
from corral.errors import Code, Rejected
from corral.wire.v1.instance_pb2 import InstanceStatusUpdate, RunName, RunningInstance, SendCommandAck
from corral.wire.v1.link_pb2 import DaemonMessage

REPORTS: Final = frozenset({"instance_status", "crash_report", "start_instance_ack", "stop_instance_ack"})
"""Messages about instances. All are taken in in order, whether or not the node keeps them on disk."""


def passing(message: DaemonMessage) -> bool:
    """Is this report about the moment alone? A stage is: its state comes by itself, to be kept."""
    return (
        message.WhichOneof("payload") == "instance_status"
        and not message.spool_sequence
        and bool(message.instance_status.stage)
    )


_REQUIRED: Final = {
    "instance_status": ("instance_id", "state"),
    "crash_report": ("instance_id", "group"),
    "start_instance_ack": ("instance_id",),
    "stop_instance_ack": ("instance_id",),
}


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

    def fold(self, node_id: NodeId, messages: Sequence[DaemonMessage]) -> Reported:
        """Reports in the order in which they came; one that makes no sense changes nothing."""

    def stored(self, node_id: NodeId, reported: Reported) -> None:
        """What was folded is committed now."""

    def opened(self, node_id: NodeId) -> None:
        """The runs that the node listed are taken in."""

    def judged(self, node_id: NodeId, session_id: SessionId) -> None:
        """The judgement is committed: the records say what the node has."""

    def heard(self, node_id: NodeId, update: InstanceStatusUpdate) -> None:
        """What a report says about the moment alone: stage and players. Nothing of it is stored."""

    def order_answered(self, node_id: NodeId, message: DaemonMessage) -> None:
        """A node answered an order; what it said about the run is folded apart."""

    def command_answered(self, node_id: NodeId, ack: SendCommandAck) -> None: ...


def missing_field(message: DaemonMessage) -> Rejected | None:
    """The complaint about a report that lacks a required field."""
    kind = message.WhichOneof("payload") or ""
    for field in _REQUIRED.get(kind, ()):
        if not getattr(getattr(message, kind), field):
            return Rejected(Code.MISSING_FIELD, f"{kind}.{field} is empty", field=field)
    return None
