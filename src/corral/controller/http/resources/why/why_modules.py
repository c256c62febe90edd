"""Why a module is in its phase: here, on each node, and what that means for groups."""

from __future__ import annotations

from typing import Final

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.resources.why.why_answer import (
    LISTED,
    ChainShape,
    NowShape,
    WhyParts,
    WhyShape,
    WouldChangeShape,
)
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import NodeModuleState, PackageRecord, awaited_capability
from corral.domain.permissions import Permission
from corral.errors import short_list

_WAITING_FOR: Final = "waiting_for_capability:"
_NAMED: Final = 5


async def why_module(parts: WhyParts, call: ApiCall[None, NoQuery]) -> WhyShape:
    record = parts.state.modules.require(call.path["id"]).record
    sees_logs = call.caller.access.allows_everywhere(Permission.LOGS_READ)
    rows = sorted(parts.state.module_node_states.rows_of_module(record.id), key=lambda row: row.node)
    awaited = _awaited(record)
    summary = f"module '{record.id}' {record.version} is {record.phase}, and is to be {record.intent}"
    summary += f"; {_reason(record)}" if _reason(record) else ""
    unwell = [row.node for row in rows if row.phase is not ModulePhase.ACTIVE]
    if unwell and record.intent is ModuleIntent.ACTIVE:
        summary += f"; not active on {short_list(unwell, _NAMED)}"
    now = [
        NowShape(
            topic="phase", subject=f"module/{record.id}", reason=_phase_text(record, sees_logs=sees_logs)
        )
    ]
    now += [
        NowShape(topic="waiting", subject=f"module/{record.id}", reason=each.reason)
        for each in parts.modules.engine.capabilities.unresolved()
        if each.module == record.id
    ]
    now += _group_impact(parts, record)
    now += [_on_node(record, row, sees_logs=sees_logs) for row in rows[:LISTED]]
    return WhyShape(
        subject=f"module/{record.id}",
        state=record.phase.value,
        summary=summary,
        now=now[: 2 * LISTED],
        chain=[
            ChainShape(
                kind="phase",
                id="",
                subject=record.id,
                rule="",
                reason=f"{step.from_phase or '-'} → {step.to_phase}"
                + (f": {step.reason}" if step.reason else ""),
                at=step.at,
            )
            for step in record.history[-LISTED:]
        ],
        would_change=_would_change(record, awaited),
    )


def _awaited(record: PackageRecord) -> str:
    waits = record.phase is ModulePhase.WAITING and record.reason.startswith(_WAITING_FOR)
    return record.reason.removeprefix(_WAITING_FOR) if waits else ""


def _reason(record: PackageRecord) -> str:
    if awaited := _awaited(record):
        return f"it waits for capability '{awaited}'"
    return record.reason or record.paused_reason


def _phase_text(record: PackageRecord, *, sees_logs: bool) -> str:
    text = f"{record.phase}, intent {record.intent}"
    text += f"; {_reason(record)}" if _reason(record) else ""
    if record.failure is not None and sees_logs and record.failure.message:
        text += f"; {record.failure.message}"
    return text


def _on_node(record: PackageRecord, row: NodeModuleState, *, sees_logs: bool) -> NowShape:
    awaited = awaited_capability(row)
    reason = f"it waits for capability '{awaited}'" if awaited else row.reason
    text = f"{row.phase or 'unknown'} {row.version}".strip()
    text += ", another archive than the installed one" if row.sha256 != record.sha256 else ""
    text += f"; {reason}" if reason else ""
    text += f"; {row.error}" if row.error and sees_logs else ""
    return NowShape(topic="on_node", subject=f"module/{record.id}", node=row.node, reason=text)


def _group_impact(parts: WhyParts, record: PackageRecord) -> list[NowShape]:
    """The groups that name files of the module, and the modules that need its capabilities."""
    own = {each.id for each in record.manifest.extensions}
    groups = [
        stored.record.spec.name
        for stored in parts.state.groups
        if any(each.id in own for each in stored.record.spec.extensions)
    ]
    found = [
        NowShape(topic="group", subject=f"group/{name}", reason="its next starts get files of the module")
        for name in groups[:LISTED]
    ]
    provided = {each.id for each in record.manifest.capabilities.provides}
    for each in parts.state.modules:
        needed = provided & {need.id for need in each.record.manifest.capabilities.requires}
        if needed and each.record.id != record.id:
            text = f"it needs {short_list(sorted(needed), _NAMED)} of the module"
            found.append(NowShape(topic="needed_by", subject=f"module/{each.record.id}", reason=text))
    return found[:LISTED]


def _would_change(record: PackageRecord, awaited: str) -> list[WouldChangeShape]:
    def one(condition: str, effect: str) -> list[WouldChangeShape]:
        return [WouldChangeShape(condition=condition, effect=effect, at=None)]

    if awaited:
        return one(f"a module provides '{awaited}'", f"'{record.id}' becomes active")
    if record.phase is ModulePhase.FAILED:
        return one(f"corral module recover {record.id}", "it is started again")
    if record.intent is not ModuleIntent.ACTIVE:
        return one(f"corral module activate {record.id}", "it becomes active")
    return []
