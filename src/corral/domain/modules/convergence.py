"""Whether a module on a node is as desired, and the orders that bring it there.

One comparison for both ends: the controller sends the resulting orders, and the node delays starts of
instances while there are any. Pure: desired and observed in, orders out.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import NodeModuleState


class DesiredModule(msgspec.Struct, frozen=True, kw_only=True):
    """One module that a node should have."""

    id: str
    version: str
    sha256: str
    intent: ModuleIntent | None
    """None: one that the reader does not know; no module has it."""
    paused_reason: str | None = ""
    """While the intent is PAUSED. None: its controller does not send it, and it is not compared."""
    settings_sha256: str = ""
    signature_sha256: str = ""
    """Of the sidecar; empty: none, and whatever the node has is fine."""
    reload_ms: int = 0
    recover_ms: int = 0
    """Operator requests that the node should have carried out; 0: none."""


class ObservedModule(msgspec.Struct, frozen=True, kw_only=True):
    """One module of a node. A node has one also where an archive was refused and nothing is installed."""

    id: str
    sha256: str = ""
    """Digest of the installed archive; empty: none that could be used."""
    version: str = ""
    intent: ModuleIntent | None = None
    paused_reason: str | None = None
    """None: its daemon does not report it."""
    settings_sha256: str = ""
    """The settings that the module accepted or refused last."""
    refused_sha256: str = ""
    """An archive that failed to start there."""
    signature_sha256: str | None = None
    """Of the archive `sha256`. None: its daemon does not report it, and it is not compared."""
    refused_signature_sha256: str | None = None
    """The signature that came with `refused_sha256`."""
    reload_ms: int | None = None
    """The last reload that it carried out. None: its daemon does not count them, and none is sent."""
    recover_ms: int = 0


class InstallOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Install this archive, in place of another one where `previous_version` names it. Where the node has the
    archive: use its new signature."""

    id: str
    previous_version: str = ""
    again: bool = False
    """Also when this very archive was refused there before."""


class ControlOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Keep the archive; follow this intent and these settings."""

    id: str
    recover: bool = False
    reload: bool = False
    settings: bool = True
    """False: the settings are for another version than the one that the node has."""


class UninstallOrder(msgspec.Struct, frozen=True, kw_only=True):
    id: str


ModuleOrder = InstallOrder | ControlOrder | UninstallOrder


def difference(desired: DesiredModule | None, observed: ObservedModule | None) -> tuple[ModuleOrder, ...]:
    """The orders, one after the other, that bring a module of a node to what is desired; none exactly when it
    is as desired. An archive that was refused is not installed again without an operator request or a new
    signature; the version that runs in its place follows the intent."""
    if desired is None:
        return () if observed is None else (UninstallOrder(id=observed.id),)
    if observed is None:
        return (InstallOrder(id=desired.id, again=desired.recover_ms > 0),)
    if observed.refused_sha256 == desired.sha256:
        return _after_refusal(desired, observed)
    if observed.sha256 != desired.sha256:
        return (_install(desired, observed),)
    return _in_place(desired, observed)


def _in_place(desired: DesiredModule, observed: ObservedModule) -> tuple[ModuleOrder, ...]:
    """The archive is the desired one. An order to install contains intent and settings; operator requests go
    before it, so that they need not wait for the check of the signature."""
    recover, reload = _recover_due(desired, observed), _reload_due(desired, observed)
    control = ControlOrder(id=desired.id, recover=recover, reload=reload)
    if _resigned(desired, observed.signature_sha256):
        install = InstallOrder(id=desired.id)
        return (control, install) if recover or reload else (install,)
    same = _same_intent(desired, observed) and observed.settings_sha256 == desired.settings_sha256
    return (control,) if recover or reload or not same else ()


def _after_refusal(desired: DesiredModule, observed: ObservedModule) -> tuple[ModuleOrder, ...]:
    if _recover_due(desired, observed) or _resigned(desired, observed.refused_signature_sha256):
        return (_install(desired, observed),)
    runs_other = observed.sha256 not in ("", desired.sha256)
    reload = _reload_due(desired, observed)
    if runs_other and (reload or not _same_intent(desired, observed)):
        return (ControlOrder(id=desired.id, reload=reload, settings=False),)
    return ()


def _install(desired: DesiredModule, observed: ObservedModule) -> InstallOrder:
    previous = observed.version if observed.sha256 != desired.sha256 else ""
    again = _recover_due(desired, observed)
    return InstallOrder(id=desired.id, previous_version=previous, again=again)


def _recover_due(desired: DesiredModule, observed: ObservedModule) -> bool:
    return observed.recover_ms < desired.recover_ms


def _reload_due(desired: DesiredModule, observed: ObservedModule) -> bool:
    return observed.reload_ms is not None and observed.reload_ms < desired.reload_ms


def _resigned(desired: DesiredModule, signature_sha256: str | None) -> bool:
    return signature_sha256 is not None and desired.signature_sha256 not in ("", signature_sha256)


def _same_intent(desired: DesiredModule, observed: ObservedModule) -> bool:
    if desired.intent is None or observed.intent is not desired.intent:
        return False
    if desired.intent is not ModuleIntent.PAUSED or desired.paused_reason is None:
        return True
    return observed.paused_reason == desired.paused_reason


def applied(
    desired: DesiredModule | None, observed: ObservedModule | None, orders: Iterable[ModuleOrder]
) -> ObservedModule | None:
    """The state of a node once it has carried out these orders of `difference`."""
    for order in orders:
        if isinstance(order, UninstallOrder) or desired is None:
            observed = None
        elif isinstance(order, InstallOrder) or observed is None:
            observed = _installed(desired, observed)
        else:
            observed = _controlled(desired, observed, order)
    return observed


def _installed(desired: DesiredModule, observed: ObservedModule | None) -> ObservedModule:
    return ObservedModule(
        id=desired.id,
        sha256=desired.sha256,
        version=desired.version,
        intent=desired.intent,
        paused_reason=desired.paused_reason,
        settings_sha256=desired.settings_sha256,
        signature_sha256=desired.signature_sha256,
        reload_ms=desired.reload_ms,
        recover_ms=max(desired.recover_ms, observed.recover_ms if observed else 0),
    )


def _controlled(desired: DesiredModule, observed: ObservedModule, order: ControlOrder) -> ObservedModule:
    return msgspec.structs.replace(
        observed,
        intent=desired.intent,
        paused_reason=desired.paused_reason,
        settings_sha256=desired.settings_sha256 if order.settings else observed.settings_sha256,
        reload_ms=desired.reload_ms,
        recover_ms=max(desired.recover_ms, observed.recover_ms),
    )


def reported(observed: ObservedModule, report: NodeModuleState) -> ObservedModule:
    """The state of a node by its report, given its expected state by the orders that were sent. A report
    counts only where it names the archive that was ordered last, or the one that was refused: an older report
    may still be in transit."""
    if report.refused_sha256 and report.refused_sha256 == observed.sha256:
        known = observed.refused_sha256 == observed.sha256
        signature = observed.refused_signature_sha256 if known else observed.signature_sha256
        reload_ms = observed.reload_ms if report.reload_done_ms is None else report.reload_done_ms
        return msgspec.structs.replace(
            observed,
            sha256=report.sha256,
            version=report.version,
            intent=report.intent,  # that of the order came with the archive, and may not have been applied
            paused_reason=observed.paused_reason if report.intent is observed.intent else None,
            refused_sha256=report.refused_sha256,
            signature_sha256=None,
            refused_signature_sha256=signature,
            reload_ms=reload_ms,
        )
    if report.sha256 and report.sha256 == observed.refused_sha256 != report.refused_sha256:
        return msgspec.structs.replace(
            observed,
            sha256=report.sha256,
            version=report.version,
            refused_sha256="",
            signature_sha256=observed.refused_signature_sha256,
            refused_signature_sha256=None,
        )
    return observed
