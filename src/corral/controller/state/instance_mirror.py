"""All instances in memory, with indexes and counters that the fold keeps: no request or event counts or sorts them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final, TypeVar

from corral.controller.state.collections import INSTANCES
from corral.controller.state.mirrors import Mirror, StoredRecord
from corral.controller.state.sorted_keys import KeyIndex, SortedKeys
from corral.domain.groups.instance_records import (
    InstanceRecord,
    ended_by_itself,
    is_draining,
    is_lost,
    is_present,
    is_ready,
    is_starting,
    live,
    takes_players,
)
from corral.domain.ids import instance_number
from corral.domain.instance_states import InstanceState
from corral.domain.number_runs import NumberRuns

K = TypeVar("K", bound=str)


class GroupCounts:
    """The numbers of a group's instances."""

    __slots__ = (
        "away",
        "by_node",
        "by_state",
        "draining",
        "ended",
        "held",
        "live",
        "lost",
        "open",
        "ready",
        "serving_ready",
        "starting",
        "staying",
        "warm",
    )

    def __init__(self) -> None:
        self.live = 0
        """Those that have not ended."""
        self.ready = 0
        self.staying = 0
        """Those that are alive, not about to stop for good, and not lost."""
        self.warm = 0
        """Of these, the ones that do not serve yet."""
        self.serving_ready = 0
        self.starting = 0
        """Those that are to serve, and do not run yet."""
        self.draining = 0
        """Those that take no more players, and go when they have none."""
        self.lost = 0
        """Those whose node is away for longer than the group waits."""
        self.by_node: Counter[str] = Counter()
        """Those that stay, by node."""
        self.by_state: Counter[InstanceState] = Counter()
        """All of them, ended ones included."""
        self.held = SortedKeys()
        """The ids of those that have ended and that an operator holds stopped."""
        self.ended = SortedKeys()
        """The ids of those that have ended by themselves."""
        self.away: Counter[str] = Counter()
        """Those that are OFFLINE, by node."""
        self.open = SortedKeys()
        """The ids of those to which proxies may send players."""

    def add(self, id: str, record: InstanceRecord) -> None:
        self._count(record, 1)
        if record.held and not live(record.state):
            self.held.add(id)
        if ended_by_itself(record):
            self.ended.add(id)
        if takes_players(record):
            self.open.add(id)

    def remove(self, id: str, record: InstanceRecord) -> None:
        self._count(record, -1)
        if record.held and not live(record.state):
            self.held.discard(id)
        if ended_by_itself(record):
            self.ended.discard(id)
        if takes_players(record):
            self.open.discard(id)

    def _count(self, record: InstanceRecord, by: int) -> None:
        self.live += by * live(record.state)
        _count_at(self.by_state, record.state, by)
        self.ready += by * is_ready(record)
        self.serving_ready += by * (is_ready(record) and not record.warm)
        self.starting += by * is_starting(record)
        self.draining += by * is_draining(record)
        self.lost += by * is_lost(record)
        if is_present(record):
            self.staying += by
            self.warm += by * record.warm
            _count_at(self.by_node, record.node, by)
        if record.state is InstanceState.OFFLINE:
            _count_at(self.away, record.node, by)


def _replaced(record: InstanceRecord | None) -> str | None:
    return (record.replaces or None) if record is not None else None


def _count_at(counts: Counter[K], key: K, by: int) -> None:
    """Change a count; one that is 0 again is left out."""
    counts[key] += by
    if not counts[key]:
        del counts[key]


_NO_NUMBERS: Final = NumberRuns()
_NO_INSTANCES: Final = GroupCounts()


class InstanceMirror(Mirror[InstanceRecord]):
    """All instances, by id, by group, by node and by state."""

    def __init__(self) -> None:
        super().__init__(INSTANCES, "instance")
        self._by_group = KeyIndex()
        self._by_node = KeyIndex()
        self._by_state = KeyIndex()
        self._by_replaced = KeyIndex()
        self._counts: dict[str, GroupCounts] = {}
        self._live_on: Counter[str] = Counter()
        self._numbers: dict[str, NumberRuns] = {}
        self._live_numbers: dict[str, NumberRuns] = {}
        """By what comes before the number in the id, whatever group the record names."""

    def of_group(self, name: str) -> list[StoredRecord[InstanceRecord]]:
        """The group's instances, ended ones included, in the order of their ids."""
        return self._listed(self._by_group.of(name))

    def of_node(self, node: str) -> list[StoredRecord[InstanceRecord]]:
        """The instances whose present or last run is on this node, in the order of their ids."""
        return self._listed(self._by_node.of(node))

    def replacement_of(self, id: str) -> str:
        """The live instance that was started in the place of a lost one, the newest if there were several; empty: none."""
        found = [self._documents[each].record for each in self._by_replaced.of(id)]
        alive = [each for each in found if live(each.state)]
        return max(alive, key=lambda each: (each.created_at, each.id)).id if alive else ""

    def nodes(self) -> list[str]:
        """The nodes that some instance record names."""
        return list(self._by_node)

    def counts(self, group: str) -> GroupCounts:
        """The numbers of a group's instances; not to be changed."""
        return self._counts.get(group, _NO_INSTANCES)

    def live_on(self, node: str) -> int:
        """The number of instances on a node that have not ended."""
        return self._live_on[node]

    def numbers(self, group: str, *, live: bool) -> NumberRuns:
        """The numbers N for which a record `GROUP-N` exists, or only those that have not ended; not to be changed."""
        return (self._live_numbers if live else self._numbers).get(group, _NO_NUMBERS)

    def narrowed(
        self,
        *,
        group: str | None = None,
        node: str | None = None,
        states: Collection[InstanceState] = (),
    ) -> Sequence[str]:
        """The ids in order among which all instances of this group, on this node and in one of these states (none: in
        any) are: those of the rarest of the three."""
        found = [
            index.of(value)
            for index, value in ((self._by_group, group), (self._by_node, node))
            if value is not None
        ]
        least = min(found, key=len) if found else None
        if not states:
            return self.ids() if least is None else least
        parts = [self._by_state.of(state) for state in states]
        if least is not None and len(least) <= sum(map(len, parts)):
            return least
        return parts[0] if len(parts) == 1 else sorted(itertools.chain.from_iterable(parts))

    def _listed(self, ids: Sequence[str]) -> list[StoredRecord[InstanceRecord]]:
        return [self._documents[id] for id in ids]

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        old = self._record(id)
        super().fold(id, revision, body)
        new = self._record(id)
        self._by_group.move(id, old.group if old else None, new.group if new else None)
        self._by_node.move(id, old.node if old else None, new.node if new else None)
        self._by_state.move(id, old.state if old else None, new.state if new else None)
        self._by_replaced.move(id, _replaced(old), _replaced(new))
        self._number(id, exists=new is not None, alive=new is not None and live(new.state))
        if old is not None:
            self._counts[old.group].remove(id, old)
            self._count_live(old, -1)
            if old.group not in self._by_group:
                del self._counts[old.group]
        if new is not None:
            counts = self._counts.get(new.group)
            if counts is None:
                counts = self._counts[new.group] = GroupCounts()
            counts.add(id, new)
            self._count_live(new, 1)

    def _number(self, id: str, *, exists: bool, alive: bool) -> None:
        group, number = instance_number(id)
        if number:
            _set(self._numbers, group, number, exists)
            _set(self._live_numbers, group, number, alive)

    def _record(self, id: str) -> InstanceRecord | None:
        found = self._documents.get(id)
        return found.record if found is not None else None

    def _count_live(self, record: InstanceRecord, by: int) -> None:
        if live(record.state):
            _count_at(self._live_on, record.node, by)


def _set(numbers: dict[str, NumberRuns], group: str, number: int, there: bool) -> None:
    if there:
        numbers.setdefault(group, NumberRuns()).add(number)
    elif (runs := numbers.get(group)) is not None:
        runs.discard(number)
        if not runs:
            del numbers[group]
