"""Orders of the controller for a module: frames, parsed and checked, and how a later order combines with an earlier."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Final

import msgspec

from corral.domain.modules.phases import ModuleIntent
from corral.errors import Code, Rejected, unknown_choice
from corral.modules.manifest.manifest_checks import ID, ID_RULE
from corral.modules.manifest.settings import SETTINGS_MAX
from corral.signing import SIDECAR_SUFFIXES, Sidecar
from corral.wire import handshake_lists as module_sets
from corral.wire.frame_table import require
from corral.wire.v1 import module_pb2 as pb

_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class OrderedSettings(msgspec.Struct, frozen=True, kw_only=True):
    values: dict[str, Any]
    sha256: str


class OrderedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """A version, and the source of its archive: the frame, or the data channel."""

    version: str
    """Empty: the version in the archive."""
    sha256: str
    content: bytes = b""
    size: int = 0
    sidecar: Sidecar | None = None
    manifest_text: str = ""
    again: bool = False
    mends: bool = False
    """Another copy of a damaged archive; not an operator's order."""


class ReceivedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order: the desired state of a module from now on. None and empty: unchanged."""

    gone: bool = False
    package: OrderedPackage | None = None
    intent: ModuleIntent | None = None
    paused_reason: str = ""
    settings: OrderedSettings | None = None
    recover: bool = False
    reload: bool = False
    recover_ms: int = 0
    reload_ms: int = 0
    """Time of the operator's last reload request; 0: the controller does not send times, and the flags
    count."""
    request: str = ""
    """Id of the request that caused the order, for log records."""

    def after(self, earlier: ReceivedOrder | None) -> ReceivedOrder:
        """Combine with an earlier order that was not carried out: what this one leaves out is taken from the
        earlier one."""
        if earlier is None or self.gone:
            return self
        if earlier.gone:
            return self if self.package is not None else earlier
        return ReceivedOrder(
            package=_stronger(self.package, earlier.package),
            intent=self.intent or earlier.intent,
            paused_reason=self.paused_reason if self.intent else earlier.paused_reason,
            settings=self.settings or earlier.settings,
            recover=self.recover or earlier.recover,
            reload=self.reload or earlier.reload,
            recover_ms=max(self.recover_ms, earlier.recover_ms),
            reload_ms=max(self.reload_ms, earlier.reload_ms),
            request=self.request or earlier.request,
        )

    def beyond(self, *, recovered_ms: int, reloaded_ms: int) -> ReceivedOrder:
        """The order without operator requests that were carried out already: the controller sends them until
        it has the report."""
        recover = self.recover_ms > recovered_ms if self.recover_ms else self.recover
        reload = self.reload_ms > reloaded_ms if self.reload_ms else self.reload
        package = self.package
        if package is not None and self.recover_ms:
            package = msgspec.structs.replace(package, again=recover)
        return msgspec.structs.replace(self, recover=recover, reload=reload, package=package)

    def cuts_short(self, sha256: str) -> bool:
        """Should the wait for this archive be cut short? It has become pointless, or the running module must
        be stopped first. The partial file stays, and is resumed."""
        if self.gone or (self.package is not None and self.package.sha256 != sha256):
            return True
        return self.intent not in (None, ModuleIntent.ACTIVE)


def _stronger(later: OrderedPackage | None, earlier: OrderedPackage | None) -> OrderedPackage | None:
    if later is None or earlier is None or later.sha256 != earlier.sha256:
        return later or earlier
    return msgspec.structs.replace(
        later, again=later.again or earlier.again, sidecar=later.sidecar or earlier.sidecar
    )


# --- frames ---------------------------------------------------------------------------------------
def read_install(frame: pb.ModuleInstall) -> ReceivedOrder:
    """MISSING_FIELD or INVALID_FIELD names what is wrong; nothing is changed then."""
    require(frame)
    _check_id(frame.module_id)
    if not _SHA256.fullmatch(frame.sha256):
        raise Rejected(Code.INVALID_FIELD, f"{frame.sha256[:80]!r} is not a SHA-256 digest", field="sha256")
    if frame.HasField("offer") and frame.offer.digest not in ("", frame.sha256):
        raise Rejected(Code.INVALID_FIELD, "the offer is of another archive", field="offer.digest")
    return ReceivedOrder(
        package=OrderedPackage(
            version=frame.version,
            sha256=frame.sha256,
            content=frame.jar_bytes,
            size=frame.offer.size_bytes if frame.HasField("offer") else len(frame.jar_bytes),
            sidecar=_sidecar(frame),
            manifest_text=frame.manifest_yaml,
            again=frame.again,
        ),
        intent=read_intent(frame.intent),
        paused_reason=frame.paused_reason,
        settings=_settings(frame.settings_json),
        recover_ms=frame.recover_ms,
        reload_ms=frame.reload_ms,
    )


def read_control(frame: pb.ModuleControl) -> ReceivedOrder:
    require(frame)
    _check_id(frame.module_id)
    return ReceivedOrder(
        intent=read_intent(frame.intent),
        paused_reason=frame.reason,
        settings=_settings(frame.settings_json),
        recover=frame.recover,
        reload=frame.reload,
        recover_ms=frame.recover_ms,
        reload_ms=frame.reload_ms,
    )


def read_uninstall(frame: pb.ModuleUninstall) -> ReceivedOrder:
    require(frame)
    _check_id(frame.module_id)
    return ReceivedOrder(gone=True)


def read_intent(value: int) -> ModuleIntent | None:
    """The intent; None when none was given. The frame of an unknown one is refused."""
    if value == pb.MODULE_INTENT_UNSPECIFIED:
        return None
    found = module_sets.read_intent(value)
    if found is None:
        raise unknown_choice("intent", str(value), [*ModuleIntent], code=Code.INVALID_FIELD, field="intent")
    return found


def _check_id(id: str) -> None:
    if not ID.fullmatch(id):
        raise Rejected(Code.INVALID_FIELD, f"{id[:80]!r} is not a module id", hint=ID_RULE, field="module_id")


def _sidecar(frame: pb.ModuleInstall) -> Sidecar | None:
    if not frame.signature_bytes:
        return None
    for kind in SIDECAR_SUFFIXES:
        if kind == frame.signature_kind:
            return Sidecar(kind=kind, content=frame.signature_bytes)
    raise unknown_choice(
        "kind of signature",
        frame.signature_kind[:80],
        SIDECAR_SUFFIXES,
        code=Code.INVALID_FIELD,
        field="signature_kind",
    )


def _settings(text: bytes) -> OrderedSettings | None:
    if not text:
        return None
    try:
        if len(text) > SETTINGS_MAX:
            raise ValueError("they are too large")
        values = msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise Rejected(
            Code.INVALID_FIELD, f"the settings cannot be read: {error}", field="settings_json"
        ) from error
    return OrderedSettings(values=values, sha256=hashlib.sha256(text).hexdigest())
