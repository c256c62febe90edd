"""Which event tells which step of a module's life."""

from __future__ import annotations

import datetime as dt

from corral.domain.events import Draft, EventType
from corral.domain.module_phases import ModulePhase
from corral.domain.module_records import PackageRecord, PhaseStep

_TO = {
    ModulePhase.WAITING: EventType.MODULE_WAITING,
    ModulePhase.ACTIVE: EventType.MODULE_ACTIVATED,
    ModulePhase.STOPPING: EventType.MODULE_STOPPING,
    ModulePhase.FAILED: EventType.MODULE_FAILED,
    ModulePhase.UNLOADED: EventType.MODULE_UNINSTALLED,
}


def event_of(from_phase: ModulePhase | None, to_phase: ModulePhase) -> EventType:
    """Back to INSTALLED is a deactivation when something was running or about to, else an installation."""
    if to_phase is not ModulePhase.INSTALLED:
        return _TO[to_phase]
    if from_phase in (ModulePhase.WAITING, ModulePhase.STOPPING):
        return EventType.MODULE_DEACTIVATED
    return EventType.MODULE_INSTALLED


def told(before: PackageRecord | None, after: PackageRecord) -> list[Draft]:
    """One event for each step that `after` has in its story and `before` had not, in order."""
    return [_draft(after, step) for step in _new_steps(before.story if before else (), after.story)]


def uninstalled(record: PackageRecord, *, reason: str, at: dt.datetime) -> Draft:
    """The event of the record's end; it has no story any more in which the step could stand."""
    step = PhaseStep(
        at=at,
        from_phase=record.phase,
        to_phase=ModulePhase.UNLOADED,
        reason=reason,
        version=record.version,
    )
    return _draft(record, step)


def _new_steps(known: tuple[PhaseStep, ...], story: tuple[PhaseStep, ...]) -> tuple[PhaseStep, ...]:
    """The story without what was known: the longest end of the one that is the beginning of the other, for
    a story loses its oldest steps as it grows."""
    for size in range(min(len(known), len(story)), 0, -1):
        if known[-size:] == story[:size]:
            return story[size:]
    return story


def _draft(record: PackageRecord, step: PhaseStep) -> Draft:
    return Draft(
        type=event_of(step.from_phase, step.to_phase),
        subject=record.id,
        data={
            "id": record.id,
            "version": step.version or record.version,
            "from": step.from_phase.value if step.from_phase else None,
            "to": step.to_phase.value,
            "intent": record.intent.value,
            "reason": step.reason,
            "at": step.at.isoformat(),
        },
    )
