"""Which modules should hear of a run, by what is stored about them. Pure."""

from __future__ import annotations

import datetime as dt

from corral.domain.module_phases import ModuleIntent, ModulePhase
from corral.domain.module_records import STORY_LENGTH, PackageRecord


def is_wanted(record: PackageRecord | None) -> bool:
    """Whether it shall run. One that an operator deactivated, paused or took away has nothing to hear."""
    return record is not None and record.intent is ModuleIntent.ACTIVE


def served_since(record: PackageRecord, moment: dt.datetime | None) -> bool:
    """Whether it was ACTIVE at any time from this moment on (None: ever). A daemon that ended left it ACTIVE:
    it counts as such until the next one takes it up. Where its story does not reach back far enough it may
    have been, and that counts."""
    if record.phase is ModulePhase.ACTIVE:
        return True
    left = [step.at for step in record.story if step.from_phase is ModulePhase.ACTIVE]
    if left:
        return moment is None or max(left) >= moment
    return len(record.story) >= STORY_LENGTH and (moment is None or record.story[0].at > moment)
