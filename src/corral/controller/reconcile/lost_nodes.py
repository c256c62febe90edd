"""Unreachable nodes: their instances become OFFLINE, not ended; those of a removed node have ended.

A new leader observes before it acts: it waits until every node that it expects has reported its inventory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec

from corral.controller.instances.confirmations import GIVEN_UP
from corral.controller.instances.report_values import exit_record
from corral.controller.instances.run_exits import end_run
from corral.controller.instances.workspace import Workspace
from corral.controller.reconcile.ports import ReconciledInstances, SessionLookup
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import NODES
from corral.controller.state.ledger import Ledger, Step
from corral.domain.events import EventType
from corral.domain.groups.instance_records import AfterStop, live, next_state
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, InstanceTrigger, Wanted
from corral.domain.node_states import NodeState
from corral.system.aio.tasks import set_within
from corral.system.clock import Clock

_PER_COMMIT: Final = 200
_LOST_COMMITS: Final = 10
"""The most commits about lost nodes before groups have their turn again."""


class LostNodes:
    """The nodes that are away or removed, and when their instances are looked at because of that."""

    def __init__(
        self,
        *,
        ledger: Ledger,
        instances: ReconciledInstances,
        sessions: SessionLookup,
        offline_after_seconds: float,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._instances = instances
        self._sessions = sessions
        self._offline_after = offline_after_seconds
        self._clock = clock
        self._due: dict[str, float] = {}

    def note(self, node: str) -> None:
        """Set the deadline of a disconnected node to reconnect; a removed one is lost at once. A node with an
        unreadable record is not removed."""
        stored = self._ledger.state.nodes.find(node)
        if self._ledger.state.quarantine.holds(NODES.name, node):
            self._due.pop(node, None)
        elif stored is None:
            self._due[node] = self._clock.monotonic()
        elif stored.record.state is NodeState.ONLINE:
            self._due.pop(node, None)
        elif node not in self._due:
            self._due[node] = self._clock.monotonic() + self._offline_after

    def moments(self) -> Iterable[float]:
        """When something is due without an event."""
        return self._due.values()

    async def turn(self) -> None:
        """Handle the loss of nodes in parts; what is left stays due."""
        now = self._clock.monotonic()
        commits = 0
        for node in [node for node, due in self._due.items() if due <= now]:
            more = True
            while more and commits < _LOST_COMMITS and node in self._due:  # it may return meanwhile
                stored = self._ledger.state.nodes.find(node)
                if stored is not None and self._sessions.find(NodeId(node)) is not None:
                    # it is reconnecting; if that fails, no other event will follow
                    self._due[node] = now + self._offline_after
                    break
                ws = self._instances.workspace(cause=f"the loss of node '{node}'")
                steps, more = loss_steps(ws, node, limit=_PER_COMMIT)
                if steps:
                    await self._ledger.commit(*steps)
                commits += 1
            if not more:
                self._due.pop(node, None)


def loss_steps(ws: Workspace, node: str, *, limit: int) -> tuple[tuple[Step, ...], bool]:
    """The changes of some instances of a node that is away or removed, and whether more are left."""
    stored = ws.state.nodes.find(node)
    more = (forget_node if stored is None else lose_node)(ws, node, limit=limit)
    steps = ws.steps()
    if steps and stored is not None:  # a node that connects meanwhile makes this a conflict
        steps = (*steps, NODES.put(node, stored.record, expect=stored.revision))
    return steps, more


def lose_node(ws: Workspace, node: str, *, limit: int) -> bool:
    """Mark the node's instances OFFLINE, at most `limit`; is anything left to do?"""
    marked = 0
    known = ws.state.nodes.find(node)
    lost_at = (known.record.lost_at if known is not None else None) or ws.now
    for stored in ws.state.instances.of_node(node):
        record = stored.record
        if not live(record.state) or record.state is InstanceState.OFFLINE:
            continue
        if marked == limit:
            return True
        marked += 1
        ws.put_instance(
            msgspec.structs.replace(
                record,
                state=next_state(record, InstanceTrigger.UNWATCHED),
                state_before_offline=record.state,
                lost_at=lost_at,
                reason=f"node '{node}' is out of reach",
            )
        )
        ws.event(
            EventType.INSTANCE_OFFLINE,
            record.id,
            group=record.group,
            node=node,
            incarnation=record.incarnation,
            **{"from": record.state.value},
        )
    return False


def forget_node(ws: Workspace, node: str, *, limit: int) -> bool:
    """End the instances of a removed node: no report about them will arrive.

    They may be alive on the node, so none is restarted: their replacements have ids of their own.
    """
    ended = 0
    for stored in ws.state.instances.of_node(node):
        record = stored.record
        if not live(record.state):
            continue
        if ended == limit:
            return True
        ended += 1
        desired = record.wanted is Wanted.RUN
        exit = msgspec.structs.replace(exit_record(None, crashed=desired, now=ws.now), summary=GIVEN_UP)
        state = InstanceState.CRASHED if desired else InstanceState.STOPPED
        lost = msgspec.structs.replace(record, after_stop=AfterStop.END)
        end_run(ws, lost, state, exit, reason=f"node '{node}' was removed; {GIVEN_UP}")
    return False


def awaited_nodes(state: ClusterState) -> set[str]:
    """The nodes that were connected to the previous leader, and those that have instances."""
    nodes = {stored.record.id for stored in state.nodes if stored.record.state is NodeState.ONLINE}
    holders = {node for node in state.instances.nodes() if state.instances.live_on(node)}
    reachable = {stored.record.id for stored in state.nodes if stored.record.state is not NodeState.REVOKED}
    return (nodes | holders) & reachable


class Observation:
    """Over when all awaited nodes have reported, or time is up."""

    def __init__(self, awaited: Iterable[str]) -> None:
        self.awaited = set(awaited)
        self._complete = asyncio.Event()
        if not self.awaited:
            self._complete.set()

    def reported(self, node: NodeId) -> None:
        self.awaited.discard(node)
        if not self.awaited:
            self._complete.set()

    async def finish(self, within: float) -> set[str]:
        """Wait for the observation; returns the nodes that did not report in time."""
        await set_within(self._complete, within)
        return set(self.awaited)
