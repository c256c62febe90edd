"""Dry runs: what a change would do, from its description alone; nothing is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import Confirmed, Query
from corral.controller.instances.confirmations import Concerned, World, before_static_goes, of_group, on_node
from corral.controller.instances.deployments import unplannable_stable
from corral.controller.instances.drain_progress import groups_without_others
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.player_cuts import leavers, world_names
from corral.controller.instances.revisions import present_basis
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.controller.workload.service import Workloads
from corral.domain.decisions import DecisionKind
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.drift import Drift, drift_of, misplaced
from corral.domain.groups.field_effects import FieldEffect, effect_of
from corral.domain.groups.group_documents import brief_document, changed_fields
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, live, stays
from corral.domain.instance_states import Wanted
from corral.domain.planning.elsewhere import Elsewhere
from corral.domain.planning.node_drains import Way, may_have_players, way_of
from corral.domain.planning.plan_results import GroupResult, PlannedDecision
from corral.domain.planning.planner import SHOWN_LIMITS, plan
from corral.domain.records import NodeDrain
from corral.errors import Rejected, counted

MOST_DECISIONS: Final = 200
MOST_NAMED: Final = 100
"""So many instances get a warning of their own."""
_ENDS: Final = {DecisionKind.STOP: "stopped", DecisionKind.DRAIN: "stopped_when_empty"}
_LEAVES: Final = {
    Way.MOVE: "moved",
    Way.EMPTY: "stopped_when_empty",
    Way.AT_ONCE: "stopped",
    Way.SICK: "stopped",
    Way.LEAVING: "stopped_when_empty",
    Way.AWAY: "waited_for",
}
"""What becomes of an instance on a node that would be emptied."""
DryRun = Annotated[bool, msgspec.Meta(description="Answer what it would do, and do nothing.")]


class DryRunQuery(Query, frozen=True, kw_only=True):
    dry_run: DryRun = False


class ConfirmedOrDry(Confirmed, frozen=True, kw_only=True):
    dry_run: DryRun = False


class FieldChangeShape(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    before: Any
    after: Any
    effect: FieldEffect


class GroupChangeShape(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of a group: `created`, `updated`, `deployed`, `restarted` (at once), `deleted`, `held` or
    `released`."""

    group: str
    change: str
    fields: tuple[FieldChangeShape, ...] = ()


class TouchedInstance(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    group: str
    node: str
    players: int | None
    effect: str
    cut_after_seconds: int | None = None


class PlannedShape(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that would follow at once."""

    kind: str
    rule: str
    group: str
    instance: str
    node: str
    reason: str


class DryRunShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a change would do. `players` are those of the instances, as far as they are known."""

    changes: tuple[GroupChangeShape, ...]
    instances: tuple[TouchedInstance, ...]
    players: int
    worlds: tuple[World, ...]
    warnings: tuple[str, ...]
    decisions: tuple[PlannedShape, ...] = ()


def dry_mutation(action: str, subject: str, shape: DryRunShape) -> Mutation:
    """The answer of a dry run: nothing is stored, not even under an idempotency key."""
    return Mutation(action=action, subject=subject, steps=(), body=shape, remembered=False)


def described(ws: Workspace, signals: PlanSignals, workload: Workloads) -> DryRunShape:
    """What the changes of a workspace would do, and what would be decided about its groups at once."""
    state, after = ws.state, ws.groups()
    before = {name: stored.record for name, stored in state.groups.items()}
    changes: list[GroupChangeShape] = []
    touched: dict[str, TouchedInstance] = {}
    worlds: list[World] = []
    warnings: list[str] = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is new:
            continue
        changes.append(_group_change(name, old, new))
        if new is None or new.deleting:
            worlds += of_group(state, name).worlds
        elif old is not None:
            if old.spec.static and not new.spec.static:
                worlds += of_group(state, name).worlds
                warnings += _refused(state, name)
            touched |= {each.id: each for each in _drifting(ws, new, workload)}
    for id in ws.changed_instances():
        record, stored = ws.instance(id), state.instances.find(id)
        if record is not None and stored is not None and record.wanted is Wanted.STOP:
            touched[id] = _touched(stored.record, workload, "killed" if record.force_stop else "stopped")
    gone = {each.group for each in changes if each.change == "deleted"}
    staying = sorted({*(each.group for each in changes), *(each.group for each in touched.values())} - gone)
    decisions = plan(signals.view(ws), staying, SHOWN_LIMITS).decisions if staying else ()
    for decision in decisions:
        effect = _ENDS.get(decision.kind)
        stored = state.instances.find(decision.instance) if effect else None
        if stored is not None:
            touched[decision.instance] = _touched(stored.record, workload, str(effect))
    found = _shape(changes, touched.values(), worlds, warnings)
    return msgspec.structs.replace(
        found, decisions=tuple(planned_shape(each) for each in decisions[:MOST_DECISIONS])
    )


def planned_shape(each: PlannedDecision) -> PlannedShape:
    return PlannedShape(
        kind=each.kind.value,
        rule=each.rule.value,
        group=each.group,
        instance=each.instance,
        node=each.placement.node if each.placement is not None else "",
        reason=each.reason,
    )


def hold_described(ws: Workspace, signals: PlanSignals, workload: Workloads, name: str) -> DryRunShape:
    """What a hold or a release of a group would do."""
    group, stored = ws.require_group(name), ws.state.groups.require(name).record
    if group is stored:
        return _shape((), (), (), ())
    decisions = plan(signals.view(ws), [name], SHOWN_LIMITS).decisions
    stopped = {each.instance for each in decisions if each.kind is DecisionKind.STOP}
    touched = [
        _touched(each, workload, "stopped" if each.id in stopped else "stopped_when_empty")
        for each in ws.instances_of(name)
        if each.id in stopped or (group.hold is not None and stays(each))
    ]
    change = GroupChangeShape(group=name, change="held" if group.hold is not None else "released")
    found = _shape([change], touched, (), ())
    return msgspec.structs.replace(
        found, decisions=tuple(planned_shape(each) for each in decisions[:MOST_DECISIONS])
    )


def deployment_described(
    ws: Workspace, signals: PlanSignals, workload: Workloads, deployment: DeploymentRecord
) -> DryRunShape:
    """What a deployment would do: whom it would replace, who is retired already, when players are cut off, and what would
    be decided at once. Nothing changes where one to the same revision, with the same options, is under way or done."""
    name = deployment.group
    group = ws.require_group(name)
    if ws.state.deployments.find(deployment.id) is not None:
        return _shape((), (), (), ())
    effect = "restarted" if group.spec.static else "replaced"
    view = signals.view(ws)
    leaving = leavers(view, deployment)
    touched = [
        _touched(
            each.record, workload, "stopped_when_empty" if each.retired else effect, cut_after=each.cut_after
        )
        for each in leaving
    ]
    begins = plan(view, [name], SHOWN_LIMITS).groups[name].rollout
    if begins is not None:  # the first look only begins it
        ws.put_deployment(begins.record)
    decisions = plan(signals.view(ws), [name], SHOWN_LIMITS).decisions
    lacking = unplannable_stable(ws, deployment) if deployment.stable else "there is no stable revision"
    serving = not all(each.retired for each in leaving)
    warnings = [f"there will be no way back: {lacking}"] if lacking and serving else []
    found = _shape([GroupChangeShape(group=name, change="deployed")], touched, (), warnings)
    return msgspec.structs.replace(
        found, decisions=tuple(planned_shape(each) for each in decisions[:MOST_DECISIONS])
    )


def restart_described(
    workload: Workloads, group: GroupRecord, running: Sequence[InstanceRecord]
) -> DryRunShape:
    """What a restart of all these instances of a group at the same time would do."""
    touched = [_touched(each, workload, "restarted", cut_after=0) for each in running]
    worlds = world_names(group, running)
    warnings = [f"worlds that are stopped and used again: {worlds}"] if worlds else []
    change = [GroupChangeShape(group=group.spec.name, change="restarted")] if touched else []
    return _shape(change, touched, (), warnings)


def removal_described(concerned: Concerned, workload: Workloads) -> DryRunShape:
    """What the removal of a node would do."""
    touched = [_touched(each, workload, "given_up") for each in concerned.living]
    warnings = [
        "what is given up may still run there: 'corral local --data DIR stop-all' on that host ends it"
    ]
    return _shape((), touched, concerned.worlds, warnings if touched else ())


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
    cut_after = max(0, round((until - ws.now).total_seconds())) if until is not None else None
    touched = [_touched(each, workload, effects[each.id], cut_after=cut_after) for each in living]
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
    found = _shape((), touched, worlds, warnings)
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


def _shape(
    changes: Iterable[GroupChangeShape],
    touched: Iterable[TouchedInstance],
    worlds: Iterable[World],
    warnings: Iterable[str],
) -> DryRunShape:
    found = tuple(touched)
    warned = list(warnings)
    ending = [each for each in found if each.effect not in (Drift.OUTDATED, Drift.PLACEMENT)]
    unknown = sum(each.players is None for each in ending)
    if unknown:
        warned.append(
            f"{counted(unknown, 'of the instances that would end has', 'of the instances that would end have')} an unknown number of players"
        )
    return DryRunShape(
        changes=tuple(changes),
        instances=found,
        players=sum(each.players or 0 for each in found),
        worlds=tuple(sorted(worlds)),
        warnings=tuple(warned),
    )


def _group_change(name: str, old: GroupRecord | None, new: GroupRecord | None) -> GroupChangeShape:
    if new is None or new.deleting:
        return GroupChangeShape(group=name, change="deleted")
    if old is None:
        document = brief_document(new.spec)
        fields = [_field(field, None, value) for field, value in document.items() if field != "name"]
        return GroupChangeShape(group=name, change="created", fields=tuple(fields))
    changed = changed_fields(old.spec, new.spec)
    fields = [_field(field, getattr(old.spec, field), getattr(new.spec, field)) for field in changed]
    return GroupChangeShape(group=name, change="updated", fields=tuple(fields))


def _field(name: str, before: Any, after: Any) -> FieldChangeShape:
    return FieldChangeShape(field=name, before=before, after=after, effect=effect_of(name, before, after))


def _refused(state: ClusterState, name: str) -> list[str]:
    try:
        before_static_goes(state, name, "")
    except Rejected as refusal:
        return [refusal.message]
    return []


def _drifting(ws: Workspace, group: GroupRecord, workload: Workloads) -> Iterable[TouchedInstance]:
    """The instances that would not run as the new document says."""
    basis = present_basis(ws, group.spec)
    for record in ws.instances_of(group.spec.name):
        if not stays(record):
            continue
        node = ws.state.nodes.find(record.node)
        elsewhere = node is not None and misplaced(group.spec, node.record)
        drift = drift_of(record.basis, basis, elsewhere=elsewhere)
        if drift in (Drift.OUTDATED, Drift.PLACEMENT):
            yield _touched(record, workload, drift.value)


def _touched(
    record: InstanceRecord, workload: Workloads, effect: str, *, cut_after: int | None = None
) -> TouchedInstance:
    return TouchedInstance(
        id=record.id,
        group=record.group,
        node=record.node,
        players=workload.vitals.players_of(record.id),
        effect=effect,
        cut_after_seconds=cut_after,
    )
