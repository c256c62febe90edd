"""The times that deployments and drains depend on, by the monotonic clock: since when an instance is ready or not, since
when it takes no more players, and for how long a deployment is without progress. A new leader begins them anew: what waits for one waits longer, never
shorter, and no clock that is set makes it end early."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import InstanceRecord, is_draining, is_ready, live
from corral.domain.planning.signals import RolloutClock


class _Stamp(NamedTuple):
    """A stored time, and when this leader has seen it first."""

    stored: dt.datetime | None
    seen: float


class _Readiness(NamedTuple):
    run: int | None
    """The run that is ready; None: the instance is not."""
    since: float


class RolloutTimers:
    """Times of instances and deployments. `at`: the present time by the monotonic clock."""

    def __init__(self) -> None:
        self._draining: dict[str, float] = {}
        self._ready: dict[str, _Readiness] = {}
        """By live instance."""
        self._running: dict[str, _Stamp] = {}
        self._watched: dict[str, _Stamp] = {}

    def note_instance(self, id: str, record: InstanceRecord | None, *, at: float) -> None:
        if record is not None and is_draining(record):
            self._draining.setdefault(id, at)
        else:
            self._draining.pop(id, None)
        if record is None or not live(record.state):
            self._ready.pop(id, None)
            return
        run = record.incarnation if is_ready(record) else None
        known = self._ready.get(id)
        if known is None or known.run != run:
            self._ready[id] = _Readiness(run, at)

    def ready_seconds(self, id: str, *, ready: bool, at: float) -> float:
        """For how long the present run of an instance is ready, or else the instance is not ready; 0: it is otherwise."""
        known = self._ready.get(id)
        return at - known.since if known is not None and (known.run is not None) is ready else 0.0

    def draining_seconds(self, id: str, *, at: float) -> float:
        since = self._draining.get(id)
        return at - since if since is not None else 0.0

    def clock(self, deployment: DeploymentRecord, *, at: float) -> RolloutClock:
        """The times of a deployment, from when this leader has seen first that they run."""
        return RolloutClock(
            running=_seconds(self._running, deployment.id, deployment.clock_since, at),
            watched=_seconds(self._watched, deployment.id, deployment.watched_since, at),
        )

    def forget(self, deployment: str) -> None:
        self._running.pop(deployment, None)
        self._watched.pop(deployment, None)


def _seconds(stamps: dict[str, _Stamp], id: str, stored: dt.datetime | None, at: float) -> float:
    if stored is None:
        stamps.pop(id, None)
        return 0.0
    known = stamps.get(id)
    if known is None or known.stored != stored:
        known = stamps[id] = _Stamp(stored, at)
    return at - known.seen
