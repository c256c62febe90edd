"""Instances on nodes that are emptied: how each of them leaves, when, and what it waits for.

One that serves is replaced first. An instance started for that names the one in whose place it is (`moves`), so that at
any moment the records alone say which instances are there on top of the wanted number: such a replacement does not count
as long as the instance that it replaces serves. When the replacement is healthy, and enough others are, the instance
takes no more players, and is stopped when it has none.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from corral.domain.decisions import DecisionKind, Numbers
from corral.domain.groups.available_floor import available_floor
from corral.domain.groups.drain_records import DrainWait
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import (
    GroupRecord,
    InstanceRecord,
    is_draining,
    is_present,
    is_starting,
    live,
)
from corral.domain.ids import same_start
from corral.domain.instance_states import Wanted
from corral.domain.planning.elsewhere import Elsewhere
from corral.domain.planning.group_plans import pause_text
from corral.domain.planning.health import Health, health_of, is_healthy, never_served, settles_in
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.stops import is_left_by_all, stop_text
from corral.domain.planning.tallies import GroupTally
from corral.errors import counted


class Way(enum.StrEnum):
    """How an instance leaves a node that is emptied."""

    MOVE = "move"
    """It serves until a replacement elsewhere is healthy."""
    EMPTY = "empty"
    """It is static, or no other node could ever take it: last, when it has no players; nothing is started in its place
    until the node is open again."""
    AT_ONCE = "at_once"
    """It is warm, or does not run yet: nobody misses it."""
    SICK = "sick"
    """It is unhealthy: without waiting for a replacement, some at a time."""
    LEAVING = "leaving"
    """It is to go already: when it has no players, or it stops."""
    AWAY = "away"
    """Its node is away, and waited for."""


class LeavingInstance(msgspec.Struct, frozen=True, kw_only=True):
    """What is done about one instance now."""

    record: InstanceRecord
    kind: DecisionKind
    """DRAIN or STOP."""
    reason: str
    inputs: Numbers = {}


class DrainVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a group does about its instances on nodes that are emptied."""

    departures: tuple[LeavingInstance, ...] = ()
    replace: tuple[InstanceRecord, ...] = ()
    """Those for which a replacement is to be started now."""
    waits: DrainWait | None = None
    """Why the first that is held up cannot leave yet; None: all goes its way."""
    waiting: tuple[DrainWait, ...] = ()
    """All that serve and stay for now, with the reasons; those whose turn comes later included."""
    look_after: float | None = None
    """Seconds after which the verdict may be another though nothing happens."""


def replacements(instances: Iterable[InstanceRecord], emptied: frozenset[str]) -> dict[str, InstanceRecord]:
    """The replacements that do not count yet, by the instances on emptied nodes in whose place they are."""
    found: dict[str, InstanceRecord] = {}
    if not emptied:
        return found
    there: dict[str, InstanceRecord] = {each.id: each for each in instances}
    for each in there.values():
        former = there.get(each.moves) if each.moves else None
        if (
            former is not None
            and is_present(each)
            and not each.warm
            and each.node not in emptied
            and same_start(former.incarnation, each.moves_run)
            and former.node in emptied
            and is_present(former)
            and former.wanted is Wanted.RUN
        ):
            found[former.id] = each
    return found


def drained_tally(
    tally: GroupTally, instances: Iterable[InstanceRecord], emptied: frozenset[str], *, under_way: int
) -> GroupTally:
    """The numbers of a group by which it is planned: without replacements that do not count yet, and with those that
    leave an emptied node not as some that could serve again. A static one keeps its place while it leaves."""
    leaving = sum(is_draining(each) and each.node in emptied for each in instances)
    return msgspec.structs.replace(
        tally, staying=tally.staying - under_way, draining=tally.draining - leaving
    )


def way_of(view: PlanView, spec: GroupSpec, record: InstanceRecord, elsewhere: Elsewhere) -> Way:
    """How a live instance of a group leaves its node, which is emptied."""
    if record.wanted is not Wanted.RUN:
        return Way.LEAVING
    health = health_of(view, spec, record)
    if health is Health.AWAY:
        return Way.AWAY
    if record.warm or never_served(record):
        return Way.AT_ONCE
    if spec.static or not elsewhere.could_run(spec, record.node):
        return Way.EMPTY
    return Way.SICK if health is Health.UNHEALTHY else Way.MOVE


def may_have_players(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> bool:
    """Has it known players? While a new leader does not know the players yet, every instance may have some."""
    players = view.players(record.id)
    unknown = players is None and not view.players_settled and not is_left_by_all(view, spec, record)
    return bool(players) or unknown


class GroupNumbers(NamedTuple):
    """How many instances of a group are wanted, serve, and are started in this pass; replacements that do not count yet
    are left out."""

    wanted: int
    serving: int
    starting: int


def drain_verdict(
    view: PlanView,
    group: GroupRecord,
    instances: Sequence[InstanceRecord],
    *,
    numbers: GroupNumbers,
    under_way: Mapping[str, InstanceRecord],
    apart: Collection[str] = (),
    parted: bool = False,
) -> DrainVerdict:
    """Decide about the instances of a group on nodes that are emptied. `under_way`: the replacements that do not count
    yet. `apart`: instances that something else decides about. `parted`: the group parts with others in this pass."""
    found = _Departures(view, group, instances, numbers, under_way)
    verdict = found.verdict(apart, parted=parted)
    waits = _unstartable(view, group, verdict.replace)
    return msgspec.structs.replace(verdict, replace=(), waits=waits) if waits is not None else verdict


def _unstartable(view: PlanView, group: GroupRecord, replace: Sequence[InstanceRecord]) -> DrainWait | None:
    """Why no replacement can be started, whatever the nodes are."""
    if not replace:
        return None
    text = ""
    if group.paused is not None and not view.pause_over(group.spec.name):
        text = f"its group is {pause_text(group.paused)}"
    else:
        text = unmet_dependency(view, group.spec)
    if not text:
        return None
    first = replace[0]
    return DrainWait(
        instance=first.id,
        reason=f"'{first.id}' stays on node '{first.node}': no replacement is started, {text}",
    )


def unmet_dependency(view: PlanView, spec: GroupSpec) -> str:
    """Which group has too few ready instances for another start of this one; empty: none."""
    for each in spec.depends_on:
        ready = view.tally(each.group).ready
        if ready < each.ready:
            return f"waits for '{each.group}': {ready} of {each.ready} ready"
    return ""


class _Departures:
    def __init__(
        self,
        view: PlanView,
        group: GroupRecord,
        instances: Sequence[InstanceRecord],
        numbers: GroupNumbers,
        under_way: Mapping[str, InstanceRecord],
    ) -> None:
        self._view = view
        self._group = group
        self._spec = group.spec
        self._numbers = numbers
        self._floor = available_floor(group.spec, numbers.wanted)
        self._under_way = under_way
        self._instances = instances
        self._elsewhere = Elsewhere(view)
        self._departures: list[LeavingInstance] = []
        self._waits: DrainWait | None = None
        self._waiting: list[DrainWait] = []
        self._look_after: float | None = None

    def verdict(self, apart: Collection[str], *, parted: bool) -> DrainVerdict:
        view = self._view
        emptied = view.emptied
        alive = (each for each in self._instances if live(each.state) and each.node in emptied)
        there = [each for each in alive if each.id not in apart]
        by_way: dict[Way, list[InstanceRecord]] = {way: [] for way in Way}
        for each in there:
            by_way[way_of(view, self._spec, each, self._elsewhere)].append(each)
        for each in there:
            self._look_again(each)
        for each in by_way[Way.AT_ONCE]:
            self._part_at_once(each)
        self._part_with_sick(by_way[Way.SICK])
        moving = sorted(by_way[Way.MOVE], key=self._order)
        alone = [each for each in moving if each.id not in self._under_way]
        if moving and not parted:  # else the numbers are others after this pass
            healthy = self._retire([each for each in moving if each.id in self._under_way])
            alone = self._let_go(alone, healthy)
        replace = self._to_replace(alone)
        for each in by_way[Way.EMPTY]:
            self._part_when_empty(each)
        return DrainVerdict(
            departures=tuple(self._departures),
            replace=tuple(replace),
            waits=self._waits,
            waiting=tuple(self._waiting),
            look_after=self._look_after,
        )

    def _order(self, record: InstanceRecord) -> tuple[int, int]:
        """Those without players leave first, then those with the fewest, then those that were started first."""
        players = self._view.players(record.id)
        empty = is_left_by_all(self._view, self._spec, record)
        return 0 if empty else players if players is not None else 1_000_000, record.incarnation

    def _part_at_once(self, record: InstanceRecord) -> None:
        """Stop one that nobody misses; players keep even an unhealthy one until they have left."""
        state = "it is warm" if record.warm else "it is not healthy"
        why = f"{self._view.drain_text(record.node)}, and {state}"
        if may_have_players(self._view, self._spec, record):
            self._part(record, DecisionKind.DRAIN, f"{why}; it is stopped when it has no players")
        else:
            self._part(record, DecisionKind.STOP, stop_text(self._view, record, why))

    def _part_with_sick(self, sick: Sequence[InstanceRecord]) -> None:
        """Stop unhealthy ones whatever the floor is, so many at a time as the group may move: what they all wait for, such
        as a database, may be back before the first replacement is healthy. Others that begin elsewhere are part of that,
        those that are unhealthy themselves are not."""
        emptied = self._view.emptied
        elsewhere = [each for each in self._instances if is_present(each) and each.node not in emptied]
        beginning = sum(
            is_starting(each) or health_of(self._view, self._spec, each) is Health.UNSETTLED
            for each in elsewhere
        )
        if not self._group.reason:  # those that are about to begin, too
            beginning += max(0, self._numbers.wanted - self._numbers.serving)
        free = max(0, self._surge - beginning)
        for each in sick[:free]:
            self._part_at_once(each)
        for each in sick[free:]:
            self._wait(each, self._at_a_time)
        for each in elsewhere if sick[free:] else ():
            self._look_again(each)

    @property
    def _surge(self) -> int:
        """How many instances of the group move at a time."""
        return max(1, self._spec.update.surge(self._numbers.wanted, False))

    @property
    def _at_a_time(self) -> str:
        count = counted(self._surge, "instance of its group moves", "instances of its group move")
        return f"{count} at a time"

    def _retire(self, moving: Sequence[InstanceRecord]) -> int:
        """Part with those whose replacements are healthy, as far as enough others are; how many are healthy then."""
        view, spec, floor = self._view, self._spec, self._floor
        healthy = self._healthy()
        for each in moving:
            replacement = self._under_way[each.id]
            left = healthy - is_healthy(view, spec, each)
            if not is_healthy(view, spec, replacement):
                self._wait(each, f"'{replacement.id}', which takes its place, is not healthy yet")
            elif left < floor:
                text = (
                    f"{counted(left, 'other is', 'others are')} healthy, and {floor} must be (min_available)"
                )
                self._wait(each, text, held_up=True)
            else:
                healthy = left
                reason = f"{view.drain_text(each.node)}, and '{replacement.id}' takes its place; it is stopped when it has no players"
                inputs: Numbers = {"healthy": healthy, "min_available": floor, "replacement": replacement.id}
                self._part(each, DecisionKind.DRAIN, reason, inputs)
        return healthy

    def _healthy(self) -> int:
        serving = [
            each
            for each in self._instances
            if is_present(each) and each.wanted is Wanted.RUN and not each.warm
        ]
        for each in serving:
            self._look_again(each)
        return sum(is_healthy(self._view, self._spec, each) for each in serving)

    def _let_go(self, moving: Sequence[InstanceRecord], healthy: int) -> list[InstanceRecord]:
        """Part with those that need no replacement, for more serve than are wanted, as while a deployment is paused; the
        others."""
        spare = max(0, self._numbers.serving - self._numbers.wanted)
        stay = list(moving[spare:])
        for each in moving[:spare]:
            left = healthy - is_healthy(self._view, self._spec, each)
            if left < self._floor:
                stay.append(each)
                continue
            healthy = left
            reason = f"{self._view.drain_text(each.node)}, and more serve than are wanted; it is stopped when it has no players"
            self._part(each, DecisionKind.DRAIN, reason, {"healthy": healthy, "min_available": self._floor})
        return stay

    def _to_replace(self, moving: Sequence[InstanceRecord]) -> list[InstanceRecord]:
        """The next for which replacements are started: so many at once as the group has surge, at least one. What the
        group has above its number for another reason, such as a deployment, is part of that."""
        numbers = self._numbers
        above = max(0, numbers.serving + numbers.starting - numbers.wanted)
        free = max(0, self._surge - len(self._under_way) - above)
        for each in moving[free:]:
            self._wait(each, self._at_a_time)
        return list(moving[:free])

    def _part_when_empty(self, record: InstanceRecord) -> None:
        """Static instances, and those that no other node could take, are the last on their node: nothing takes their
        place."""
        view = self._view
        if view.has_movable(record.node):
            self._wait(record, "it is the last to leave, and others are still there", held_up=True)
            return
        held = "its directory is there" if self._spec.static else "no other node could take it"
        reason = f"{view.drain_text(record.node)}, and {held}: it is started again when the node is open"
        if self._is_empty(record):
            self._part(record, DecisionKind.STOP, stop_text(view, record, reason))
        else:
            self._part(record, DecisionKind.DRAIN, f"{reason}; it is stopped when it has no players")

    def _is_empty(self, record: InstanceRecord) -> bool:
        return is_left_by_all(self._view, self._spec, record)

    def _part(
        self, record: InstanceRecord, kind: DecisionKind, reason: str, inputs: Numbers | None = None
    ) -> None:
        known = {"players": players} if (players := self._view.players(record.id)) is not None else {}
        found: Numbers = {"node": record.node, **known, **(inputs or {})}
        self._departures.append(LeavingInstance(record=record, kind=kind, reason=reason, inputs=found))

    def _wait(self, record: InstanceRecord, reason: str, *, held_up: bool = False) -> None:
        """Note why an instance stays for now; `held_up`: longer than its turn takes."""
        found = DrainWait(instance=record.id, reason=f"'{record.id}' stays on node '{record.node}': {reason}")
        self._waiting.append(found)
        if held_up and self._waits is None:
            self._waits = found

    def _look_again(self, record: InstanceRecord) -> None:
        """Look again when an instance that is ready has been so for long enough."""
        if health_of(self._view, self._spec, record) is Health.UNSETTLED:
            left = settles_in(self._view, self._spec, record)
            self._look_after = left if self._look_after is None else min(self._look_after, left)
