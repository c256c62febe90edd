"""Instances that are there and can serve in the place of new ones: those that were to go, and warm ones."""

from __future__ import annotations

from collections.abc import Iterable

from corral.domain.groups.instance_records import InstanceRecord, is_ready
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.plan_view import PlanView


def choose_returning(
    view: PlanView, leaving: Iterable[InstanceRecord], count: int
) -> tuple[InstanceRecord, ...]:
    """At most so many of these, which take no more players, to serve again: those with the most players come first."""
    here = [each for each in leaving if each.state is not InstanceState.OFFLINE]
    ordered = sorted(here, key=lambda each: (-(view.players(each.id) or 0), each.id))
    return tuple(ordered[: max(0, count)])


def choose_promoted(view: PlanView, warm: Iterable[InstanceRecord], count: int) -> tuple[InstanceRecord, ...]:
    """At most so many of these warm ones to serve: the oldest that is ready comes first, and none on a node that is
    emptied."""
    ready = [
        each
        for each in warm
        if is_ready(each) and each.wanted is Wanted.RUN and each.node not in view.emptied
    ]
    return tuple(sorted(ready, key=lambda each: each.incarnation)[: max(0, count)])
