"""What is stored about a module: one record a package, the same on both hosts.

How far a module's durable subscription has come.

Which event tells which step of a module's life.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from corral.domain.events import Draft, EventType
from corral.domain.module_manifest import Manifest
from corral.domain.module_phases import ModuleIntent, ModulePhase
from corral.domain.records import Record

WAITING_FOR: Final = "waiting_for_capability:"
"""Prefix of the reason of a module that waits for a capability; the capability's id follows."""
STORY_LENGTH: Final = 30
"""How many of its last steps a record remembers."""
SIGNATURE_REFUSED: Final = "signature_refused"
"""The reason of a package whose signature does not hold."""


class PhaseStep(Record, frozen=True, kw_only=True):
    """One step of a module's life, as it is told to operators."""

    at: dt.datetime
    from_phase: ModulePhase | None
    to_phase: ModulePhase
    reason: str
    version: str = ""

    def __str__(self) -> str:
        start = self.from_phase or "-"
        return f"{self.at:%H:%M:%S} {start} -> {self.to_phase}" + (f" ({self.reason})" if self.reason else "")


class FailureStory(Record, frozen=True, kw_only=True):
    """What is known about why a module failed: kept until it is recovered or replaced."""

    at: dt.datetime
    reason: str
    message: str = ""
    traceback: str = ""
    log: tuple[str, ...] = ()
    """Its last log lines."""
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    threads: int = 0


class SignatureFacts(Record, frozen=True, kw_only=True):
    """How an archive was proven; absent when it carried no signature and none was required."""

    kind: str
    """`cosign-bundle` or `sig`."""
    identity: str = ""
    key_sha256: str = ""
    legacy: bool = False
    blob: str = ""
    """Digest of the sidecar; on the controller also its name in the store."""


class PackageRecord(Record, frozen=True, kw_only=True):
    """A package as it is installed: what it is, what is wanted of it, where it stands."""

    id: str
    version: str
    sha256: str
    size: int
    manifest: Manifest
    phase: ModulePhase = ModulePhase.INSTALLED
    intent: ModuleIntent = ModuleIntent.ACTIVE
    reason: str = ""
    """Why it is in this phase, such as `waiting_for_capability:ID`; empty when there is nothing to say."""
    paused_reason: str = ""
    previous_version: str = ""
    """Whose data the archive found when it was put in place, until it has become ACTIVE; its own version when
    other bytes of the same one were there."""
    data_version: str | None = None
    """Version that last worked on its data; empty: none yet. None: a record from before this was kept."""
    generation: int = 1
    """Which generation of its collections is the live one."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    reload_asked_ms: int = 0
    """On the controller: when an operator last asked for a reload. Nodes that are away have it to come."""
    signature: SignatureFacts | None = None
    installed_at: dt.datetime
    updated_at: dt.datetime
    story: tuple[PhaseStep, ...] = ()
    failure: FailureStory | None = None

    @property
    def version_of_data(self) -> str:
        """Version that last worked on its data, as far as that is known; empty: none yet."""
        if self.data_version is None:
            return self.previous_version or self.version
        return self.data_version

    @property
    def upgraded_from(self) -> str:
        """Another version whose data its `on_upgrade` has to bring up to date; empty: there is nothing to do."""
        return self.previous_version if self.previous_version != self.version else ""

    @property
    def proven(self) -> bool:
        """False once its signature was found not to hold: nothing of it may be used."""
        return not (self.phase is ModulePhase.FAILED and self.reason == SIGNATURE_REFUSED)


class ModuleCursor(Record, frozen=True, kw_only=True):
    """Everything up to `cursor` was confirmed by the module, or was nothing it wanted."""

    cursor: str
    at: dt.datetime


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
