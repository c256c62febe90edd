"""The answer to why: what is the case now, the chain that led to it, recent decisions, and what would change it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.decisions import DecisionShape, worded
from corral.controller.http.resources.why.decision_history import DecisionHistory
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import Journal
from corral.controller.workload.service import Workloads
from corral.domain.decisions import Alternative, DecisionKind, Rule
from corral.domain.groups.instance_records import DecisionRecord, GroupRecord
from corral.domain.planning.counterfactuals import Counterfactual
from corral.domain.planning.plan_results import GroupResult, PlannedDecision, PlanResult
from corral.domain.planning.planner import PassLimits, plan
from corral.domain.planning.refusals import PlacementRefusal, count_codes
from corral.errors import Rejected
from corral.store.port import ReadEngine

LISTED: Final = 20
GONE: Final = "GONE"
_LIMITS: Final = PassLimits(starts=LISTED, starts_of_group=10, searches=100)


class NowShape(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is the case now, and why."""

    topic: str
    subject: str
    reason: str
    rule: str = ""
    node: str = ""
    rejected: list[Alternative] = []
    rejected_counts: dict[str, int] = {}
    at: dt.datetime | None = None
    lines: list[str] = []


class ChainShape(msgspec.Struct, frozen=True, kw_only=True):
    """One step from what happened first to what followed from it."""

    kind: str
    id: str
    subject: str
    rule: str
    reason: str
    at: dt.datetime | None


class WouldChangeShape(msgspec.Struct, frozen=True, kw_only=True):
    """A condition, and what would follow from it."""

    condition: str
    effect: str
    at: dt.datetime | None
    missing: int = 0


class RestartShape(msgspec.Struct, frozen=True, kw_only=True):
    """A restart by the node itself, with the crash behind it."""

    at: dt.datetime
    crash: str
    incarnation: int
    restarted_as: int
    uptime_ms: int
    reason: str


class WhyShape(msgspec.Struct, frozen=True, kw_only=True):
    """Why something is as it is: one sentence, what is the case now, and the decisions behind it, the newest first."""

    subject: str
    state: str
    summary: str
    files_kept: list[str] = []
    decisions: list[DecisionShape] = []
    restarts: list[RestartShape] = []
    now: list[NowShape] = []
    chain: list[ChainShape] = []
    would_change: list[WouldChangeShape] = []


@dataclass(frozen=True)
class WhyParts:
    """What the answers are made from."""

    state: ClusterState
    workload: Workloads
    reads: ReadEngine
    instances: InstanceControl
    modules: Modules
    nodes: LiveNodes
    setting: ProcessContext

    def plan(self, groups: Collection[str], now: dt.datetime) -> tuple[WorkspaceView, PlanResult]:
        """What the planner would do for these groups now. Nothing of it is carried out."""
        ws = self.instances.workspace(cause="why", now=now)
        view = self.instances.signals.view(ws)
        return view, plan(view, groups, _LIMITS)

    def as_of_now(self, record: GroupRecord) -> GroupRecord:
        """The group with the end of its pause by the wall clock as it is set now; the pause itself goes by another."""
        until = self.instances.signals.pause_until(record.spec.name)
        if record.paused is None or until is None:
            return record
        return msgspec.structs.replace(record, paused=msgspec.structs.replace(record.paused, until=until))

    async def gone(self, kind: str, id: str, journal: Journal[DecisionRecord], error: Rejected) -> WhyShape:
        """The answer about something that is gone; `error` where nothing is known of it."""
        decisions = await DecisionHistory(self.reads).recent(journal)
        if not decisions:
            raise error
        last = decisions[0]
        return WhyShape(
            subject=f"{kind}/{id}",
            state=GONE,
            summary=f"{kind} '{id}' is gone; the last decision about it: {last.kind}, {last.reason}",
            decisions=decisions,
        )


def would_change_shapes(found: Sequence[Counterfactual]) -> list[WouldChangeShape]:
    return [
        WouldChangeShape(condition=each.condition, effect=each.effect, at=each.at, missing=each.missing)
        for each in found[:LISTED]
    ]


def planned_shape(planned: PlannedDecision) -> NowShape:
    """A decision that the planner would make now."""
    subject = f"instance/{planned.instance}" if planned.instance else f"group/{planned.group}"
    rejected: list[Alternative] = []
    counts: dict[str, int] = {}
    node = ""
    if planned.placement is not None:
        rejected, counts = planned.placement.alternatives(), planned.placement.counts()
        node = planned.placement.node
    return NowShape(
        topic=planned.kind.value,
        subject=subject,
        rule=planned.rule.value,
        node=node,
        reason=planned.reason,
        rejected=[worded(each) for each in rejected[:LISTED]],
        rejected_counts=counts,
        at=planned.wake_at,
    )


def refusal_shape(group: str, found: GroupResult, refused: PlacementRefusal) -> NowShape:
    """Why no node takes the next instance of a group. The planner decides this once; it holds until it changes."""
    rule = Rule.PLACE_REFUSE
    if refused.returning() or refused.emptied():
        rule = Rule.RECONNECT_WAIT if refused.returning() else Rule.DRAIN_WAIT
    return NowShape(
        topic=(DecisionKind.REFUSE if rule is Rule.PLACE_REFUSE else DecisionKind.SKIP).value,
        subject=f"group/{group}",
        rule=rule.value,
        reason=found.reason,
        rejected=[worded(each.alternative()) for each in refused.refusals[:LISTED]],
        rejected_counts=count_codes(refused.refusals),
        at=found.wake_at,
    )
