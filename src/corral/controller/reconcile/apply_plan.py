"""The plan of a group, and the changes of a workspace that carry it out.

The plan is a value: the same function serves acting, explaining and dry runs.
"""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from corral.controller.instances.crash_loops import end_pause
from corral.controller.instances.group_changes import drop_group
from corral.controller.instances.group_tally import GroupTally
from corral.controller.instances.starts import is_held, next_requests, passed_over, start_run
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, ended_by_itself
from corral.domain.instance_states import LONGEST_PLACE_SECONDS, PLACE_SECONDS, place_seconds
from corral.domain.planning.placement import PlacementRefusal
from corral.errors import short_list

_SHOWN: Final = 5


class Need(enum.StrEnum):
    NOTHING = "nothing"
    START = "start"
    WAIT = "wait"  # it needs more instances, and is paused
    DROP = "drop"  # it is being deleted and has no instances left


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The actions for a group, and their reason."""

    need: Need
    missing: int = 0
    present: int = 0
    end_pause: bool = False
    reason: str = ""
    wake_at: dt.datetime | None = None
    """When a place whose last run ended by itself may be filled again."""


def plan_group(
    group: GroupRecord,
    instances: Iterable[InstanceRecord],
    *,
    pause_over: bool,
    now: dt.datetime | None = None,
) -> GroupPlan:
    """Compare the desired instances with the existing ones. Unreachable instances count as existing. `now`
    None: no place has to wait."""
    return plan_tallied(group, GroupTally.of(instances), pause_over=pause_over, now=now)


def plan_tallied(
    group: GroupRecord, tally: GroupTally, *, pause_over: bool, now: dt.datetime | None = None
) -> GroupPlan:
    """As `plan_group`, from the numbers of the existing instances."""
    if group.deleting:
        need = Need.NOTHING if tally.live else Need.DROP
        return GroupPlan(need=need, reason="the group is being deleted")
    # A stopping static instance is waited for: the same instance is started next. One that an operator
    # stopped counts as existing, and nothing is started in its place.
    held = [each for each in tally.held if is_held(group, each)]
    present = len(held) + (tally.live if group.spec.static else tally.staying)
    missing = group.desired_count - present
    end_pause = group.paused is not None and pause_over
    if missing <= 0:
        return GroupPlan(need=Need.NOTHING, present=present, end_pause=end_pause, reason=_resting(held))
    reason = f"{group.desired_count} are wanted, {present} are there"
    if group.paused is not None and not pause_over:
        return GroupPlan(
            need=Need.WAIT,
            missing=missing,
            present=present,
            reason=f"paused as crash-looping until {group.paused.until:%Y-%m-%d %H:%M:%S} UTC",
        )
    waiting = sorted(due for each in tally.ended if (due := place_free_at(each, now)) is not None)
    if len(waiting) >= missing:
        return GroupPlan(
            need=Need.WAIT,
            missing=missing,
            present=present,
            end_pause=end_pause,
            reason=f"an instance ended by itself; its place is taken again {PLACE_SECONDS} s after its start",
            wake_at=waiting[0],
        )
    return GroupPlan(
        need=Need.START,
        missing=missing - len(waiting),
        present=present,
        end_pause=end_pause,
        reason=reason,
        wake_at=waiting[0] if waiting else None,
    )


def place_free_at(record: InstanceRecord, now: dt.datetime | None) -> dt.datetime | None:
    """When another run may be started in the place of one that ended by itself, if later than now: a clean
    exit counts as no failure, and must not lead to constant starts. Spread, so that many starts do not
    coincide. A clock that was set back does not make it longer."""
    if now is None or not ended_by_itself(record) or record.started_at is None:
        return None
    began = record.started_at
    if record.end_received_at is not None and record.ended_at is not None:
        began = record.end_received_at - (record.ended_at - began)  # the clock of its node may be behind
    fraction = zlib.crc32(f"{record.id}.{record.incarnation}".encode()) / 2**32
    due = began + dt.timedelta(seconds=place_seconds(fraction))
    longest = dt.timedelta(seconds=LONGEST_PLACE_SECONDS)
    return due if dt.timedelta() < due - now <= longest else None


def _resting(held: Sequence[InstanceRecord]) -> str:
    """The instances that an operator stopped, and how to start them."""
    shown = short_list((f"'{each.id}' ({each.held})" for each in held), _SHOWN)
    return f"stopped by hand: {shown}; 'corral instance restart ID' starts it again" if held else ""


class Kept(NamedTuple):
    started: int = 0
    more: bool = False
    """More changes are left."""
    wake_at: dt.datetime | None = None
    """When more changes are due without a further event."""


def keep_group(ws: Workspace, name: str, *, pause_over: bool, budget: int) -> Kept:
    """Start missing instances, at most `budget`."""
    group = ws.group(name)
    if group is None:
        return Kept()
    plan = plan_tallied(group, ws.tally(name), pause_over=pause_over, now=ws.now)
    if plan.need is Need.DROP:
        drop_group(ws, name)
        return Kept()
    if plan.end_pause:
        group = end_pause(ws, group, by="time")
    if plan.need is Need.START:
        started, more = _start(ws, group, plan, budget)
        return Kept(started, more, plan.wake_at)
    _set_reason(ws, group, "" if group.deleting else plan.reason)
    return Kept(wake_at=plan.wake_at)


def _start(ws: Workspace, group: GroupRecord, plan: GroupPlan, budget: int) -> tuple[int, bool]:
    if budget <= 0:
        return 0, True
    refused: PlacementRefusal | None = None
    started = 0
    unreadable = ws.unreadable_of(group.spec.name)
    missing = max(0, plan.missing - len(unreadable))
    if unreadable and not missing:
        _set_reason(ws, group, f"the record of {unreadable[0]} cannot be read; it counts as running")
        return 0, False
    for request in itertools.islice(next_requests(ws, group, reason=plan.reason), missing):
        if started == budget:
            return started, True
        found = start_run(ws, group, request)
        if not isinstance(found, PlacementRefusal):
            started += 1
            continue
        refused = refused or found
        if not request.home and not request.claimed_by:
            break  # no other finds a place either; but one that waits for its own node delays no other
    if refused is None:
        _set_reason(ws, group, "")
    else:
        _fall_short(ws, group, plan, refused)
    return started, False


def _fall_short(ws: Workspace, group: GroupRecord, plan: GroupPlan, refused: PlacementRefusal) -> None:
    """Record why there are fewer instances than desired, once per reason."""
    reason = f"{refused.code.name}: {refused.summary}"
    if reason == group.reason:
        return
    ws.decide(
        DecisionKind.REFUSE,
        group=group.spec.name,
        reason=f"{plan.reason}; {reason}",
        inputs={"wanted": group.desired_count, "present": plan.present},
        rejected=passed_over(refused),
    )
    ws.event(EventType.GROUP_SHORT, group.spec.name, reason=reason, wanted=group.desired_count)
    _set_reason(ws, group, reason)


def _set_reason(ws: Workspace, group: GroupRecord, reason: str) -> None:
    if group.reason != reason:
        ws.put_group(msgspec.structs.replace(group, reason=reason))
