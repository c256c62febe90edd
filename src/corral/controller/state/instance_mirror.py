"""All instances in memory, with indexes and counters that the fold keeps: no request or event counts or sorts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from corral.controller.state.collections import INSTANCES
from corral.controller.state.mirrors import Mirror, StoredRecord
from corral.controller.state.sorted_keys import KeyIndex
from corral.domain.groups.instance_records import InstanceRecord, is_ready, live
from corral.domain.instance_states import InstanceState


class GroupCounts:
    """The numbers of a group's instances."""

    __slots__ = ("away", "live", "ready")

    def __init__(self) -> None:
        self.live = 0
        """Those that have not ended."""
        self.ready = 0
        self.away: Counter[str] = Counter()
        """Those that are OFFLINE, by node."""

    def add(self, record: InstanceRecord, by: int) -> None:
        """Count the record, or take it out with -1."""
        self.live += by * live(record.state)
        self.ready += by * is_ready(record)
        if record.state is InstanceState.OFFLINE:
            self.away[record.node] += by
            if not self.away[record.node]:
                del self.away[record.node]


_NO_INSTANCES = GroupCounts()


class InstanceMirror(Mirror[InstanceRecord]):
    """All instances, by id, by group, by node and by state."""

    def __init__(self) -> None:
        super().__init__(INSTANCES, "instance")
        self._by_group = KeyIndex()
        self._by_node = KeyIndex()
        self._by_state = KeyIndex()
        self._counts: dict[str, GroupCounts] = {}
        self._live_on: Counter[str] = Counter()

    def of_group(self, name: str) -> list[StoredRecord[InstanceRecord]]:
        """The group's instances, ended ones included, in the order of their ids."""
        return self._listed(self._by_group.of(name))

    def of_node(self, node: str) -> list[StoredRecord[InstanceRecord]]:
        """The instances whose present or last run is on this node, in the order of their ids."""
        return self._listed(self._by_node.of(node))

    def nodes(self) -> list[str]:
        """The nodes that some instance record names."""
        return list(self._by_node)

    def counts(self, group: str) -> GroupCounts:
        """The numbers of a group's instances; not to be changed."""
        return self._counts.get(group, _NO_INSTANCES)

    def live_on(self, node: str) -> int:
        """The number of instances on a node that have not ended."""
        return self._live_on[node]

    def narrowed(
        self, *, group: str | None = None, node: str | None = None, state: InstanceState | None = None
    ) -> Sequence[str]:
        """The ids in order among which all instances of this group, on this node and in this state are: those of the
        rarest of the three."""
        found = [
            index.of(value)
            for index, value in ((self._by_group, group), (self._by_node, node), (self._by_state, state))
            if value is not None
        ]
        return min(found, key=len) if found else self.ids()

    def _listed(self, ids: Sequence[str]) -> list[StoredRecord[InstanceRecord]]:
        return [self._documents[id] for id in ids]

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        old = self._record(id)
        super().fold(id, revision, body)
        new = self._record(id)
        self._by_group.move(id, old.group if old else None, new.group if new else None)
        self._by_node.move(id, old.node if old else None, new.node if new else None)
        self._by_state.move(id, old.state if old else None, new.state if new else None)
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)
        if old is not None and old.group not in self._by_group:
            del self._counts[old.group]

    def _record(self, id: str) -> InstanceRecord | None:
        found = self._documents.get(id)
        return found.record if found is not None else None

    def _count(self, record: InstanceRecord, by: int) -> None:
        self._counts.setdefault(record.group, GroupCounts()).add(record, by)
        if live(record.state):
            self._live_on[record.node] += by
            if not self._live_on[record.node]:
                del self._live_on[record.node]
