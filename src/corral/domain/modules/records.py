"""Records of modules: the installed package (the same on both hosts), its state on each node, its cursor in
the event log, the changes it made to a start; and the events that follow from the steps of a package."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import msgspec

from corral.domain.events import Draft, EventType
from corral.domain.ids import NodeId
from corral.domain.modules.manifest import Manifest, Provision
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.records import Record

WAITING_FOR: Final = "waiting_for_capability:"
"""Prefix of the reason of a module that waits for a capability; the capability's id follows."""
HISTORY_LENGTH: Final = 30
"""How many of its last steps a record remembers."""
SIGNATURE_REFUSED: Final = "signature_refused"
"""The reason of a package whose signature is invalid."""


class PhaseStep(Record, frozen=True, kw_only=True):
    """One step of a module's life, as it is shown to operators."""

    at: dt.datetime
    from_phase: ModulePhase | None
    to_phase: ModulePhase
    reason: str
    version: str = ""

    def __str__(self) -> str:
        start = self.from_phase or "-"
        return f"{self.at:%H:%M:%S} {start} -> {self.to_phase}" + (f" ({self.reason})" if self.reason else "")


class FailureDetails(Record, frozen=True, kw_only=True):
    """The known facts of a failure: kept until the module is recovered or replaced."""

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
    """A package as it is installed: its content, its desired state, its phase."""

    id: str
    version: str
    sha256: str
    size: int
    manifest: Manifest
    phase: ModulePhase = ModulePhase.INSTALLED
    intent: ModuleIntent = ModuleIntent.ACTIVE
    reason: str = ""
    """Why it is in this phase, such as `waiting_for_capability:ID`; empty: no special reason."""
    paused_reason: str = ""
    previous_version: str = ""
    """The version whose data the archive found when it was put in place, until it has become ACTIVE; its own
    version when other bytes of the same one were there."""
    data_version: str | None = None
    """Version that last worked on its data; empty: none yet. None: a record from before this was kept."""
    generation: int = 1
    """Which generation of its collections is the live one."""
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    reload_asked_ms: int = 0
    """On the controller: when an operator last requested a reload. Nodes that are away still have to do it.
    """
    signature: SignatureFacts | None = None
    installed_at: dt.datetime
    updated_at: dt.datetime
    history: tuple[PhaseStep, ...] = ()
    failure: FailureDetails | None = None
    request: str = ""
    """On the controller: the id of the request that changed it last, for log records of what follows on nodes."""

    @property
    def version_of_data(self) -> str:
        """Version that last worked on its data, as far as that is known; empty: none yet."""
        if self.data_version is None:
            return self.previous_version or self.version
        return self.data_version

    @property
    def upgraded_from(self) -> str:
        """Another version whose data its `on_upgrade` has to migrate; empty: none."""
        return self.previous_version if self.previous_version != self.version else ""

    @property
    def proven(self) -> bool:
        """False once its signature was found invalid: nothing of it may be used."""
        return not (self.phase is ModulePhase.FAILED and self.reason == SIGNATURE_REFUSED)


class ModuleCursor(Record, frozen=True, kw_only=True):
    """Everything up to `cursor` was confirmed by the module, or did not match its subscriptions."""

    cursor: str
    at: dt.datetime


CAPABILITY_CONFLICT: Final = "capability_conflict"
"""Before a colon and the id of the capability: why the later one of two providers failed."""
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


def phase_events(before: PackageRecord | None, after: PackageRecord) -> list[Draft]:
    """One event for each step that `after` has in its history and `before` had not, in order."""
    steps = _new_steps(before.history if before else (), after.history)
    return [draft for step in steps for draft in (_draft(after, step), *_conflicts(after, step))]


def conflict_event(provision: Provision, *, module: str, reason: str) -> Draft:
    """The event of a second provider that is refused."""
    return Draft(
        type=EventType.CAPABILITY_CONFLICT,
        subject=provision.id,
        data={"id": provision.id, "version": provision.version, "module": module, "reason": reason},
    )


def _conflicts(record: PackageRecord, step: PhaseStep) -> list[Draft]:
    """That a module failed because another one provides what it does."""
    kind, _, id = step.reason.partition(":")
    if step.to_phase is not ModulePhase.FAILED or kind != CAPABILITY_CONFLICT:
        return []
    provisions = [each for each in record.manifest.capabilities.provides if each.id == id]
    reason = "another active module provides it"
    return [conflict_event(each, module=record.id, reason=reason) for each in provisions]


def uninstalled(record: PackageRecord, *, reason: str, at: dt.datetime) -> Draft:
    """The event of the record's removal; it has no history any more for the step."""
    step = PhaseStep(
        at=at,
        from_phase=record.phase,
        to_phase=ModulePhase.UNLOADED,
        reason=reason,
        version=record.version,
    )
    return _draft(record, step)


def _new_steps(known: tuple[PhaseStep, ...], history: tuple[PhaseStep, ...]) -> tuple[PhaseStep, ...]:
    """The history without the known part: the longest suffix of the one that is a prefix of the other, for a
    history loses its oldest steps as it grows."""
    for size in range(min(len(known), len(history)), 0, -1):
        if known[-size:] == history[:size]:
            return history[size:]
    return history


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


_DAY_MS: Final = 86_400_000


class NodeModuleState(Record, frozen=True, kw_only=True):
    """A module on one node, as the node last reported it. `version` and `sha256` are those installed there,
    which differ from the desired ones where a new version failed to start (then `refused_sha256` names that).
    """

    node: NodeId
    module: str
    phase: ModulePhase
    version: str
    sha256: str
    intent: ModuleIntent
    reason: str = ""
    error: str = ""
    refused_sha256: str = ""
    signature_sha256: str | None = None
    """The signature of `sha256` that this report answers; None: its daemon does not report it."""
    refused_signature_sha256: str | None = None
    """The signature that came with `refused_sha256`."""
    recover_asked_ms: int = 0
    """When an operator last requested another try there; it is sent until the node has carried it out."""
    recover_done_ms: int = 0
    """The last such request that the node carried out."""
    reload_done_ms: int | None = None
    """The last reload that it carried out; None: its daemon does not count them."""
    updated_at: dt.datetime
    recover_request: str = ""
    """The id of the request for another try, for log records of what follows on the node."""

    @property
    def pending_recover_ms(self) -> int:
        """The request for another try that is not carried out yet; 0: none."""
        return self.recover_asked_ms if self.recover_asked_ms > self.recover_done_ms else 0


def awaited_capability(row: NodeModuleState) -> str:
    """The capability that a module waits for on a node, the first of them; empty: it waits for none."""
    waits = row.phase is ModulePhase.WAITING and row.reason.startswith(WAITING_FOR)
    return row.reason.removeprefix(WAITING_FOR) if waits else ""


def next_request_ms(now: dt.datetime, asked_ms: int, *done_ms: int) -> int:
    """The time that identifies an operator request, in milliseconds: later than the request before it, and
    than those that nodes have carried out, whatever the clocks: nodes may know of more than a store that was
    restored. A time more than a day ahead is ignored."""
    present = int(now.timestamp() * 1000)
    believed = [each for each in done_ms if each < present + _DAY_MS]
    return max(present, asked_ms + 1, *(each + 1 for each in believed))


def node_module_key(node: str, module: str) -> str:
    """The id of a node's state of a module in the store."""
    return f"{node}/{module}"


class Overridden(Record, frozen=True, kw_only=True):
    """A change by a module that has no effect: another module or the plan overrode it."""

    kind: str
    """`env` or `jvm_args`."""
    name: str
    """Of the variable; of `jvm_args` the argument as it was added."""
    by: str = ""
    """The module whose change applies; empty: the plan's value does."""


class ModuleChange(Record, frozen=True, kw_only=True):
    """The changes of a module on the node to one start. With `dropped` none of them was applied, for that
    reason."""

    module: str
    version: str = ""
    jvm_args_added: tuple[str, ...] = ()
    jvm_args_removed: tuple[str, ...] = ()
    args_added: tuple[str, ...] = ()
    args_removed: tuple[str, ...] = ()
    env_set: tuple[str, ...] = ()
    """Names alone: values may be secrets."""
    env_removed: tuple[str, ...] = ()
    overridden: tuple[Overridden, ...] = ()
    """The changes that have no effect."""
    dropped: str = ""
