"""Nodes that are emptied, in the answers to why: of the node, of a group with instances there, and of an instance."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

from corral.controller.http.resources.why.why_answer import LISTED, NowShape, WhyParts, WouldChangeShape
from corral.controller.instances.drain_progress import drain_lines, drain_progress_of
from corral.domain.decisions import Rule
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.planning.drain_progress import drain_text
from corral.domain.planning.drain_reasons import StayReason, drain_summary, stay_reason
from corral.domain.planning.plan_results import GroupResult
from corral.domain.records import NodeDrain, NodeRecord

TOPIC = "drain"


def drain_of_node(parts: WhyParts, record: NodeRecord, now: dt.datetime) -> list[NowShape]:
    """How far a node is emptied, and why each instance is still there; empty: it is not emptied."""
    drain = record.drain
    if drain is None:
        return []
    players = parts.workload.vitals.players_of
    progress = drain_progress_of(drain, drain_lines(parts.state, record.id, players=players))
    whole = NowShape(
        topic=TOPIC,
        subject=f"node/{record.id}",
        node=record.id,
        rule=Rule.OPERATOR.value,
        reason=drain_summary(drain, progress),
        at=drain.deadline_at,
    )
    there = [each.record for each in parts.state.instances.of_node(record.id) if live(each.record.state)]
    return [whole, *(_shape(each) for each in _reasons(parts, there[:LISTED], now))]


def end_of_drain(record: NodeRecord, drain: NodeDrain) -> list[WouldChangeShape]:
    """What would change for a node that is emptied."""
    undrain = f"corral node undrain {record.id}"
    found = [WouldChangeShape(condition=undrain, effect="what is still there stays", at=None)]
    if drain.drained_at is not None:
        return [WouldChangeShape(condition=undrain, effect="it takes instances again", at=None)]
    if drain.deadline_at is not None:
        text = "the time for the drain is over"
        found.append(WouldChangeShape(condition=text, effect="what is left is stopped", at=drain.deadline_at))
    return found


def drain_of_group(parts: WhyParts, there: Iterable[InstanceRecord], found: GroupResult) -> list[NowShape]:
    """Why instances of a group are still on nodes that are emptied."""
    emptied = parts.state.nodes.emptied
    if not emptied:
        return []
    players = parts.workload.vitals.players_of
    leaving = [each for each in there if live(each.state) and each.node in emptied]
    return [_shape(stay_reason(each, found, players)) for each in leaving[:LISTED]]


def drain_of_instance(
    parts: WhyParts, record: InstanceRecord, now: dt.datetime
) -> tuple[list[NowShape], list[WouldChangeShape]]:
    """Why an instance is still on a node that is emptied, or was started in the place of one; and what would change it."""
    node = parts.state.nodes.find(record.node)
    shapes: list[NowShape] = []
    changes: list[WouldChangeShape] = []
    if record.moves and live(record.state):
        text = f"it was started in the place of '{record.moves}', which leaves its node"
        shapes.append(NowShape(topic=TOPIC, subject=f"instance/{record.id}", node=record.node, reason=text))
    if not live(record.state) or node is None or record.node not in parts.state.nodes.emptied:
        return shapes, changes
    for each in _reasons(parts, [record], now):
        text = f"{drain_text(node.record)}; {each.reason}"
        shapes.append(NowShape(topic=TOPIC, subject=f"instance/{record.id}", node=record.node, reason=text))
        if each.awaits:
            changes.append(WouldChangeShape(condition=each.awaits, effect="it is stopped", at=None))
    drain = node.record.drain
    if drain is not None and drain.deadline_at is not None:
        text = "the time for the drain is over"
        changes.append(WouldChangeShape(condition=text, effect="it is stopped", at=drain.deadline_at))
    stays = WouldChangeShape(
        condition=f"corral node undrain {record.node}", effect="it stays where it is", at=None
    )
    return shapes, [*changes, stays]


def _reasons(parts: WhyParts, there: list[InstanceRecord], now: dt.datetime) -> list[StayReason]:
    names = {each.group for each in there if parts.state.groups.find(each.group) is not None}
    groups = parts.plan(sorted(names), now)[1].groups if names else {}
    players = parts.workload.vitals.players_of
    return [stay_reason(each, groups.get(each.group), players) for each in there]


def _shape(each: StayReason) -> NowShape:
    return NowShape(
        topic=TOPIC,
        subject=f"instance/{each.instance}",
        node=each.node,
        rule=Rule.DRAIN_WAIT.value,
        reason=each.reason,
    )
