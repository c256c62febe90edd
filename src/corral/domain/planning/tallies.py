"""The numbers of a group's instances that decide what the group needs, without a walk through all of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from corral.domain.groups.instance_records import (
    InstanceRecord,
    ended_by_itself,
    is_draining,
    is_lost,
    is_present,
    is_ready,
    is_starting,
    live,
)
from corral.domain.instance_states import InstanceState


class GroupTally(msgspec.Struct, kw_only=True):
    """The instances of one group: how many, and the few that have to be looked at."""

    live: int = 0
    """Those that have not ended."""
    staying: int = 0
    """Of these, the ones that are not about to stop for good, and not lost."""
    warm: int = 0
    """Of these, the ones that do not serve yet."""
    ready: int = 0
    """Those that are ready and serve."""
    starting: int = 0
    """Those that are to serve, and do not run yet."""
    draining: int = 0
    """Those that take no more players, and go when they have none."""
    away: int = 0
    """Those whose node is away, lost ones included."""
    lost: int = 0
    """Those whose node is away for longer than the group waits."""
    held: list[InstanceRecord] = msgspec.field(default_factory=list)
    """Those that have ended and that an operator holds stopped."""
    ended: list[InstanceRecord] = msgspec.field(default_factory=list)
    """Those that have ended by themselves."""

    @classmethod
    def of(cls, records: Iterable[InstanceRecord]) -> GroupTally:
        tally = cls()
        for record in records:
            tally.add(record)
        return tally

    @property
    def serving(self) -> int:
        return self.staying - self.warm

    def add(self, record: InstanceRecord) -> None:
        self.count(record, 1)
        if record.held and not live(record.state):
            self.held.append(record)
        if ended_by_itself(record):
            self.ended.append(record)

    def count(self, record: InstanceRecord, by: int) -> None:
        """Add one to the numbers, or take it away; the lists stay as they are."""
        staying = is_present(record)
        self.live += by * live(record.state)
        self.staying += by * staying
        self.warm += by * (staying and record.warm)
        self.ready += by * (is_ready(record) and not record.warm)
        self.starting += by * is_starting(record)
        self.draining += by * is_draining(record)
        self.away += by * (record.state is InstanceState.OFFLINE)
        self.lost += by * is_lost(record)
