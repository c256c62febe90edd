"""The numbers of a group's instances that decide what the group needs, without a walk through all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from corral.controller.state.instance_mirror import InstanceMirror
from corral.domain.groups.instance_records import InstanceRecord, ended_by_itself, live, stays
from corral.domain.records import Record


class GroupTally(msgspec.Struct, kw_only=True):
    """The instances of one group: how many, and the few that have to be looked at."""

    live: int = 0
    """Those that have not ended."""
    staying: int = 0
    """Of these, the ones that are not about to stop for good."""
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

    @classmethod
    def stored(
        cls, instances: InstanceMirror, group: str, changed: Mapping[str, Record | None]
    ) -> GroupTally:
        """The tally of a group as a transaction with these changed instances leaves it."""
        counts = instances.counts(group)
        tally = cls(
            live=counts.live,
            staying=counts.staying,
            held=[instances.require(id).record for id in counts.held if id not in changed],
            ended=[instances.require(id).record for id in counts.ended if id not in changed],
        )
        for id, record in changed.items():
            found = instances.find(id)
            if found is not None and found.record.group == group:
                tally.live -= live(found.record.state)
                tally.staying -= stays(found.record)
            if isinstance(record, InstanceRecord) and record.group == group:
                tally.add(record)
        return tally

    def add(self, record: InstanceRecord) -> None:
        self.live += live(record.state)
        self.staying += stays(record)
        if record.held and not live(record.state):
            self.held.append(record)
        if ended_by_itself(record):
            self.ended.append(record)
