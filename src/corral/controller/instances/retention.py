"""Retention: removal of ended instances, unused plans, old revisions, crashes and empty ledgers."""

from __future__ import annotations

import collections
import datetime as dt
import heapq
import itertools
from collections.abc import Iterator

from corral.controller.instances.confirmations import has_world
from corral.controller.instances.revisions import surplus_revisions
from corral.controller.instances.starts import GROUP_LEDGER
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CRASHES, INSTANCES, NODE_LEDGERS, PLANS, REVISIONS
from corral.controller.state.ledger import Step
from corral.controller.state.mirrors import StoredRecord
from corral.domain.events import Draft, EventType
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.groups.revisions import revision_id
from corral.system.controller_config import InstanceRetentionSection


def forgotten(
    state: ClusterState, *, config: InstanceRetentionSection, now: dt.datetime, limit: int
) -> list[Step]:
    """The steps that drop some expired documents, each once; at most twice `limit`."""
    found = itertools.chain(
        _ended_instances(state, config, now),
        _unused_plans(state),
        _old_revisions(state),
        _old_crashes(state, config),
        _ledgers_without_owner(state),
    )
    return [step for steps in itertools.islice(found, limit) for step in steps]


def _ended_instances(
    state: ClusterState, config: InstanceRetentionSection, now: dt.datetime
) -> Iterator[list[Step]]:
    """Ended instances that are old, too many of their group, or of a deleted group."""
    oldest = now - dt.timedelta(seconds=config.ended_seconds)
    ended: dict[str, list[StoredRecord[InstanceRecord]]] = {}
    for stored in state.instances:
        if not live(stored.record.state):
            ended.setdefault(stored.record.group, []).append(stored)
    for group, records in ended.items():
        records.sort(key=lambda stored: _ended(stored.record), reverse=True)
        known = state.groups.find(group) is not None
        # Only its record names the node that keeps its directory, also when its group is deleted or no longer
        # static.
        records = [stored for stored in records if not has_world(state, stored.record)]
        for place, stored in enumerate(records):
            if place >= config.ended_per_group or _ended(stored.record) < oldest or not known:
                yield _removal(stored)


def _ended(record: InstanceRecord) -> dt.datetime:
    """When the end was received: a node's clock does not affect the retention of its instances."""
    return record.end_received_at or record.ended_at or record.created_at


def _removal(stored: StoredRecord[InstanceRecord]) -> list[Step]:
    record = stored.record
    data = {"group": record.group, "node": record.node, "state": record.state.value}
    return [
        INSTANCES.delete(record.id, expect=stored.revision),
        Draft(type=EventType.INSTANCE_REMOVED, subject=record.id, data=data),
    ]


def _unused_plans(state: ClusterState) -> Iterator[list[Step]]:
    used = {stored.record.plan_hash for stored in state.instances}
    used |= {start.plan_hash for stored in state.instances for start in stored.record.earlier}
    for hash, stored in state.plans.items():
        if hash not in used:
            yield [PLANS.delete(hash, expect=stored.revision)]


def _old_revisions(state: ClusterState) -> Iterator[list[Step]]:
    for group in state.revisions.groups():
        for stored in surplus_revisions(state, group):
            id = revision_id(group, stored.record.number)
            yield [REVISIONS.delete(id, expect=stored.revision)]


def _old_crashes(state: ClusterState, config: InstanceRetentionSection) -> Iterator[list[Step]]:
    """Crashes beyond the limit: the oldest of the node that has the most, repeatedly, so that no node
    displaces the crashes of others."""
    surplus = len(state.crashes) - config.crashes
    if surplus <= 0:
        return
    waiting = {node: collections.deque(state.crashes.of_node(node)) for node in state.crashes.nodes()}
    largest = [(-len(ids), node) for node, ids in waiting.items()]
    heapq.heapify(largest)
    for _ in range(surplus):
        _, node = largest[0]
        id = waiting[node].popleft()
        heapq.heapreplace(largest, (-len(waiting[node]), node))
        yield [CRASHES.delete(id, expect=state.crashes.revision(id))]


def _ledgers_without_owner(state: ClusterState) -> Iterator[list[Step]]:
    """Ledgers without an owner, except those with a serial: a node that is enrolled again under that id may
    have its old tickets."""
    for node, stored in state.node_ledgers.items():
        if node.startswith(GROUP_LEDGER) and state.groups.find(node.removeprefix(GROUP_LEDGER)) is not None:
            continue
        unused = not state.reservations.usage(node).runs and not stored.record.serial
        if unused and state.nodes.find(node) is None:
            yield [NODE_LEDGERS.delete(node, expect=stored.revision)]
