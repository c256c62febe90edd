"""Documents as a transaction leaves them: changed ones over the stored ones."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from corral.controller.state.collections import StateCollection
from corral.controller.state.indexed_mirrors import NodeMirror, ReservationMirror
from corral.controller.state.instance_mirror import InstanceMirror
from corral.controller.state.ledger import Step
from corral.controller.state.mirrors import Mirror
from corral.domain.groups.instance_records import InstanceRecord, Reservation, is_present
from corral.domain.node_states import EMPTIED
from corral.domain.planning.node_usage import Usage, usage_of
from corral.domain.planning.tallies import GroupTally
from corral.domain.records import NodeRecord, Record


class Overlay:
    """Changed documents of one collection; None stands for a removed one."""

    def __init__(self, mirror: Mirror[Any]) -> None:
        self.mirror = mirror
        self.changed: dict[str, Record | None] = {}

    def get(self, id: str) -> Any:
        if id in self.changed:
            return self.changed[id]
        stored = self.mirror.find(id)
        return stored.record if stored else None

    def all(self) -> dict[str, Any]:
        """Every document by its id."""
        found = {id: stored.record for id, stored in self.mirror.items()}
        found |= self.changed
        return {id: record for id, record in found.items() if record is not None}

    def pending(self) -> Iterable[Callable[[], Step]]:
        """A step for each change, which expects the revision of now and is encoded when it is called."""
        collection: StateCollection[Any] = self.mirror.collection
        for id, record in self.changed.items():
            revision = self.mirror.revision(id)
            if record is not None:
                yield functools.partial(collection.put, id, record, expect=revision)
            elif revision:
                yield functools.partial(collection.delete, id, expect=revision)


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A savepoint of a workspace."""

    changes: int
    events: int
    entries: int


def restoring(held: dict[str, Any], key: str) -> Callable[[], object]:
    """A function that restores the present value of a key in a dictionary."""
    if key in held:
        return functools.partial(held.__setitem__, key, held[key])
    return functools.partial(held.pop, key, None)


def tally_of(instances: InstanceMirror, group: str, changed: Mapping[str, Record | None]) -> GroupTally:
    """The tally of a group as a transaction with these changed instances leaves it."""
    counts = instances.counts(group)
    tally = GroupTally(
        live=counts.live,
        staying=counts.staying,
        warm=counts.warm,
        ready=counts.serving_ready,
        starting=counts.starting,
        draining=counts.draining,
        away=counts.away.total(),
        lost=counts.lost,
        held=[instances.require(id).record for id in counts.held if id not in changed],
        ended=[instances.require(id).record for id in counts.ended if id not in changed],
    )
    for id, record in changed.items():
        found = instances.find(id)
        if found is not None and found.record.group == group:
            tally.count(found.record, -1)
        if isinstance(record, InstanceRecord) and record.group == group:
            tally.add(record)
    return tally


def runs_by_node(
    instances: InstanceMirror, group: str, changed: Mapping[str, Record | None]
) -> Mapping[str, int]:
    """How many instances of a group are on each node, as such a transaction leaves them."""
    stored = instances.counts(group).by_node
    if not changed:
        return stored
    counts = Counter(stored)
    for id, record in changed.items():
        found = instances.find(id)
        if found is not None and found.record.group == group and is_present(found.record):
            counts[found.record.node] -= 1
        if isinstance(record, InstanceRecord) and record.group == group and is_present(record):
            counts[record.node] += 1
    return counts


def on_node(
    instances: InstanceMirror, node: str, changed: Mapping[str, Record | None]
) -> list[InstanceRecord]:
    """The instances whose present or last run is on a node, as such a transaction leaves them."""
    stored = [each.record for each in instances.of_node(node) if each.record.id not in changed]
    return stored + [
        each for each in changed.values() if isinstance(each, InstanceRecord) and each.node == node
    ]


def emptied_nodes(nodes: NodeMirror, changed: Mapping[str, Record | None]) -> frozenset[str]:
    """The nodes that are draining or drained, as a transaction with these changed nodes leaves them."""
    kept = nodes.emptied - changed.keys()
    return kept | {
        each.id for each in changed.values() if isinstance(each, NodeRecord) and each.admission in EMPTIED
    }


def usage_on(stored: ReservationMirror, node: str, changed: Mapping[str, Record | None]) -> Usage:
    """What runs reserve on a node, as a transaction with these changed reservations leaves it."""
    own = [id for id in changed if id.startswith(f"{node}/")]
    if not own:
        return stored.usage(node)
    removed = usage_of(found.record for id in own if (found := stored.find(id)) is not None)
    added = usage_of(new for id in own if isinstance(new := changed[id], Reservation))
    return stored.usage(node).changed_by(added, removed)
