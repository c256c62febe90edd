"""Outcomes that a former term could not store: its controller ended between an act and the entry of its outcome.

The audit then says that the outcome is unknown. A few thousand entries are looked at: older acts were settled by the
terms before.
"""

from __future__ import annotations

from typing import Final

import structlog

from corral.controller.state.collections import AUDIT
from corral.controller.state.ledger import SYSTEM, Ledger, audit
from corral.domain.records import AuditEntry, AuditOutcome
from corral.store.port import Append, ReadEngine

MOST_READ: Final = 5000
_PAGE: Final = 500
_PER_COMMIT: Final = 100
_log = structlog.get_logger("corral.controller.term")


async def settle_lost_outcomes(reads: ReadEngine, ledger: Ledger, *, through: int) -> int:
    """Store that the outcome is unknown of each act up to this entry that has none; returns how many.
    STORE_UNAVAILABLE, FENCED; may be repeated."""
    lost = await _without_outcome(reads, through=through)
    for start in range(0, len(lost), _PER_COMMIT):
        await ledger.commit(*(_unknown(entry) for entry in lost[start : start + _PER_COMMIT]))
    if lost:
        _log.warning("act_outcomes.lost", acts=len(lost))
    return len(lost)


async def _without_outcome(reads: ReadEngine, *, through: int) -> list[AuditEntry]:
    """The oldest first."""
    settled: set[str] = set()
    lost: dict[str, AuditEntry] = {}
    before, left = through + 1, MOST_READ
    while left > 0:
        entries = await reads.entries(AUDIT.name, before=before, limit=_PAGE, newest=True)
        for entry in reversed(entries):
            record = AUDIT.decode(entry.body)
            if record.outcome not in ("", AuditOutcome.BEGUN):
                settled.add(record.attempt)
            elif record.outcome == AuditOutcome.BEGUN and record.attempt not in settled:
                lost.setdefault(record.attempt, record)
        if len(entries) < _PAGE:
            break
        before, left = entries[0].number, left - _PAGE
    return list(reversed(lost.values()))


def _unknown(entry: AuditEntry) -> Append:
    return audit(
        SYSTEM,
        entry.action,
        entry.subject,
        after={"actor": entry.actor},
        request=entry.request,
        outcome=AuditOutcome.UNKNOWN,
        attempt=entry.attempt,
    )
