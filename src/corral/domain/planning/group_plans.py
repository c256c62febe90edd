"""The need of a group: how many instances it wants, has, and is to get."""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.domain.decisions import Rule
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import (
    CrashLoop,
    GroupRecord,
    InstanceRecord,
    ended_by_itself,
    live,
)
from corral.domain.ids import instance_number
from corral.domain.instance_states import LONGEST_PLACE_SECONDS, PLACE_SECONDS, place_seconds
from corral.domain.planning.holds import hold_text
from corral.domain.planning.scaling import ScalingVerdict, wanted_count
from corral.domain.planning.schedules import ScheduledValues
from corral.domain.planning.tallies import GroupTally
from corral.errors import counted, short_list

_SHOWN: Final = 5


class StartBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the starts of a group, with a rule of their own."""

    count: int
    rule: Rule
    reason: str
    revision: int = 0
    """The revision that they are started by; 0: by the present one of the group."""


class GroupNeed(msgspec.Struct, frozen=True, kw_only=True):
    """What a group needs, before nodes are looked at."""

    wanted: int = 0
    present: int = 0
    """Those that serve, and those whose place is kept."""
    missing: int = 0
    start: int = 0
    """How many to start now; fewer than `missing` where a place has to wait."""
    warm: int = 0
    wants_warm: int = 0
    refill: int = 0
    """How many to start so that enough are warm."""
    warm_surplus: int = 0
    surplus: int = 0
    """How many that serve are too many, whatever the load is."""
    moves: tuple[InstanceRecord, ...] = ()
    """Instances on nodes that are emptied in whose place others are to be started now."""
    start_rule: Rule = Rule.MIN_RESTORE
    batches: tuple[StartBatch, ...] = ()
    """The rules of the first starts; of the others it is `start_rule`."""
    refill_revision: int = 0
    """The revision that warm ones are started by; 0: by the present one of the group."""
    schedule: str = ""
    """The schedule that asks for what is missing; empty: none does."""
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
        numbers = f"{counted(self.wanted, 'is', 'are')} wanted, {counted(self.present, 'is', 'are')} there"
        return f"{numbers} (schedule '{self.schedule}')" if self.schedule else numbers

    @property
    def refill_reason(self) -> str:
        wanted = counted(self.wants_warm, "warm one is", "warm ones are")
        return f"{wanted} wanted, {counted(self.warm, 'is', 'are')} there"

    def with_more(self, count: int) -> GroupNeed:
        """The need after so many more instances serve that were there before."""
        if not count:
            return self
        return msgspec.structs.replace(
            self,
            missing=self.missing - count,
            present=self.present + count,
            start=max(0, self.start - count),
            reason=self.reason if self.missing > count else "",
            rule=self.rule if self.missing > count else None,
        )

    def with_promoted(self, count: int, wants_warm: int) -> GroupNeed:
        """The need after so many warm instances serve."""
        if not count:
            return self
        warm = self.warm - count
        paused = self.rule is not None
        refill = min(self.refill + count, wants_warm - warm)
        return msgspec.structs.replace(
            self.with_more(count),
            warm=warm,
            refill=0 if paused else max(0, refill),
            warm_surplus=max(0, warm - wants_warm),
        )

    def batch_of(self, number: int) -> StartBatch | None:
        """The batch that a start belongs to, the first being 0."""
        for batch in self.batches:
            if number < batch.count:
                return batch
            number -= batch.count
        return None

    def after_starts(self, count: int) -> GroupNeed:
        """The need after so many starts: those that serve come first, then those in the place of others."""
        serving = min(count, self.start)
        moved = min(count - serving, len(self.moves))
        warm = count - serving - moved
        return msgspec.structs.replace(
            self,
            present=self.present + serving,
            missing=self.missing - serving,
            start=self.start - serving,
            moves=self.moves[moved:],
            warm=self.warm + warm,
            refill=self.refill - warm,
        )

    def waiting(self, rule: Rule, reason: str) -> GroupNeed:
        """The same, with nothing started for this reason."""
        return msgspec.structs.replace(self, start=0, refill=0, rule=rule, reason=reason)


def group_need(
    group: GroupRecord,
    tally: GroupTally,
    *,
    values: ScheduledValues,
    now: dt.datetime,
    steady: dt.datetime | None = None,
    pause_over: bool,
    verdict: ScalingVerdict | None = None,
) -> GroupNeed:
    """Compare the wanted instances with the existing ones. Unreachable instances count as existing. `verdict`: what the
    load asks for, where the mode is DYNAMIC. `steady`: the time by a clock that is not set."""
    if group.deleting:
        return GroupNeed(drop=not tally.live, warm=tally.warm)
    # A stopping static instance is waited for: the same instance is started next. One that an operator
    # stopped counts as existing, and nothing is started in its place, if it has one among those that are wanted.
    wanted = wanted_count(group, values, verdict)
    held = held_places(group, tally, wanted)
    # One that drains is no reason to start none: it serves again first.
    present = len(held) + (tally.live - tally.draining if group.spec.static else tally.serving)
    missing = max(0, wanted - present)
    wants_warm = 0 if group.spec.abstract else values.warm
    start_rule = verdict.rule if verdict is not None else _min_rule(group, values, present)
    need = GroupNeed(
        wanted=wanted,
        present=present,
        missing=missing,
        start=missing,
        start_rule=start_rule,
        schedule=values.by.get("min", "") if start_rule is Rule.SCHEDULE_UP else "",
        surplus=_surplus(values, tally, wanted, verdict),
        warm=tally.warm,
        wants_warm=wants_warm,
        refill=max(0, wants_warm - tally.warm),
        warm_surplus=max(0, tally.warm - wants_warm - missing),
        end_pause=group.paused is not None and pause_over,
        reason="" if missing or present - len(held) >= wanted else resting_text(held),
    )
    if group.hold is not None:
        return need.waiting(Rule.HOLD_STOP, hold_text(group.hold, group.spec.name))
    if not missing and not need.refill:
        return need
    if group.paused is not None and not pause_over:
        return need.waiting(Rule.CRASH_PAUSE, pause_text(group.paused))
    at = steady or now
    waiting = sorted(due for each in tally.ended if (due := place_free_at(each, at)) is not None)
    if not waiting:
        return need
    start = max(0, missing - len(waiting))
    refill = max(0, need.refill - max(0, len(waiting) - missing))
    text = f"an instance ended by itself; its place is taken again {PLACE_SECONDS} s after its start"
    return msgspec.structs.replace(
        need,
        start=start,
        refill=refill,
        wake_at=now + (waiting[0] - at),
        reason="" if start or not missing else text,
        rule=None if start or not missing else Rule.PLACE_AGAIN,
    )


def pause_text(paused: CrashLoop) -> str:
    return f"paused as crash-looping until {paused.until:%Y-%m-%d %H:%M:%S} UTC"


def _surplus(values: ScheduledValues, tally: GroupTally, wanted: int, verdict: ScalingVerdict | None) -> int:
    """How many are too many: more than wanted, or, where the load decides, more than allowed."""
    most = wanted if verdict is None else values.max
    return max(0, tally.serving - most) if most is not None else 0


def _min_rule(group: GroupRecord, values: ScheduledValues, present: int) -> Rule:
    return Rule.SCHEDULE_UP if "min" in values.by and present >= group.spec.min else Rule.MIN_RESTORE


def needed(spec: GroupSpec) -> frozenset[str]:
    """The groups whose instances decide whether one of this group can be started."""
    near = (each.group for each in spec.affinity if each.group and each.required)
    return frozenset((*near, *(each.group for each in spec.depends_on)))


def failed_lately(group: GroupRecord, now: dt.datetime) -> frozenset[str]:
    """The nodes on which an instance of the group failed within the time of its crash rule."""
    within = dt.timedelta(seconds=group.spec.crash_loop.within_seconds)
    return frozenset(node for node, at in group.failed_on.items() if abs(now - at) <= within)


def held_places(group: GroupRecord, tally: GroupTally, wanted: int) -> list[InstanceRecord]:
    """The static instances that an operator holds stopped, among those that are wanted."""
    return [each for each in tally.held if is_held(group, each) and _ordinal(group.spec, each.id) <= wanted]


def is_held(group: GroupRecord, record: InstanceRecord) -> bool:
    """Has the instance ended and been held stopped by an operator? Records that an earlier group of the same
    name left do not count."""
    ours = group.spec.static and record.created_at >= group.created_at
    return ours and bool(record.held) and not live(record.state)


def _ordinal(spec: GroupSpec, id: str) -> int:
    """The number of an instance in its group, from 1."""
    if id in spec.static_names:
        return spec.static_names.index(id) + 1
    return instance_number(id)[1]


def place_free_at(record: InstanceRecord, now: dt.datetime) -> dt.datetime | None:
    """When another run may be started in the place of one that ended by itself, if later than now: a clean
    exit counts as no failure, and must not lead to constant starts. Spread, so that many starts do not
    coincide. A clock that was set back does not make it longer."""
    if not ended_by_itself(record) or record.started_at is None:
        return None
    began = record.started_at
    if record.end_received_at is not None and record.ended_at is not None:
        began = record.end_received_at - (record.ended_at - began)  # the clock of its node may be behind
    fraction = zlib.crc32(f"{record.id}.{record.incarnation}".encode()) / 2**32
    due = began + dt.timedelta(seconds=place_seconds(fraction))
    longest = dt.timedelta(seconds=LONGEST_PLACE_SECONDS)
    return due if dt.timedelta() < due - now <= longest else None


def resting_text(held: Sequence[InstanceRecord]) -> str:
    """The instances that an operator stopped, and how to start them."""
    shown = short_list((f"'{each.id}' ({each.held})" for each in held), _SHOWN)
    if not held:
        return ""
    which = "it" if len(held) == 1 else "the first"
    return f"stopped by hand: {shown}; 'corral instance restart {held[0].id}' starts {which} again"
