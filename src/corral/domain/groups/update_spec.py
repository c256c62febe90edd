"""The field `update` of a group's document: how a deployment brings its instances to another revision."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec

from corral.domain.spec import Count, MetricName, Seconds, Share, Spec, invalid, share_of

METRICS: Final = 16
"""The most metrics of one gate."""


class UpdateStrategy(enum.StrEnum):
    ROLLING = "rolling"
    CANARY = "canary"
    """A few instances first; the others follow when these were healthy for `canary_seconds`."""


class Promotion(enum.StrEnum):
    AUTO = "auto"
    MANUAL = "manual"
    """Canaries wait for `promote`."""


class AutoUpdate(enum.StrEnum):
    """What makes a deployment by itself when it has changed."""

    DOCUMENT = "document"
    TEMPLATE = "template"
    CATALOG = "catalog"
    MODULE = "module"


class GateSpec(Spec, frozen=True, kw_only=True):
    """The bounds of a metric that canaries report; the time before all of them are reported does not count."""

    min: float | None = None
    max: float | None = None


class UpdateSpec(Spec, frozen=True, kw_only=True):
    strategy: UpdateStrategy = UpdateStrategy.ROLLING
    max_surge: Count | Share | None = None
    """The instances above the wanted number while it goes on; None: 1, of a static group 0."""
    max_unavailable: Count | Share | None = None
    """The instances that may be missing from the wanted number; None: 0, of a static group 1."""
    canary: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | Share = 1
    canary_seconds: Seconds = 60
    promote: Promotion = Promotion.AUTO
    min_healthy_seconds: Seconds = 10
    """An instance is healthy when it has been ready without a crash or restart for so long."""
    progress_seconds: Annotated[int, msgspec.Meta(ge=1, le=31_536_000)] = 600
    """A deployment fails after so long without progress."""
    max_failures: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    """A deployment fails with so many crashes or refused starts of new instances."""
    auto_rollback: bool = True
    drain_seconds: Seconds | None = None
    """Players of a retired instance are waited for so long; None: until the last one has left."""
    auto: Annotated[tuple[AutoUpdate, ...], msgspec.Meta(max_length=4)] = ()
    gate: Annotated[dict[MetricName, GateSpec], msgspec.Meta(max_length=METRICS)] = msgspec.field(
        default_factory=dict
    )

    def surge(self, wanted: int, static: bool) -> int:
        """Instances above `wanted` while a deployment goes on; a share of it is rounded up."""
        default = 0 if static else 1
        return default if self.max_surge is None else share_of(self.max_surge, wanted)

    def unavailable(self, wanted: int, static: bool) -> int:
        """Instances that may be missing from `wanted`; a share of it is rounded up."""
        default = 1 if static else 0
        return default if self.max_unavailable is None else share_of(self.max_unavailable, wanted)

    def canaries(self, wanted: int) -> int:
        """How many canaries a deployment of a group with `wanted` instances has: no more than these."""
        return min(share_of(self.canary, wanted), wanted)


def check_update(update: UpdateSpec, *, static: bool) -> None:
    """Refuse a rollout that could never move, and bounds that nothing is within. `static`: each instance has its own
    directory, so that no other one can run beside it."""
    surge, unavailable = update.surge(1, static), update.unavailable(1, static)
    if static and surge:
        raise invalid(
            "update/max_surge",
            "a static instance has one directory, so that none can be started beside it",
            "leave it out",
        )
    if not surge and not unavailable:
        field = "max_unavailable" if static or update.max_surge is None else "max_surge"
        raise invalid(
            f"update/{field}",
            "max_surge and max_unavailable are both 0, so that no instance could be replaced",
            "set max_unavailable to 1" if static else "set one of them to 1",
        )
    if share_of(update.canary, 1) == 0:
        raise invalid("update/canary", "there would be no canary", "set it to 1 or more")
    if len(set(update.auto)) < len(update.auto):
        raise invalid("update/auto", "it names something twice", "name each once")
    _check_gate(update.gate)


def _check_gate(gate: Mapping[str, GateSpec]) -> None:
    for name, bounds in gate.items():
        field = f"update/gate/{name[:80]}"
        if any(each is not None and not math.isfinite(each) for each in (bounds.min, bounds.max)):
            raise invalid(field, "a bound is no number", "write min, max or both as numbers")
        if bounds.min is None and bounds.max is None:
            raise invalid(field, "it has no bound", "set min, max or both")
        if bounds.min is not None and bounds.max is not None and bounds.min > bounds.max:
            raise invalid(field, f"min {bounds.min:g} is more than max {bounds.max:g}", "exchange them")
