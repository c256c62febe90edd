"""Lists of the handshake: the modules that a node should have and those it has, and running instances in
portions, where there are more than one frame may hold.

Lists of a peer are read within bounds: a digest is valid or empty, and a list has a maximum length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from corral.domain.modules.convergence import DesiredModule, ObservedModule
from corral.domain.modules.phases import ModuleIntent
from corral.wire.v1 import module_pb2 as pb
from corral.wire.v1.node_pb2 import Handshake, HandshakePortion

MOST_ENTRIES: Final = 1000
"""Entries of a node's list that are read."""
INTENT_NUMBERS: Final[Mapping[ModuleIntent, pb.ModuleIntent]] = {
    ModuleIntent.ACTIVE: pb.MODULE_INTENT_ACTIVE,
    ModuleIntent.INACTIVE: pb.MODULE_INTENT_INACTIVE,
    ModuleIntent.PAUSED: pb.MODULE_INTENT_PAUSED,
}
_INTENTS: Final[Mapping[int, ModuleIntent]] = {number: intent for intent, number in INTENT_NUMBERS.items()}
_MOST_VERSION: Final = 100
_MOST_REASON: Final = 500
"""The largest value that an operator may set."""
_ID: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def desired_entry(desired: DesiredModule) -> pb.ModuleSetEntry:
    return pb.ModuleSetEntry(
        module_id=desired.id,
        sha256=desired.sha256,
        intent=INTENT_NUMBERS[desired.intent] if desired.intent else pb.MODULE_INTENT_UNSPECIFIED,
        version=desired.version,
        settings_sha256=desired.settings_sha256,
        signature_sha256=desired.signature_sha256,
        reload_ms=desired.reload_ms,
        recover_ms=desired.recover_ms,
        paused_reason=desired.paused_reason,
    )


def read_desired(entry: pb.ModuleSetEntry) -> DesiredModule:
    """From the controller, which is trusted."""
    return DesiredModule(
        id=entry.module_id,
        version=entry.version,
        sha256=entry.sha256,
        intent=read_intent(entry.intent),
        paused_reason=entry.paused_reason if entry.HasField("paused_reason") else None,
        settings_sha256=entry.settings_sha256,
        signature_sha256=entry.signature_sha256,
        reload_ms=entry.reload_ms,
        recover_ms=entry.recover_ms,
    )


def observed_entry(observed: ObservedModule) -> pb.ModuleSetEntry:
    """Without the phase and the texts for people."""
    return pb.ModuleSetEntry(
        module_id=observed.id,
        sha256=observed.sha256,
        intent=INTENT_NUMBERS[observed.intent] if observed.intent else pb.MODULE_INTENT_UNSPECIFIED,
        version=observed.version,
        settings_sha256=observed.settings_sha256,
        refused_sha256=observed.refused_sha256,
        signature_sha256=observed.signature_sha256,
        refused_signature_sha256=observed.refused_signature_sha256,
        reload_ms=observed.reload_ms,
        recover_ms=observed.recover_ms,
        paused_reason=observed.paused_reason,
    )


def read_observed(entry: pb.ModuleSetEntry) -> ObservedModule:
    return ObservedModule(
        id=entry.module_id,
        sha256=digest_of(entry.sha256),
        version=entry.version[:_MOST_VERSION],
        intent=read_intent(entry.intent),
        paused_reason=entry.paused_reason[:_MOST_REASON] if entry.HasField("paused_reason") else None,
        settings_sha256=digest_of(entry.settings_sha256),
        refused_sha256=digest_of(entry.refused_sha256),
        signature_sha256=signature_of(entry, "signature_sha256"),
        refused_signature_sha256=signature_of(entry, "refused_signature_sha256"),
        reload_ms=entry.reload_ms if entry.HasField("reload_ms") else None,
        recover_ms=entry.recover_ms,
    )


def signature_of(
    report: pb.ModuleSetEntry | pb.ModuleStateUpdate,
    field: Literal["signature_sha256", "refused_signature_sha256"],
) -> str | None:
    return digest_of(getattr(report, field)) if report.HasField(field) else None


def entries_of(entries: Iterable[pb.ModuleSetEntry]) -> dict[str, pb.ModuleSetEntry]:
    """A node's list by id, without invalid module ids; of two the last counts."""
    kept: dict[str, pb.ModuleSetEntry] = {}
    for entry in entries:
        if len(kept) >= MOST_ENTRIES:
            break
        if is_module_id(entry.module_id):
            kept[entry.module_id] = entry
    return kept


def read_intent(number: int) -> ModuleIntent | None:
    """None: none was given, or an unknown one."""
    return _INTENTS.get(number)


def is_module_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def digest_of(text: str) -> str:
    """A digest, or empty where it is invalid."""
    return text if _DIGEST.fullmatch(text) else ""


MOST_RUNNING: Final = 5000
"""Running instances in one frame."""
_ONE_FRAME_BYTES: Final = 2 * 1024 * 1024
_PORTION_BYTES: Final = 1024 * 1024
_PORTION_RUNS: Final = 2000


def portions_of(handshake: Handshake) -> list[HandshakePortion]:
    """The portions that follow the handshake, from which they are removed; none when all of it fits into its
    own frame."""
    if len(handshake.running_instances) <= MOST_RUNNING and handshake.ByteSize() <= _ONE_FRAME_BYTES:
        return []
    portions = [HandshakePortion()]
    size = 0
    for run in handshake.running_instances:
        taken = run.ByteSize()
        full = len(portions[-1].running_instances) >= _PORTION_RUNS or size + taken > _PORTION_BYTES
        if full and portions[-1].running_instances:
            portions.append(HandshakePortion())
            size = 0
        portions[-1].running_instances.append(run)
        size += taken
    portions[-1].last = True
    handshake.ClearField("running_instances")
    handshake.portions_follow = True
    return portions
