"""A new leader looks before it acts: until every node it should hear from has told what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from corral.controller.state.cluster_state import ClusterState
from corral.domain.ids import NodeId
from corral.domain.instance_records import live
from corral.domain.node_states import NodeState
from corral.system.aio.waits import set_within


def awaited_nodes(state: ClusterState) -> set[str]:
    """Those that were connected to the leader before, and those that have instances."""
    nodes = {stored.record.id for stored in state.nodes if stored.record.state is NodeState.ONLINE}
    holders: set[str] = {
        node
        for node in state.instances.nodes()
        if any(live(stored.record.state) for stored in state.instances.of_node(node))
    }
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
        """Wait; the nodes that did not report in time."""
        await set_within(self._complete, within)
        return set(self.awaited)
