"""Why an instance is where it is and as it is: its placement, what is wanted of it, what it waits for."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Final

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.resources.decisions import DecisionShape
from corral.controller.http.resources.why.cause_chains import ChainReader
from corral.controller.http.resources.why.decision_history import RECENT, DecisionHistory
from corral.controller.http.resources.why.why_answer import (
    NowShape,
    RestartShape,
    WhyParts,
    WhyShape,
    WouldChangeShape,
    would_change_shapes,
)
from corral.controller.http.resources.why.why_deployments import deployment_shapes
from corral.controller.http.resources.why.why_drains import drain_of_instance
from corral.controller.http.resources.why.why_group_details import loss_shape
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import group_decisions, instance_decisions
from corral.domain.decisions import DecisionKind
from corral.domain.groups.instance_records import AfterStop, InstanceRecord, is_lost, is_ready, live, stays
from corral.domain.ids import same_start
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.counterfactuals import group_counterfactuals
from corral.domain.planning.placement import PlacementChoice
from corral.domain.planning.plan_results import GroupResult
from corral.domain.planning.refusals import LOWER
from corral.domain.planning.scaling_reasons import copies_counterfactuals, copies_reasons
from corral.errors import Rejected

_STARTS = frozenset({DecisionKind.START, DecisionKind.RESTART})
_WITHOUT_RIVALS: Final = {
    PlacementChoice.HOME.value: "which has its directory",
    PlacementChoice.BOUND.value: "which was chosen for it",
    PlacementChoice.KEPT.value: "which had it before",
}
"""Choices for which scores do not matter."""


async def why_instance(parts: WhyParts, call: ApiCall[None, NoQuery]) -> WhyShape:
    state, id = parts.state, call.path["id"]
    journal = instance_decisions(id)
    try:
        record = state.instances.require(id).record
    except Rejected as error:
        return await parts.gone("instance", id, journal, error)
    vital = parts.workload.vitals.find(record.id)
    waits_for = vital.waits_for if vital else ""
    restarts = _restarts(state, record)
    other = state.instances.replacement_of(record.id) if is_lost(record) else ""
    summary = _summary(record, waits_for) + (f"; replaced by '{other}'" if other else "")
    if restarts and live(record.state):
        ago = _span(parts.setting.clock.now() - restarts[0].at)
        summary += f"; restarted {ago} ago by its node: {restarts[0].reason}, crash {restarts[0].crash}"
    twice = _copies(parts, call.now, record)
    drain, drain_ends = drain_of_instance(parts, record, call.now)
    history = DecisionHistory(parts.reads)
    heads = await history.heads(journal)
    start = next((each.id for each in heads.values() if each.kind in _STARTS and each.node), "")
    placed = await history.shape(journal, start)
    journals = [journal, group_decisions(record.group)]
    chains = ChainReader(state, parts.reads, call.caller.access, history, journals)
    last = await chains.find(record.decision or next(iter(heads), ""))
    return WhyShape(
        subject=f"instance/{record.id}",
        state=record.state.value,
        summary=summary,
        restarts=restarts,
        files_kept=list(record.files_kept),
        decisions=await history.recent(journal),
        now=[
            *_now(record, placed, waits_for),
            *drain,
            *_copies_shapes(record, twice),
            *_of_deployment(parts, record),
        ],
        chain=await chains.chain(last),
        would_change=[
            *_would_change(parts, call.now, record, waits_for),
            *drain_ends,
            *(would_change_shapes(copies_counterfactuals(twice, record.id)) if twice is not None else ()),
        ],
    )


def _now(record: InstanceRecord, placed: DecisionShape | None, waits_for: str) -> list[NowShape]:
    subject = f"instance/{record.id}"
    found = []
    if placed is not None:
        found.append(
            NowShape(
                topic="placement",
                subject=subject,
                node=placed.node,
                rule=placed.rule,
                reason=_placement_text(placed),
                rejected=placed.rejected,
                rejected_counts=placed.rejected_counts,
                at=placed.at,
            )
        )
    found.append(NowShape(topic="desired", subject=subject, node=record.node, reason=_desired(record)))
    if live(record.state) and not is_ready(record) and (reason := waits_for or record.reason):
        found.append(NowShape(topic="not_ready", subject=subject, node=record.node, reason=reason))
    return found


def _copies(parts: WhyParts, now: dt.datetime, record: InstanceRecord) -> GroupResult | None:
    """Its group as the planner sees it, if it is a returned instance or a replacement; None: it is neither."""
    among = record.replaces or parts.state.instances.replacement_of(record.id)
    if not among or not stays(record) or parts.state.groups.find(record.group) is None:
        return None
    return parts.plan([record.group], now)[1].groups[record.group]


def _of_deployment(parts: WhyParts, record: InstanceRecord) -> list[NowShape]:
    """The deployment that a live instance is part of."""
    stored = parts.state.groups.find(record.group)
    return deployment_shapes(parts, stored.record) if stored is not None and live(record.state) else []


def _copies_shapes(record: InstanceRecord, found: GroupResult | None) -> list[NowShape]:
    if found is None:
        return []
    subject = f"instance/{record.id}"
    return [
        NowShape(topic=each.topic, subject=subject, node=record.node, reason=each.reason, at=each.at)
        for each in copies_reasons(found, record.id)
    ]


def _placement_text(placed: DecisionShape) -> str:
    score = placed.inputs.get("score")
    text = f"on {placed.node}"
    if bound := _WITHOUT_RIVALS.get(str(placed.inputs.get("choice", ""))):
        return f"{text}, {bound}"
    if isinstance(score, float) and placed.ties:
        return f"{text}: tie with {', '.join(placed.ties)} at {score:.6f}, by hash"
    lower = placed.rejected_counts.get(LOWER, 0)
    if isinstance(score, float):
        text += f": score {score:.6f}"
        text += f", the best of {lower + 1} nodes" if lower else ", the only node that could take it"
    return text


def _desired(record: InstanceRecord) -> str:
    if record.wanted is Wanted.RUN:
        return "it is to run"
    again = ", then to start again" if record.after_stop is AfterStop.RESTART else ""
    return f"it is to stop{again}" + (
        f": {record.held or record.reason}" if record.held or record.reason else ""
    )


def _would_change(
    parts: WhyParts, now: dt.datetime, record: InstanceRecord, waits_for: str
) -> list[WouldChangeShape]:
    def one(condition: str, effect: str) -> list[WouldChangeShape]:
        return [WouldChangeShape(condition=condition, effect=effect, at=None)]

    if record.state is InstanceState.OFFLINE:
        return [*one(f"{record.node} reconnects", "its state is known again"), *_loss(parts, now, record)]
    if live(record.state):
        return one(waits_for, "it is ready") if waits_for and not is_ready(record) else []
    if record.held:
        return one(f"corral instance restart {record.id}", "it starts again")
    stored = parts.state.groups.find(record.group)
    if stored is None:
        return []
    view, result = parts.plan([record.group], now)
    group = parts.as_of_now(stored.record)
    return would_change_shapes(group_counterfactuals(view, group, result.groups[record.group]))


def _loss(parts: WhyParts, now: dt.datetime, record: InstanceRecord) -> list[WouldChangeShape]:
    """What happens to an instance whose node stays away."""
    stored = parts.state.groups.find(record.group)
    if stored is None or record.lost or not stays(record):
        return []
    return loss_shape(parts.plan([], now)[0], stored.record.spec, record.node)


def _restarts(state: ClusterState, record: InstanceRecord) -> list[RestartShape]:
    """Restarts that its node made since its present start, the newest first."""
    crashes = state.crashes
    found = (crashes.require(id).record for id in reversed(crashes.of_node(record.node)))
    of_it = (
        crash
        for crash in found
        if crash.instance == record.id
        and crash.restarted_as
        and same_start(crash.incarnation, record.incarnation)
    )
    return [
        RestartShape(
            at=crash.at,
            crash=crash.id,
            incarnation=crash.incarnation,
            restarted_as=crash.restarted_as,
            uptime_ms=crash.uptime_ms,
            reason=crash.exit.summary,
        )
        for crash in itertools.islice(of_it, RECENT)
    ]


def _span(length: dt.timedelta) -> str:
    """A duration for people: 2 s, 28 min, 5 h, 3 d."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _summary(record: InstanceRecord, waits_for: str) -> str:
    summary = f"instance '{record.id}' of group '{record.group}' is {record.state} on node '{record.node}'"
    if record.start_failure is not None and not record.started_at:
        failure = record.start_failure
        summary += f"; its start failed at {failure.stage} with {failure.code}: {failure.message}"
    elif record.exit is not None and not live(record.state):
        summary += f"; it ended: {record.exit.summary}"
    if reason := waits_for or record.reason:
        summary += f"; {reason}"
    return summary
