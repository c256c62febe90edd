"""The sums of a deployment: how many instances of each revision it starts, and which ones it retires."""

from __future__ import annotations

from typing import NamedTuple

from corral.domain.groups.available_floor import available_floor
from corral.domain.groups.group import GroupSpec
from corral.domain.instance_states import Wanted
from corral.domain.planning.group_plans import GroupNeed
from corral.domain.planning.health import Health, never_served
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_members import Member, RolloutMembers, is_given_up
from corral.domain.planning.stops import goes_at_once


class StartCounts(NamedTuple):
    new: int
    """Of the revision that the deployment brings."""
    former: int
    """Of the revision that it replaces: in the place of those that have failed."""


def starts_of(*, wanted: int, goal: int, incoming: int, outgoing: int, room: int) -> StartCounts:
    """Instances of the revision while fewer than the goal are there, and others while fewer than the rest are. `room`: how
    many more may serve, the surge included, which is only for the revision."""
    new = max(0, min(goal - incoming, room))
    lacking = wanted - incoming - outgoing - new
    former = max(0, min(wanted - goal - outgoing, room - new, lacking))
    return StartCounts(new, former)


def least_healthy(view: PlanView, spec: GroupSpec, need: GroupNeed, *, wanted: int) -> int:
    """How many instances have to stay healthy. While static ones are away for longer than their group waits, the others are
    updated. Where more are there than are wanted, counted with those that are away or kept stopped by an operator, one that
    is stopped is not started again: then as many as are wanted stay."""
    reached = wanted
    if spec.static:
        reached -= sum(is_given_up(view, spec, each) for each in view.instances_of(spec.name))
    least = max(0, reached) - spec.update.unavailable(max(0, reached), spec.static)
    if spec.static and need.present > need.wanted:
        least = need.wanted
    return least if spec.min_available is None else max(least, available_floor(spec, need.wanted))


def to_retire(
    view: PlanView,
    spec: GroupSpec,
    members: RolloutMembers,
    *,
    wanted: int,
    goal: int,
    floor: int,
    sick: int,
) -> list[Member]:
    """The instances of other revisions to part with now: while more are there than the goal leaves room for, unhealthy ones
    whatever the floor is, and healthy ones while enough stay healthy. `sick`: how many that run may go because they are
    unhealthy. Those that are about to be restarted, or are not known to be healthy yet, are left alone."""
    excess = max(0, len(members.outgoing) - (wanted - goal))
    able = [each for each in members.outgoing if each.record.wanted is Wanted.RUN]
    bad = [each for each in able if each.health is Health.UNHEALTHY]
    begun = [each for each in bad if never_served(each.record)]
    unhealthy = [*begun, *[each for each in bad if not never_served(each.record)][:sick]][:excess]
    healthy = [each for each in able if each.health is Health.HEALTHY]
    allowed = max(0, min(excess - len(unhealthy), members.healthy - max(floor, 0)))
    ordered = sorted(healthy, key=lambda each: _order(view, spec, each))
    return [*unhealthy, *ordered[:allowed]]


def sick_at_once(members: RolloutMembers, *, most: int, going_back: bool) -> int:
    """How many unhealthy ones of other revisions may go now: `most` at a time, less those of the revision that are there and
    not healthy yet. What all of them wait for, such as a database, may be back before these are healthy, and the revision may
    be a bad one. On the way back it is."""
    if going_back:
        return len(members.outgoing)
    unproven = sum(each.health not in (Health.HEALTHY, Health.AWAY) for each in members.incoming)
    return max(0, most - unproven)


def _order(view: PlanView, spec: GroupSpec, member: Member) -> tuple[bool, bool, int, int]:
    """Those on nodes that are emptied first, then those without players, those with the fewest, the oldest."""
    record = member.record
    stays = record.node not in view.emptied
    empty = goes_at_once(view, spec, record)
    players = view.players(record.id)
    return stays, not empty, 0 if empty else 1_000_000 if players is None else players, record.incarnation
