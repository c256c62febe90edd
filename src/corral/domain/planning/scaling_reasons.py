"""Why a group is to have the number of instances that it is to have, for people: mode, players, floor, schedules,
maintenance, and what would change it."""

from __future__ import annotations

import bisect
import datetime as dt
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.domain.groups.instance_records import GroupRecord, is_draining
from corral.domain.groups.scaling_spec import ScalingMode
from corral.domain.planning.counterfactuals import Counterfactual
from corral.domain.planning.plan_results import GroupResult
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.scaling import NEVER, ScalingVerdict, load_need, players_need
from corral.domain.planning.schedules import ScheduledValues, scheduled
from corral.errors import counted, short_list

_NAMED: Final = 5
_MOST_PLAYERS: Final = 10_000_000


class ScalingReason(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that decides about the number now."""

    topic: str
    """players, target, floor, schedule, maintenance, draining or copies."""
    reason: str
    at: dt.datetime | None = None
    """When it ends or is looked at again, if that is known."""


def scaling_reasons(view: PlanView, group: GroupRecord, found: GroupResult) -> list[ScalingReason]:
    """What decides about the number of instances of a group now."""
    if group.spec.abstract or group.deleting:
        return []
    values = scheduled(group.spec, view.now)
    return [
        *_by_mode(view, group, found, values),
        *_floor(view, group),
        *_schedules(values),
        *_maintenance(values),
        *_draining(view, group),
        *copies_reasons(found),
    ]


def players_text(view: PlanView, group: GroupRecord, found: GroupResult) -> str:
    """The players of a group and the number that they need; empty: they decide about nothing."""
    verdict = found.scaling
    if verdict is None:
        return ""
    load, values = view.load(group), scheduled(group.spec, view.now)
    own = players_need(group.spec, load.players)
    kept = f" and 'min' keeps {values.min}" if own < values.min else ""
    kept = f" and 'max' allows {allowed}" if (allowed := values.bounded(own)) < own else kept
    need = counted(load.players, "player needs", "players need")
    text = f"{need} {own}{kept}, {counted(found.need.present, 'is', 'are')} there"
    if load.above:
        text += f"; {load.above} more are reported than the instances have places, and do not count"
    if load.unknown:
        text += f"; those of {counted(load.unknown, 'instance')} are not known"
    return text


def _by_mode(
    view: PlanView, group: GroupRecord, found: GroupResult, values: ScheduledValues
) -> Iterator[ScalingReason]:
    verdict = found.scaling
    if verdict is not None:
        text = players_text(view, group, found)
        text += f"; {verdict.waits_for}" if verdict.waits_for else ""
        yield ScalingReason(topic="players", reason=text, at=_looked_at(view, verdict))
    elif values.mode is ScalingMode.STATIC:
        yield ScalingReason(topic="target", reason=f"'min' alone decides, its mode is STATIC: {values.min}")
    elif group.target > values.min:
        text = f"the last 'scale', or starts by hand, ask for {group.target}; 'min' is {values.min}"
        yield ScalingReason(topic="target", reason=text)


def _looked_at(view: PlanView, verdict: ScalingVerdict) -> dt.datetime | None:
    return view.now + dt.timedelta(seconds=verdict.look_after) if verdict.look_after != NEVER else None


def _floor(view: PlanView, group: GroupRecord) -> Iterator[ScalingReason]:
    if view.floor(group) and group.floor is not None:
        until = group.floor.until
        text = f"at least {group.floor.count} by an operator's order until {_time(until)}"
        yield ScalingReason(topic="floor", reason=text, at=until)


def _schedules(values: ScheduledValues) -> Iterator[ScalingReason]:
    for name in values.active:
        fields = [field for field, by in values.by.items() if by == name]
        sets = short_list((_set(values, field) for field in fields), _NAMED) or "what a later one overrides"
        yield ScalingReason(
            topic="schedule", reason=f"schedule '{name}' is active and sets {sets}", at=values.changes_at
        )


def _set(values: ScheduledValues, field: str) -> str:
    if field == "maintenance":
        return "maintenance"
    return f"{field} to {getattr(values, field)}"


def _maintenance(values: ScheduledValues) -> Iterator[ScalingReason]:
    if values.maintenance.enabled:
        by = values.by.get("maintenance")
        since = f" by schedule '{by}'" if by else ""
        yield ScalingReason(
            topic="maintenance", reason=f"it is closed to players{since}: its number does not follow them"
        )


def _draining(view: PlanView, group: GroupRecord) -> Iterator[ScalingReason]:
    if not view.tally(group.spec.name).draining:
        return
    going = [each for each in view.instances_of(group.spec.name) if is_draining(each)]
    for each in going[:_NAMED]:
        players = view.players(each.id)
        left = (
            "its players have left"
            if players is None
            else f"its {counted(players, 'player has', 'players have')} left"
        )
        yield ScalingReason(
            topic="draining", reason=f"'{each.id}' takes no more players, and is stopped when {left}"
        )


def copies_reasons(found: GroupResult, id: str = "") -> list[ScalingReason]:
    """Why there are more than wanted for now: of all, or of the instance with this id."""
    return [
        ScalingReason(topic="duplicates", reason=each.reason, at=each.until)
        for each in found.copies
        if not id or each.concerns(id)
    ][:_NAMED]


def copies_counterfactuals(found: GroupResult, id: str = "") -> list[Counterfactual]:
    """What ends that: of all, or of the instance with this id."""
    return [
        Counterfactual(condition=each.awaits, effect=each.effect, at=each.until)
        for each in found.copies
        if not id or each.concerns(id)
    ][:_NAMED]


def scaling_counterfactuals(view: PlanView, group: GroupRecord, found: GroupResult) -> list[Counterfactual]:
    """What would change the number that a group is to have."""
    if group.spec.abstract or group.deleting or group.hold is not None:
        return []
    values = scheduled(group.spec, view.now)
    return [
        *copies_counterfactuals(found),
        *_of_players(view, group, found, values),
        *_of_time(view, group, values),
    ]


def _of_players(
    view: PlanView, group: GroupRecord, found: GroupResult, values: ScheduledValues
) -> Iterator[Counterfactual]:
    verdict = found.scaling
    if verdict is None:
        return
    if values.maintenance.enabled:
        by = values.by.get("maintenance")
        condition = f"schedule '{by}' ends" if by else f"corral group maintenance {group.spec.name} off"
        yield Counterfactual(condition=condition, effect="the number follows the players again")
        return
    if verdict.wait_ends:
        rises = verdict.need > found.need.present
        effect = f"{verdict.need} are wanted" if rises else "an instance can be stopped"
        yield Counterfactual(condition=verdict.wait_ends, effect=effect, at=_looked_at(view, verdict))
    floor, players = view.floor(group), view.load(group).players
    more = _players_for_more(group, values, players, floor=floor, than=max(verdict.need, found.need.wanted))
    if more and not max(verdict.need, found.need.wanted, found.need.present):
        condition = "'min' or 'scaling.free_slots' is 1 or more, or an order of 'scale --for'"
        yield Counterfactual(
            condition=condition, effect="an instance is started: without one no player can come"
        )
    elif more:
        condition = f"{more} more {'player' if more == 1 else 'players'}"
        yield Counterfactual(condition=condition, effect="one more instance is started")


def _players_for_more(
    group: GroupRecord, values: ScheduledValues, players: int, *, floor: int, than: int
) -> int:
    """How many more players need more instances than these; 0: none, `max` is reached."""
    if values.bounded(than + 1) <= than:
        return 0
    found = bisect.bisect_right(
        range(_MOST_PLAYERS),
        than,
        key=lambda each: load_need(group.spec, values, players + each, floor=floor),
    )
    return found if found < _MOST_PLAYERS else 0


def _of_time(view: PlanView, group: GroupRecord, values: ScheduledValues) -> Iterator[Counterfactual]:
    if view.floor(group) and group.floor is not None:
        condition = f"the order of at least {group.floor.count} ends"
        yield Counterfactual(condition=condition, effect="the players decide", at=group.floor.until)
    if values.changes_at is not None:
        condition = "the next change of a schedule"
        yield Counterfactual(condition=condition, effect="other bounds may hold", at=values.changes_at)


def _time(at: dt.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
