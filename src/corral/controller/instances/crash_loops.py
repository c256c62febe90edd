"""Crash loops: a group that fails repeatedly is paused, longer each time."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.events import EventType
from corral.domain.groups.group import CrashLoopSpec
from corral.domain.groups.instance_records import CrashLoop, GroupRecord
from corral.domain.records import BootMoment
from corral.errors import counted
from corral.system.aio.backoff import doubled

_FAILED_NODES: Final = 50
"""The most nodes with failures that are remembered for a group, beside the last."""


def count_failure(ws: Workspace, name: str, *, node: str, what: str, by: str) -> None:
    """Count a run of the group that failed for good on this node; too many within the rule's time begin a pause.
    `by`: the id of its crash or of the decision that started it, as a cause."""
    group = ws.group(name)
    if group is None:
        return
    rule = group.spec.crash_loop
    now = ws.steady  # else a step of the wall clock would forget failures, or remember old ones
    strikes = 0 if _calmed_down(group, now) else group.strikes
    failures = (*group.failures, now)[-rule.failures :]
    since = now - dt.timedelta(seconds=rule.within_seconds)
    failed_on = {each: at for each, at in group.failed_on.items() if at >= since and each != node}
    recent = dict(list(failed_on.items())[-_FAILED_NODES:])
    changed = msgspec.structs.replace(
        group, failures=failures, strikes=strikes, failed_on={**recent, node: now}
    )
    if group.paused is None and sum(1 for at in failures if at >= since) >= rule.failures:
        changed = _paused(ws, changed, what, by)
    ws.put_group(changed)


def _calmed_down(group: GroupRecord, now: dt.datetime) -> bool:
    """Has the group been without failures for longer than the last pause and the rule's time together?"""
    if not group.failures or not group.strikes:
        return False
    rule = group.spec.crash_loop
    quiet = pause_of(rule, group.strikes) + dt.timedelta(seconds=rule.within_seconds)
    return now - group.failures[-1] > quiet


def pause_of(rule: CrashLoopSpec, strikes: int) -> dt.timedelta:
    """The pause after so many strikes in a row, the first being 1."""
    longest = max(rule.max_pause_seconds, rule.pause_seconds)
    return dt.timedelta(seconds=doubled(rule.pause_seconds, strikes - 1, longest=longest))


def _paused(ws: Workspace, group: GroupRecord, what: str, by: str) -> GroupRecord:
    rule = group.spec.crash_loop
    strikes = group.strikes + 1
    until = ws.now + pause_of(rule, strikes)
    reason = f"{counted(rule.failures, 'failure')} within {rule.within_seconds} s, the last: {what}"
    made = ws.decide(
        DecisionKind.SKIP,
        rule=Rule.CRASH_PAUSE,
        wake_at=until,
        group=group.spec.name,
        reason=f"left alone until {until:%Y-%m-%d %H:%M:%S} UTC: {reason}",
        inputs={"failures": len(group.failures), "strikes": strikes},
        causes=(by,),
    )
    ws.event(
        EventType.CRASH_LOOP_STARTED,
        group.spec.name,
        until=until.isoformat(),
        reason=reason,
        strikes=strikes,
        decision=made,
    )
    pause = CrashLoop(since=ws.now, until=until, strikes=strikes, reason=reason, decision=made)
    ends = ws.boot_moment(pause_of(rule, strikes).total_seconds())
    return msgspec.structs.replace(group, paused=pause, pause_ends=ends, strikes=strikes)


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


def end_pause(ws: Workspace, group: GroupRecord, *, by: str) -> GroupRecord:
    """End a pause: because time is up (the next pause will be longer), or on an operator's request. What the
    transaction decides after it is a consequence of it."""
    changed = msgspec.structs.replace(group, paused=None, pause_ends=None)
    if by == "operator":
        changed = msgspec.structs.replace(changed, failures=(), failed_on={}, strikes=0, request=ws.request)
    began = group.paused.decision if group.paused is not None else ""
    made = ws.decide(
        DecisionKind.RESTART,
        rule=Rule.OPERATOR if by == "operator" else Rule.CRASH_PAUSE,
        group=group.spec.name,
        reason=f"the pause was ended by {by}",
        causes=(began,),
    )
    ws.causes = (made, *ws.causes)
    ws.event(EventType.CRASH_LOOP_ENDED, group.spec.name, by=by, decision=made)
    ws.put_group(changed)
    return changed
