"""What a group needs, as a value: the same function serves acting, explaining and dry runs."""

from __future__ import annotations

import datetime as dt
import enum
import zlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from corral.controller.instances.instance_changes import stays
from corral.controller.instances.starts import is_held
from corral.domain.instance_records import GroupRecord, InstanceRecord, live
from corral.domain.instance_states import ENDED, LONGEST_PLACE_SECONDS, PLACE_SECONDS, place_seconds
from corral.errors import short_list

_SHOWN: Final = 5


class Need(enum.StrEnum):
    NOTHING = "nothing"
    START = "start"
    WAIT = "wait"  # it would need more, and is left alone for a while
    DROP = "drop"  # it is being deleted and nothing of it is left


class GroupPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about a group, and why."""

    need: Need
    missing: int = 0
    present: int = 0
    end_pause: bool = False
    reason: str = ""
    wake_at: dt.datetime | None = None
    """When a place whose last run ended by itself may be taken again."""


def plan_group(
    group: GroupRecord,
    instances: Iterable[InstanceRecord],
    *,
    pause_over: bool,
    now: dt.datetime | None = None,
) -> GroupPlan:
    """Compare what is wanted with what is there. Instances out of reach count as there. `now` None: no place has to
    wait."""
    records = list(instances)
    if group.deleting:
        empty = not any(live(each.state) for each in records)
        return GroupPlan(need=Need.DROP if empty else Need.NOTHING, reason="the group is being deleted")
    # A static instance that is stopping is waited for: it is itself what is started next. One that was stopped by
    # hand rests: it counts as there, and nothing is started in its place.
    static = group.spec.static
    held = [each for each in records if is_held(group, each)]
    present = len(held) + sum(1 for each in records if stays(each) or (static and live(each.state)))
    missing = group.wanted_count - present
    end_pause = group.paused is not None and pause_over
    if missing <= 0:
        return GroupPlan(need=Need.NOTHING, present=present, end_pause=end_pause, reason=_resting(held))
    reason = f"{group.wanted_count} are wanted, {present} are there"
    if group.paused is not None and not pause_over:
        return GroupPlan(
            need=Need.WAIT,
            missing=missing,
            present=present,
            reason=f"paused as crash-looping until {group.paused.until:%Y-%m-%d %H:%M:%S} UTC",
        )
    waiting = sorted(due for each in records if (due := place_free_at(each, now)) is not None)
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
    """When another may be started in the place of a run that ended by itself, if that is later than now: what ends
    cleanly counts as no failure, and must not be started all the time for that. Spread, so that many do not come at
    once. A clock that was set back does not make it longer."""
    ended = record.exit is not None and record.exit.outcome == ENDED and not live(record.state)
    if now is None or not ended or record.started_at is None:
        return None
    began = record.started_at
    if record.end_received_at is not None and record.ended_at is not None:
        began = record.end_received_at - (record.ended_at - began)  # the clock of its node may be behind
    fraction = zlib.crc32(f"{record.id}.{record.incarnation}".encode()) / 2**32
    due = began + dt.timedelta(seconds=place_seconds(fraction))
    longest = dt.timedelta(seconds=LONGEST_PLACE_SECONDS)
    return due if dt.timedelta() < due - now <= longest else None


def _resting(held: Sequence[InstanceRecord]) -> str:
    """What was stopped by hand, and how it is started."""
    shown = short_list((f"'{each.id}' ({each.held})" for each in held), _SHOWN)
    return f"stopped by hand: {shown}; 'corral instance restart ID' starts it again" if held else ""
