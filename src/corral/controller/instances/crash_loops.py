"""Crash loops: a group that fails repeatedly is paused, longer each time."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.instances.revisions import next_basis
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.events import EventType
from corral.domain.groups.deployments import DeploymentState
from corral.domain.groups.drift import Drift, drift_of
from corral.domain.groups.group import CrashLoopSpec
from corral.domain.groups.instance_records import CrashLoop, GroupRecord, InstanceRecord
from corral.domain.records import BootMoment
from corral.errors import counted
from corral.system.aio.backoff import doubled

OPERATOR: Final = "operator"
CHANGE: Final = "change"
_FAILED_NODES: Final = 50
"""The most nodes with failures that are remembered for a group, beside the last."""


def count_failure(ws: Workspace, record: InstanceRecord, *, reason: str, crash: str) -> None:
    """Count a run that failed for good; too many within the rule's time begin a pause. A run of a former document says
    nothing about the next start, unless a deployment may start others like it. `crash`: the id of its crash; empty: none."""
    group = ws.group(record.group)
    if group is None:
        return
    basis = next_basis(ws, group)
    if not (group.deployment or group.unsettled) and _differ(record.basis, basis):
        return
    if _differ(group.failed_basis, basis):
        group = _without_failures(group)
    rule = group.spec.crash_loop
    now = ws.steady  # else a step of the wall clock would forget failures, or remember old ones
    pauses = 0 if _calmed_down(group, now) else group.pauses
    failures = (*group.failures, now)[-rule.failures :]
    since = now - dt.timedelta(seconds=rule.within_seconds)
    failed_on = {each: at for each, at in group.failed_on.items() if at >= since and each != record.node}
    recent = dict(list(failed_on.items())[-_FAILED_NODES:])
    changed = msgspec.structs.replace(
        group,
        failures=failures,
        pauses=pauses,
        failed_on={**recent, record.node: now},
        failed_basis=basis or record.basis,
    )
    if group.paused is None and sum(1 for at in failures if at >= since) >= rule.failures:
        by = f"crash:{crash}" if crash else record.decision
        changed = _paused(ws, changed, f"{record.id}: {reason}", by, crash)
    ws.put_group(changed)


def _differ(failed: str, present: str) -> bool:
    return drift_of(failed, present, elsewhere=False) is Drift.OUTDATED


def _without_failures(group: GroupRecord) -> GroupRecord:
    return msgspec.structs.replace(group, failures=(), failed_on={}, pauses=0)


def _calmed_down(group: GroupRecord, now: dt.datetime) -> bool:
    """Has the group been without failures for longer than the last pause and the rule's time together?"""
    if not group.failures or not group.pauses:
        return False
    rule = group.spec.crash_loop
    quiet = pause_of(rule, group.pauses) + dt.timedelta(seconds=rule.within_seconds)
    return now - group.failures[-1] > quiet


def pause_of(rule: CrashLoopSpec, pauses: int) -> dt.timedelta:
    """The length of this pause in a row, the first being 1."""
    longest = max(rule.max_pause_seconds, rule.pause_seconds)
    return dt.timedelta(seconds=doubled(rule.pause_seconds, pauses - 1, longest=longest))


def _paused(ws: Workspace, group: GroupRecord, what: str, by: str, crash: str) -> GroupRecord:
    rule = group.spec.crash_loop
    pauses = group.pauses + 1
    until = ws.now + pause_of(rule, pauses)
    reason = f"{counted(rule.failures, 'failure')} within {rule.within_seconds} s, the last: {what}"
    made = ws.decide(
        DecisionKind.SKIP,
        rule=Rule.CRASH_PAUSE,
        wake_at=until,
        group=group.spec.name,
        reason=f"left alone until {until:%Y-%m-%d %H:%M:%S} UTC: {reason}",
        inputs={"failures": len(group.failures), "pauses": pauses},
        causes=(by,),
    )
    ws.event(
        EventType.CRASH_LOOP_STARTED,
        group.spec.name,
        until=until.isoformat(),
        reason=reason,
        pauses=pauses,
        decision=made,
    )
    pause = CrashLoop(since=ws.now, until=until, pauses=pauses, reason=reason, decision=made, crash=crash)
    ends = ws.boot_moment(pause_of(rule, pauses).total_seconds())
    return msgspec.structs.replace(group, paused=pause, pause_ends=ends, pauses=pauses)


def pause_left(group: GroupRecord, *, now: dt.datetime, boot: BootMoment) -> float:
    """Seconds until the group's pause ends. By the boot clock while the same boot lasts: the wall clock may
    have been set since, also while no controller ran. After a reboot, and on another host, by the wall clock,
    and never longer than the longest pause."""
    if group.paused is None:
        return 0.0
    ends = group.pause_ends
    if ends is not None and ends.boot == boot.boot:
        left = ends.seconds - boot.seconds
    else:
        left = (group.paused.until - now).total_seconds()
    rule = group.spec.crash_loop
    return min(max(0.0, left), float(max(rule.max_pause_seconds, rule.pause_seconds)))


def follow_change(ws: Workspace, name: str, what: str) -> None:
    """What the next start of a group is made of may have changed: then a failed deployment no longer decides about it, and
    a pause that other runs have caused ends. `what`: what was changed, and by whom."""
    group = ws.require_group(name)
    basis = next_basis(ws, group)
    last = ws.deployment(group.unsettled) if group.unsettled and not group.pinned_revision else None
    if last is not None and last.state is DeploymentState.FAILED and _differ(last.target_basis, basis):
        group = msgspec.structs.replace(group, unsettled="")
        ws.put_group(group)
    if group.paused is not None and _differ(group.failed_basis, basis):
        end_pause(ws, group, by=CHANGE, what=what)


def end_pause(ws: Workspace, group: GroupRecord, *, by: str, what: str = "") -> GroupRecord:
    """End a pause: because time is up (the next pause will be longer), on an operator's request, or because of `what`. What
    the transaction decides after it is a consequence of it."""
    changed = msgspec.structs.replace(group, paused=None, pause_ends=None)
    if by in (OPERATOR, CHANGE):
        changed = _without_failures(changed)
    if by == OPERATOR:
        changed = msgspec.structs.replace(changed, request=ws.request)
    began = group.paused.decision if group.paused is not None else ""
    made = ws.decide(
        DecisionKind.RESTART,
        rule=Rule.OPERATOR if by == OPERATOR else Rule.CRASH_PAUSE,
        group=group.spec.name,
        reason=f"the pause was ended: {what}" if what else f"the pause was ended by {by}",
        causes=(began,),
    )
    ws.causes = (made, *ws.causes)
    ws.event(EventType.CRASH_LOOP_ENDED, group.spec.name, by=by, decision=made)
    ws.put_group(changed)
    return changed
