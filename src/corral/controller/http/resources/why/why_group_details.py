"""What explains a group beside the plan: names that nothing has, nodes that are away, groups that it waits for, crashes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from typing import Final

from corral.controller.http.resources.why.why_answer import NowShape, WhyParts, WouldChangeShape
from corral.controller.state.cluster_state import ClusterState
from corral.domain.access import Access
from corral.domain.decisions import Rule
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, is_lost, stays
from corral.domain.node_states import NodeState
from corral.domain.permissions import Permission
from corral.domain.planning.holds import hold_text
from corral.domain.planning.plan_results import GroupResult
from corral.domain.planning.plan_view import PlanView
from corral.errors import nearest

_NAMED: Final = 5
_CHOICES: Final = 500
"""The most names among which the one is looked for that was meant."""
_LINES: Final = 10
_READ: Final = Permission.DECISIONS_READ
_AWAY: Final = (NodeState.DISCONNECTED, NodeState.UNREACHABLE)


def group_details(parts: WhyParts, record: GroupRecord, found: GroupResult, access: Access) -> list[NowShape]:
    """What is the case around the group, as far as the caller may see it."""
    return [
        *_unknown_names(parts.state, record, found, access),
        *_away(parts.state, record),
        *_dependencies(parts, record, found, access),
        *_last_crash(parts.state, record, access),
    ]


def group_remedies(
    state: ClusterState, view: PlanView, record: GroupRecord, found: GroupResult
) -> list[WouldChangeShape]:
    """What would change it, beside the conditions of a placement."""
    shapes = [
        WouldChangeShape(condition=f"{node} joins", effect="it can take instances", at=None)
        for node in _unknown_nodes(state, record)
        if found.refusal is not None
    ]
    for node, count in _away_nodes(state, record).items():
        effect = (
            f"its {count} instances there are reachable again"
            if count > 1
            else "its instance there is reachable again"
        )
        shapes.append(WouldChangeShape(condition=f"{node} reconnects", effect=effect, at=None))
        shapes += loss_shape(view, record.spec, node)
    return shapes


def loss_shape(view: PlanView, spec: GroupSpec, node: str) -> list[WouldChangeShape]:
    """When the instances of a group on a node that is away are lost and replaced; empty: never, or they are."""
    left = view.grace_left(spec, node)
    if spec.static or left is None or left <= 0:
        return []
    effect = "what is there is lost, and replaced"
    at = view.now + dt.timedelta(seconds=left)
    return [WouldChangeShape(condition=f"{node} stays away", effect=effect, at=at)]


def _shape(
    topic: str, record: GroupRecord, reason: str, *, node: str = "", lines: Sequence[str] = ()
) -> NowShape:
    subject = f"group/{record.spec.name}"
    return NowShape(topic=topic, subject=subject, node=node, reason=reason, lines=list(lines))


def _unknown_nodes(state: ClusterState, record: GroupRecord) -> list[str]:
    return [node for node in record.spec.nodes if state.nodes.find(node) is None][:_NAMED]


def _unknown_names(
    state: ClusterState, record: GroupRecord, found: GroupResult, access: Access
) -> Iterable[NowShape]:
    """Nodes and groups that the document names, and that do not exist: they may be typing errors."""
    if found.refusal is None:
        return
    for node in _unknown_nodes(state, record):
        meant = _meant(node, (id for id, _ in state.nodes.items() if access.allows_on_node(_READ, id)))
        yield _shape("unknown", record, f"its 'nodes' name '{node}', which has not joined{meant}")
    for each in record.spec.affinity:
        if each.group and each.required and each.weight > 0 and state.groups.find(each.group) is None:
            seen = (name for name, _ in state.groups.items() if access.allows_on_group(_READ, name))
            meant = _meant(each.group, seen)
            text = f"its required 'affinity' names group '{each.group}', which does not exist{meant}"
            yield _shape("unknown", record, text)


def _meant(name: str, choices: Iterable[str]) -> str:
    guess = nearest(name, list(choices)[:_CHOICES])
    return f"; did you mean '{guess}'?" if guess else ""


def _away_nodes(state: ClusterState, record: GroupRecord) -> dict[str, int]:
    """The nodes with instances of the group that are not connected, with the numbers of these."""
    counts = state.instances.counts(record.spec.name)
    away = {}
    for node in {*counts.by_node, *counts.away}:
        stored = state.nodes.find(node)
        if stored is not None and stored.record.state in _AWAY:
            away[node] = max(counts.by_node[node], counts.away[node])
    return dict(sorted(away.items())[:_NAMED])


def _away(state: ClusterState, record: GroupRecord) -> Iterable[NowShape]:
    for node in _away_nodes(state, record):
        there = state.instances.of_group(record.spec.name)
        ids = [
            _named(state, each.record) for each in there if each.record.node == node and stays(each.record)
        ]
        named = ", ".join(ids[:_NAMED]) + (", …" if len(ids) > _NAMED else "")
        runs = state.nodes.require(node).record
        since = f"{runs.state} since {runs.state_since:%Y-%m-%d %H:%M:%S} UTC"
        yield _shape("unreachable", record, f"{node}, which has {named}, is {since}", node=node)


def _named(state: ClusterState, record: InstanceRecord) -> str:
    """An instance on a node that is away, and what took its place."""
    if not is_lost(record):
        return record.id
    other = state.instances.replacement_of(record.id)
    return f"{record.id} (lost, replaced by {other})" if other else f"{record.id} (lost)"


def _dependencies(
    parts: WhyParts, record: GroupRecord, found: GroupResult, access: Access
) -> Iterable[NowShape]:
    """What the groups have that this one waits for."""
    if found.need.rule is not Rule.DEPENDS_WAIT:
        return
    for each in record.spec.depends_on:
        stored = parts.state.groups.find(each.group)
        if stored is None or parts.state.instances.counts(each.group).serving_ready >= each.ready:
            continue
        if not access.allows_on_group(_READ, each.group):
            yield _shape("depends_on", record, f"'{each.group}': it is outside of the scope of the caller")
            continue
        wanted = parts.instances.signals.wanted(stored.record)
        text = _trouble(parts.as_of_now(stored.record), wanted) or "its instances are not ready yet"
        yield _shape("depends_on", record, f"'{each.group}': {text}; see 'corral why group/{each.group}'")


def _trouble(record: GroupRecord, wanted: int) -> str:
    name = record.spec.name
    if record.hold is not None:
        return hold_text(record.hold, name)
    if record.paused is not None:
        until = f"{record.paused.until:%Y-%m-%d %H:%M:%S} UTC"
        return f"it is crash-looping and paused until {until}: {record.paused.reason}"
    if record.reason:
        return record.reason
    return "" if wanted else "it wants no instances"


def _last_crash(state: ClusterState, record: GroupRecord, access: Access) -> Iterable[NowShape]:
    """Of a group that is paused as crash-looping: the crash that began the pause, and how the console of its run ends."""
    found = state.crashes.find(record.paused.crash) if record.paused is not None else None
    if found is None:
        return
    crash = found.record
    text = f"the last crash, of '{crash.instance}': {crash.exit.summary}; see 'corral crash get {crash.id}'"
    if state.instances.find(crash.instance) is not None:
        text += f" and 'corral instance console {crash.instance}'"
    reads = access.allows_on_instance(Permission.INSTANCES_CONSOLE, crash.group, crash.node)
    yield _shape("crash", record, text, node=crash.node, lines=crash.tail[-_LINES:] if reads else ())
