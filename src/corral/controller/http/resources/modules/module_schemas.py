"""Schemas of modules in the API, with the extensions that a module installs into instances."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final, Literal

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.resources.modules.module_nodes import (
    NodeStateShape,
    OnNodesShape,
    node_states,
    on_nodes_shape,
)
from corral.controller.modules.installer import InstallAnswer, InstallOutcome
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.modules.manifest import Manifest, ModuleHost, Source
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import FailureDetails, PackageRecord, PhaseStep, SignatureFacts
from corral.domain.permissions import Permission
from corral.modules.archive.compatibility import CompatibilityReport, Finding, RequirementView
from corral.modules.lifecycle.engine import LiveModule

MODULES: Final = "/api/v1/modules"
ONE: Final = "/api/v1/modules/{id}"


class VariantShape(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an extension, for these platforms (none: for any) in these versions."""

    id: str
    platforms: list[str]
    version_range: str
    file: str
    sha256: str
    install_path: str


class ExtensionShape(msgspec.Struct, frozen=True, kw_only=True):
    """Files that the module installs into instances: `always` into all that a variant fits, `requested` into those of
    groups that name it."""

    id: str
    activation: str
    conflicts: list[str]
    variants: list[VariantShape]


def extensions(manifest: Manifest) -> list[ExtensionShape]:
    return msgspec.convert(manifest.extensions, list[ExtensionShape], from_attributes=True)


class ProvidedShape(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    version: str
    deprecated_since: str
    removed_in: str


class RequiredShape(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    id: str
    version_range: str
    optional: bool
    from_: Source | None


class FrontendShape(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the module. `url` names this very content and may be kept for ever."""

    title: str
    icon: str
    nav: str
    permissions: list[str]
    entry: str
    url: str


class StepShape(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One step of its life; `from` is null for the first."""

    at: dt.datetime
    from_: ModulePhase | None
    to: ModulePhase
    reason: str
    version: str


class LiveShape(msgspec.Struct, frozen=True, kw_only=True):
    """The module's process: what it uses, what the host's calls into it came to, what it registered."""

    pid: int
    cpu_seconds: float
    memory_bytes: int
    threads: int
    processes: int
    calls: int
    failures: int
    overruns: int
    longest_seconds: float
    routes: list[str]
    subscriptions: list[str]
    tasks: list[str]
    commands: list[str]
    log: list[str] = []
    """Its last lines, for callers that may read logs."""


class ModuleShape(msgspec.Struct, frozen=True, kw_only=True):
    """A package. `settings` are null for callers that may not manage modules, `failure` has neither log
    nor traceback for those that may not read logs; `live` is null while the module has no process. `nodes`
    is null in a list: `GET …/{id}/nodes` has them in pages."""

    id: str
    version: str
    title: str
    description: str
    hosts: list[ModuleHost]
    phase: ModulePhase
    intent: ModuleIntent
    reason: str
    paused_reason: str
    sha256: str
    size: int
    signature: SignatureFacts | None
    on_nodes: OnNodesShape
    nodes: list[NodeStateShape] | None
    provides: list[ProvidedShape]
    requires: list[RequiredShape]
    extensions: list[ExtensionShape]
    storage: bool
    """Does it keep documents or keys?"""
    settings: dict[str, Any] | None
    frontend: FrontendShape | None
    previous_version: str
    installed_at: dt.datetime
    updated_at: dt.datetime
    failure: FailureDetails | None
    history: list[StepShape]
    live: LiveShape | None
    revision: int


class InstalledModule(ModuleShape, frozen=True, kw_only=True, tag_field="kind", tag="installed"):
    """The module as it is now, how it came about, and the steps of that for people."""

    outcome: InstallOutcome
    steps: list[str]


class ExaminedModule(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="examined"):
    """The effects that an install would have; nothing was done. Until `expires_at` the archive can be installed by its
    digest, by the same caller; null: it was not kept."""

    ok: bool
    action: Literal["install", "upgrade", "replace", "downgrade", "update_signature", "nothing"]
    id: str
    version: str
    current_version: str
    sha256: str
    size: int
    problems: list[Finding]
    warnings: list[str]
    requires: list[RequirementView]
    signature: SignatureFacts | None
    expires_at: dt.datetime | None


def module_shape(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    call: ApiCall[Any, Any],
    stored: StoredRecord[PackageRecord],
) -> ModuleShape:
    return ModuleShape(
        **_fields(state, modules, nodes, call, stored),
        nodes=node_states(state, modules, nodes, call, stored.record),
    )


def listed_shape(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    call: ApiCall[Any, Any],
    stored: StoredRecord[PackageRecord],
) -> ModuleShape:
    """Without each node: a page of modules times a thousand nodes would stop the loop."""
    return ModuleShape(**_fields(state, modules, nodes, call, stored), nodes=None)


def installed_shape(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    call: ApiCall[Any, Any],
    answer: InstallAnswer,
    stored: StoredRecord[PackageRecord],
) -> InstalledModule:
    return InstalledModule(
        **_fields(state, modules, nodes, call, stored),
        nodes=node_states(state, modules, nodes, call, stored.record),
        outcome=answer.outcome,
        steps=list(answer.steps),
    )


def examined_shape(report: CompatibilityReport, expires_at: dt.datetime | None) -> ExaminedModule:
    return ExaminedModule(
        ok=report.ok,
        action=report.action.value,
        id=report.id,
        version=report.version,
        current_version=report.current_version,
        sha256=report.sha256,
        size=report.size,
        problems=list(report.problems),
        warnings=list(report.warnings),
        requires=list(report.requires),
        signature=report.signature,
        expires_at=expires_at,
    )


def _fields(
    state: ClusterState,
    modules: Modules,
    nodes: LiveNodes,
    call: ApiCall[Any, Any],
    stored: StoredRecord[PackageRecord],
) -> dict[str, Any]:
    record, manifest = stored.record, stored.record.manifest
    access = call.caller.access
    live = modules.engine.live(record.id)
    return {
        "id": record.id,
        "version": record.version,
        "title": manifest.title,
        "description": manifest.description,
        "hosts": list(manifest.hosts),
        "phase": record.phase,
        "intent": record.intent,
        "reason": record.reason,
        "paused_reason": record.paused_reason,
        "sha256": record.sha256,
        "size": record.size,
        "signature": record.signature,
        "on_nodes": on_nodes_shape(state, nodes, record),
        "provides": provided(manifest),
        "requires": required(manifest),
        "extensions": extensions(manifest),
        "storage": manifest.storage.documents or manifest.storage.key_value,
        "settings": record.settings if access.allows_everywhere(Permission.MODULES_MANAGE) else None,
        "frontend": frontend(record),
        "previous_version": record.previous_version,
        "installed_at": record.installed_at,
        "updated_at": record.updated_at,
        "failure": _failure(record, may_read_logs=access.allows_everywhere(Permission.LOGS_READ)),
        "history": [step_shape(step) for step in record.history],
        "live": live_shape(live, may_read_logs=access.allows_everywhere(Permission.LOGS_READ))
        if live is not None
        else None,
        "revision": stored.revision,
    }


def step_shape(step: PhaseStep) -> StepShape:
    return StepShape(
        at=step.at, from_=step.from_phase, to=step.to_phase, reason=step.reason, version=step.version
    )


def _failure(record: PackageRecord, *, may_read_logs: bool) -> FailureDetails | None:
    if record.failure is None or may_read_logs:
        return record.failure
    return msgspec.structs.replace(record.failure, message="", traceback="", log=())


def provided(manifest: Manifest) -> list[ProvidedShape]:
    return [
        ProvidedShape(
            id=each.id,
            version=each.version,
            deprecated_since=each.deprecated_since,
            removed_in=each.removed_in,
        )
        for each in manifest.capabilities.provides
    ]


def required(manifest: Manifest) -> list[RequiredShape]:
    return [
        RequiredShape(id=each.id, version_range=each.version_range, optional=each.optional, from_=each.from_)
        for each in manifest.capabilities.requires
    ]


def frontend(record: PackageRecord) -> FrontendShape | None:
    part = record.manifest.frontend
    if part is None:
        return None
    entry = part.entry.removeprefix("frontend/")
    return FrontendShape(
        title=part.title,
        icon=part.icon,
        nav=part.nav,
        permissions=list(part.permissions),
        entry=entry,
        url=f"{MODULES}/{record.id}/frontend/{entry}?v={record.sha256}",
    )


def live_shape(live: LiveModule, *, may_read_logs: bool) -> LiveShape:
    sample = live.sample

    def named(kind: str) -> list[str]:
        return [name for each, name in live.registrations if each == kind]

    return LiveShape(
        pid=live.pid,
        cpu_seconds=sample.cpu_seconds if sample else 0.0,
        memory_bytes=sample.memory_bytes if sample else 0,
        threads=sample.threads if sample else 0,
        processes=sample.processes if sample else 0,
        calls=live.calls,
        failures=live.failures,
        overruns=live.overruns,
        longest_seconds=live.longest_seconds,
        routes=named("route"),
        subscriptions=named("subscription"),
        tasks=named("task"),
        commands=named("command"),
        log=list(live.log) if may_read_logs else [],
    )
