"""Why a node runs what it runs: its admission, what was placed there by which rules, and what it refuses now."""

from __future__ import annotations

import asyncio
import itertools
from typing import Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.resources.why.cause_chains import ChainReader
from corral.controller.http.resources.why.decision_history import DecisionHistory
from corral.controller.http.resources.why.event_authors import last_change_of
from corral.controller.http.resources.why.why_answer import (
    GONE,
    LISTED,
    NowShape,
    WhyParts,
    WhyShape,
    WouldChangeShape,
)
from corral.controller.http.resources.why.why_drains import drain_of_node, end_of_drain
from corral.controller.state.collections import node_decisions
from corral.domain.groups.instance_records import live
from corral.domain.node_states import Admission, NodeState
from corral.domain.permissions import Permission
from corral.domain.planning.counterfactuals import group_counterfactuals
from corral.domain.planning.node_views import NodeView
from corral.domain.records import NodeRecord
from corral.errors import Rejected, counted

_SHORT_GROUPS: Final = 20
"""The most groups with fewer instances than wanted that are planned."""
_AT_ONCE: Final = 2


async def why_node(parts: WhyParts, call: ApiCall[None, NoQuery]) -> WhyShape:
    state, id = parts.state, call.path["id"]
    journal = node_decisions(id)
    try:
        record = state.nodes.require(id).record
    except Rejected as error:
        return await _gone(parts, call, error)
    history = DecisionHistory(parts.reads)
    heads = await history.heads(journal)
    chains = ChainReader(state, parts.reads, call.caller.access, history, [journal])
    refused, would_change = await _refused(parts, call)
    view = next((each for each in parts.plan((), call.now)[0].nodes() if each.id == id), None)
    running = [
        each.record
        for each in state.instances.of_node(id)
        if live(each.record.state) and _is_seen(call, each.record.group)
    ]
    rules = {each.subject: each for each in reversed(heads.values())}
    placed = [
        NowShape(
            topic="runs",
            subject=f"instance/{each.id}",
            node=id,
            rule=rules[each.id].rule if each.id in rules else "",
            reason=rules[each.id].reason if each.id in rules else each.reason,
            at=rules[each.id].at if each.id in rules else each.created_at,
        )
        for each in running
    ]
    now = [
        _state(record, connected=parts.nodes.live(record.id) is not None),
        *([_room(view)] if view is not None else []),
        *await _changed(parts, call),
        *drain_of_node(parts, record, call.now),
        *refused,
        *placed,
    ]
    own = _own_change(record)
    return WhyShape(
        subject=f"node/{id}",
        state=record.state.value if record.admission is Admission.OPEN else record.admission.value.upper(),
        summary=_summary(record, len(running), len(refused)),
        decisions=await history.recent(journal),
        now=now[: 2 * LISTED],
        chain=await chains.chain(next(iter(heads.values()), None)),
        would_change=[*own, *would_change] if record.drain is not None else would_change or own,
    )


async def _changed(parts: WhyParts, call: ApiCall[None, NoQuery]) -> list[NowShape]:
    """The last request that changed the node, for those who may read the audit."""
    id = call.path["id"]
    if not call.caller.access.allows_everywhere(Permission.AUDIT_READ):
        return []
    found = await last_change_of(parts.reads, id)
    if found is None:
        return []
    text = f"{found.text} at {found.at:%Y-%m-%d %H:%M:%S} UTC"
    return [NowShape(topic="changed", subject=f"node/{id}", node=id, reason=text, at=found.at)]


async def _gone(parts: WhyParts, call: ApiCall[None, NoQuery], error: Rejected) -> WhyShape:
    """The answer about a node that was removed: who did it, and the decisions that are left."""
    id = call.path["id"]
    changed = await _changed(parts, call)
    try:
        answer = await parts.gone("node", id, node_decisions(id), error)
    except Rejected:
        if not changed:
            raise
        answer = WhyShape(subject=f"node/{id}", state=GONE, summary=f"node '{id}' is gone")
    return msgspec.structs.replace(answer, now=changed)


def _admission(record: NodeRecord) -> str:
    text = record.admission.value
    return f"{text}: {record.admission_reason}" if record.admission_reason else text


def _state(record: NodeRecord, *, connected: bool) -> NowShape:
    """Its stored state; a session begins before it is stored and ends before that is."""
    reason = f"{record.state} since {record.state_since:%Y-%m-%d %H:%M:%S} UTC"
    reason += f" ({record.reason})" if record.reason else ""
    if connected != (record.state is NodeState.ONLINE):
        reason += ", but it has just connected" if connected else ", but it has no session"
        reason += "; the store does not have that yet"
    return NowShape(
        topic="state", subject=f"node/{record.id}", node=record.id, reason=f"{reason}, {_admission(record)}"
    )


def _room(view: NodeView) -> NowShape:
    free = max(0, view.memory_mb - view.usage.memory_mb)
    text = f"{free} of {view.memory_mb} MB are free, {view.usage.cpu:g} of {view.cpus} CPUs are reserved"
    if view.free_disk_mb is not None:
        text += f", {max(0, view.free_disk_mb - view.preparing_disk_mb)} MB of disk are free"
    return NowShape(topic="room", subject=f"node/{view.id}", node=view.id, reason=text)


def _own_change(record: NodeRecord) -> list[WouldChangeShape]:
    if record.state in (NodeState.DISCONNECTED, NodeState.UNREACHABLE, NodeState.ENROLLED):
        return [WouldChangeShape(condition=f"{record.id} connects", effect="it takes instances", at=None)]
    if record.drain is not None:
        return end_of_drain(record, record.drain)
    if record.state is NodeState.ONLINE and record.admission is not Admission.OPEN:
        verb = "uncordon" if record.admission is Admission.CORDONED else "undrain"
        return [WouldChangeShape(condition=f"{verb} {record.id}", effect="it takes new instances", at=None)]
    return []


def _is_seen(call: ApiCall[None, NoQuery], group: str) -> bool:
    """Whether instances of a group on the node are within the scope of the caller."""
    return call.caller.access.allows_on_instance(Permission.DECISIONS_READ, group, call.path["id"])


async def _refused(
    parts: WhyParts, call: ApiCall[None, NoQuery]
) -> tuple[list[NowShape], list[WouldChangeShape]]:
    """The groups that have fewer instances than wanted and that this node refuses, with the reasons. A few are planned at
    once: others have their turn in between."""
    id, now = call.path["id"], call.now
    short = (stored.record.spec.name for stored in parts.state.groups if stored.record.reason)
    names = list(itertools.islice((name for name in short if _is_seen(call, name)), _SHORT_GROUPS))
    found: list[NowShape] = []
    changes: list[WouldChangeShape] = []
    for first in range(0, len(names), _AT_ONCE):
        if first:
            await asyncio.sleep(0)
        view, result = parts.plan(names[first : first + _AT_ONCE], now)
        for name, planned in result.groups.items():
            refusals = planned.refusal.refusals if planned.refusal is not None else ()
            refusal = next((each for each in refusals if each.node == id), None)
            group = view.group(name)
            if refusal is None or group is None:
                continue
            text = refusal.reason
            subject = f"group/{name}"
            found.append(
                NowShape(topic="refused", subject=subject, node=id, rule="place.refuse", reason=text)
            )
            more = group_counterfactuals(view, group, planned, node=id) if len(changes) < LISTED else ()
            changes += [
                WouldChangeShape(condition=each.condition, effect=each.effect, at=each.at)
                for each in more
                if each.node == id
            ]
    return found, changes[:LISTED]


def _summary(record: NodeRecord, running: int, refused: int) -> str:
    summary = (
        f"node '{record.id}' is {record.state} and {_admission(record)}; {counted(running, 'instance')} on it"
    )
    if record.state is not NodeState.ONLINE and record.reason:
        summary += f"; {record.reason}"
    if refused:
        summary += f"; it cannot take instances of {counted(refused, 'group')} in need"
    return summary
