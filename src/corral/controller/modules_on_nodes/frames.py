"""Records as frames, and frames as what they say about a node."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from corral.controller.modules_on_nodes.comparison import Control, Had, Install, Wanted
from corral.domain.module_phases import ModuleIntent
from corral.domain.module_records import PackageRecord
from corral.modules.settings import settings_json
from corral.wire.v1 import module_pb2 as wire
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.plan_pb2 import DataOffer

INLINE: Final = 64 * 1024
"""Archives up to this size travel in the frame; larger ones are fetched on the second channel."""
WHOLE: Final = 7 * 512 * 1024
"""The largest archive for daemons that know nothing but the frame."""
MOST_ENTRIES: Final = 1000
"""Of a node's list that are looked at."""
_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_INTENTS: Final = {
    ModuleIntent.ACTIVE: wire.MODULE_INTENT_ACTIVE,
    ModuleIntent.INACTIVE: wire.MODULE_INTENT_INACTIVE,
    ModuleIntent.PAUSED: wire.MODULE_INTENT_PAUSED,
}
_FROM_WIRE: Final = {number: intent for intent, number in _INTENTS.items()}


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """What of a package has to be read before it can be sent. Without `archive` it is offered."""

    archive: bytes | None = None
    signature: bytes = b""


def install_frame(
    record: PackageRecord, order: Install, parcel: Parcel, *, recover_ms: int = 0, plain: bool = False
) -> ControllerMessage:
    """`plain` is for daemons that know the published fields alone: no offers, no intents."""
    frame = wire.ModuleInstall(
        module_id=record.id,
        version=record.version,
        sha256=record.sha256,
        jar_bytes=parcel.archive or b"",
        signature_bytes=parcel.signature,
        signature_kind=record.signature.kind if record.signature and parcel.signature else "",
        manifest_yaml=msgspec.json.encode(record.manifest).decode(),
        is_upgrade=bool(order.previous_version),
        previous_version=order.previous_version,
    )
    if not plain:
        frame.intent = _INTENTS[record.intent]
        frame.settings_json = settings_json(record.settings)
        frame.again = order.again
        frame.paused_reason = _paused(record)
        frame.reload_ms = record.reload_asked_ms
        frame.recover_ms = recover_ms
        if parcel.archive is None:
            offer = DataOffer(digest=record.sha256, size_bytes=record.size, kind="blob")
            frame.offer.CopyFrom(offer)
    return ControllerMessage(module_install=frame)


def control_frame(record: PackageRecord, order: Control, *, recover_ms: int = 0) -> ControllerMessage:
    frame = wire.ModuleControl(
        module_id=record.id,
        intent=_INTENTS[record.intent],
        reason=_paused(record),
        recover=order.recover,
        reload=order.reload,
        settings_json=settings_json(record.settings) if order.settings else b"",
        reload_ms=record.reload_asked_ms,
        recover_ms=recover_ms,
    )
    return ControllerMessage(module_control=frame)


def uninstall_frame(id: str) -> ControllerMessage:
    return ControllerMessage(module_uninstall=wire.ModuleUninstall(module_id=id))


def _paused(record: PackageRecord) -> str:
    return record.paused_reason if record.intent is ModuleIntent.PAUSED else ""


def set_entry(wanted: Wanted) -> wire.ModuleSetEntry:
    return wire.ModuleSetEntry(
        module_id=wanted.id,
        sha256=wanted.sha256,
        intent=_INTENTS[wanted.intent],
        version=wanted.version,
        settings_sha256=wanted.settings_sha256,
        signature_sha256=wanted.signature_sha256,
        reload_ms=wanted.reload_ms,
        recover_ms=wanted.recover_ms,
    )


def entries_of(entries: Iterable[wire.ModuleSetEntry]) -> dict[str, wire.ModuleSetEntry]:
    """A node's list by id, without what cannot be a module; of two the last counts."""
    kept: dict[str, wire.ModuleSetEntry] = {}
    for entry in entries:
        if len(kept) >= MOST_ENTRIES:
            break
        if is_module_id(entry.module_id):
            kept[entry.module_id] = entry
    return kept


def had_of(entry: wire.ModuleSetEntry) -> Had:
    """What a node says that it has."""
    return Had(
        sha256=digest_of(entry.sha256),
        version=entry.version[:100],
        intent=_FROM_WIRE.get(entry.intent),
        settings_sha256=digest_of(entry.settings_sha256),
        refused_sha256=digest_of(entry.refused_sha256),
        signature_sha256=_said(entry, "signature_sha256"),
        refused_signature_sha256=_said(entry, "refused_signature_sha256"),
        reload_ms=entry.reload_ms if entry.HasField("reload_ms") else None,
        recover_ms=entry.recover_ms,
    )


def _said(
    entry: wire.ModuleSetEntry, field: Literal["signature_sha256", "refused_signature_sha256"]
) -> str | None:
    """None: the daemon does not know of signatures."""
    return digest_of(getattr(entry, field)) if entry.HasField(field) else None


def intent_of(value: int) -> ModuleIntent | None:
    return _FROM_WIRE.get(value)  # type: ignore[call-overload, no-any-return]  # a number as it came


def is_module_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def digest_of(text: str) -> str:
    """A digest, or nothing where it is none."""
    return text if _DIGEST.fullmatch(text) else ""
