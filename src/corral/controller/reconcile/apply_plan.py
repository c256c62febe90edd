"""Carry out what the planner decided, as changes of a workspace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import structlog

from corral.controller.instances.crash_loops import end_pause
from corral.controller.instances.group_changes import drop_group
from corral.controller.instances.instance_changes import order_stop
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.starts import insist_on_group, start_run
from corral.controller.instances.workspace import Workspace
from corral.controller.state.quarantine import unreadable
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.events import EventType
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.planning.holds import Players
from corral.domain.planning.planner import (
    DEFAULT_LIMITS,
    GroupResult,
    PassLimits,
    PlannedDecision,
    PlanResult,
    plan,
)
from corral.domain.planning.refusals import PlacementRefusal, count_codes
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
    pause_over: Callable[[str], bool] = lambda _: True,
    players: Players = lambda _: None,
    players_settled: bool = True,
    limits: PassLimits = DEFAULT_LIMITS,
) -> PlanResult:
    """Plan these groups and carry the plan out. What fails for one group is logged and undone; the others go on. A group
    that failed, or of which no start was made, is not unfinished: it would fail again at once."""
    view = WorkspaceView(ws, pause_over=pause_over, players=players, players_settled=players_settled)
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
            if not _carry_out(ws, name, found, by_group[name], wake) and found.started:
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
    ws: Workspace, name: str, found: GroupResult, decisions: list[PlannedDecision], wake: Wake
) -> int:
    """How many starts were made."""
    group = ws.group(name)
    if group is None:
        return 0
    if found.need.drop:
        drop_group(ws, name)
        return 0
    if found.need.end_pause:
        group = end_pause(ws, group, by="time")
    reason = found.reason
    started = 0
    for decision in decisions:
        match decision.kind:
            case DecisionKind.START | DecisionKind.RESTART:
                refused = _start(ws, group, decision, wake)
                reason = reason or refused
                started += not refused
            case DecisionKind.PROMOTE:
                _promote(ws, decision)
            case DecisionKind.STOP:
                order_stop(
                    ws, ws.require_instance(decision.instance), reason=decision.reason, rule=decision.rule
                )
            case _:
                _record_wait(ws, decision, found.reason)
    _set_reason(ws, name, "" if group.deleting else reason)
    return started


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


def _record_wait(ws: Workspace, decision: PlannedDecision, reason: str) -> None:
    """Record why there are fewer instances than wanted."""
    if decision.rule in _RECORDED_BEFORE:
        return
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
    )
    if decision.kind is DecisionKind.REFUSE:
        wanted = int(decision.inputs["wanted"])
        ws.event(EventType.GROUP_SHORT, decision.group, reason=reason, wanted=wanted)


def _set_reason(ws: Workspace, name: str, reason: str) -> None:
    group = ws.group(name)
    if group is not None and group.reason != reason:
        ws.put_group(msgspec.structs.replace(group, reason=reason))
