"""Dispatch of start and stop orders that records call for: after the commit, when the node connects, and
repeated.

Orders are derived from records; the only state kept here is when an order was last sent. An order without an
answer is repeated with growing pauses, a bounded number of times a session; repeating it is harmless.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import msgspec
import structlog

from corral.controller.instances.orders import (
    ApiAddress,
    Order,
    OrderedInstances,
    OrderKind,
    first_delay,
    order_for,
    start_message,
    stop_message,
)
from corral.controller.instances.plans import decoded
from corral.controller.instances.run_match import Stray
from corral.controller.instances.start_identity import StartTickets
from corral.controller.sessions.live_nodes import StrayRun
from corral.controller.sessions.session import Session
from corral.controller.sessions.session_registry import Sessions
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import Incarnation, InstanceId, NodeId, SessionId
from corral.store.port import Commit
from corral.system import log_context
from corral.system.aio.backoff import doubled
from corral.system.aio.tasks import set_within
from corral.system.clock import Clock
from corral.wire.v1.link_pb2 import ControllerMessage

MAX_SENDINGS: Final = 8
STRAYS_SHOWN: Final = 100
STRAYS_HEEDED: Final = 1000
"""The most stray ids of one node that are not given out."""
_LOGGED: Final = 10
_SLOWEST: Final = 300.0
_log = structlog.get_logger("corral.controller.instances")


class Sending(msgspec.Struct, kw_only=True):
    """The progress of an order. The only mutable value here."""

    order: Order
    held_until: float
    """Not sent earlier than this, because nodes have refused the start before."""
    token: str = ""
    """The same each time the order is sent in one session, so that repeats are one order."""
    sent: int = 0
    due: float = 0.0
    """When the order is sent again."""
    answered: bool = False


class RunTokens(Protocol):
    """Issues the API token of each run."""

    def mint(self, id: InstanceId, incarnation: Incarnation, /) -> str: ...


class Dispatcher:
    """Orders to nodes, derived from records. `run` lives as long as the term."""

    def __init__(
        self,
        *,
        state: ClusterState,
        sessions: Sessions,
        clock: Clock,
        tokens: RunTokens,
        tickets: StartTickets,
        api: ApiAddress,
        resend_seconds: float,
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._clock = clock
        self._tokens = tokens
        self._tickets = tickets
        self._api = api
        self._resend_seconds = resend_seconds
        self._sendings: dict[str, Sending] = {}
        self._ordered = OrderedInstances(state.instances)
        self._reconciled: dict[NodeId, SessionId] = {}
        self._timers: list[tuple[float, str]] = []
        self._wake = asyncio.Event()

    def follow(self, commit: Commit) -> None:
        """Check every instance that a commit changed. Never raises: it runs while memory follows the store."""
        for change in commit.changes:
            if change.collection == INSTANCES.name:
                self._look_at(change.id)

    def resync(self) -> None:
        """Check every instance, and orders whose instance is gone. Orders that were sent are not repeated."""
        for id in [*(stored.record.id for stored in self._state.instances), *self._sendings]:
            self._look_at(id)

    def opened(self, node_id: NodeId) -> None:
        """The node has a new session: orders sent in the old one may be lost."""
        for id in self._ordered.on(node_id):
            sending = self._sendings.get(id)
            if sending is not None:
                sending.sent, sending.answered, sending.token = 0, False, ""
            self._look_at(id, again=True)

    def inventory_complete(self, node_id: NodeId, session_id: SessionId) -> None:
        """The node's inventory is complete: from now on starts may be sent to it."""
        session = self._sessions.find(node_id)
        if session is None or session.facts.id != session_id:
            return  # a newer session has begun, with an inventory of its own
        self._reconciled[node_id] = session_id
        for id in self._ordered.on(node_id):
            sending = self._sendings.get(id)
            if sending is None or not sending.sent:
                self._look_at(id, again=True)

    def answered(self, node_id: NodeId, id: str, incarnation: int) -> None:
        """The node has the order, if the order was for this node."""
        sending, stored = self._sendings.get(id), self._state.instances.find(id)
        asked = stored is not None and stored.record.node == node_id
        if asked and sending is not None and sending.order.incarnation == incarnation:
            sending.answered = True
            _log.debug("instance_order.answered", instance=id, incarnation=incarnation, node=node_id)

    def stop_stray(self, node_id: NodeId, stray: Stray, decision: str = "") -> None:
        """Send a node the stop of a run that no record calls for, once per session: its next handshake lists
        it again."""
        session = self._sessions.find(node_id)
        if session is not None and session.first_stop_of(stray.id, stray.incarnation):
            _log.warning(
                "stray_run.found",
                instance=stray.id,
                incarnation=stray.incarnation,
                node=node_id,
                reason=stray.reason,
            )
            session.send(
                stop_message(stray.id, stray.incarnation, force=False, reason=stray.reason, decision=decision)
            )

    def show_strays(self, node_id: NodeId, strays: Sequence[Stray], *, count: int) -> None:
        """Record runs on a node that nothing proves to be the cluster's: they are left running, the first are
        shown, and the ids of all of them are not given out."""
        session = self._sessions.find(node_id)
        if session is None:
            return
        shown = tuple(
            StrayRun(instance=s.id, group=s.group, incarnation=s.incarnation, reason=s.reason)
            for s in strays[:STRAYS_SHOWN]
        )
        session.left_alone = {stray.id for stray in strays}
        session.live = msgspec.structs.replace(session.live, strays=shown, stray_count=count)
        if strays:
            _log.warning(
                "stray_runs.skipped",
                node=node_id,
                count=count,
                instances=[stray.id for stray in strays[:_LOGGED]],
            )

    def strays_ended(self, node_id: NodeId, ids: Iterable[str]) -> None:
        """The node reports these runs as ended: their ids are free."""
        session = self._sessions.find(node_id)
        if session is not None:
            session.left_alone.difference_update(ids)

    def _look_at(self, id: str, *, again: bool = False) -> None:
        """Check one instance. An order that fails affects no other order and no session; it is tried again with the
        node's next session."""
        self._ordered.note(id)
        try:
            self._consider(id, again=again)
        except Exception:
            _log.exception("instance_order.failed", instance=id)

    def _consider(self, id: str, *, again: bool = False) -> None:
        stored = self._state.instances.find(id)
        order = order_for(stored.record) if stored else None
        if stored is None or order is None:
            self._sendings.pop(id, None)
            return
        sending = self._sendings.get(id)
        if sending is None or sending.order != order:
            delay = first_delay(stored.record, self._resend_seconds) if order.kind is OrderKind.START else 0.0
            sending = Sending(order=order, held_until=self._clock.monotonic() + delay if delay else 0.0)
            self._sendings[id] = sending
        elif not again:
            return
        self._send(stored.record, sending)

    def _send(self, record: InstanceRecord, sending: Sending) -> None:
        """Send under the log ids of the order, not those of the present caller."""
        ids = {
            "instance": record.id,
            "node": record.node,
            "decision": record.decision,
            "request": record.request,
        }
        with log_context.only(ids):
            self._send_now(record, sending)

    def _send_now(self, record: InstanceRecord, sending: Sending) -> None:
        """Send if the node has a session that may receive it; otherwise the next session calls this again."""
        now = self._clock.monotonic()
        if sending.held_until > now:
            self._set_timer(sending.held_until, record.id)
            return
        session = self._sessions.find(record.node)
        if session is None or (sending.order.kind is OrderKind.START and not self._may_start(session)):
            return
        message = self._message(record, sending)
        if message is None or not session.send(message):
            return
        sending.sent += 1
        sending.due = now + doubled(self._resend_seconds, sending.sent - 1, longest=_SLOWEST)
        self._set_timer(sending.due, record.id)
        _log.info(
            "instance_order.sent",
            incarnation=record.incarnation,
            order=sending.order.kind.value,
            sending=sending.sent,
        )

    def _may_start(self, session: Session) -> bool:
        return self._reconciled.get(session.facts.node_id) == session.facts.id

    def _message(self, record: InstanceRecord, sending: Sending) -> ControllerMessage | None:
        if sending.order.kind is OrderKind.STOP:
            return stop_message(
                record.id,
                record.incarnation,
                force=record.force_stop,
                reason=record.reason,
                decision=record.decision,
            )
        plan = self._state.plans.find(record.plan_hash)
        if plan is None:
            _log.error("instance_plan.lost", plan=record.plan_hash)
            return None
        node = self._state.nodes.find(record.node)
        sending.token = sending.token or self._tokens.mint(record.id, record.incarnation)
        return start_message(
            record,
            plan.record,
            decoded(plan.record),
            labels=node.record.labels if node else {},
            token=sending.token,
            ticket=self._tickets.of(record),
            api=self._api,
        )

    def _set_timer(self, due: float, id: str) -> None:
        heapq.heappush(self._timers, (due, id))
        if self._timers[0] == (due, id):
            self._wake.set()

    async def run(self) -> None:
        """Repeat orders that were not answered in time, until cancelled."""
        while True:
            self._wake.clear()
            now = self._clock.monotonic()
            while self._timers and self._timers[0][0] <= now:
                _, id = heapq.heappop(self._timers)
                self._repeat(id, now)
            pause = self._timers[0][0] - now if self._timers else None
            await set_within(self._wake, pause)

    def _repeat(self, id: str, now: float) -> None:
        sending, stored = self._sendings.get(id), self._state.instances.find(id)
        if (
            sending is None
            or stored is None
            or sending.answered
            or max(sending.due, sending.held_until) > now
        ):
            return
        if sending.sent >= MAX_SENDINGS:
            _log.warning(
                "instance_order.retried", instance=id, node=stored.record.node, sendings=sending.sent
            )
            sending.answered = True  # until its node opens another session
            return
        self._look_at(id, again=True)
