"""The numbers and the free ids of a group, as a transaction leaves them, are those that a walk finds."""

from __future__ import annotations

import itertools

from hypothesis import given
from instance_strategies import CHANGES, GROUPS
from world import World

from corral.controller.instances.group_tally import GroupTally
from corral.controller.instances.starts import free_instance_ids
from corral.controller.instances.workspace import Workspace
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import GroupName


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
            free = itertools.islice(free_instance_ids(ws, GroupName(group)), 8)
            ids = (f"{group}-{n}" for n in itertools.count(1))
            expected = itertools.islice((id for id in ids if ws.instance(id) is None), 8)
            assert list(free) == list(expected)
