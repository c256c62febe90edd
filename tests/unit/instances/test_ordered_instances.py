"""The instances that need an order on a node are those that a walk through its records finds."""

from __future__ import annotations

from hypothesis import given
from instance_strategies import CHANGES, NODES

from corral.controller.instances.orders import OrderedInstances, order_for
from corral.controller.state.instance_mirror import InstanceMirror
from corral.domain.groups.instance_records import InstanceRecord
from corral.store.port import encode


@given(CHANGES, CHANGES)
def test_the_index_equals_a_walk(
    stored: list[InstanceRecord | str], changed: list[InstanceRecord | str]
) -> None:
    mirror = InstanceMirror()

    def fold(change: InstanceRecord | str) -> str:
        if isinstance(change, InstanceRecord):
            mirror.fold(change.id, 1, encode(change))
            return change.id
        mirror.fold(change, 1, None)
        return change

    for change in stored:
        fold(change)
    ordered = OrderedInstances(mirror)  # as a term begins
    for change in [None, *changed]:
        if change is not None:
            ordered.note(fold(change))
        for node in NODES:
            walked = [each.record.id for each in mirror.of_node(node) if order_for(each.record) is not None]
            assert ordered.on(node) == walked
