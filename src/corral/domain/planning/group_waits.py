"""What a group waits for before instances are started in the places that are free: other groups, nodes, stops."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from corral.domain.decisions import Rule
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import InstanceRecord, is_draining
from corral.domain.instance_states import InstanceState
from corral.domain.planning.group_plans import GroupNeed
from corral.domain.planning.node_drains import unmet_dependency
from corral.domain.planning.node_loss import held_text
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.stops import leaving_text

Instances = Callable[[], Iterable[InstanceRecord]]
"""Of the group; asked for only where something is missing."""


def wait_for_groups(view: PlanView, spec: GroupSpec, need: GroupNeed) -> GroupNeed:
    """Start nothing before the groups that it depends on have ready instances."""
    if not need.start and not need.refill:
        return need
    unmet = unmet_dependency(view, spec)
    return need.waiting(Rule.DEPENDS_WAIT, unmet) if unmet else need


def wait_for_nodes(
    spec: GroupSpec, need: GroupNeed, instances: Instances, *, lost: int, away: int
) -> GroupNeed:
    """Say of instances whose nodes are waited for as long as it takes why nothing is started in their places: lost static
    ones, and all of a group without `replace_after_seconds`. Another reason explains more."""
    endless = spec.disconnect.replace_after_seconds is None
    if not (away if endless else lost and spec.static) or need.reason or need.start:
        return need
    return msgspec.structs.replace(need, rule=Rule.LOST_REPLACE, reason=held_text(spec, instances()))


def wait_for_away(spec: GroupSpec, need: GroupNeed, instances: Instances) -> GroupNeed:
    """Start no further static instance in the place of one that is to go and is out of reach: it may serve again."""
    if not need.start or not spec.static:
        return need
    away = sum(is_draining(each) and each.state is InstanceState.OFFLINE for each in instances())
    return msgspec.structs.replace(need, start=max(0, need.start - away))


def wait_for_stops(spec: GroupSpec, need: GroupNeed, instances: Instances, *, serving: int) -> GroupNeed:
    """Say of static instances that go why nothing is started in their places yet. Why they go was decided before."""
    if serving >= need.wanted or not spec.static or need.reason or need.start:
        return need
    return msgspec.structs.replace(need, reason=leaving_text(instances()))
