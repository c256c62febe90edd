"""The need of a group: how many instances it wants, has, and is to get."""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.domain.decisions import Rule
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, ended_by_itself, live
from corral.domain.instance_states import LONGEST_PLACE_SECONDS, PLACE_SECONDS, place_seconds
from corral.domain.planning.holds import hold_text
from corral.domain.planning.tallies import GroupTally
from corral.errors import counted, short_list

_SHOWN: Final = 5


class GroupNeed(msgspec.Struct, frozen=True, kw_only=True):
    """What a group needs, before nodes are looked at."""

    wanted: int = 0
    present: int = 0
    """Those that serve, and those whose place is kept."""
    missing: int = 0
    start: int = 0
    """How many to start now; fewer than `missing` where a place has to wait."""
    warm: int = 0
    refill: int = 0
    """How many to start so that enough are warm."""
    warm_surplus: int = 0
    drop: bool = False
    """It is being deleted, and has no instances left."""
    end_pause: bool = False
    reason: str = ""
    """Why it has fewer than wanted, as far as that is known without looking at nodes."""
    rule: Rule | None = None
    """The rule by which it waits."""
    wake_at: dt.datetime | None = None
    """When a place whose last run ended by itself may be filled again."""

    @property
    def start_reason(self) -> str:
        return f"{counted(self.wanted, 'is', 'are')} wanted, {counted(self.present, 'is', 'are')} there"

    def refill_reason(self, group: GroupRecord) -> str:
        return f"{counted(group.spec.warm, 'warm one is', 'warm ones are')} wanted, {counted(self.warm, 'is', 'are')} there"

    def with_promoted(self, count: int, group: GroupRecord) -> GroupNeed:
        """The need after so many warm instances serve."""
        if not count:
            return self
        warm = self.warm - count
        paused = self.rule is not None
        refill = min(self.refill + count, group.spec.warm - warm)
        return msgspec.structs.replace(
            self,
            missing=self.missing - count,
            present=self.present + count,
            start=max(0, self.start - count),
            warm=warm,
            refill=0 if paused else max(0, refill),
            warm_surplus=max(0, warm - group.spec.warm),
            reason=self.reason if self.missing > count else "",
            rule=self.rule if self.missing > count else None,
        )

    def after_starts(self, count: int) -> GroupNeed:
        """The need after so many starts: those that serve come first."""
        serving = min(count, self.start)
        warm = count - serving
        return msgspec.structs.replace(
            self,
            present=self.present + serving,
            missing=self.missing - serving,
            start=self.start - serving,
            warm=self.warm + warm,
            refill=self.refill - warm,
        )

    def waiting(self, rule: Rule, reason: str) -> GroupNeed:
        """The same, with nothing started for this reason."""
        return msgspec.structs.replace(self, start=0, refill=0, rule=rule, reason=reason)


def group_need(
    group: GroupRecord, tally: GroupTally, *, pause_over: bool, now: dt.datetime | None = None
) -> GroupNeed:
    """Compare the wanted instances with the existing ones. Unreachable instances count as existing. `now`
    None: no place has to wait."""
    if group.deleting:
        return GroupNeed(drop=not tally.live, warm=tally.warm)
    # A stopping static instance is waited for: the same instance is started next. One that an operator
    # stopped counts as existing, and nothing is started in its place, if it has one among those that are wanted.
    wanted = group.desired_count
    held = [each for each in tally.held if is_held(group, each) and _ordinal(group.spec, each.id) <= wanted]
    present = len(held) + (tally.live if group.spec.static else tally.serving)
    missing = max(0, group.desired_count - present)
    wants_warm = 0 if group.spec.abstract else group.spec.warm
    need = GroupNeed(
        wanted=group.desired_count,
        present=present,
        missing=missing,
        start=missing,
        warm=tally.warm,
        refill=max(0, wants_warm - tally.warm),
        warm_surplus=max(0, tally.warm - wants_warm - missing),
        end_pause=group.paused is not None and pause_over,
        reason="" if missing or present - len(held) >= group.desired_count else _resting(held),
    )
    if group.hold is not None:
        return need.waiting(Rule.HOLD_STOP, hold_text(group.hold, group.spec.name))
    if not missing and not need.refill:
        return need
    if group.paused is not None and not pause_over:
        text = f"paused as crash-looping until {group.paused.until:%Y-%m-%d %H:%M:%S} UTC"
        return need.waiting(Rule.CRASH_PAUSE, text)
    waiting = sorted(due for each in tally.ended if (due := place_free_at(each, now)) is not None)
    if not waiting:
        return need
    start = max(0, missing - len(waiting))
    refill = max(0, need.refill - max(0, len(waiting) - missing))
    text = f"an instance ended by itself; its place is taken again {PLACE_SECONDS} s after its start"
    return msgspec.structs.replace(
        need,
        start=start,
        refill=refill,
        wake_at=waiting[0],
        reason="" if start or not missing else text,
        rule=None if start or not missing else Rule.PLACE_AGAIN,
    )


def needed(spec: GroupSpec) -> frozenset[str]:
    """The groups whose instances decide whether one of this group can be started."""
    near = (each.group for each in spec.affinity if each.group and each.required)
    return frozenset((*near, *(each.group for each in spec.depends_on)))


def failed_lately(group: GroupRecord, now: dt.datetime) -> frozenset[str]:
    """The nodes on which an instance of the group failed within the time of its crash rule."""
    within = dt.timedelta(seconds=group.spec.crash_loop.within_seconds)
    return frozenset(node for node, at in group.failed_on.items() if abs(now - at) <= within)


def is_held(group: GroupRecord, record: InstanceRecord) -> bool:
    """Has the instance ended and been held stopped by an operator? Records that an earlier group of the same
    name left do not count."""
    ours = group.spec.static and record.created_at >= group.created_at
    return ours and bool(record.held) and not live(record.state)


def _ordinal(spec: GroupSpec, id: str) -> int:
    """The number of an instance in its group, from 1."""
    if id in spec.static_names:
        return spec.static_names.index(id) + 1
    number = id.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


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
