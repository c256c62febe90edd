"""Checks of documents that take a while: what others change meanwhile is not missed."""

from __future__ import annotations

from typing import Any

import pytest
from world import World

from corral.controller.instances.document_checks import DocumentChecks
from corral.controller.instances.group_changes import (
    RevisedGroup,
    create_group,
    patch_group,
    patched,
    revised_group,
    scale_group,
    write_revised,
)
from corral.controller.instances.group_writes import StoredGroups
from corral.controller.instances.plan_checks import PlanChecks
from corral.controller.state.collections import TEMPLATES
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.groups.plan_resolution import resolve_plan
from corral.errors import Code, CorralError
from corral.testing.counted_calls import counted_calls


def world_with(*names: str) -> World:
    world = World()
    for name in names:
        world.do(create_group, GroupSpec(name=name, command=("serve",)))
    return world


class Change:
    """A patch of the group 'lobby', and what others do while it is checked."""

    def __init__(self, world: World, patch: dict[str, Any], *others: Any) -> None:
        self._world = world
        self._patch = patch
        self._others = list(others)
        self.checked = 0

    def check(self, stored: StoredGroups) -> RevisedGroup:
        self.checked += 1
        revised = revised_group("lobby", patched(self._patch), stored)
        if self._others:
            self._others.pop(0)()
        return revised

    async def make(self, **options: Any) -> GroupRecord:
        checks = DocumentChecks(self._world.workspace, **options)
        ws, plans, revised = await checks.run(self.check, lambda found: found.specs.values())
        record = write_revised(ws, plans, revised)
        self._world.apply(ws.steps())
        return record


async def test_a_group_that_is_written_meanwhile_makes_the_check_begin_again() -> None:
    world = world_with("lobby")
    change = Change(world, {"env": {"A": "1"}}, lambda: world.do(patch_group, "lobby", {"env": {"B": "2"}}))
    assert (await change.make()).spec.env == {"A": "1", "B": "2"}
    assert change.checked == 2


async def test_a_change_of_the_numbers_of_a_group_meanwhile_is_kept_and_nothing_is_repeated() -> None:
    world = world_with("lobby")
    change = Change(world, {"env": {"A": "1"}}, lambda: world.do(scale_group, "lobby", 7))
    record = await change.make()
    assert (record.spec.env, record.target, change.checked) == ({"A": "1"}, 7, 1)


async def test_a_template_that_goes_while_a_group_is_checked_refuses_it() -> None:
    world = world_with("lobby")
    world.add_template("base", "a" * 64)
    change = Change(
        world, {"templates": ["base"]}, lambda: world.apply([TEMPLATES.delete("base", expect=None)])
    )
    with pytest.raises(CorralError) as refused:
        await change.make()
    assert refused.value.code is Code.TEMPLATE_NOT_FOUND


async def test_plans_hold_until_something_changes_that_they_are_made_of() -> None:
    world = world_with("lobby")
    world.add_template("base", "a" * 64)
    plans = PlanChecks(world.workspace())
    spec = GroupSpec(name="lobby", command=("serve",), templates=("base",))
    await plans.look_ahead([spec])
    world.do(scale_group, "lobby", 3)
    assert plans.valid
    with counted_calls() as count:
        plans.check(spec)
    assert count.of(resolve_plan) == 0, "it is known"
    world.add_template("base", "a" * 64, "b" * 64)
    assert not plans.valid


async def test_after_three_attempts_it_is_a_conflict() -> None:
    world = world_with("lobby", "other")
    others = [lambda n=n: world.do(patch_group, "other", {"max": n}) for n in range(1, 9)]
    change = Change(world, {"env": {"A": "1"}}, *others)
    with pytest.raises(CorralError) as refused:
        await change.make()
    assert (refused.value.code, change.checked) == (Code.CONFLICT, 3)
    assert refused.value.retry_after
    assert world.state.groups.require("lobby").record.spec.env == {}


async def test_more_than_a_change_may_write_is_refused_with_what_to_do() -> None:
    world = world_with("lobby")
    with pytest.raises(CorralError) as refused:
        await Change(world, {"env": {"A": "x" * 5000}}).make(most=5000)
    assert refused.value.code is Code.BODY_TOO_LARGE
    assert "1 group " in str(refused.value)
    assert (await Change(world, {"max": 5}).make(most=5000)).spec.max == 5
