"""Why a deployment is where it is: its phase, what it waits for, what failed, and what would change it."""

from __future__ import annotations

from typing import Final

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.resources.why.cause_chains import ChainReader
from corral.controller.http.resources.why.decision_history import DecisionHistory
from corral.controller.http.resources.why.why_answer import (
    LISTED,
    NowShape,
    WhyParts,
    WhyShape,
    WouldChangeShape,
    planned_shape,
    refusal_shape,
    would_change_shapes,
)
from corral.controller.instances.deployments import deployment_progress_of
from corral.controller.state.collections import deployment_decisions, group_decisions
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.planning.counterfactuals import group_counterfactuals
from corral.domain.planning.plan_results import GroupResult
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_reasons import deployment_text, progress_text, rollout_counterfactuals
from corral.errors import Rejected

_FAILURES: Final = 5


async def why_deployment(parts: WhyParts, call: ApiCall[None, NoQuery]) -> WhyShape:
    state, id = parts.state, call.path["id"]
    journal = deployment_decisions(id)
    try:
        record = state.deployments.require(id).record
    except Rejected as error:
        return await parts.gone("deployment", id, journal, error)
    stored = state.groups.find(record.group)
    now, would_change = _phase(record), list[WouldChangeShape]()
    summary = deployment_text(record)
    if stored is not None and record.active:
        view, result = parts.plan([record.group], call.now)
        found = result.groups[record.group]
        summary += f"; {progress_text(record, deployment_progress_of(view, record))}"
        now += [planned_shape(each) for each in result.decisions[:LISTED] if each.refusal is None]
        now += [refusal_shape(record.group, found, found.refusal)] if found.refusal is not None else []
        would_change = _would_change(view, stored.record, found, record)
    history = DecisionHistory(parts.reads)
    chains = ChainReader(
        state, parts.reads, call.caller.access, history, [journal, group_decisions(record.group)]
    )
    return WhyShape(
        subject=f"deployment/{id}",
        state=record.state.value,
        summary=summary,
        decisions=await history.recent(journal),
        now=[*now, *_failures(record)][: 2 * LISTED],
        chain=await chains.chain(await chains.find(record.decision)),
        would_change=would_change,
    )


def _phase(record: DeploymentRecord) -> list[NowShape]:
    subject = f"deployment/{record.id}"
    text = f"{record.state} since {record.phase_since:%Y-%m-%d %H:%M:%S} UTC"
    shapes = [NowShape(topic="phase", subject=subject, reason=text, at=record.phase_since)]
    if record.active and record.waiting:
        shapes.append(NowShape(topic="waiting", subject=subject, reason=record.waiting))
    if record.outcome:
        shapes.append(NowShape(topic="outcome", subject=subject, reason=record.outcome, at=record.ended_at))
    if record.undone:
        shapes.append(NowShape(topic="undone", subject=subject, reason=record.undone))
    return shapes


def _failures(record: DeploymentRecord) -> list[NowShape]:
    """The last instances that failed, the newest first."""
    return [
        NowShape(
            topic="failure",
            subject=f"instance/{each.instance}",
            node=each.node,
            reason=f"{each.reason} ({each.phase})",
            at=each.at,
        )
        for each in reversed(record.failures[-_FAILURES:])
    ]


def _would_change(
    view: PlanView, group: GroupRecord, found: GroupResult, record: DeploymentRecord
) -> list[WouldChangeShape]:
    own = rollout_counterfactuals(view, group.spec, record)
    room = group_counterfactuals(view, group, found) if found.refusal is not None else ()
    return would_change_shapes([*room, *own])


def deployment_shapes(parts: WhyParts, group: GroupRecord) -> list[NowShape]:
    """What the deployment of a group does, for the answer about the group or one of its instances."""
    id = group.deployment or group.unsettled
    stored = parts.state.deployments.find(id) if id else None
    if stored is None:
        return []
    record = stored.record
    return [NowShape(topic="deployment", subject=f"deployment/{id}", reason=deployment_text(record))]
