"""What the drain of a node would do: how each instance would leave, which groups would be left without one, which worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from corral.controller.http.resources.dry_runs import (
    MOST_DECISIONS,
    MOST_NAMED,
    DryRunShape,
    dry_run_shape,
    planned_shape,
    touched_instance,
)
from corral.controller.instances.confirmations import on_node
from corral.controller.instances.drain_progress import groups_without_others
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.workspace import Workspace
from corral.controller.workload.service import Workloads
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, live, stays
from corral.domain.instance_states import Wanted
from corral.domain.planning.elsewhere import Elsewhere
from corral.domain.planning.node_drains import Way, may_have_players, way_of
from corral.domain.planning.plan_results import GroupResult
from corral.domain.planning.planner import SHOWN_LIMITS, plan
from corral.domain.records import NodeDrain
from corral.errors import counted

_LEAVES: Final = {
    Way.MOVE: "moved",
    Way.EMPTY: "stopped_when_empty",
    Way.AT_ONCE: "stopped",
    Way.SICK: "stopped",
    Way.LEAVING: "stopped_when_empty",
    Way.AWAY: "waited_for",
}
"""What becomes of an instance on a node that would be emptied."""


def drain_described(
    ws: Workspace, signals: PlanSignals, workload: Workloads, node: str, *, strays: int
) -> DryRunShape:
    """What the drain of a node, which is a change of this workspace, would do."""
    drain = ws.require_node(node).drain
    at_once = drain is not None and drain.deadline_seconds == 0
    living = [each for each in ws.on_node(node) if live(each.state)]
    groups: dict[str, GroupRecord | None] = {each.group: ws.group(each.group) for each in living}
    view = signals.view(ws)
    elsewhere = Elsewhere(view)
    result = plan(view, sorted(name for name, group in groups.items() if group), SHOWN_LIMITS)
    effects: dict[str, str] = {
        each.id: "stopped" if at_once else _drain_effect(view, groups[each.group], each, elsewhere)
        for each in living
    }
    until = drain.deadline_at if drain is not None else None
    stop_after = max(0, round((until - ws.now).total_seconds())) if until is not None else None
    touched = [touched_instance(each, workload, effects[each.id], stop_after=stop_after) for each in living]
    worlds = [each for each in on_node(ws.state, node).worlds if effects.get(each.id)]
    single = {name for name in groups if sum(stays(each) for each in ws.instances_of(name)) == 1}
    warnings = [
        f"'{each.id}' is the only instance of group '{each.group}'" for each in living if each.group in single
    ]
    warnings += [
        f"no node has room: {found.drain_wait.reason}"
        for found in result.groups.values()
        if found.drain_wait is not None and found.drain_wait.room
    ]
    tied = [
        each
        for each in living
        if (group := groups[each.group]) is not None
        and not group.spec.static
        and not elsewhere.could_run(group.spec, node)
    ]
    warnings += [
        f"nothing is started in the place of '{each.id}' until the node is undrained: no other node could take it"
        for each in tied[:MOST_NAMED]
    ]
    if len(tied) > MOST_NAMED:
        warnings.append(f"nor is it in the place of {len(tied) - MOST_NAMED} more")
    staying = [each for each in living if stays(each)]
    only = groups_without_others(ws.state, node, staying)
    ending = sorted(only & _stranded(groups, result.groups, elsewhere, node, drain=drain))
    warnings += [
        f"nothing would be left of group '{name}': no other node takes its instances now" for name in ending
    ]
    if strays:
        warnings.append(
            f"{counted(strays, 'run')} there that no record knows would be stopped with the daemon"
        )
    found = dry_run_shape((), touched, worlds, warnings)
    return msgspec.structs.replace(
        found, decisions=tuple(planned_shape(each) for each in result.decisions[:MOST_DECISIONS])
    )


def stranded_groups(ws: Workspace, signals: PlanSignals, node: str) -> set[str]:
    """The groups with instances on a node, whose drain is a change of this workspace, that no other node takes now; static
    ones stay there anyway. Without a deadline those that another node could take are waited for."""
    drain = ws.require_node(node).drain
    groups: dict[str, GroupRecord | None] = {
        each.group: ws.group(each.group) for each in ws.on_node(node) if live(each.state)
    }
    view = signals.view(ws)
    planned: Mapping[str, GroupResult] = {}
    if drain is not None and drain.deadline_seconds is not None:
        planned = plan(view, sorted(name for name, group in groups.items() if group), SHOWN_LIMITS).groups
    return _stranded(groups, planned, Elsewhere(view), node, drain=drain)


def _stranded(
    groups: Mapping[str, GroupRecord | None],
    planned: Mapping[str, GroupResult],
    elsewhere: Elsewhere,
    node: str,
    *,
    drain: NodeDrain | None,
) -> set[str]:
    found: set[str] = {
        name
        for name, group in groups.items()
        if group is not None and not group.spec.static and not elsewhere.could_run(group.spec, node)
    }
    if drain is None or drain.deadline_seconds is None:
        return found
    return found | {name for name, each in planned.items() if each.drain_wait and each.drain_wait.room}


def _drain_effect(
    view: WorkspaceView, group: GroupRecord | None, record: InstanceRecord, elsewhere: Elsewhere
) -> str:
    """How an instance would leave its node."""
    if record.wanted is Wanted.STOP:
        return "stopped"
    if group is None:
        return _LEAVES[Way.LEAVING]
    way = way_of(view, group.spec, record, elsewhere)
    if way in (Way.AT_ONCE, Way.SICK) and may_have_players(view, group.spec, record):
        return "stopped_when_empty"
    return _LEAVES[way]
