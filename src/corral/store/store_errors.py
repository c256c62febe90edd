"""Errors that a store raises: what its callers handle, and what its writer stops at."""

from __future__ import annotations

from corral.errors import Code, Rejected, Retryable
from corral.store.port import ABSENT, Refusal


class Conflict(Rejected):
    """Somebody changed the document first; nothing of this transaction was stored."""

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
    """The store did not take the batch. Nothing of it is visible; `in_doubt` says that it may yet be."""

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
    """A flush to disk failed, or what lies there is damaged: nothing is certain any more. The process must end."""

    def __init__(self, message: str, *, hint: str = "look at the disk, and start it again") -> None:
        super().__init__(message)
        self.hint = hint
