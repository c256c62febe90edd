"""The registry of connected nodes, and their connection state in the store.

A node has at most one session here. A new one supersedes the old one at once; the old stream's late end then
changes nothing, because only the present session may take its node offline.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from corral.controller.sessions import handshake as greeting
from corral.controller.sessions.live_nodes import LiveNode
from corral.controller.sessions.session import Session
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.collections import NODES
from corral.controller.state.ledger import Ledger, Step
from corral.domain.ids import NodeId
from corral.domain.node_states import NODE_LIFECYCLE, NodeState, NodeTrigger
from corral.domain.records import NodeRecord
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.store.port import Commit
from corral.store.store_errors import StoreUnavailable
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.wire.v1.node_pb2 import Handshake

_RETRY_SECONDS: Final = 1.0
_PROBE_SECONDS: Final = 2.0
_PER_COMMIT: Final = 200
_NOTE_SECONDS: Final = 1.0
_log = structlog.get_logger("corral.controller.sessions")


class Sessions:
    """All live sessions of this leader."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        clock: Clock,
        metrics: CollectorRegistry,
        ahead_of_store: set[str] | None = None,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._by_node: dict[NodeId, Session] = {}
        self.ahead_of_store: set[str] = set() if ahead_of_store is None else ahead_of_store
        """Nodes with confirmations that the store has lost."""
        self._end_tasks = Tasks()
        self._closing = False
        self._opened = Counter("corral_sessions_opened", "Sessions that daemons opened", registry=metrics)
        self._count = Gauge("corral_sessions", "Live sessions of daemons", registry=metrics)

        self.round_trips = Histogram(
            "corral_link_round_trip_seconds",
            "From ping to pong.",
            registry=metrics,
            buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0),
        )

    def forget_metrics(self, metrics: CollectorRegistry) -> None:
        """Remove the metrics of this term."""
        metrics.unregister(self._opened)
        metrics.unregister(self._count)
        metrics.unregister(self.round_trips)

    def __len__(self) -> int:
        return len(self._by_node)

    def find(self, node_id: NodeId) -> Session | None:
        return self._by_node.get(node_id)

    def left_alone(self) -> dict[str, str]:
        """The ids of runs on connected nodes that nothing proves to be the cluster's, and their nodes."""
        return {id: node for node, session in self._by_node.items() for id in session.left_alone}

    def live(self, node_id: NodeId) -> LiveNode | None:
        session = self._by_node.get(node_id)
        return session.live if session else None

    def set_log_level(self, node_id: NodeId, level: str) -> None:
        session = self._by_node.get(node_id)
        if session is not None:
            session.set_log_level(level)

    async def refuse_clone(self, node_id: NodeId, hello: Handshake) -> None:
        """Refuse a second live daemon with the identity of a connected one: it is a copy, and the connected
        one stays.

        The same process may open a further session at any time. Another process, or an unidentified one, may
        only when the present session no longer responds: then its host rebooted, or its daemon was killed.
        """
        present = self._by_node.get(node_id)
        if present is None:
            return
        host = greeting.host_of(hello)
        if host.is_process(present.facts.host) or not await present.answers(within=_PROBE_SECONDS):
            return
        where = "another daemon or boot of this machine"
        if not host.machine_id:
            where = "another daemon"
        elif host.machine_id != present.facts.host.machine_id:
            where = "another machine"
        raise Rejected(
            Code.NODE_ID_IN_USE,
            f"node '{node_id}' is connected from {where}",
            hint="a data directory must not be used twice; enrol this host under its own id",
        )

    def enter(self, session: Session) -> None:
        """Make this the node's session; an older one ends now."""
        if self._closing:
            raise Retryable(Code.SHUTTING_DOWN, "this controller is shutting down", retry_after=1.0)
        node_id = session.facts.node_id
        older = self._by_node.get(node_id)
        self._by_node[node_id] = session
        self._opened.inc()
        self._count.set(len(self._by_node))
        if older is not None:
            older.close(Retryable(Code.CONFLICT, f"node '{node_id}' opened a newer session"))

    def leave(self, session: Session, reason: CorralError | None) -> None:
        """The session's stream ended. Never blocks and never fails: it runs while tasks are cancelled."""
        node_id = session.facts.node_id
        _log.info(
            "session.ended", node=node_id, session=session.facts.id, reason=str(reason or "stream ended")
        )
        if self._by_node.get(node_id) is not session:
            return
        del self._by_node[node_id]
        self._count.set(len(self._by_node))
        if not self._closing:
            self._end_tasks.spawn(self._record_end(session, reason), name=f"sessions/end/{node_id}")

    async def _record_end(self, session: Session, reason: CorralError | None) -> None:
        node_id = session.facts.node_id
        silent = reason is not None and reason.code is Code.UNREACHABLE
        trigger = NodeTrigger.PONGS_MISSED if silent else NodeTrigger.STREAM_ENDED
        text = reason.message if reason else "the daemon ended the stream"
        while True:
            try:
                await self._mark(session, trigger, text)
                return
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_SECONDS)
            except CorralError as error:
                _log.warning("session_end_write.failed", node=node_id, reason=str(error))
                return

    async def _mark(self, session: Session, trigger: NodeTrigger, reason: str) -> None:
        node_id = session.facts.node_id

        def change(stored: StoredRecord[NodeRecord]) -> tuple[NodeRecord, Sequence[Step]] | None:
            if node_id in self._by_node or not NODE_LIFECYCLE.allows(stored.record.state, trigger):
                return None  # already reconnected, or revoked
            seen = msgspec.structs.replace(stored.record, last_seen=session.live.last_seen)
            return greeting.out_of_reach(seen, trigger, reason, now=self._clock.now())

        if self._ledger.state.nodes.find(node_id) is not None:
            await self._ledger.revise(self._ledger.state.nodes, node_id, change)

    async def forget_predecessors(self) -> None:
        """Mark all nodes as disconnected at the start of a term, whatever an earlier leader stored."""
        online = [stored for stored in self._ledger.state.nodes if stored.record.state is NodeState.ONLINE]
        for start in range(0, len(online), _PER_COMMIT):
            steps: list[Step] = []
            for stored in online[start : start + _PER_COMMIT]:
                record, events = greeting.out_of_reach(
                    stored.record, NodeTrigger.STREAM_ENDED, greeting.RESTARTED, now=self._clock.now()
                )
                steps += [NODES.put(record.id, record, expect=stored.revision), *events]
            await self._ledger.commit(*steps)

    async def _note_last_seen(self) -> None:
        """Store the last-seen times for the next leader, which cannot know them. A leader that is killed
        leaves the start of each session."""
        nodes = self._ledger.state.nodes
        present = [
            (stored, session.live.last_seen)
            for node_id, session in self._by_node.items()
            if (stored := nodes.find(node_id)) is not None
        ]
        for start in range(0, len(present), _PER_COMMIT):
            await self._ledger.commit(
                *(
                    NODES.put(
                        stored.record.id,
                        msgspec.structs.replace(stored.record, last_seen=seen),
                        expect=stored.revision,
                    )
                    for stored, seen in present[start : start + _PER_COMMIT]
                )
            )

    def follow(self, commit: Commit) -> None:
        """End sessions whose certificate a commit has invalidated."""
        for change in commit.changes:
            if change.collection != NODES.name:
                continue
            session = self._by_node.get(NodeId(change.id))
            if session is not None:
                self._close_if_refused(session)

    def resync(self) -> None:
        """Check every session's certificate."""
        for session in list(self._by_node.values()):
            self._close_if_refused(session)

    def _close_if_refused(self, session: Session) -> None:
        stored = self._ledger.state.nodes.find(session.facts.node_id)
        if stored is None:
            session.close(Rejected(Code.CERTIFICATE_REFUSED, "the node was removed"))
        elif stored.record.state is NodeState.REVOKED:
            session.close(Rejected(Code.CERTIFICATE_REFUSED, f"the node is revoked: {stored.record.reason}"))
        elif session.facts.serial not in stored.record.serials:
            session.close(Rejected(Code.CERTIFICATE_REFUSED, "the certificate was superseded"))

    async def close(self, reason: CorralError) -> None:
        """End every session. Nodes stay ONLINE in the store: the next leader determines their state itself."""
        self._closing = True
        with contextlib.suppress(CorralError, TimeoutError):
            async with asyncio.timeout(_NOTE_SECONDS):
                await self._note_last_seen()
        for session in list(self._by_node.values()):
            session.close(reason)
        await self._end_tasks.close()
