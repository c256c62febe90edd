"""Doing what the planner says, as changes of a workspace."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import NamedTuple

import msgspec

from corral.controller.instances.crash_loops import end_pause
from corral.controller.instances.group_changes import drop_group
from corral.controller.instances.starts import next_requests, passed_over, start_run
from corral.controller.instances.workspace import Workspace
from corral.controller.placement.node_choice import Refused
from corral.controller.reconcile.planner import GroupPlan, Need, plan_group
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.instance_records import GroupRecord


class Kept(NamedTuple):
    started: int = 0
    more: bool = False
    """More is left to do."""
    wake_at: dt.datetime | None = None
    """When there will be more to do, though nothing happens."""


def keep_group(ws: Workspace, name: str, *, pause_over: bool, budget: int) -> Kept:
    """Start what is missing, at most `budget`."""
    group = ws.group(name)
    if group is None:
        return Kept()
    plan = plan_group(group, ws.instances_of(name), pause_over=pause_over, now=ws.now)
    if plan.need is Need.DROP:
        drop_group(ws, name)
        return Kept()
    if plan.end_pause:
        group = end_pause(ws, group, by="time")
    if plan.need is Need.START:
        started, more = _start(ws, group, plan, budget)
        return Kept(started, more, plan.wake_at)
    _say(ws, group, "" if group.deleting else plan.reason)
    return Kept(wake_at=plan.wake_at)


def _start(ws: Workspace, group: GroupRecord, plan: GroupPlan, budget: int) -> tuple[int, bool]:
    if budget <= 0:
        return 0, True
    refused: Refused | None = None
    started = 0
    unreadable = ws.unreadable_of(group.spec.name)
    missing = max(0, plan.missing - len(unreadable))
    if unreadable and not missing:
        _say(ws, group, f"the record of {unreadable[0]} cannot be read; it counts as running")
        return 0, False
    for request in itertools.islice(next_requests(ws, group, reason=plan.reason), missing):
        if started == budget:
            return started, True
        found = start_run(ws, group, request)
        if not isinstance(found, Refused):
            started += 1
            continue
        refused = refused or found
        if not request.home and not request.claimed_by:
            break  # nor will any other find a place; but one that waits for its own node holds up nobody
    if refused is None:
        _say(ws, group, "")
    else:
        _fall_short(ws, group, plan, refused)
    return started, False


def _fall_short(ws: Workspace, group: GroupRecord, plan: GroupPlan, refused: Refused) -> None:
    """Say once why there are fewer than wanted; the same reason again is no news."""
    reason = f"{refused.code.name}: {refused.summary}"
    if reason == group.reason:
        return
    ws.decide(
        DecisionKind.REFUSE,
        group=group.spec.name,
        reason=f"{plan.reason}; {reason}",
        inputs={"wanted": group.wanted_count, "present": plan.present},
        rejected=passed_over(refused),
    )
    ws.event(EventType.GROUP_SHORT, group.spec.name, reason=reason, wanted=group.wanted_count)
    _say(ws, group, reason)


def _say(ws: Workspace, group: GroupRecord, reason: str) -> None:
    if group.reason != reason:
        ws.put_group(msgspec.structs.replace(group, reason=reason))
