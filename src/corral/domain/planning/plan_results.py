"""The result of a pass of the planner: what to do, and what it found out about each group."""

from __future__ import annotations

import datetime as dt

import msgspec

from corral.domain.decisions import DecisionKind, Numbers, Rule
from corral.domain.groups.drain_records import DrainWait
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.planning.group_plans import GroupNeed
from corral.domain.planning.node_drains import DrainVerdict
from corral.domain.planning.node_loss import WaitingCopies
from corral.domain.planning.placement import Placement
from corral.domain.planning.refusals import PlacementRefusal
from corral.domain.planning.rollout_results import RolloutResult
from corral.domain.planning.scaling import ScalingVerdict
from corral.domain.planning.start_requests import StartRequest


class PlannedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, or a reason for doing nothing."""

    kind: DecisionKind
    rule: Rule
    group: str
    instance: str = ""
    reason: str
    inputs: Numbers = {}
    request: StartRequest | None = None
    placement: Placement | None = None
    refusal: PlacementRefusal | None = None
    wake_at: dt.datetime | None = None


class GroupResult(msgspec.Struct, kw_only=True):
    """What a pass found out about one group."""

    need: GroupNeed
    reason: str = ""
    """Why it has fewer instances than wanted; empty: it has not, or is about to get them."""
    refusal: PlacementRefusal | None = None
    """Why no node takes the next instance."""
    scaling: ScalingVerdict | None = None
    """What its load asks for, where its mode is DYNAMIC."""
    copies: tuple[WaitingCopies, ...] = ()
    """Returned instances that are there beside their replacements for now."""
    rollout: RolloutResult | None = None
    """What its deployment does."""
    drain: DrainVerdict | None = None
    """What it does about instances on nodes that are emptied; None: it has none there."""
    drain_wait: DrainWait | None = None
    """Why one of these cannot leave yet; see `GroupRecord`."""
    move_refusal: PlacementRefusal | None = None
    """Why no node takes a replacement of one of these."""
    wake_at: dt.datetime | None = None
    error: Exception | None = None
    """It could not be planned; nothing is done for it."""
    started: int = 0

    def wake(self, at: dt.datetime | None) -> None:
        """Have the group looked at again at this time, if not before."""
        if at is not None:
            self.wake_at = at if self.wake_at is None else min(self.wake_at, at)


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[PlannedDecision, ...]
    groups: dict[str, GroupResult]
    """Every group that was looked at."""
    unfinished: tuple[str, ...] = ()
    """Groups for which more is to do at once."""

    @property
    def wake_at(self) -> dt.datetime | None:
        return min((each.wake_at for each in self.groups.values() if each.wake_at), default=None)


class DecisionList:
    """The decisions of a pass, in their order."""

    def __init__(self) -> None:
        self.made: list[PlannedDecision] = []

    def add(
        self,
        kind: DecisionKind,
        rule: Rule,
        group: GroupRecord,
        need: GroupNeed,
        reason: str,
        *,
        instance: str = "",
        request: StartRequest | None = None,
        placement: Placement | None = None,
        refusal: PlacementRefusal | None = None,
        wake_at: dt.datetime | None = None,
        inputs: Numbers | None = None,
    ) -> None:
        self.made.append(
            PlannedDecision(
                kind=kind,
                rule=rule,
                group=group.spec.name,
                instance=instance,
                reason=reason,
                inputs={"wanted": need.wanted, "present": need.present, **(inputs or {})},
                request=request,
                placement=placement,
                refusal=refusal,
                wake_at=wake_at,
            )
        )
