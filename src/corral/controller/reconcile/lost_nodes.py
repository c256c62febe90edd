"""Unreachable nodes: their instances become OFFLINE, not ended; those of a removed node have ended.

A new leader observes before it acts: it waits until every node that it expects has reported its inventory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from corral.controller.instances.confirmations import GIVEN_UP
from corral.controller.instances.report_values import exit_record
from corral.controller.instances.run_exits import end_run
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.domain.events import EventType
from corral.domain.groups.instance_records import AfterStop, live, next_state
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, InstanceTrigger, Wanted
from corral.domain.node_states import NodeState
from corral.system.aio.tasks import set_within


def lose_node(ws: Workspace, node: str, *, limit: int) -> bool:
    """Mark the node's instances OFFLINE, at most `limit`; is anything left to do?"""
    marked = 0
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
