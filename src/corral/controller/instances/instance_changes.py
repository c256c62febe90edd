"""Operations of operators on an instance, as changes of a workspace.

An operation whose result is already the case changes nothing and returns the present record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from corral.controller.instances.deployment_revisions import start_revision
from corral.controller.instances.plan_view import home_of, next_requests
from corral.controller.instances.restart_checks import refused_restart
from corral.controller.instances.revisions import resolved_by
from corral.controller.instances.run_exits import run_again
from corral.controller.instances.serving_counts import serving_count
from corral.controller.instances.starts import insist_on_group, keep_number, start_run
from corral.controller.instances.workspace import Workspace
from corral.controller.state.ledger import RecordedRefusal
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.events import EventType
from corral.domain.groups.instance_records import (
    AfterStop,
    GroupRecord,
    InstanceRecord,
    is_draining,
    live,
    stays,
)
from corral.domain.groups.plan_resolution import check_instance_variables
from corral.domain.groups.scaling_spec import ScalingMode
from corral.domain.instance_states import Wanted
from corral.domain.planning.holds import refuse_held
from corral.domain.planning.node_drains import replacements
from corral.domain.planning.refusals import NodeRefusal, PlacementRefusal, count_codes
from corral.domain.planning.scaling import wanted_count
from corral.domain.planning.schedules import ScheduledValues, scheduled
from corral.domain.planning.start_requests import StartRequest, revision_for_start
from corral.errors import Code, Rejected, counted, nearest
from corral.store.port import Append

_VARIABLES: Final = 64 * 1024
"""The most bytes of one instance's variables: they are sent with its order."""


def start_instance(
    ws: Workspace, group: str, *, node: str | None = None, variables: Mapping[str, str] | None = None
) -> InstanceRecord:
    """Start one more instance, whatever the group's desired number. GROUP_FULL, NO_CAPACITY,
    PORT_RANGE_EXHAUSTED, VARIABLE_INVALID, and what keeps a plan from being made."""
    record = _group_to_start(ws, group)
    if node is not None:
        _refuse_unknown_node(ws, node)
    refuse_deleting(record)
    refuse_abstract(record)
    refuse_held(record)
    _refuse_over_max(ws, record)
    if variables:
        _check_size(variables)
    request = _request(ws, record, node, variables)
    if variables:
        number = revision_for_start(record, request)
        check_instance_variables(resolved_by(ws, record.spec, number).plan, variables)
    started = start_run(ws, record, request)
    if isinstance(started, PlacementRefusal):
        raise refused_start(ws, record, started)
    insist_on_group(ws, group)
    keep_number(ws, group)
    return started


def _group_to_start(ws: Workspace, name: str) -> GroupRecord:
    """The group; NOT_FOUND says what starts an instance again, where the name is one's id."""
    found = ws.instance(name) if ws.group(name) is None else None
    if found is None:
        return ws.require_group(name)
    raise Rejected(
        Code.NOT_FOUND,
        f"group '{name}' does not exist; that is an instance of group '{found.group}'",
        hint=f"'corral instance restart {name}' starts it again, 'corral instance start {found.group}' one more",
        field="group",
    )


def _refuse_unknown_node(ws: Workspace, id: str) -> None:
    if ws.state.nodes.find(id) is None:
        guess = nearest(id, [stored.record.id for stored in ws.state.nodes][:500])
        raise Rejected(
            Code.NOT_FOUND,
            f"node '{id[:80]}' does not exist",
            hint=f"did you mean '{guess}'?" if guess else None,
            field="node",
        )


def refused_start(
    ws: Workspace,
    group: GroupRecord,
    refused: PlacementRefusal,
    *,
    instance: str | None = None,
) -> RecordedRefusal:
    """The refusal of a requested start: recorded as a decision, with the rejected nodes."""
    steps = _refusal(ws, group, f"{refused.code.name}: {refused.summary}", instance, refused.refusals)
    return RecordedRefusal(refused.error(group.spec.name), steps=steps, returning=refused.returning())


def _refusal(
    ws: Workspace,
    group: GroupRecord,
    why: str,
    instance: str | None = None,
    refusals: Sequence[NodeRefusal] = (),
) -> tuple[Append, ...]:
    """The decision of a refusal, for its journals."""
    ws.decide(
        DecisionKind.REFUSE,
        rule=Rule.PLACE_REFUSE,
        group=group.spec.name,
        instance=instance,
        reason=f"asked for by {ws.by}; {why}",
        inputs={
            "wanted": wanted_count(group, scheduled(group.spec, ws.now)),
            "present": serving_count(ws, group.spec.name),
        },
        rejected=[refusal.alternative() for refusal in refusals],
        rejected_counts=count_codes(refusals),
    )
    return tuple(step for step in ws.steps() if isinstance(step, Append))


def _check_size(variables: Mapping[str, str]) -> None:
    size = sum(len(text.encode(errors="surrogatepass")) for item in variables.items() for text in item)
    if size > _VARIABLES:
        raise Rejected(
            Code.BODY_TOO_LARGE,
            f"the instance's variables have {size} bytes",
            hint=f"keep them below {_VARIABLES}: put long values into files",
            field="variables",
        )


def _request(
    ws: Workspace, group: GroupRecord, node: str | None, variables: Mapping[str, str] | None
) -> StartRequest:
    """The first request that may run on the node: not an ordinal whose directory is elsewhere."""
    reason = f"asked for by {ws.by}"
    requests = next_requests(ws, group, reason=reason, by_hand=True)
    chosen = next(each for each in requests if node is None or home_of(ws, group, each) in ("", node))
    chosen = msgspec.structs.replace(chosen, revision=start_revision(ws, group, ws.instance(chosen.id)))
    if node is not None:
        chosen = msgspec.structs.replace(chosen, only=node, pinned=True)
    return msgspec.structs.replace(chosen, variables=variables) if variables else chosen


def refuse_deleting(group: GroupRecord) -> None:
    if group.deleting:
        raise Rejected(
            Code.CONFLICT,
            f"group '{group.spec.name}' is being deleted",
            hint="wait until it is gone, then create it anew",
        )


def refuse_abstract(group: GroupRecord) -> None:
    if group.spec.abstract:
        raise Rejected(
            Code.CONFLICT,
            f"group '{group.spec.name}' is abstract: it is only a parent of others and has no instances",
            hint="start one of a group that has it as its 'parent', or set 'abstract' to false",
        )


def refuse_by_mode(group: GroupRecord, values: ScheduledValues, present: int | None = None) -> None:
    """Refuse to change the number of instances by hand where the document alone decides about it now. `present`: the
    number before a start, which may bring one back that was stopped."""
    if values.mode is not ScalingMode.STATIC or (present is not None and present < values.min):
        return
    name, schedule = group.spec.name, values.by.get("mode", "")
    mode = f"schedule '{schedule}' sets the mode STATIC now" if schedule else "its scaling.mode is STATIC"
    raise Rejected(
        Code.CONFLICT,
        f"group '{name}' has as many instances as 'min' says: {mode}",
        hint="change 'min', or the mode in 'schedules'"
        if schedule
        else "change 'min', or set scaling.mode to MANUAL",
        field="schedules" if schedule else "scaling/mode",
    )


def stop_instance(ws: Workspace, id: str, *, reason: str) -> InstanceRecord:
    """Stop the instance by its stop ladder, for good."""
    return _ordered(ws, ws.require_instance(id), reason or f"stopped by {ws.by}")


def kill_instance(ws: Workspace, id: str, *, reason: str) -> InstanceRecord:
    """Kill all processes of the instance at once."""
    return _ordered(ws, ws.require_instance(id), reason or f"killed by {ws.by}", force=True)


def restart_instance(ws: Workspace, id: str, *, reason: str) -> InstanceRecord:
    """Stop the instance and start it again under its id; one that has ended is just started. A running
    instance is not stopped for a run that cannot be planned or that no node could take: errors are raised first."""
    record = ws.require_instance(id)
    group = ws.require_group(record.group)
    _refuse_restart_of(group)
    reason = reason or f"restarted by {ws.by}"
    serves = stays(record) or (record.warm and live(record.state))
    if not serves:
        _refuse_over_max(ws, group)
    if live(record.state):
        if record.after_stop is not AfterStop.RESTART:
            _refuse_outage(ws, group, [record], f"instance '{id}'")
        changed = _ordered(ws, record, reason, after=AfterStop.RESTART)
        if not serves:
            keep_number(ws, record.group)
        return changed
    started = run_again(ws, group, record)
    if isinstance(started, PlacementRefusal):
        raise refused_start(ws, group, started, instance=record.id)
    insist_on_group(ws, record.group)
    keep_number(ws, record.group)
    return started


def restart_all(ws: Workspace, group: GroupRecord, *, reason: str) -> int:
    """Restart every instance of a group that is to run, or none: if one of them could not be started again, nothing is
    stopped. How many are restarted."""
    running = to_restart(ws, group)
    if running:
        _refuse_restart_of(group)
        _refuse_outage(ws, group, running, f"group '{group.spec.name}'")
    for record in running:
        _ordered(ws, record, reason, after=AfterStop.RESTART)
    return len(running)


def to_restart(ws: Workspace, group: GroupRecord) -> list[InstanceRecord]:
    """The instances that a restart of their group concerns."""
    there = ws.instances_of(group.spec.name)
    return [each for each in there if live(each.state) and each.wanted is Wanted.RUN]


def _refuse_restart_of(group: GroupRecord) -> None:
    refuse_deleting(group)
    refuse_abstract(group)
    refuse_held(group)


def _refuse_outage(ws: Workspace, group: GroupRecord, records: list[InstanceRecord], subject: str) -> None:
    refused = refused_restart(ws, group, records)
    if refused is None:
        return
    error = refused.error(subject, group.spec.name)
    if refused.refusal.cause is not None:
        raise error
    nodes = refused.refusal.refusals
    steps = _refusal(ws, group, f"{error.code.name}: {refused.refusal.summary}", refused.instance, nodes)
    raise RecordedRefusal(error, steps=steps, returning=refused.refusal.returning())


def _refuse_over_max(ws: Workspace, group: GroupRecord) -> None:
    present, values = serving_count(ws, group.spec.name), scheduled(group.spec, ws.now)
    refuse_by_mode(group, values, present)
    if values.max is not None and present >= values.max:
        schedule = f" by schedule '{values.by['max']}'" if "max" in values.by else ""
        error = Rejected(
            Code.GROUP_FULL,
            f"group '{group.spec.name}' has {counted(present, 'instance')}, its max is {values.max}{schedule}",
            hint="raise max, or stop one of them",
        )
        raise RecordedRefusal(error, steps=_refusal(ws, group, f"{error.code.name}: {error.message}"))


def order_stop(
    ws: Workspace,
    record: InstanceRecord,
    *,
    reason: str,
    rule: Rule = Rule.OPERATOR,
    node: str = "",
    causes: Sequence[str] = (),
) -> InstanceRecord:
    """Stop an instance by a decision about its group or its `node`. One that was to go when it has no players goes because
    of that."""
    drained = (record.decision,) if is_draining(record) else ()
    return _stopping(
        ws,
        record,
        reason,
        after=AfterStop.END,
        force=False,
        rule=rule,
        causes=(*drained, *causes),
        node=node,
    )


def _ordered(
    ws: Workspace,
    record: InstanceRecord,
    reason: str,
    *,
    after: AfterStop = AfterStop.END,
    force: bool = False,
) -> InstanceRecord:
    group = ws.group(record.group)
    held = reason if after is AfterStop.END and group is not None and group.spec.static else ""
    moved = bool(ws.emptied) and record.id in replacements(ws.instances_of(record.group), ws.emptied)
    changed = _stopping(ws, record, reason, after=after, force=force) if live(record.state) else record
    if bool(changed.held) != bool(held):
        changed = msgspec.structs.replace(changed, held=held)
        ws.put_instance(changed)
    if changed is not record and after is AfterStop.END and stays(record):
        _follow_the_operator(ws, record, moved=moved)
    return changed


def _stopping(
    ws: Workspace,
    record: InstanceRecord,
    reason: str,
    *,
    after: AfterStop,
    force: bool,
    rule: Rule = Rule.OPERATOR,
    causes: Sequence[str] = (),
    node: str = "",
) -> InstanceRecord:
    force = force or record.force_stop
    same = record.wanted is Wanted.STOP and record.after_stop is after and record.force_stop == force
    if same:
        return record
    decision = ws.decide(
        DecisionKind.RESTART if after is AfterStop.RESTART else DecisionKind.STOP,
        rule=rule,
        group=record.group,
        instance=record.id,
        reason=reason,
        inputs={"state": record.state.value, "force": force, "incarnation": record.incarnation},
        causes=causes,
        node=node,
    )
    changed = msgspec.structs.replace(
        record,
        wanted=Wanted.STOP,
        after_stop=after,
        force_stop=force,
        decision=decision,
        reason=reason,
        request=ws.request,
    )
    ws.put_instance(changed)
    return changed


def _follow_the_operator(ws: Workspace, record: InstanceRecord, *, moved: bool) -> None:
    """Lower the desired number after an operator's stop: stopping one of three scaled instances leaves two;
    `min` still applies. `moved`: the replacement that was under way counts in its place now, and is one too many."""
    group = ws.group(record.group)
    if group is None:
        return
    left = serving_count(ws, record.group) - moved
    values, last = scheduled(group.spec, ws.now), group.last_scale
    if group.deployment:  # which has some beside those that are wanted
        left = min(left, max(0, wanted_count(group, values) - 1))
        if values.mode is ScalingMode.DYNAMIC and last is not None and last.need > left:
            group = msgspec.structs.replace(group, last_scale=msgspec.structs.replace(last, need=left))
            ws.put_group(group)
    if group.target > max(left, group.spec.min):
        ws.put_group(msgspec.structs.replace(group, target=max(left, group.spec.min), updated_at=ws.now))


def remove_instance(ws: Workspace, id: str) -> InstanceRecord:
    """Remove the record of an instance that has ended."""
    record = ws.require_instance(id)
    if live(record.state):
        raise Rejected(
            Code.CONFLICT,
            f"instance '{id}' is {record.state} and cannot be removed",
            hint="stop or kill it first, and wait until it has ended",
        )
    ws.delete_instance(id)
    ws.event(EventType.INSTANCE_REMOVED, id, group=record.group, node=record.node, state=record.state.value)
    return record
