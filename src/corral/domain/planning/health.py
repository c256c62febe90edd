"""Whether an instance is healthy: it runs, is ready, its node is connected, and it has been so for a while without a crash or
restart. Drains and deployments part with an instance only where enough others are healthy."""

from __future__ import annotations

import enum

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import InstanceRecord, is_ready, is_starting
from corral.domain.instance_states import InstanceState
from corral.domain.planning.plan_view import PlanView


class Health(enum.StrEnum):
    HEALTHY = "healthy"
    UNSETTLED = "unsettled"
    """It is ready, or is not, and has not been so for long enough to be relied on, or to be given up."""
    UNHEALTHY = "unhealthy"
    """It has never been ready in this start and does not run yet, or has not been ready for long enough."""
    AWAY = "away"
    """Its node is not connected: nothing is known of it."""


def health_of(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> Health:
    if record.state is InstanceState.OFFLINE or not view.is_online(record.node):
        return Health.AWAY
    if never_served(record):
        return Health.UNHEALTHY
    if settles_in(view, spec, record) > 0:
        return Health.UNSETTLED
    return Health.HEALTHY if is_ready(record) else Health.UNHEALTHY


def never_served(record: InstanceRecord) -> bool:
    """Does the first run of a start not run yet? Nobody misses it."""
    return is_starting(record) and not record.restarts


def is_healthy(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> bool:
    return health_of(view, spec, record) is Health.HEALTHY


def settles_in(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> float:
    """Seconds until an instance has been ready, or not ready, for long enough. A probe that fails once takes no instance
    out of service. A new leader counts from its beginning: late, never early."""
    seconds = view.ready_seconds(record.id) if is_ready(record) else view.unready_seconds(record.id)
    return max(0.0, spec.update.min_healthy_seconds - seconds)
