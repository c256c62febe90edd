"""How many instances a group is to have: by its mode, its schedules, its operator, and the load of its players.

An instance whose number of players is not known counts as empty when instances are added and as full when they are
stopped. Between the two lies everything that is not known, so nothing is started and stopped in turns: a stop leaves a
number that is enough for the highest need, and so for the lowest.
"""

from __future__ import annotations

import fractions
import functools
from typing import Final, Protocol

import msgspec

from corral.domain.decisions import Rule
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, LastScale, ScaleDirection
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.planning.schedules import ScheduledValues
from corral.errors import counted

NEVER: Final = float("inf")


class GroupLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the players of a group's instances. Kept in memory: a new leader begins anew, so that what waits
    for a time waits longer, never shorter."""

    players: int = 0
    """On the instances whose number is known; of one at most `max_players`, so that a wrong report weighs no more than a
    full instance."""
    above: int = 0
    """What instances have reported on top of that."""
    unknown: int = 0
    """Instances whose number of players is not known."""
    peak: int | None = None
    """The most players within the window, with unknown instances as full; None: not watched for so long yet."""
    peak_for: float = NEVER
    """Seconds until `peak` may be another number."""
    retired: int = 0
    """The players on instances that deployments have retired, and that are there until these have left; unknown ones as
    full. They are about to join others."""


class LoadSignals(Protocol):
    """What scaling depends on beside the records."""

    def load(self, group: GroupRecord, /) -> GroupLoad: ...

    def floor(self, group: GroupRecord, /) -> int: ...

    def cooldown_left(self, group: GroupRecord, /) -> float: ...


class ScalingInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a group that its scaling depends on."""

    serving: int
    starting: int
    load: GroupLoad
    floor: int = 0
    last: LastScale | None = None
    cooldown_left: float = 0.0
    """Seconds; 0: it is over, or there was no change."""


class ScalingVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What the load asks for."""

    wanted: int
    """The number of instances that are to serve now."""
    need: int
    """The number that the known players need, whatever is allowed now."""
    serving: int = 0
    """The number that the need was compared with."""
    rule: Rule = Rule.MIN_RESTORE
    """By which instances are added."""
    may_stop: bool = False
    """One that has been idle for long enough is one too many."""
    look_after: float = NEVER
    """Seconds after which the verdict may be another though nothing happens."""
    waits_for: str = ""
    """Why a change that the load asks for is not made yet."""
    wait_ends: str = ""
    """What ends that wait."""


def base_count(values: ScheduledValues, floor: int) -> int:
    """The number that is kept whatever the load is."""
    return values.bounded(max(values.min, floor))


def wanted_count(group: GroupRecord, values: ScheduledValues, verdict: ScalingVerdict | None = None) -> int:
    """The number of instances that are to serve; `verdict`: of the load, for a group whose mode is DYNAMIC. Without it
    such a group is to have what the last decision left."""
    if group.spec.abstract:
        return 0
    if values.mode is ScalingMode.STATIC:
        return values.min
    if values.mode is ScalingMode.MANUAL:
        return values.bounded(max(values.min, group.target))
    if verdict is not None:
        return values.bounded(verdict.wanted)
    last = group.last_scale.need if group.last_scale is not None else 0
    floor = group.floor.count if group.floor is not None else 0
    return values.bounded(max(values.min, floor, last))


def load_need(spec: GroupSpec, values: ScheduledValues, players: int, *, floor: int = 0) -> int:
    """The instances that so many players need: at most `max`, at least `min` and the floor, none fuller than the
    threshold on the mean, and with enough places free."""
    return values.bounded(max(values.min, floor, _by_threshold(spec, players), _by_slots(spec, players)))


def players_need(spec: GroupSpec, players: int) -> int:
    """The instances that so many players need, whatever `min`, `max` and operators ask for."""
    return max(_by_threshold(spec, players), _by_slots(spec, players))


def load_verdict(
    group: GroupRecord, values: ScheduledValues, signals: LoadSignals, *, serving: int, starting: int
) -> ScalingVerdict | None:
    """What the load of a group asks for; None: its number does not follow the load. While it is deployed, or
    has stragglers of a deployment, its surge is no capacity that the load has asked for: the need is compared with the
    number that the last decision left, and with what serves as far as the players need that."""
    if values.mode is not ScalingMode.DYNAMIC or group.spec.abstract or group.deleting:
        return None
    load = signals.load(group)
    if group.deployment or group.unsettled:
        needed = min(serving, load_need(group.spec, values, load.players))
        serving = max(wanted_count(group, values), needed)
    inputs = ScalingInputs(
        serving=serving,
        starting=starting,
        load=load,
        floor=signals.floor(group),
        last=group.last_scale,
        cooldown_left=signals.cooldown_left(group),
    )
    return msgspec.structs.replace(scaled(group.spec, values, inputs), serving=serving)


def scaled(spec: GroupSpec, values: ScheduledValues, inputs: ScalingInputs) -> ScalingVerdict:
    """Compare the instances that serve with those that the load needs."""
    load, serving = inputs.load, inputs.serving
    base = base_count(values, inputs.floor)
    if values.maintenance.enabled:
        return ScalingVerdict(wanted=max(base, serving), need=base, waits_for="it is closed for maintenance")
    known = load.unknown < serving or not serving
    low = load_need(spec, values, load.players, floor=inputs.floor) if known else base
    if serving < low:
        rule = _rule(spec, values, load.players, base=base, serving=serving)
        return _up(spec.scaling, inputs, rule, base=base, low=low)
    return _down(spec, values, inputs, low=low)


def _up(scaling: ScalingSpec, inputs: ScalingInputs, rule: Rule, *, base: int, low: int) -> ScalingVerdict:
    """The step and the wait after a stop bound what the load asks for, not what `min`, schedules and operators do."""
    serving, last = inputs.serving, inputs.last
    allowed, waits_for, wait_ends, look_after = low, "", "", NEVER
    cooling = last is not None and last.direction is ScaleDirection.DOWN and inputs.cooldown_left > 0
    if cooling and last is not None and last.need < allowed:
        allowed, look_after = last.need, inputs.cooldown_left
        waits_for = f"the cooldown after the last stop ends in {inputs.cooldown_left:.0f} s"
        wait_ends = "the cooldown ends"
    step = serving + max(0, scaling.max_step - inputs.starting)
    if step < allowed:
        allowed = step
        waits_for = f"{counted(inputs.starting, 'is', 'are')} starting, and at most {scaling.max_step} do at once because of load"
        wait_ends = "those that start run"
    wanted = max(base, allowed, serving)
    return ScalingVerdict(
        wanted=wanted,
        need=low,
        rule=rule,
        look_after=look_after,
        waits_for=waits_for if wanted < low else "",
        wait_ends=wait_ends if wanted < low else "",
    )


def _down(spec: GroupSpec, values: ScheduledValues, inputs: ScalingInputs, *, low: int) -> ScalingVerdict:
    """One at a time, and only what the highest need within the window leaves over."""
    load, serving = inputs.load, inputs.serving
    waits_for, wait_ends, look_after = "", "", NEVER
    seconds = spec.scaling.window_seconds
    if serving <= low:
        return ScalingVerdict(wanted=serving, need=low)
    if load.peak is None:
        waits_for, look_after = "its load is not known for long enough", load.peak_for
        wait_ends = f"its load is known for {seconds} s"
    elif serving <= (high := load_need(spec, values, load.peak + load.retired, floor=inputs.floor)):
        waits_for, look_after = f"the players of the last {seconds} s need {high}", load.peak_for
        wait_ends = f"the players of {seconds} s need fewer"
        if load.retired:
            waits_for += f", with {load.retired} on instances that a deployment has retired"
        if load.unknown:
            instances = counted(load.unknown, "instance")
            waits_for += f", with {instances} of which they are not known counted as full"
            wait_ends = f"the players of {instances} are reported, or {wait_ends}"
    elif inputs.starting:
        waits_for = f"{counted(inputs.starting, 'is', 'are')} starting"
        wait_ends = "those that start run"
    elif inputs.cooldown_left > 0:
        waits_for = f"the cooldown after the last change ends in {inputs.cooldown_left:.0f} s"
        wait_ends, look_after = "the cooldown ends", inputs.cooldown_left
    return ScalingVerdict(
        wanted=serving,
        need=low,
        may_stop=not waits_for,
        look_after=look_after,
        waits_for=waits_for,
        wait_ends=wait_ends,
    )


def _rule(spec: GroupSpec, values: ScheduledValues, players: int, *, base: int, serving: int) -> Rule:
    """The rule by which instances are added: what asks for the most of them."""
    by_load, by_slots = _by_threshold(spec, players), _by_slots(spec, players)
    if max(by_load, by_slots) > base:
        return Rule.SLOTS_UP if by_slots > by_load else Rule.LOAD_UP
    return Rule.SCHEDULE_UP if "min" in values.by and serving >= spec.min else Rule.MIN_RESTORE


def _by_threshold(spec: GroupSpec, players: int) -> int:
    share = _fraction(spec.scaling.up_threshold)
    return -(-players * share.denominator // (share.numerator * max(1, spec.max_players)))


def _by_slots(spec: GroupSpec, players: int) -> int:
    free = spec.scaling.free_slots
    return -(-(players + free) // max(1, spec.max_players)) if free else 0


@functools.lru_cache(maxsize=1024)
def _fraction(value: float) -> fractions.Fraction:
    """The number as it was written: 0.7 is seven tenths."""
    return fractions.Fraction(str(value))
