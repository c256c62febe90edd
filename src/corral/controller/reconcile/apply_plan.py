"""Carry out what the planner decided, as changes of a workspace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from corral.controller.instances.crash_loops import end_pause, follow_change
from corral.controller.instances.group_changes import drop_group
from corral.controller.instances.instance_changes import order_stop
from corral.controller.instances.instance_drains import drain_instance, undrain_instance
from corral.controller.instances.lost_runs import mark_lost
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.starts import insist_on_group, start_run
from corral.controller.instances.workspace import Workspace
from corral.controller.reconcile.apply_rollout import causes_of, mark_retired, step_rollout, store_rollout
from corral.controller.state.quarantine import unreadable
from corral.domain.decisions import DRAIN_RULES, DecisionKind, Rule
from corral.domain.events import EventType
from corral.domain.groups.drain_records import DrainWait
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, LastScale, ScaleDirection
from corral.domain.planning.plan_results import GroupResult, PlannedDecision, PlanResult
from corral.domain.planning.planner import DEFAULT_LIMITS, PassLimits, plan
from corral.domain.planning.refusals import PlacementRefusal, count_codes
from corral.domain.planning.schedules import scheduled
from corral.domain.planning.signals import Signals
from corral.store.store_errors import StoreUnavailable

_RECORDED_BEFORE: Final = frozenset({Rule.CRASH_PAUSE})
"""Waits whose beginning was a decision of its own."""
_log = structlog.get_logger("corral.controller.reconcile")


class Wake(msgspec.Struct, frozen=True, kw_only=True):
    """The cause of checking a group."""

    cause: str
    causes: tuple[str, ...] = ()
    """As ids; see `Decision.causes`."""
    request: str = ""
    """The id of the request that caused it: starts of this check belong to that request."""
    after_crash: bool = False


def keep_groups(
    ws: Workspace,
    wakes: Mapping[str, Wake],
    *,
    signals: Signals | None = None,
    limits: PassLimits = DEFAULT_LIMITS,
) -> PlanResult:
    """Plan these groups and carry the plan out. What fails for one group is logged and undone; the others go on. A group
    that failed, or of which no start was made, is not unfinished: it would fail again at once."""
    view = WorkspaceView(ws, signals)
    result = plan(view, wakes.keys(), limits)
    stuck: set[str] = set()
    by_group: dict[str, list[PlannedDecision]] = {name: [] for name in result.groups}
    for decision in result.decisions:
        by_group[decision.group].append(decision)
    for name, found in result.groups.items():
        mark = ws.mark()
        wake = wakes[name]
        ws.cause, ws.causes, ws.request = wake.cause, wake.causes, wake.request
        try:
            if found.error is not None:
                raise found.error
            if not _carry_out(ws, view, name, found, by_group[name], wake) and found.started:
                stuck.add(name)
            if ws.state.quarantine and (bad := ws.state.quarantine.among(ws.steps())) is not None:
                raise unreadable(bad)
        except StoreUnavailable:
            raise
        except Exception:
            _log.exception("reconcile_group.failed", group=name)
            ws.back_to(mark)
            stuck.add(name)
    left = tuple(name for name in result.unfinished if name not in stuck)
    return msgspec.structs.replace(result, unfinished=left)


def _carry_out(
    ws: Workspace,
    view: WorkspaceView,
    name: str,
    found: GroupResult,
    decisions: list[PlannedDecision],
    wake: Wake,
) -> int:
    """How many starts were made."""
    group = ws.group(name)
    if group is None or _rests(group, found, decisions):
        return 0
    if found.need.drop:
        drop_group(ws, name)
        return 0
    if found.need.end_pause:
        follow_change(ws, name, "what its instances start with has changed since it began")
        if (group := ws.require_group(name)).paused is not None:
            end_pause(ws, group, by="time")
    reason = found.reason
    started = 0
    deployment = step_rollout(ws, found)
    group = ws.require_group(name)
    for decision in decisions:
        known = ws.causes
        ws.causes = causes_of(decision, deployment, known)
        match decision.kind:
            case DecisionKind.START | DecisionKind.RESTART:
                refused = _start(ws, group, decision, wake)
                reason = reason or refused
                started += not refused
            case DecisionKind.PROMOTE:
                _promote(ws, decision)
            case DecisionKind.SCALE:
                _scale(ws, decision)
            case DecisionKind.DRAIN | DecisionKind.STOP:
                _part_with(ws, decision)
            case DecisionKind.UNDRAIN:
                undrain_instance(
                    ws, ws.require_instance(decision.instance), decision.reason, rule=decision.rule
                )
            case DecisionKind.PHASE:
                mark_lost(ws, ws.require_instance(decision.instance), decision.reason, decision.inputs)
            case _:
                _record_wait(ws, decision, found)
        ws.causes = known if decision.kind is not DecisionKind.SCALE else ws.causes
        mark_retired(ws, decision, deployment)
    store_rollout(ws, deployment, found, reason, started=started)
    _set_reason(ws, name, "" if group.deleting else reason, None if group.deleting else found.drain_wait)
    _end_floor(ws, name, view)
    _announce_maintenance(ws, name)
    return started


def _rests(group: GroupRecord, found: GroupResult, decisions: list[PlannedDecision]) -> bool:
    """Is there nothing to carry out or to record for a group? So it is for most groups in most passes."""
    need, spec = found.need, group.spec
    if decisions or need.drop or need.end_pause or found.rollout is not None or group.deleting:
        return False
    if spec.schedules or group.floor is not None or group.closed != spec.maintenance.enabled:
        return False
    return group.reason == found.reason and group.drain_wait == found.drain_wait


def _start(ws: Workspace, group: GroupRecord, decision: PlannedDecision, wake: Wake) -> str:
    """Start a placed run; the reason if that is refused after all."""
    assert decision.request is not None
    assert decision.placement is not None
    replaces = wake.after_crash and decision.rule is Rule.MIN_RESTORE
    rule = Rule.CRASH_REPLACE if replaces else decision.rule
    started = start_run(ws, group, decision.request, decision.placement, rule=rule)
    insist_on_group(ws, group.spec.name)
    return f"{started.code.name}: {started.summary}" if isinstance(started, PlacementRefusal) else ""


def _promote(ws: Workspace, decision: PlannedDecision) -> None:
    """Let a warm instance serve."""
    record = ws.require_instance(decision.instance)
    made = ws.decide(
        decision.kind,
        rule=decision.rule,
        group=decision.group,
        instance=decision.instance,
        reason=decision.reason,
        inputs=decision.inputs,
    )
    ws.put_instance(msgspec.structs.replace(record, warm=False, decision=made, reason=decision.reason))
    ws.event(EventType.INSTANCE_PROMOTED, record.id, group=record.group, node=record.node, decision=made)


def _scale(ws: Workspace, decision: PlannedDecision) -> None:
    """Record a change of the number of instances because of load, on which later ones depend; the starts and the stop
    that follow are caused by it."""
    group = ws.require_group(decision.group)
    before, after = int(decision.inputs["from"]), int(decision.inputs["to"])
    made = ws.decide(
        decision.kind,
        rule=decision.rule,
        group=decision.group,
        reason=decision.reason,
        inputs=decision.inputs,
    )
    direction = ScaleDirection.UP if after > before else ScaleDirection.DOWN
    last = LastScale(at=ws.now, direction=direction, need=after)
    ws.put_group(msgspec.structs.replace(group, last_scale=last))
    told = {"from": before, "to": after, "rule": decision.rule.value, "decision": made}
    ws.event(EventType.GROUP_SCALED, decision.group, **told)
    ws.causes = (made, *ws.causes)


def _part_with(ws: Workspace, decision: PlannedDecision) -> None:
    """Stop an instance, now or when it has no players."""
    record = ws.require_instance(decision.instance)
    rule, reason = decision.rule, decision.reason
    because = _by_drain(ws, record, rule)
    if decision.kind is DecisionKind.DRAIN:
        drain_instance(ws, record, reason, rule=rule, inputs=decision.inputs, **because)
    else:
        order_stop(ws, record, reason=reason, rule=rule, **because)


def _by_drain(ws: Workspace, record: InstanceRecord | None, rule: Rule) -> dict[str, Any]:
    """The node whose drain a decision about an instance follows, and the decision that began the drain."""
    node = ws.node(record.node) if record is not None and rule in DRAIN_RULES else None
    if node is None or node.drain is None:
        return {}
    return {"node": node.id, "causes": (node.drain.decision,)}


def _record_wait(ws: Workspace, decision: PlannedDecision, found: GroupResult) -> None:
    """Record why there are fewer instances than wanted, or why one cannot leave its node."""
    if decision.rule in _RECORDED_BEFORE:
        return
    stays = ws.instance(found.drain_wait.instance) if found.drain_wait is not None else None
    refusals = decision.refusal.refusals if decision.refusal is not None else ()
    ws.decide(
        decision.kind,
        rule=decision.rule,
        group=decision.group,
        reason=decision.reason,
        inputs=decision.inputs,
        rejected=[refusal.alternative() for refusal in refusals],
        rejected_counts=count_codes(refusals),
        wake_at=decision.wake_at,
        **_by_drain(ws, stays, decision.rule),
    )
    if decision.kind is DecisionKind.REFUSE and decision.rule is not Rule.DRAIN_WAIT:
        wanted = int(decision.inputs["wanted"])
        ws.event(EventType.GROUP_SHORT, decision.group, reason=found.reason, wanted=wanted)


def _announce_maintenance(ws: Workspace, name: str) -> None:
    """Say that a group is closed to players or open again, whether its document or a schedule says so."""
    group = ws.group(name)
    if group is None or (not group.spec.schedules and group.closed == group.spec.maintenance.enabled):
        return
    values = scheduled(group.spec, ws.now)
    closed = values.maintenance.enabled
    if closed != group.closed:
        ws.put_group(msgspec.structs.replace(group, closed=closed))
        ws.event(
            EventType.GROUP_MAINTENANCE_CHANGED,
            name,
            enabled=closed,
            message=values.maintenance.message if closed else "",
            schedule=values.by.get("maintenance", ""),
        )


def _end_floor(ws: Workspace, name: str, view: WorkspaceView) -> None:
    """Forget an operator's floor whose time is over: where the wall clock is set back later, the next leader would
    take it for one that lasts."""
    group = ws.group(name)
    if group is not None and group.floor is not None and not view.floor_left(group):
        ws.put_group(msgspec.structs.replace(group, floor=None))


def _set_reason(ws: Workspace, name: str, reason: str, drain_wait: DrainWait | None) -> None:
    group = ws.group(name)
    if group is not None and (group.reason, group.drain_wait) != (reason, drain_wait):
        ws.put_group(msgspec.structs.replace(group, reason=reason, drain_wait=drain_wait))
