"""Which positions of a reader can still be served, and what to say when one cannot."""

from __future__ import annotations

from corral.domain.events import START, Cursor
from corral.errors import Code, Rejected


def check_cursor(
    after: Cursor, *, trimmed: Cursor, last: int, epoch_before: int | None, epoch_behind: int | None
) -> None:
    """Refuse a cursor from which the log cannot be continued without a gap.

    `trimmed` is the last event that was dropped (START for none), `last` the newest sequence,
    `epoch_before` and `epoch_behind` the epochs of the nearest events up to the cursor's sequence and from it
    on, None where there is none: both are that of the event itself, unless it was dropped from among others.
    A cursor exactly at the trimmed event is fine: everything after it is still there.
    """
    if after == trimmed:
        return
    if after.sequence > last:
        raise _resync(f"event {after} is ahead of this log, which ends at {last}")
    if after == START or after.sequence <= trimmed.sequence:
        raise _resync(f"events after {after} were dropped, up to {trimmed}")
    oldest = trimmed.epoch if epoch_before is None else epoch_before
    newest = after.epoch if epoch_behind is None else epoch_behind
    if not oldest <= after.epoch <= newest:
        raise _resync(f"event {after} is of another history of this log")


def check_commit(after: int, *, trimmed: int, last: int) -> None:
    """Refuse a commit number after which deletions may have been forgotten."""
    if after > last:
        raise _resync(f"commit {after} is ahead of this store, which is at {last}")
    if after < trimmed:
        raise _resync(f"deletions after commit {after} were dropped, up to {trimmed}")


def _resync(what: str) -> Rejected:
    return Rejected(Code.RESYNC_REQUIRED, what, hint="read the current state, then follow from its position")
