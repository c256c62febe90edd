"""Failure of a module: the reason why it cannot continue, with all details."""

from __future__ import annotations

import datetime as dt
from typing import Final

from corral.domain.modules.records import SIGNATURE_REFUSED, FailureDetails
from corral.errors import Code, CorralError
from corral.modules.process.call_failures import (
    CallOverrun,
    ModuleRaised,
    ProcessGone,
    ZygoteGone,
    failure_reason,
)
from corral.modules.process.exit_reasons import ZYGOTE_LOST
from corral.modules.process.process_values import Death, Sample
from corral.modules.scope import Scope
from corral.modules.services.registrations import RegistrationRefused

_MESSAGE_MAX: Final = 2000
_TRACEBACK_MAX: Final = 16_000
_LOG_LINE_MAX: Final = 500
_CONSTRUCTION: Final = {"ImportFailed": "import_failed", "ConstructFailed": "construct_failed"}
_SUPPLY: Final = {
    Code.SIGNATURE_VERIFICATION_FAILED: SIGNATURE_REFUSED,
    Code.NOT_FOUND: "archive_missing",
}


class ModuleFailure(Exception):
    """Leads to FAILED, with `reason`."""

    def __init__(
        self,
        reason: str,
        message: str = "",
        *,
        traceback: str = "",
        sample: Sample | None = None,
        log: tuple[str, ...] = (),
        death: Death | None = None,
    ) -> None:
        super().__init__(f"{reason}: {message}" if message else reason)
        self.reason = reason
        self.message = message
        self.traceback = traceback
        self.sample = sample
        self.log = log
        self.death = death
        """The death of its process, where that is the cause."""

    @property
    def blameless(self) -> bool:
        """The zygote was lost, and not through this module: it is tried again."""
        return self.reason == ZYGOTE_LOST and not (self.death is not None and self.death.blamed)


def hook_failure(error: CorralError | RegistrationRefused, hook: str) -> ModuleFailure:
    """The failure of a hook, or of the request for registrations."""
    if isinstance(error, RegistrationRefused):
        return ModuleFailure(f"bad_registration:{error.what}", error.message)
    if isinstance(error, ModuleRaised) and error.kind == "BadRegistration":
        return ModuleFailure("bad_registration:refused", error.detail, traceback=error.traceback)
    return _described(failure_reason(error, hook), error)


def construct_failure(error: CorralError) -> ModuleFailure:
    """The failure of import and construction."""
    reason = failure_reason(error, "construct")
    if isinstance(error, ModuleRaised) and reason != "memory_limit":
        reason = _CONSTRUCTION.get(error.kind, "construct_failed")
    return _described(reason, error)


def supply_failure(error: CorralError) -> ModuleFailure:
    """The failure to get the archive, or a process."""
    if isinstance(error, ZygoteGone):
        return ModuleFailure(ZYGOTE_LOST, str(error))
    return ModuleFailure(_SUPPLY.get(error.code, f"cannot_load:{error.code.name.lower()}"), str(error))


def death_failure(death: Death, scope: Scope) -> ModuleFailure:
    """The failure of a process that ended by itself."""
    return ModuleFailure(
        death.reason,
        f"its process was ended: {death.why}" if death.why else "its process ended",
        traceback=death.last_words,
        sample=death.sample,
        log=tuple(scope.log_tail),
        death=death,
    )


def _described(reason: str, error: CorralError) -> ModuleFailure:
    match error:
        case ModuleRaised():
            return ModuleFailure(reason, f"{error.kind}: {error.detail}", traceback=error.traceback)
        case ProcessGone():
            death = error.death
            message = f"{error.message}: {death.why}" if death.why else error.message
            return ModuleFailure(
                reason, message, traceback=death.last_words, sample=death.sample, death=death
            )
        case CallOverrun():
            return ModuleFailure(reason, error.message)
        case _:
            return ModuleFailure(reason, str(error))


def failure_details(failure: ModuleFailure, scope: Scope | None, *, at: dt.datetime) -> FailureDetails:
    """The failure as stored with the record. The sample is the process's last: taken from its death, or
    now."""
    sample = failure.sample
    if sample is None and scope is not None and scope.attached:
        sample = scope.process.sample()
    return FailureDetails(
        at=at,
        reason=failure.reason,
        message=failure.message[:_MESSAGE_MAX],
        traceback=failure.traceback[-_TRACEBACK_MAX:],
        log=tuple(line[:_LOG_LINE_MAX] for line in failure.log or (scope.log_tail if scope else ())),
        cpu_seconds=sample.cpu_seconds if sample else 0.0,
        memory_bytes=sample.memory_bytes if sample else 0,
        threads=sample.threads if sample else 0,
    )
