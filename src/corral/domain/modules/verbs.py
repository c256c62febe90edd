"""Verbs that operators may apply to an installed module: one table, from the command line to the module's
lifecycle."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec

from corral.domain.modules.phases import ModuleIntent


class Verb(enum.StrEnum):
    """The value is the word in the API, the command line and the audit."""

    ACTIVATE = "activate"
    DEACTIVATE = "deactivate"
    PAUSE = "pause"
    RESUME = "resume"
    RECOVER = "recover"
    RELOAD = "reload"
    CONFIGURE = "configure"
    UNINSTALL = "uninstall"


class VerbRule(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a verb, and the modules to which it can be applied."""

    summary: str
    """Its description in the API."""
    help: str
    """Its description on the command line."""
    intent: ModuleIntent | None = None
    """The intent of the module from then on; None: unchanged."""
    runs: bool = True
    """Whether the module should run afterwards, so that it is a failure when it does not."""
    failed: bool | None = None
    """True: only of a module that is FAILED; False: only of others."""
    paused: bool | None = None
    """True: only of a module whose intent is PAUSED; False: only of others."""


VERBS: Final[Mapping[Verb, VerbRule]] = {
    Verb.ACTIVATE: VerbRule(
        summary="Run a module, now and from now on",
        help="Let a module run, now and after every restart.",
        intent=ModuleIntent.ACTIVE,
        failed=False,
        paused=False,
    ),
    Verb.DEACTIVATE: VerbRule(
        summary="Stop a module until an operator activates it",
        help="Stop a module and end its process. It stays off, also after a restart.",
        intent=ModuleIntent.INACTIVE,
        runs=False,
        failed=False,
    ),
    Verb.PAUSE: VerbRule(
        summary="Hold a module, with a reason",
        help="Hold a module back with a reason, until 'resume'.",
        intent=ModuleIntent.PAUSED,
        runs=False,
        failed=False,
    ),
    Verb.RESUME: VerbRule(
        summary="Let a paused module run again", help="End a pause.", intent=ModuleIntent.ACTIVE, paused=True
    ),
    Verb.RECOVER: VerbRule(
        summary="Try a failed module again, here and on every node where it failed",
        help="Give a FAILED module another try. On the controller and on the nodes where it failed; nodes that are"
        " away try when they are back.",
        failed=True,
    ),
    Verb.RELOAD: VerbRule(
        summary="Let a module take its settings in again, without a restart",
        help="Hand a running module its settings again. Also on nodes that are away, once they are back.",
    ),
    Verb.CONFIGURE: VerbRule(
        summary="Set all settings of a module; what is left out goes back to the default",
        help="Show or change a module's settings. They can change while it runs; shown are also those that it takes.",
    ),
    Verb.UNINSTALL: VerbRule(
        summary="Uninstall a module; its data stays until it is dropped",
        help="Stop and remove a module. Its data stays, unless with --drop-storage.",
        intent=ModuleIntent.INACTIVE,
        runs=False,
    ),
}
