"""How many instances of a group serve, as its number is kept: without those that only take the place of others on nodes
that are emptied, until these go."""

from __future__ import annotations

from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.domain.planning.node_drains import replacements


def serving_count(ws: Workspace, group: str) -> int:
    serving, emptied = ws.tally(group).serving, ws.emptied
    return serving - len(replacements(ws.instances_of(group), emptied)) if emptied else serving


def stored_serving_count(state: ClusterState, group: str) -> int:
    """The same of the stored state, outside a transaction."""
    counts, emptied = state.instances.counts(group), state.nodes.emptied
    serving = counts.staying - counts.warm
    if not emptied:
        return serving
    there = [stored.record for stored in state.instances.of_group(group)]
    return serving - len(replacements(there, emptied))
