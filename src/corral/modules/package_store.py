"""Package store port: the records of modules. The controller keeps them in the store, a daemon on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from corral.domain.events import Draft
from corral.domain.modules.records import PackageRecord

StepEvent = Draft
"""Event that is published in the same commit as the step it belongs to."""

Change = Callable[[PackageRecord], PackageRecord]
"""Pure function: it is called again with a newer record when another writer committed first."""


class PackageStore(Protocol):
    """Records by module id. What a method committed is seen by `find` as soon as it returns.

    Every step that a change adds to the record's history is published in the same commit
    (`corral.domain.modules.records.phase_events` makes the events); no event is published without a stored step.
    """

    def find(self, id: str) -> PackageRecord | None: ...

    def all(self) -> list[PackageRecord]: ...

    async def step(self, id: str, change: Change, *, also: Sequence[StepEvent] = ()) -> PackageRecord:
        """Replace the record by what `change` makes of it, under compare-and-set. A change that returns
        the record unchanged commits nothing. Rejected NOT_FOUND when there is none; Retryable when
        the store does not answer: then it may or may not have happened, and `find` shows which."""

    async def add(self, record: PackageRecord) -> PackageRecord:
        """Store a new record and publish its first step. Rejected ALREADY_EXISTS when there is one."""

    async def remove(self, id: str, *, reason: str) -> None:
        """Remove the record and publish `MODULE_UNINSTALLED`. No effect when there is none."""
