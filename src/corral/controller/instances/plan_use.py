"""Which plans live instances run by."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from corral.controller.state.cluster_state import ClusterState
from corral.domain.instance_records import PlanRecord, live
from corral.domain.plans import Plan, read_plan


@functools.lru_cache(maxsize=1024)
def decoded(record: PlanRecord) -> Plan:
    """A plan as a value; the record is frozen, so one look at each is enough."""
    return read_plan(record)


def plans_in_use(state: ClusterState) -> Iterator[Plan]:
    """The plans of live instances, each once."""
    hashes = {stored.record.plan_hash for stored in state.instances if live(stored.record.state)}
    for hash in sorted(hashes):
        stored = state.plans.find(hash)
        if stored is not None:
            yield decoded(stored.record)
