"""Why a group has as many instances as it has: its need, what the planner would do now, and what would change it."""

from __future__ import annotations

from typing import Final

import msgspec

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
from corral.controller.http.resources.why.why_deployments import deployment_shapes
from corral.controller.http.resources.why.why_drains import drain_of_group
from corral.controller.http.resources.why.why_group_details import group_details, group_remedies
from corral.controller.instances.group_format_upgrade import isolation_hint
from corral.controller.state.collections import group_decisions
from corral.controller.workload.service import Workloads
from corral.domain.access import Access
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.instance_records import (
    CrashLoop,
    GroupRecord,
    InstanceRecord,
    is_draining,
    is_ready,
    live,
)
from corral.domain.permissions import Permission
from corral.domain.planning.counterfactuals import group_counterfactuals
from corral.domain.planning.plan_results import GroupResult
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.refusals import RefusalCode
from corral.domain.planning.rollout_reasons import rollout_counterfactuals
from corral.domain.planning.scaling_reasons import players_text, scaling_counterfactuals, scaling_reasons
from corral.domain.planning.tallies import GroupTally
from corral.errors import Rejected, counted, short_list

_NAMED: Final = 3
"""Most instances that are not ready whose reason is in the summary of their group."""
_WAITS: Final = frozenset({DecisionKind.SKIP, DecisionKind.REFUSE})


async def why_group(parts: WhyParts, call: ApiCall[None, NoQuery]) -> WhyShape:
    state, name = parts.state, call.path["name"]
    journal = group_decisions(name)
    try:
        record = parts.as_of_now(state.groups.require(name).record)
    except Rejected as error:
        return await parts.gone("group", name, journal, error)
    there = [each.record for each in state.instances.of_group(name)]
    view, result = parts.plan([name], call.now)
    found = result.groups[name]
    has = _Counts.of(record, view.tally(name), found)
    now = [_need(record, has, found)]
    now += [_observing(name)] if parts.instances.signals.observing else []
    now += deployment_shapes(parts, record)
    now += [planned_shape(each) for each in result.decisions[:LISTED] if each.refusal is None]
    now += [refusal_shape(name, found, found.refusal)] if found.refusal is not None else []
    now += _scaling(view, record, found)
    now += drain_of_group(parts, there, found)
    now += group_details(parts, record, found, call.caller.access)
    now += _holders(parts, record, found, call.caller.access)
    now += _waiting(parts.workload, there)
    history = DecisionHistory(parts.reads)
    decisions = await history.recent(journal)
    chains = ChainReader(state, parts.reads, call.caller.access, history, [journal])
    short = has.serving < found.need.wanted
    last = next((each.id for each in decisions if not short or each.kind in _WAITS), "")
    last = last or (decisions[0].id if decisions else "")
    return WhyShape(
        subject=f"group/{name}",
        state=_state(record, short=short),
        summary=_summary(view, record, found, has) + _not_ready(parts.workload, there),
        decisions=decisions,
        now=now[:LISTED],
        chain=await chains.chain(await chains.find(last)),
        would_change=_would_change(parts, view, record, found),
    )


def _would_change(
    parts: WhyParts, view: PlanView, record: GroupRecord, found: GroupResult
) -> list[WouldChangeShape]:
    shapes = would_change_shapes(
        [*group_counterfactuals(view, record, found), *scaling_counterfactuals(view, record, found)]
    )
    known = {each.condition for each in shapes}
    remedies = group_remedies(parts.state, view, record, found)
    if found.rollout is not None and record.deployment:
        remedies += would_change_shapes(rollout_counterfactuals(view, record.spec, found.rollout.record))
    more = [each for each in remedies if each.condition not in known]
    return [*shapes, *more][:LISTED]


def _state(record: GroupRecord, *, short: bool) -> str:
    if record.hold is not None:
        return "HELD"
    return "PAUSED" if record.paused else "SHORT" if short else "MET"


class _Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many instances a group has, by what they are for."""

    serving: int
    warm: int
    wants_warm: int
    draining: int
    stopping: int
    lost: int

    @classmethod
    def of(cls, record: GroupRecord, tally: GroupTally, found: GroupResult) -> _Counts:
        """As the planner counts them: a static instance that is stopping keeps its place."""
        lost = 0 if record.spec.static else tally.lost
        leaving = 0 if record.spec.static else tally.live - tally.staying - lost
        draining = min(leaving, tally.draining)
        return cls(
            serving=tally.live - tally.warm - leaving - lost,
            warm=tally.warm,
            wants_warm=found.need.wants_warm,
            draining=draining,
            stopping=leaving - draining,
            lost=lost,
        )

    def beside(self) -> str:
        """Those that do not serve."""
        parts = []
        if self.warm or self.wants_warm:
            parts.append(f"{self.warm} of {self.wants_warm} warm")
        if self.draining:
            parts.append(f"{self.draining} draining")
        if self.stopping:
            parts.append(f"{self.stopping} stopping")
        if self.lost:
            parts.append(f"{self.lost} lost")
        return f", beside {' and '.join(parts)}" if parts else ""


def _need(record: GroupRecord, has: _Counts, found: GroupResult) -> NowShape:
    wanted = found.need.wanted
    reason = f"{counted(wanted, 'is', 'are')} wanted, {counted(has.serving, 'is', 'are')} there{has.beside()}"
    if found.error is not None:
        reason += "; it could not be planned, see the log of the controller"
    elif record.paused is not None and found.need.rule is Rule.CRASH_PAUSE:
        reason += f"; {_pause_text(record.paused)}"
    elif found.reason:
        reason += f"; {found.reason}"
    return NowShape(
        topic="need",
        subject=f"group/{record.spec.name}",
        reason=reason,
        rule=found.need.rule.value if found.need.rule is not None else "",
        at=found.wake_at or (record.paused.until if record.paused is not None else None),
    )


def _observing(name: str) -> NowShape:
    text = "this controller has just become the leader: it waits for its nodes to report before it starts anything"
    return NowShape(topic="observing", subject=f"group/{name}", reason=text)


def _holders(parts: WhyParts, record: GroupRecord, found: GroupResult, access: Access) -> list[NowShape]:
    """Instances of groups with a lower priority, as far as the caller may see them, that have the room which is lacking:
    they are not stopped for it. A node that is too small, or where they have too little, is left out."""
    refusals = found.refusal.refusals if found.refusal is not None else ()
    shapes: list[NowShape] = []
    for refusal in refusals:
        if refusal.code not in (RefusalCode.MEMORY, RefusalCode.CPU) or len(shapes) == _NAMED:
            continue
        held = [
            each.record
            for each in parts.state.instances.of_node(refusal.node)
            if live(each.record.state)
            and access.allows_on_instance(Permission.DECISIONS_READ, each.record.group, refusal.node)
        ]
        lower = [
            (each, group.record.spec)
            for each in held
            if (group := parts.state.groups.find(each.group)) is not None
            and group.record.spec.priority < record.spec.priority
        ]
        of_memory = refusal.code is RefusalCode.MEMORY
        room = sum(each.memory_mb if of_memory else spec.cpu for each, spec in lower)
        numbers = refusal.numbers
        if float(numbers["needed"]) <= float(numbers["total"]) and room >= float(numbers["lacks"]):
            named = [f"'{each.id}' (priority {spec.priority}, {each.memory_mb} MB)" for each, spec in lower]
            text = f"{refusal.node} has {short_list(named, _NAMED)}, which are not stopped for it"
            subject = f"node/{refusal.node}"
            shapes.append(NowShape(topic="lower_priority", subject=subject, node=refusal.node, reason=text))
    return shapes


def _waiting(workload: Workloads, there: list[InstanceRecord]) -> list[NowShape]:
    """Live instances that are not ready, with what they wait for."""
    return [
        NowShape(topic="not_ready", subject=f"instance/{record.id}", node=record.node, reason=reason)
        for record in there
        if _is_awaited(record) and (reason := _waits_for(workload, record))
    ][:LISTED]


def _scaling(view: PlanView, record: GroupRecord, found: GroupResult) -> list[NowShape]:
    """What decides about the number that is wanted."""
    subject = f"group/{record.spec.name}"
    return [
        NowShape(topic=each.topic, subject=subject, reason=each.reason, at=each.at)
        for each in scaling_reasons(view, record, found)
    ]


def _summary(view: PlanView, record: GroupRecord, found: GroupResult, has: _Counts) -> str:
    name, wanted = record.spec.name, counted(found.need.wanted, "instance")
    summary = f"group '{name}' wants {wanted} and has {has.serving}{has.beside()}"
    if players := players_text(view, record, found):
        summary += f"; {players}"
    if record.paused is not None:
        summary += f"; {_pause_text(record.paused)}"
    elif record.reason:
        summary += f"; {record.reason}"
    elif found.copies:
        summary += f"; {found.copies[0].reason}"
    if hint := isolation_hint(record):
        summary += f"; {hint}"
    return summary


def _pause_text(paused: CrashLoop) -> str:
    until = f"{paused.until:%Y-%m-%d %H:%M:%S} UTC"
    return f"it is crash-looping and left alone until {until}: {paused.reason}"


def _is_awaited(record: InstanceRecord) -> bool:
    """Is it to become ready? One that only waits for its players to leave is not."""
    return live(record.state) and not is_ready(record) and not is_draining(record)


def _waits_for(workload: Workloads, record: InstanceRecord) -> str:
    vital = workload.vitals.find(record.id)
    failure = record.start_failure if not record.started_at else None
    return failure.message if failure else (vital.waits_for if vital else "") or record.reason


def _not_ready(workload: Workloads, there: list[InstanceRecord]) -> str:
    """The reported reasons why live instances are not ready."""
    found = [
        f"; '{record.id}' is {record.state}: {reason}"
        for record in there
        if _is_awaited(record) and (reason := _waits_for(workload, record))
    ]
    return "".join(found[:_NAMED])
