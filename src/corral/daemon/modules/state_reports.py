"""Reports of this node's modules to the controller: states, set entries, progress, errors."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any, Final

from corral.daemon.modules.package_store import NodePackage
from corral.domain.modules.convergence import ObservedModule
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import SIGNATURE_REFUSED, PackageRecord, phase_events, uninstalled
from corral.errors import CorralError
from corral.wire.handshake_lists import INTENT_NUMBERS, observed_entry
from corral.wire.v1 import module_pb2 as pb
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.node_pb2 import ErrorReport

_TEXT_MAX: Final = 4000
_LOST: Final = frozenset(
    {
        "archive_missing",
        SIGNATURE_REFUSED,
        "cannot_load:digest_mismatch",
        "cannot_load:archive_invalid",
        "cannot_load:file_unreadable",
    }
)
"""Reasons of a failure that is due to the archive in the cache, not to the module."""


def lost_archive(record: PackageRecord | None) -> bool:
    """Is the module down because its archive here is missing or damaged? Another copy may repair it."""
    return record is not None and record.phase is ModulePhase.FAILED and record.reason in _LOST


def observed(package: NodePackage) -> ObservedModule | None:
    """The state of a module on this node; None: nothing. A lost archive counts as none."""
    record, refused = package.record, package.refused
    if record is None and refused is None:
        return None
    return ObservedModule(
        id=package.id,
        sha256=record.sha256 if record and not lost_archive(record) else "",
        version=record.version if record else "",
        intent=record.intent if record else None,
        paused_reason=record.paused_reason if record else "",
        settings_sha256=settings_answered(package),
        refused_sha256=refused.sha256 if refused else "",
        signature_sha256=signature_answered(package),
        refused_signature_sha256=refused.signature_sha256 if refused else "",
        reload_ms=package.reloaded_ms,
        recover_ms=package.recovered_ms,
    )


def set_entry(package: NodePackage) -> pb.ModuleSetEntry:
    """Set entry: what the node has of a module, and its state."""
    record, refused = package.record, package.refused
    entry = observed_entry(observed(package) or ObservedModule(id=package.id))
    entry.state = record.phase.value if record else ModulePhase.FAILED.value
    entry.reason = record.reason if record else _refused_reason(package)
    entry.last_error = _error(package)
    since = record.updated_at if record else refused.at if refused else None
    entry.updated_at_ms = _ms(since) if since else 0
    return entry


def state_updates(
    before: NodePackage, after: NodePackage, reason: str, at: dt.datetime
) -> Iterator[DaemonMessage]:
    """State updates of one change of a record: each step, or a change of something beside the phase."""
    if after.record is None:
        if before.record is not None:
            draft = uninstalled(before.record, reason=reason, at=at)
            yield _update(before, draft.data, sha256=before.record.sha256)
        elif after.refused is not None:
            yield _refused(after)
        return
    steps = [draft.data for draft in phase_events(before.record, after.record)]
    for data in steps:
        yield _update(after, data, sha256=after.record.sha256)
    if not steps and _seen(before) != _seen(after):
        yield _update_without_step(after, after.record, at)


def _seen(package: NodePackage) -> tuple[object, ...]:
    record = package.record
    state = (record.version, record.sha256, record.intent, record.reason) if record else ()
    answered = signature_answered(package), package.recovered_ms, package.reloaded_ms
    return *state, package.refused, _error(package), *answered


def settings_answered(package: NodePackage) -> str:
    """Digest of the settings that the controller need not send again: the module took them, or refused them
    with a reported reason."""
    refused = package.settings_refused
    return refused.sha256 if refused is not None else package.settings_sha256


def signature_answered(package: NodePackage) -> str:
    """Digest of the signature that the controller need not send again: it is valid, or its refusal was
    reported."""
    if package.signature_refused is not None:
        return package.signature_refused.sha256
    signature = package.record.signature if package.record else None
    return signature.blob if signature is not None else ""


def _update(package: NodePackage, data: Mapping[str, object], *, sha256: str) -> DaemonMessage:
    at = dt.datetime.fromisoformat(str(data["at"]))
    return DaemonMessage(
        module_state_update=pb.ModuleStateUpdate(
            module_id=package.id,
            state=str(data["to"]),
            last_error=_error(package) if data["to"] != ModulePhase.UNLOADED.value else "",
            updated_at_ms=_ms(at),
            version=str(data["version"]),
            sha256=sha256,
            from_state=str(data["from"] or ""),
            reason=str(data["reason"]),
            intent=INTENT_NUMBERS[ModuleIntent(str(data["intent"]))],
            **_answered(package),
        )
    )


def _update_without_step(package: NodePackage, record: PackageRecord, at: dt.datetime) -> DaemonMessage:
    """An update without a change of the phase."""
    return DaemonMessage(
        module_state_update=pb.ModuleStateUpdate(
            module_id=package.id,
            state=record.phase.value,
            last_error=_error(package),
            updated_at_ms=_ms(at),
            version=record.version,
            sha256=record.sha256,
            from_state=record.phase.value,
            reason=record.reason,
            intent=INTENT_NUMBERS[record.intent],
            **_answered(package),
        )
    )


def _refused(package: NodePackage) -> DaemonMessage:
    """An update for a refused install."""
    assert package.refused is not None
    return DaemonMessage(
        module_state_update=pb.ModuleStateUpdate(
            module_id=package.id,
            state=ModulePhase.FAILED.value,
            last_error=_error(package),
            updated_at_ms=_ms(package.refused.at),
            version=package.refused.version,
            reason=_refused_reason(package),
            **_answered(package),
        )
    )


def _answered(package: NodePackage) -> dict[str, Any]:
    """Fields of an update: the orders that it answers."""
    return {
        "refused_sha256": package.refused.sha256 if package.refused else "",
        "refused_signature_sha256": package.refused.signature_sha256 if package.refused else "",
        "signature_sha256": signature_answered(package),
        "reload_ms": package.reloaded_ms,
        "recover_ms": package.recovered_ms,
    }


def progress_report(id: str, *, fetched: int, size: int) -> DaemonMessage:
    """Progress of an archive's fetch. Never spooled."""
    update = pb.ModuleStateUpdate(module_id=id, fetched_bytes=fetched, size_bytes=size)
    return DaemonMessage(module_state_update=update)


def error_report(error: CorralError, context: str) -> DaemonMessage:
    return DaemonMessage(
        error_report=ErrorReport(
            error_code=error.code.name,
            error_message=str(error)[:_TEXT_MAX],
            context=context,
            retry_after_seconds=int(error.retry_after or 0),
        )
    )


def _refused_reason(package: NodePackage) -> str:
    return f"refused:{package.refused.code.lower()}" if package.refused else ""


def _error(package: NodePackage) -> str:
    if package.refused is not None:
        return package.refused.error[:_TEXT_MAX]
    failure = package.record.failure if package.record else None
    if failure is None and package.settings_refused is not None:
        return f"settings_refused: {package.settings_refused.error}"[:_TEXT_MAX]
    if failure is None and package.signature_refused is not None:
        return f"{SIGNATURE_REFUSED}: {package.signature_refused.error}"[:_TEXT_MAX]
    if failure is None:
        return ""
    return (f"{failure.reason}: {failure.message}" if failure.message else failure.reason)[:_TEXT_MAX]


def _ms(at: dt.datetime) -> int:
    return int(at.timestamp() * 1000)
