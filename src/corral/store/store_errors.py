"""Errors of a store: those that its callers handle, and those at which its writer stops."""

from __future__ import annotations

from corral.errors import Code, Rejected, Retryable
from corral.store.port import ABSENT, Refusal


class Conflict(Rejected):
    """Another transaction changed the document first; nothing of this transaction was stored."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        name = f"{refusal.collection}/{refusal.id}"
        if refusal.expect == ABSENT:
            super().__init__(Code.ALREADY_EXISTS, f"{name} already exists")
        elif refusal.found == ABSENT:
            super().__init__(Code.NOT_FOUND, f"{name} does not exist any more")
        else:
            super().__init__(
                Code.REVISION_MISMATCH,
                f"{name} was changed in the meantime: expected revision {refusal.expect}, "
                f"found {refusal.found}",
                hint="read it again and repeat the change",
            )


class StoreUnavailable(Retryable):
    """The store did not take the batch. Nothing of it is visible; with `in_doubt` it may be stored yet."""

    def __init__(self, why: str, *, in_doubt: bool = False) -> None:
        super().__init__(
            Code.STORE_UNAVAILABLE,
            f"the store is unavailable: {why}",
            hint="the change may still take effect; read before you repeat it"
            if in_doubt
            else "nothing was changed; try again shortly",
            retry_after=1.0,
        )
        self.why = why
        self.in_doubt = in_doubt


class Fenced(Retryable):
    """Another controller leads under a higher epoch: this one may not write any more."""

    def __init__(self, held: int, current: int) -> None:
        super().__init__(
            Code.FENCED,
            f"this controller was deposed: it writes under epoch {held}, the store is at {current}",
            hint="repeat the request at the leader",
            retry_after=1.0,
        )
        self.held = held
        self.current = current


class StorageFailed(Exception):
    """A flush to disk failed, or stored data is damaged: no state is certain any more. The process must end."""

    def __init__(self, message: str, *, hint: str = "look at the disk, and start it again") -> None:
        super().__init__(message)
        self.hint = hint
