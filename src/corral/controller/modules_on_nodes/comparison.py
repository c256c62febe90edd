"""What has to be said to a node so that it has what it shall have. Pure: what is wanted and had in, an order out."""

from __future__ import annotations

import msgspec

from corral.domain.module_manifest import ModuleHost
from corral.domain.module_phases import ModuleIntent
from corral.domain.module_records import PackageRecord
from corral.modules.settings import settings_digest


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One module that nodes shall have, as far as it matters whether they do."""

    id: str
    version: str
    sha256: str
    intent: ModuleIntent
    paused_reason: str = ""
    settings_sha256: str = ""
    signature_sha256: str = ""
    """Of the sidecar; empty: none, and whatever the node has is fine."""
    reload_ms: int = 0
    recover_ms: int = 0
    """Wishes of operators that the node shall have carried out; 0: none."""


class Had(msgspec.Struct, frozen=True, kw_only=True):
    """One module of a node: as the node said, or as it was told last in this session."""

    sha256: str = ""
    version: str = ""
    intent: ModuleIntent | None = None
    paused_reason: str | None = None
    """None: not known."""
    settings_sha256: str = ""
    refused_sha256: str = ""
    signature_sha256: str | None = None
    """Of the archive `sha256`. None: not known, and not compared."""
    refused_signature_sha256: str | None = None
    reload_ms: int | None = None
    """The last that it carried out. None: its daemon does not count them, and none is told."""
    recover_ms: int = 0


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """Have this archive, in place of another one where `previous_version` names it; or, where the node has it,
    its signature."""

    id: str
    previous_version: str = ""
    again: bool = False


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """The archive is right; intent and settings are these."""

    id: str
    recover: bool = False
    reload: bool = False
    settings: bool = True
    """False: settings are for another version than the one that the node has."""


class Uninstall(msgspec.Struct, frozen=True, kw_only=True):
    id: str


Order = Install | Control | Uninstall


def wanted_on_nodes(record: PackageRecord) -> Wanted | None:
    """None when the module has no part for nodes."""
    if ModuleHost.DAEMON not in record.manifest.hosts:
        return None
    return Wanted(
        id=record.id,
        version=record.version,
        sha256=record.sha256,
        intent=record.intent,
        paused_reason=record.paused_reason if record.intent is ModuleIntent.PAUSED else "",
        settings_sha256=settings_digest(record.settings),
        signature_sha256=record.signature.blob if record.signature else "",
        reload_ms=record.reload_asked_ms,
    )


def compare_one(wanted: Wanted, had: Had | None) -> Order | None:
    """What to say about one module that the node shall have; None: nothing. An archive that did not come up
    there is not sent again unless somebody asks for it, or it is signed anew; what runs in its place follows the
    intent. What was asked for beyond a new signature is said before it."""
    if had is None:
        return Install(id=wanted.id, again=wanted.recover_ms > 0)
    recover = had.recover_ms < wanted.recover_ms
    reload = had.reload_ms is not None and had.reload_ms < wanted.reload_ms
    refused = had.refused_sha256 == wanted.sha256
    resigned = _resigned(wanted, had.refused_signature_sha256 if refused else had.signature_sha256)
    if refused and not recover and not resigned:
        other = had.sha256 not in ("", wanted.sha256)
        if other and (reload or not _same_intent(wanted, had)):
            return Control(id=wanted.id, reload=reload, settings=False)
        return None
    if refused or had.sha256 != wanted.sha256:
        previous = had.version if had.sha256 != wanted.sha256 else ""
        return Install(id=wanted.id, previous_version=previous, again=recover)
    if resigned and not recover and not reload:
        return Install(id=wanted.id)
    same = _same_intent(wanted, had) and had.settings_sha256 == wanted.settings_sha256
    if same and not recover and not reload:
        return None
    return Control(id=wanted.id, recover=recover, reload=reload)


def _resigned(wanted: Wanted, had: str | None) -> bool:
    return had is not None and wanted.signature_sha256 not in ("", had)


def _same_intent(wanted: Wanted, had: Had) -> bool:
    if wanted.intent is not ModuleIntent.PAUSED:
        return had.intent is wanted.intent
    return had.intent is wanted.intent and had.paused_reason == wanted.paused_reason


def told(wanted: Wanted, had: Had | None, order: Order) -> Had:
    """What the node has once it obeyed."""
    kept = isinstance(order, Control) and not order.settings and had is not None
    archive_told = isinstance(order, Install) or had is None
    return Had(
        sha256=had.sha256 if kept and had else wanted.sha256,
        version=had.version if kept and had else wanted.version,
        intent=wanted.intent,
        paused_reason=wanted.paused_reason,
        settings_sha256=had.settings_sha256 if kept and had else wanted.settings_sha256,
        refused_sha256="" if archive_told or had is None else had.refused_sha256,
        signature_sha256=wanted.signature_sha256 if archive_told or had is None else had.signature_sha256,
        refused_signature_sha256=None if archive_told or had is None else had.refused_signature_sha256,
        reload_ms=wanted.reload_ms,
        recover_ms=max(wanted.recover_ms, had.recover_ms if had else 0),
    )
