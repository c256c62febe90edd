"""The numbers of a group's instances that decide what the group needs, without a walk through all of them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from corral.domain.groups.instance_records import InstanceRecord, ended_by_itself, is_ready, live, stays


class GroupTally(msgspec.Struct, kw_only=True):
    """The instances of one group: how many, and the few that have to be looked at."""

    live: int = 0
    """Those that have not ended."""
    staying: int = 0
    """Of these, the ones that are not about to stop for good."""
    warm: int = 0
    """Of these, the ones that do not serve yet."""
    ready: int = 0
    """Those that are ready and serve."""
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
        staying = stays(record)
        self.live += by * live(record.state)
        self.staying += by * staying
        self.warm += by * (staying and record.warm)
        self.ready += by * (is_ready(record) and not record.warm)
