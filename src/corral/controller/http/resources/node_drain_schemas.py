"""The drain of a node as the API shows it, with how far it is."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Final

import msgspec

from corral.controller.instances.drain_progress import DrainLine, DrainWaitFor, drain_lines, drain_progress_of
from corral.controller.sessions.live_nodes import LiveNode
from corral.controller.state.cluster_state import ClusterState
from corral.domain.access import Access
from corral.domain.permissions import Permission
from corral.domain.planning.drain_progress import DrainProgress
from corral.domain.records import NodeRecord

MOST_LINES: Final = 200


class DrainAckShape(msgspec.Struct, frozen=True, kw_only=True):
    running_instances: int
    estimated_seconds: int


class NodeDrainShape(msgspec.Struct, frozen=True, kw_only=True):
    """An order to empty a node, kept until the node is undrained."""

    id: str
    by: str
    reason: str
    started_at: dt.datetime
    deadline_at: dt.datetime | None
    shutdown: bool
    was_cordoned: bool
    drained_at: dt.datetime | None
    exit_ordered_at: dt.datetime | None
    progress: DrainProgress
    instances: list[DrainLine]
    ack: DrainAckShape | None


def drain_shape(
    state: ClusterState,
    record: NodeRecord,
    live: LiveNode | None,
    players: Callable[[str], int | None],
    empty_at: Callable[[str], dt.datetime | None],
) -> NodeDrainShape | None:
    drain = record.drain
    if drain is None:
        return None
    lines = drain_lines(state, record.id, players=players)
    ack = live.drain_ack if live is not None else None
    answered = ack is not None and ack.drain_id in ("", drain.id)
    return NodeDrainShape(
        id=drain.id,
        by=drain.by,
        reason=drain.reason,
        started_at=drain.started_at,
        deadline_at=drain.deadline_at,
        shutdown=drain.shutdown,
        was_cordoned=drain.was_cordoned,
        drained_at=drain.drained_at,
        exit_ordered_at=drain.exit_ordered_at,
        progress=drain_progress_of(drain, lines),
        instances=[
            msgspec.structs.replace(each, empty_at=empty_at(each.id))
            if each.waits_for is DrainWaitFor.PLAYERS and each.players is None
            else each
            for each in lines[:MOST_LINES]
        ],
        ack=DrainAckShape(running_instances=ack.running_instances, estimated_seconds=ack.estimated_seconds)
        if ack is not None and answered
        else None,
    )


def drain_within_scope(access: Access, drain: NodeDrainShape, node: str) -> NodeDrainShape:
    """A drain without the lines of instances outside of the caller's scope, which may name some groups of the node only."""
    lines = [
        each for each in drain.instances if access.allows_on_instance(Permission.NODES_READ, each.group, node)
    ]
    return msgspec.structs.replace(drain, instances=lines)
