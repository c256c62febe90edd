"""How far the emptying of a node is: what each instance there waits for, and the sums."""

from __future__ import annotations

import collections
import datetime as dt
import enum
from collections.abc import Callable, Iterable, Sequence

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import InstanceRecord, is_draining, live, stays
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.drain_progress import DrainProgress
from corral.domain.records import NodeDrain


class DrainWaitFor(enum.StrEnum):
    """What an instance on a node that is emptied waits for."""

    PLAYERS = "players"
    ROOM = "room"
    TURN = "turn"
    STOP = "stop"
    NODE = "node"


class DrainLine(msgspec.Struct, frozen=True, kw_only=True):
    """One instance that is still on a node that is emptied."""

    id: str
    group: str
    state: InstanceState
    players: int | None
    waits_for: DrainWaitFor
    last_copy: bool
    """Every instance of its group is on nodes that are emptied."""
    empty_at: dt.datetime | None = None
    """When it counts as empty, where it waits for players of which the number is not known."""


def drain_lines(state: ClusterState, node: str, *, players: Callable[[str], int | None]) -> list[DrainLine]:
    """The instances on a node that have not ended, by their ids."""
    there = [stored.record for stored in state.instances.of_node(node)]
    only = groups_without_others(state, node, there)
    return [
        _line(state, each, players(each.id), last_copy=stays(each) and each.group in only)
        for each in there
        if live(each.state)
    ]


def _line(state: ClusterState, record: InstanceRecord, players: int | None, *, last_copy: bool) -> DrainLine:
    return DrainLine(
        id=record.id,
        group=record.group,
        state=record.state,
        players=players,
        waits_for=_waits_for(state, record, players),
        last_copy=last_copy,
    )


def groups_without_others(state: ClusterState, node: str, there: Iterable[InstanceRecord]) -> set[str]:
    """The groups of these instances of which none would be left without those on the node, and on nodes that are
    emptied."""
    emptied = state.nodes.emptied | {node}
    counts = state.instances.counts
    return {name for name in {each.group for each in there} if emptied.issuperset(counts(name).by_node)}


def _waits_for(state: ClusterState, record: InstanceRecord, players: int | None) -> DrainWaitFor:
    if record.state is InstanceState.OFFLINE:
        return DrainWaitFor.NODE
    if record.wanted is Wanted.STOP or record.state is InstanceState.STOPPING:
        return DrainWaitFor.STOP
    if is_draining(record):
        return DrainWaitFor.PLAYERS
    found = state.groups.find(record.group)
    if found is None:
        return DrainWaitFor.TURN
    group = found.record
    if (group.spec.static and players) or group.hold is not None:
        return DrainWaitFor.PLAYERS
    room = group.drain_wait is not None and group.drain_wait.room and not group.spec.static
    return DrainWaitFor.ROOM if room and not record.warm else DrainWaitFor.TURN


def drain_progress_of(drain: NodeDrain, lines: Sequence[DrainLine]) -> DrainProgress:
    waits = collections.Counter(each.waits_for for each in lines)
    return DrainProgress(
        total=drain.total,
        moved=max(0, drain.total - len(lines)),
        waiting_players=waits[DrainWaitFor.PLAYERS],
        waiting_room=waits[DrainWaitFor.ROOM],
        waiting_turn=waits[DrainWaitFor.TURN],
        stopping=waits[DrainWaitFor.STOP],
        unreachable=waits[DrainWaitFor.NODE],
        deadline_at=drain.deadline_at,
    )
