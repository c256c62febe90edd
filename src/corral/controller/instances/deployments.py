"""Operations on deployments, as changes of a workspace. An operation whose result is already the case changes nothing and
returns the present record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.controller.instances.crash_loops import end_pause
from corral.controller.instances.deployment_phases import decide_about, take_step
from corral.controller.instances.instance_changes import refuse_abstract, refuse_deleting
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.revisions import find_revision, make_revision, revisions_of
from corral.controller.instances.serving_counts import serving_count
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import Rule
from corral.domain.events import EventType
from corral.domain.groups.deployments import (
    RESTART,
    ROLLBACK,
    TRIGGER_TO,
    DeploymentRecord,
    DeploymentState,
    DeploymentTrigger,
)
from corral.domain.groups.group_documents import brief_document, merged, parse_group
from corral.domain.groups.instance_records import GroupRecord, LastScale, ScaleDirection, stays
from corral.domain.groups.revisions import RevisionRecord
from corral.domain.groups.scaling_spec import ScalingMode
from corral.domain.groups.update_spec import UpdateSpec, UpdateStrategy
from corral.domain.ids import GroupName
from corral.domain.planning import rollout_phases as phases
from corral.domain.planning.node_drains import replacements
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_failures import unplannable
from corral.domain.planning.rollout_members import (
    DeploymentProgress,
    RolloutMembers,
    is_incoming,
    keeps_place,
    progress_of_members,
    rollout_members,
)
from corral.domain.planning.rollout_phases import NextPhase, PhaseChange
from corral.domain.planning.scaling import load_verdict, wanted_count
from corral.domain.planning.schedules import scheduled
from corral.errors import Code, Rejected

MANUAL: Final = "manual"
DEPLOYMENTS_KEPT: Final = 10
"""The ended deployments of a group that are kept, and the last that brought its document."""


def deploy_group(
    ws: Workspace,
    name: str,
    *,
    by: str,
    reason: str = "",
    options: Mapping[str, Any] | None = None,
    trigger: str = MANUAL,
) -> DeploymentRecord:
    """Bring the instances of a group to its present document. `options`: a merge patch of its `update`. A deployment that
    is active is superseded, unless it brings the same in the same way."""
    group = _to_deploy(ws, name)
    update = _options(group, options)
    revision = make_revision(ws, name, by=by, trigger=trigger)
    active = ws.deployment(group.deployment) if group.deployment else None
    if (
        active is not None
        and not active.going_back
        and active.target == revision.number
        and active.options == update
    ):
        return active
    return _create(ws, name, revision, update, by=by, reason=reason, trigger=trigger)


def restart_revision(
    ws: Workspace, name: str, *, by: str, reason: str = "", options: Mapping[str, Any] | None = None
) -> DeploymentRecord:
    """Restart every instance of a group by a deployment: a new revision that differs from the last in this alone."""
    group = _to_deploy(ws, name)
    update = _options(group, options)
    revision = make_revision(ws, name, by=by, trigger=RESTART, restart=True)
    pin = (
        revision.number if group.pinned_revision else 0
    )  # it changes no contents: they stay those of the pin
    return _create(ws, name, revision, update, by=by, reason=reason, trigger=RESTART, pin=pin)


def _to_deploy(ws: Workspace, name: str) -> GroupRecord:
    group = ws.require_group(name)
    refuse_deleting(group)
    refuse_abstract(group)
    return group


def _options(group: GroupRecord, patch: Mapping[str, Any] | None) -> UpdateSpec:
    if not patch:
        return group.spec.update
    document = merged(brief_document(group.spec), {"update": dict(patch)})
    return parse_group(document).update


def _create(
    ws: Workspace,
    name: str,
    revision: RevisionRecord,
    options: UpdateSpec,
    *,
    by: str,
    reason: str,
    trigger: str,
    stable: RevisionRecord | None = None,
    pin: int = 0,
) -> DeploymentRecord:
    group = ws.require_group(name)
    active = ws.deployment(group.deployment) if group.deployment else None
    if trigger != ROLLBACK:
        stable = _stable(ws, group, active, revision)
    id = ws.new_id("dep")
    record = DeploymentRecord(
        id=id,
        group=GroupName(name),
        phase_since=ws.now,
        created_at=ws.now,
        target=revision.number,
        target_basis=revision.basis,
        stable=stable.number if stable is not None else 0,
        stable_basis=stable.basis if stable is not None else "",
        options=options,
        trigger=trigger,
        by=by,
        reason=reason,
        request=ws.request,
        last_progress_at=ws.now,
        pinned_before=active.pinned_before if active is not None else group.pinned_revision,
        waiting="it is about to begin",
    )
    if active is not None:
        _end(ws, active, DeploymentTrigger.SUPERSEDE, f"superseded by '{id}'", by=id)
    why = f": {reason}" if reason else ""
    text = f"deployment of revision {record.target} ({trigger}) by {by}{why}"
    record = msgspec.structs.replace(record, decision=decide_about(ws, record, text, rule=Rule.DEPLOY_START))
    ws.put_deployment(record)
    group = ws.require_group(name)
    if group.paused is not None:
        group = end_pause(ws, group, by="deployment")
    ws.put_group(
        msgspec.structs.replace(
            group,
            deployment=id,
            unsettled="",
            pinned_revision=pin,
            request=ws.request or group.request,
            last_scale=group.last_scale if active is not None else _number_by_load(ws, group),
        )
    )
    _announce(ws, record)
    _forget_old(ws, name)
    return record


def _number_by_load(ws: Workspace, group: GroupRecord) -> LastScale | None:
    """The last change because of load, with the number that serves now: operators and ends of instances have changed it
    since, and while the group is deployed what serves is not its number."""
    last, serving = group.last_scale, serving_count(ws, group.spec.name)
    modes = (group.spec.scaling.mode, *(each.mode for each in group.spec.schedules))
    if ScalingMode.DYNAMIC not in modes:
        return last
    if last is None:
        return LastScale(at=group.created_at, direction=ScaleDirection.UP, need=serving)
    return msgspec.structs.replace(last, need=serving)


def _announce(ws: Workspace, record: DeploymentRecord) -> None:
    ws.event(
        EventType.DEPLOYMENT_CREATED,
        record.id,
        group=record.group,
        target=record.target,
        stable=record.stable,
        trigger=record.trigger,
        by=record.by,
        reason=record.reason,
        decision=record.decision,
    )


def _stable(
    ws: Workspace, group: GroupRecord, active: DeploymentRecord | None, target: RevisionRecord
) -> RevisionRecord | None:
    """The revision to go back to: of the last completed deployment, else the one that most instances run by, rather one
    that no deployment has brought: none was completed. Instances without a number, from before revisions were recorded, run
    by the one with their basis."""
    name = group.spec.name
    if active is not None:
        return find_revision(ws, name, active.stable) if active.stable else None
    number = group.pinned_revision or group.stable_revision
    if not number:
        earlier = [each.record for each in ws.state.deployments.of_group(name)]
        brought = {each.target for each in earlier}
        by_basis = {each.basis: each.number for each in revisions_of(ws, name)}
        present = (each for each in ws.instances_of(name) if stays(each))
        numbers = (each.revision or by_basis.get(each.basis, 0) for each in present)
        running = Counter(each for each in numbers if each and each != target.number)
        number = max(running, key=lambda each: (each not in brought, running[each], each), default=0)
        if number in brought or not number:
            former = (each.stable for each in earlier if each.stable not in (0, target.number))
            number = next(former, number)
    return find_revision(ws, name, number) if number else None


def unplannable_stable(ws: Workspace, record: DeploymentRecord) -> str:
    """Why nothing can be started by the stable revision of a deployment; empty: it can, or there is none."""
    group = ws.group(record.group)
    return unplannable(WorkspaceView(ws), group, record) if group is not None else ""


def _forget_old(ws: Workspace, name: str) -> None:
    ended = [each.record for each in ws.state.deployments.of_group(name) if not each.record.active]
    last = next((each.id for each in ended if each.brings_document), "")
    for record in ended[DEPLOYMENTS_KEPT:]:
        if record.id != last:
            ws.delete_deployment(record.id)


def deployment_progress_of(view: PlanView, record: DeploymentRecord) -> DeploymentProgress:
    """How far a deployment is, by the instances that are there now."""
    group = view.group(record.group)
    if group is None:
        return progress_of_members(view, record, RolloutMembers(), wanted=0, goal=0)
    values = scheduled(group.spec, view.now)
    tally, beside = view.tally(group.spec.name), 0
    if view.emptied:
        beside = len(replacements(view.instances_of(group.spec.name), view.emptied))
    verdict = load_verdict(group, values, view, serving=tally.serving - beside, starting=tally.starting)
    wanted = wanted_count(group, values, verdict)
    spec = msgspec.structs.replace(group.spec, update=record.options)
    members = rollout_members(view, record, spec)
    return progress_of_members(view, record, members, wanted=wanted, goal=phases.goal_of(record, wanted))


def require_deployment(ws: Workspace, id: str) -> DeploymentRecord:
    return ws.deployment(id) or ws.state.deployments.require(id).record


def pause_deployment(ws: Workspace, id: str, *, by: str) -> DeploymentRecord:
    """Start and retire nothing for it; what fails is replaced by the revision that it had."""
    record = _active(ws, id, "paused")
    if record.state is DeploymentState.PAUSED:
        return record
    text = f"paused by {by}"
    there = ws.instances_of(record.group)
    spec = ws.require_group(record.group).spec
    incoming = sum(keeps_place(spec, each) and not each.warm and is_incoming(record, each) for each in there)
    paused = msgspec.structs.replace(
        record.stepped(DeploymentTrigger.PAUSE, ws.now),
        resumes=record.resumes or record.state,
        goal=incoming,
    )
    paused = msgspec.structs.replace(paused, waiting=phases.healing_text(paused))
    return take_step(ws, record, _changed(paused, text), by=by)


def resume_deployment(ws: Workspace, id: str, *, by: str) -> DeploymentRecord:
    """Let a paused deployment go on where it was. Failures until now count no more: an operator has seen them."""
    record = _active(ws, id, "resumed")
    if record.state is not DeploymentState.PAUSED:
        return record
    state = record.resumes or DeploymentState.PENDING
    resumed = msgspec.structs.replace(
        record.stepped(TRIGGER_TO[state], ws.now), clock_used=0.0, last_progress_at=ws.now, failed=0
    )
    return take_step(ws, record, _changed(resumed, f"{state}: resumed by {by}"), by=by)


def promote_deployment(ws: Workspace, id: str, *, by: str) -> DeploymentRecord:
    """Open the gate by hand."""
    record = _active(ws, id, "promoted")
    if record.state is DeploymentState.ROLLING:
        return record
    if record.state is not DeploymentState.GATE:
        raise Rejected(
            Code.CONFLICT,
            f"deployment '{id}' is {record.state} and cannot be promoted",
            hint="resume it first"
            if record.state is DeploymentState.PAUSED
            else f"wait until its canaries are healthy and it is {DeploymentState.GATE}",
        )
    return take_step(ws, record, phases.promoted(record, ws.now, f"promoted by {by}"), by=by)


def roll_back_deployment(ws: Workspace, id: str, *, by: str, reason: str = "") -> DeploymentRecord:
    """Bring the instances back to the stable revision. Of one that has ended, and is the last of its group, by a new
    deployment, which is returned."""
    record = require_deployment(ws, id)
    if record.state in (DeploymentState.ROLLING_BACK, DeploymentState.ROLLED_BACK):
        return record
    why = f"rolled back by {by}" + (f": {reason}" if reason else "")
    refusal = phases.no_way_back(record, unplannable_stable(ws, record))
    undoes = record.trigger == ROLLBACK and not record.stable
    if undoes:
        refusal = f"it was a rollback itself, to revision {record.target}"
    if refusal and not record.going_back:
        again = f"to bring the document again: change what was wrong, then corral deploy {record.group}"
        raise Rejected(
            Code.CONFLICT,
            f"deployment '{id}' cannot be rolled back: {refusal}",
            hint=again if undoes else "change the document, and deploy it",
        )
    if record.active:
        if record.going_back:  # and paused
            return resume_deployment(ws, id, by=by)
        return take_step(ws, record, phases.gone_back(record, why, ws.now, rule=Rule.DEPLOY_ROLLBACK), by=by)
    return _undo(ws, record, by=by, reason=reason or f"'{id}' is taken back")


def _undo(ws: Workspace, record: DeploymentRecord, *, by: str, reason: str) -> DeploymentRecord:
    """A deployment of the revision that was stable before one that has ended."""
    group = _to_deploy(ws, record.group)
    last = ws.state.deployments.of_group(record.group)[0].record
    done = record.state in (DeploymentState.FAILED, DeploymentState.COMPLETED)
    if group.deployment or not done or last.id != record.id:
        raise Rejected(
            Code.CONFLICT,
            f"deployment '{record.id}' is {record.state}, and not the last of group '{record.group}' that brought something",
            hint=f"roll back '{group.deployment or last.id}'",
        )
    revision = find_revision(ws, record.group, record.stable)
    if revision is None:
        raise Rejected(
            Code.NOT_FOUND,
            f"revision {record.stable} of group '{record.group}' is no longer kept",
            hint="change the document, and deploy it",
        )
    options = msgspec.structs.replace(record.options, strategy=UpdateStrategy.ROLLING)
    return _create(
        ws, record.group, revision, options, by=by, reason=reason, trigger=ROLLBACK, pin=revision.number
    )


def cancel_deployment(ws: Workspace, id: str, *, by: str, reason: str = "") -> DeploymentRecord:
    """End a deployment where it is: nothing is taken back, and nothing more is replaced. It has completed nothing, so that
    a pin that it cleared is there again."""
    record = require_deployment(ws, id)
    if record.state is DeploymentState.CANCELLED:
        return record
    _active(ws, id, "cancelled")
    why = f"cancelled by {by}" + (f": {reason}" if reason else "")
    group = ws.group(record.group)
    if group is not None and group.deployment == id:
        pin = group.pinned_revision if record.going_back else record.pinned_before
        if pin and pin != group.pinned_revision:
            why += f"; the group is pinned to revision {pin}, as before"
        ws.put_group(msgspec.structs.replace(group, deployment="", unsettled="", pinned_revision=pin))
    return _end(ws, record, DeploymentTrigger.CANCEL, why, by=by)


def end_deployments_of(ws: Workspace, name: str, *, by: str) -> None:
    """Cancel the active deployment of a group that is being deleted."""
    group = ws.group(name)
    active = ws.deployment(group.deployment) if group is not None and group.deployment else None
    if active is not None and active.active:
        cancel_deployment(ws, active.id, by=by, reason=f"group '{name}' is deleted")


def drop_deployments(ws: Workspace, name: str) -> None:
    """Remove every deployment of a group that is gone."""
    for stored in ws.state.deployments.of_group(name):
        ws.delete_deployment(stored.record.id)


def _active(ws: Workspace, id: str, done: str) -> DeploymentRecord:
    record = require_deployment(ws, id)
    if not record.active:
        raise Rejected(
            Code.CONFLICT,
            f"deployment '{id}' is {record.state} and cannot be {done}",
            hint=f"to take it back: corral deployment rollback {id}"
            if record.state is DeploymentState.COMPLETED
            else f"deploy the group again: corral deploy {record.group}",
        )
    return record


def _end(
    ws: Workspace, record: DeploymentRecord, trigger: DeploymentTrigger, why: str, *, by: str
) -> DeploymentRecord:
    ended = msgspec.structs.replace(record.stepped(trigger, ws.now), outcome=why)
    return take_step(ws, record, _changed(ended, f"{ended.state}: {why}"), by=by)


def _changed(record: DeploymentRecord, text: str) -> NextPhase:
    return NextPhase(record=record, changes=(PhaseChange(rule=Rule.OPERATOR, reason=text),))
