"""Orders to the daemon of a node that is drained, derived from the record of the node.

A session gets the present order once, and another one when the record changes: no new runs while the node is drained,
then the stop of what is left or the end of the daemon, and new runs again when it is undrained. A restarted controller
and a new leader send it again, because every session is a new one to them.
"""

from __future__ import annotations

import asyncio
import math
from typing import Final

import msgspec
import structlog

from corral.controller.instances.node_drains import deadline_left
from corral.controller.sessions.session import Session
from corral.controller.sessions.session_registry import Sessions
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.collections import NODES
from corral.controller.state.ledger import Ledger, Step
from corral.domain.ids import NodeId, SessionId
from corral.domain.node_states import Admission
from corral.domain.records import BootMoment, NodeDrain, NodeRecord
from corral.errors import CorralError
from corral.store.port import Commit
from corral.system import log_context
from corral.system.aio.tasks import set_within
from corral.system.clock import Clock, boot_id
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import (
    SHUTDOWN_MODE_ANNOUNCE,
    SHUTDOWN_MODE_EXIT,
    SHUTDOWN_MODE_RESUME,
    SHUTDOWN_MODE_STOP,
    SHUTDOWN_MODE_UNSPECIFIED,
    ShutdownMode,
    ShutdownNode,
    ShutdownNodeAck,
)

_RETRY_SECONDS: Final = 5.0
_log = structlog.get_logger("corral.controller.instances")


class DaemonOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to a daemon. Two equal ones in one session are one."""

    drain: str
    mode: int
    reason: str = ""

    @property
    def ends_daemon(self) -> bool:
        """Is it carried out once for a drain, because the daemon ends?"""
        return self.mode in (SHUTDOWN_MODE_EXIT, SHUTDOWN_MODE_UNSPECIFIED)


def drain_order(drain: NodeDrain, *, drained: bool, complete: bool, strays: int) -> DaemonOrder:
    """The order for a node that is drained. `complete`: its inventory is; before that nothing is known of strays, which
    are never stopped but by the end of their daemon."""
    mode = SHUTDOWN_MODE_ANNOUNCE
    if drained and complete:
        if drain.shutdown and drain.exit_ordered_at is None:
            mode = SHUTDOWN_MODE_EXIT
        elif not strays:
            mode = SHUTDOWN_MODE_STOP
    return DaemonOrder(drain=drain.id, mode=mode, reason=drain.reason)


def published_order(drain: NodeDrain, *, drained: bool, complete: bool, overdue: bool) -> DaemonOrder | None:
    """The order for a daemon that knows no modes: once, when the node is empty or at the deadline."""
    if not complete or drain.exit_ordered_at is not None or not (drained or overdue):
        return None
    return DaemonOrder(drain=drain.id, mode=SHUTDOWN_MODE_UNSPECIFIED, reason=drain.reason)


class NodeDrainOrders:
    """`run` lives as long as the term."""

    def __init__(self, *, ledger: Ledger, sessions: Sessions, clock: Clock) -> None:
        self._ledger = ledger
        self._nodes = ledger.state.nodes
        self._sessions = sessions
        self._clock = clock
        self._sent: dict[NodeId, tuple[SessionId, DaemonOrder]] = {}
        """The last order to each node, and the session that it was sent in."""
        self._complete: dict[NodeId, SessionId] = {}
        """The last session of each node whose inventory is complete."""
        self._ended: dict[NodeId, str] = {}
        """Nodes whose daemon ends, and the drain that it ends for: to be recorded."""
        self._boot = boot_id()
        self._deadlines: dict[NodeId, float] = {}
        """Deadlines of connected nodes whose daemons know no modes, by the boot clock."""
        self._wake = asyncio.Event()

    def follow(self, commit: Commit) -> None:
        for change in commit.changes:
            if change.collection == NODES.name:
                self._look_at(NodeId(change.id))

    def resync(self) -> None:
        for stored in self._nodes:
            self._look_at(stored.record.id)

    def inventory_complete(self, node_id: NodeId, session_id: SessionId) -> None:
        """All runs of the node are known, strays included."""
        self._complete[node_id] = session_id
        self._look_at(node_id)

    def answered(self, node_id: NodeId, ack: ShutdownNodeAck) -> None:
        """A daemon answered an order; one that ends now is recorded, so that it is not ended again. It is believed only
        where this leader has ordered that for this drain: a new leader orders it again."""
        stored, (_, sent) = self._nodes.find(node_id), self._sent.get(node_id, (None, None))
        drain = stored.record.drain if stored is not None else None
        if drain is None or sent is None or sent.drain != drain.id or sent.mode != SHUTDOWN_MODE_EXIT:
            return
        if ack.drain_id == drain.id and ack.mode == SHUTDOWN_MODE_EXIT and ack.done:
            self._end(node_id, drain)

    def _end(self, node_id: NodeId, drain: NodeDrain) -> None:
        if drain.exit_ordered_at is None:
            self._ended[node_id] = drain.id
            self._wake.set()

    def _look_at(self, node_id: NodeId) -> None:
        stored, session = self._nodes.find(node_id), self._sessions.find(node_id)
        if stored is None or session is None:
            for known in (self._sent, self._complete, self._deadlines):
                known.pop(node_id, None)
            return
        sent_in, last = self._sent.get(node_id, (None, None))
        if sent_in != session.facts.id:
            last = None
        order = self._order(stored.record, session, last)
        if order is None or order == last:
            return
        if self._send(session, order, request=stored.record.drain.request if stored.record.drain else ""):
            self._sent[node_id] = (session.facts.id, order)
            if stored.record.drain is not None and order.mode == SHUTDOWN_MODE_UNSPECIFIED:
                self._end(node_id, stored.record.drain)

    def _order(self, record: NodeRecord, session: Session, last: DaemonOrder | None) -> DaemonOrder | None:
        drain, drained = record.drain, record.admission is Admission.DRAINED
        complete = self._complete.get(record.id) == session.facts.id
        if session.facts.supports.drain:
            if drain is None:
                begun = last is not None and last.mode != SHUTDOWN_MODE_RESUME
                return DaemonOrder(drain=last.drain, mode=SHUTDOWN_MODE_RESUME) if last and begun else None
            if last is not None and last.drain == drain.id and last.ends_daemon:
                return None  # it ends
            live = self._sessions.live(record.id)
            strays = live.stray_count if live is not None else 0
            return drain_order(drain, drained=drained, complete=complete, strays=strays)
        self._deadlines.pop(record.id, None)
        if drain is None:
            return None
        boot = BootMoment(boot=self._boot, seconds=self._clock.boottime())
        left = deadline_left(drain, now=self._clock.now(), boot=boot)
        if 0 < left < math.inf and drain.exit_ordered_at is None:
            self._deadlines[record.id] = boot.seconds + left
            self._wake.set()
        return published_order(drain, drained=drained, complete=complete, overdue=left <= 0)

    def _send(self, session: Session, order: DaemonOrder, *, request: str) -> bool:
        node = session.facts.node_id
        mode = ShutdownMode.Name(order.mode).removeprefix("SHUTDOWN_MODE_").lower()
        frame = ShutdownNode(reason=order.reason, mode=order.mode, drain_id=order.drain)  # type: ignore[arg-type]
        with log_context.only({"node": node, "request": request}):
            accepted = session.send(ControllerMessage(shutdown_node=frame))
            if accepted:
                _log.info("drain_order.sent", drain=order.drain, mode=mode)
        return accepted

    async def run(self) -> None:
        """Record daemons that end, and look at the deadlines of daemons without modes, until cancelled."""
        while True:
            self._wake.clear()
            left = await self._record_ends()
            now = self._clock.boottime()
            for node_id, due in list(self._deadlines.items()):
                if due <= now:
                    del self._deadlines[node_id]
                    self._look_at(node_id)
            pauses = [due - now for due in self._deadlines.values()]
            pauses += [_RETRY_SECONDS] if left else []
            await set_within(self._wake, max(0.05, min(pauses)) if pauses else None)

    async def _record_ends(self) -> bool:
        """True when some could not be recorded."""
        for node_id, drain_id in list(self._ended.items()):
            try:
                await self._record_end(node_id, drain_id)
            except CorralError as error:
                _log.warning("drain_write.failed", node=node_id, reason=str(error))
            else:
                if self._ended.get(node_id) == drain_id:
                    del self._ended[node_id]
        return bool(self._ended)

    async def _record_end(self, node_id: NodeId, drain_id: str) -> None:
        now = self._clock.now()

        def change(stored: StoredRecord[NodeRecord]) -> tuple[NodeRecord, tuple[Step, ...]] | None:
            drain = stored.record.drain
            if drain is None or drain.id != drain_id or drain.exit_ordered_at is not None:
                return None
            ended = msgspec.structs.replace(drain, exit_ordered_at=now)
            return msgspec.structs.replace(stored.record, drain=ended), ()

        if self._nodes.find(node_id) is not None:
            await self._ledger.revise(self._nodes, node_id, change)
