"""Dry runs: what a change would do, from its description alone; nothing is stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import Confirmed, Query
from corral.controller.instances.confirmations import Concerned, World, before_static_goes, of_group
from corral.controller.instances.deployments import unplannable_stable
from corral.controller.instances.plan_signals import PlanSignals
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
from corral.domain.groups.instance_records import NOT_YET_RUNNING, GroupRecord, InstanceRecord, stays
from corral.domain.instance_states import Wanted
from corral.domain.planning.plan_results import PlannedDecision
from corral.domain.planning.planner import SHOWN_LIMITS, plan
from corral.errors import Rejected, counted

MOST_DECISIONS: Final = 200
MOST_NAMED: Final = 100
"""So many instances get a warning of their own."""
_ENDS: Final = {DecisionKind.STOP: "stopped", DecisionKind.DRAIN: "stopped_when_empty"}
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
    stop_after_seconds: int | None = None


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
            touched[id] = touched_instance(
                stored.record, workload, "killed" if record.force_stop else "stopped"
            )
    gone = {each.group for each in changes if each.change == "deleted"}
    staying = sorted({*(each.group for each in changes), *(each.group for each in touched.values())} - gone)
    decisions = plan(signals.view(ws), staying, SHOWN_LIMITS).decisions if staying else ()
    for decision in decisions:
        effect = _ENDS.get(decision.kind)
        stored = state.instances.find(decision.instance) if effect else None
        if stored is not None:
            touched[decision.instance] = touched_instance(stored.record, workload, str(effect))
    found = dry_run_shape(changes, touched.values(), worlds, warnings)
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
        return dry_run_shape((), (), (), ())
    decisions = plan(signals.view(ws), [name], SHOWN_LIMITS).decisions
    stopped = {each.instance for each in decisions if each.kind is DecisionKind.STOP}
    touched = [
        touched_instance(each, workload, "stopped" if each.id in stopped else "stopped_when_empty")
        for each in ws.instances_of(name)
        if each.id in stopped or (group.hold is not None and stays(each))
    ]
    change = GroupChangeShape(group=name, change="held" if group.hold is not None else "released")
    found = dry_run_shape([change], touched, (), ())
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
        return dry_run_shape((), (), (), ())
    effect = "restarted" if group.spec.static else "replaced"
    view = signals.view(ws)
    leaving = leavers(view, deployment)
    touched = [
        touched_instance(
            each.record,
            workload,
            "stopped_when_empty" if each.retired else effect,
            stop_after=each.stop_after,
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
    found = dry_run_shape([GroupChangeShape(group=name, change="deployed")], touched, (), warnings)
    return msgspec.structs.replace(
        found, decisions=tuple(planned_shape(each) for each in decisions[:MOST_DECISIONS])
    )


def restart_described(
    workload: Workloads, group: GroupRecord, running: Sequence[InstanceRecord]
) -> DryRunShape:
    """What a restart of all these instances of a group at the same time would do."""
    touched = [touched_instance(each, workload, "restarted", stop_after=0) for each in running]
    worlds = world_names(group, running)
    warnings = [f"worlds that are stopped and used again: {worlds}"] if worlds else []
    change = [GroupChangeShape(group=group.spec.name, change="restarted")] if touched else []
    return dry_run_shape(change, touched, (), warnings)


def removal_described(concerned: Concerned, workload: Workloads) -> DryRunShape:
    """What the removal of a node would do."""
    touched = [touched_instance(each, workload, "given_up") for each in concerned.living]
    warnings = [
        "what is given up may still run there: 'corral local --data DIR stop-all' on that host ends it"
    ]
    return dry_run_shape((), touched, concerned.worlds, warnings if touched else ())


def dry_run_shape(
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
            yield touched_instance(record, workload, drift.value)


def touched_instance(
    record: InstanceRecord, workload: Workloads, effect: str, *, stop_after: int | None = None
) -> TouchedInstance:
    return TouchedInstance(
        id=record.id,
        group=record.group,
        node=record.node,
        players=0 if record.state in NOT_YET_RUNNING else workload.vitals.players_of(record.id),
        effect=effect,
        stop_after_seconds=stop_after,
    )
