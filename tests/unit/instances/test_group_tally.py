"""The numbers and the free ids of a group, as a transaction leaves them, are those that a walk finds."""

from __future__ import annotations

import collections
import itertools

from hypothesis import given
from instance_strategies import CHANGES, GROUPS
from world import World

from corral.controller.instances.plan_view import free_instance_ids
from corral.controller.instances.workspace import Workspace
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import InstanceRecord, stays
from corral.domain.planning.tallies import GroupTally


def change(ws: Workspace, changes: list[InstanceRecord | str]) -> None:
    for each in changes:
        if isinstance(each, InstanceRecord):
            ws.put_instance(each)
        else:
            ws.delete_instance(each)


@given(CHANGES, CHANGES, CHANGES)
def test_a_transaction_sees_the_numbers_that_it_leaves(
    stored: list[InstanceRecord | str],
    kept: list[InstanceRecord | str],
    undone: list[InstanceRecord | str],
) -> None:
    world = World()
    ws = world.workspace()
    change(ws, stored)
    world.apply(ws.steps())
    ws = world.workspace()
    change(ws, kept)
    mark = ws.mark()
    change(ws, undone)
    for back in (False, True):
        if back:
            ws.back_to(mark)
        for group in GROUPS:
            records = ws.instances_of(group)
            assert ws.tally(group) == GroupTally.of(records)
            by_node = collections.Counter(each.node for each in records if stays(each))
            assert +collections.Counter(ws.runs_by_node(group)) == by_node
            free = itertools.islice(free_instance_ids(ws, GroupSpec(name=group)), 8)
            ids = (f"{group}-{n}" for n in itertools.count(1))
            expected = itertools.islice((id for id in ids if ws.instance(id) is None), 8)
            assert list(free) == list(expected)
