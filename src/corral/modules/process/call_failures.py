"""Failures of a call to a module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from corral.errors import Code, CorralError, Rejected, Retryable

if TYPE_CHECKING:
    from corral.modules.process.process_values import Death

_OUT_OF_MEMORY: Final = "MemoryError"


class CallOverrun(Retryable):
    """The module did not answer by the deadline. The call was cancelled; a late answer is dropped."""

    def __init__(self, module_id: str, method: str, deadline: float) -> None:
        super().__init__(
            Code.MODULE_TIMEOUT,
            f"module '{module_id}' did not answer '{method}' within {deadline:g} s",
            hint=f"see `corral module info {module_id}`",
        )
        self.method = method


class ModuleRaised(Rejected):
    """The module's code raised, or its answer could not be decoded."""

    def __init__(
        self, module_id: str, method: str, *, kind: str, message: str, traceback: str = "", hint: str = ""
    ) -> None:
        super().__init__(
            Code.MODULE_FAILED,
            f"module '{module_id}' failed in '{method}': {kind}: {message}",
            hint=hint or f"see the module's log: `corral module info {module_id}`",
        )
        self.method = method
        self.kind = kind
        """The exception's class name."""
        self.detail = message
        """The exception's message."""
        self.traceback = traceback


class ProcessGone(Retryable):
    """The module's process ended before it answered, or had ended before it was called."""

    def __init__(self, module_id: str, death: Death) -> None:
        super().__init__(
            Code.MODULE_NOT_ACTIVE,
            f"the process of module '{module_id}' has ended ({death.reason}{': ' * bool(death.why)}{death.why})",
            hint="it is started again unless it keeps ending",
        )
        self.death = death


class ZygoteGone(Retryable):
    """The zygote ended while a module process was being started."""

    def __init__(self, why: str) -> None:
        super().__init__(
            Code.SPAWN_FAILED,
            f"a module process could not be started: {why}",
            hint="it is tried again by itself",
        )


class ModuleBusy(Retryable):
    """The limit of concurrent calls to the module is reached."""

    def __init__(self, module_id: str) -> None:
        super().__init__(
            Code.MODULE_BUSY,
            f"module '{module_id}' has as many unanswered calls as it may have",
            hint="try again in a moment",
            retry_after=1.0,
        )


def failure_reason(error: CorralError, what: str) -> str:
    """The wire-stable reason for a phase change that this failure of `what` (a hook) causes."""
    match error:
        case CallOverrun():
            return f"hook_overrun:{what}"
        case ProcessGone():
            return error.death.reason
        case ModuleRaised(kind=kind) if kind == _OUT_OF_MEMORY:
            return "memory_limit"
        case _:
            return f"hook_failed:{what}"
