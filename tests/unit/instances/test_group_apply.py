"""Sets of group documents as changes of a workspace: a second time changes nothing, and what is given up is confirmed."""

from __future__ import annotations

import difflib
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World

from corral.controller.instances.group_apply import (
    Action,
    AppliedGroup,
    ApplyOptions,
    GivenDocument,
    apply_set,
    check_set,
    removed_groups,
)
from corral.controller.instances.group_writes import stored_groups
from corral.controller.instances.plan_checks import PlanChecks
from corral.errors import Code, DocumentsRejected
from corral.testing.counted_calls import counted_calls

NAMES = [f"g-{number}" for number in range(8)]
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "min": st.integers(0, 3) | st.none(),
        "memory_mb": st.integers(0, 99) | st.none(),
        "labels": st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy") | st.none(), max_size=2),
        "restart": st.fixed_dictionaries({}, optional={"attempts": st.integers(0, 5) | st.none()}),
        "abstract": st.booleans(),
    },
)


def documents(drawn: list[dict[str, Any]], parents: list[int]) -> list[GivenDocument]:
    """Each may have one of those before it as its parent."""
    found = []
    for number, (fields, parent) in enumerate(zip(drawn, parents, strict=True)):
        body = {"name": NAMES[number], "command": ["a"], **fields}
        if parent < number:
            body["parent"] = NAMES[parent]
        found.append(GivenDocument(f"{NAMES[number]}.yaml", body))
    return found


def apply(world: World, given: list[GivenDocument], options: ApplyOptions) -> list[AppliedGroup]:
    ws = world.workspace()
    gone = removed_groups(ws.groups(), given, options)
    applied = apply_set(ws, PlanChecks(ws), check_set(given, stored_groups(ws), gone), options)
    if ws.steps():
        world.apply(ws.steps())
    return applied


@settings(max_examples=80, deadline=None)
@given(data=st.data(), seed=st.integers(0, 1000))
def test_the_second_apply_of_any_set_is_empty(data: st.DataObject, seed: int) -> None:
    """I19, after any earlier set, in any order of the documents."""
    world = World()
    options = ApplyOptions(owner="me", force=True, confirm=None, prune=True)
    for _ in range(2):
        count = data.draw(st.integers(1, len(NAMES)))
        drawn = data.draw(st.lists(FIELDS, min_size=count, max_size=count))
        parents = data.draw(st.lists(st.integers(0, len(NAMES)), min_size=count, max_size=count))
        given = documents(drawn, parents)
        random.Random(seed).shuffle(given)
        try:
            apply(world, given, options)
        except DocumentsRejected:
            before = world.state.number
            with pytest.raises(DocumentsRejected):
                apply(world, given, options)
            assert world.state.number == before
            continue
        before = world.state.number
        again = apply(world, list(reversed(given)), options)
        assert {each.action for each in again} == {Action.UNCHANGED}
        assert (world.state.number, len(again)) == (before, count)


def test_instances_are_given_up_only_after_a_confirmation() -> None:
    world = World()
    world.add_node("n1", memory=4096)
    mine = GivenDocument("mine.yaml", {"name": "mine", "command": ["a"]})
    apply(
        world,
        [mine, GivenDocument("old.yaml", {"name": "old", "command": ["a"], "min": 2})],
        ApplyOptions(owner="me"),
    )
    world.keep("old")
    with pytest.raises(DocumentsRejected) as refused:
        apply(world, [mine], ApplyOptions(owner="me", prune=True))
    assert refused.value.code is Code.CONFIRMATION_REQUIRED
    assert [(each.group, each.path) for each in refused.value.faults] == [("old", "")]
    assert "old-1" in refused.value.faults[0].error.message
    done = apply(world, [mine], ApplyOptions(owner="me", prune=True, confirm=frozenset({"old"})))
    assert {each.name: each.action for each in done} == {"mine": Action.UNCHANGED, "old": Action.DELETED}
    assert world.state.groups.require("old").record.deleting
    with pytest.raises(DocumentsRejected, match="1 error"):
        apply(world, [GivenDocument("old.yaml", {"name": "old", "command": ["b"]})], ApplyOptions())


def test_an_answer_with_many_faults_has_few_guesses() -> None:
    """Each guess looks at all names; twenty are enough to see what is meant."""
    missing = {"fallback_group": "gam", "parent": "gam", "templates": ["gam"], "minn": 1}
    bodies = [{"name": "game", "command": ["a"]}]
    for field, value in missing.items():
        bodies += [{"name": f"{field[0]}-{n}", "command": ["a"], field: value} for n in range(30)]
    given = [GivenDocument(f"{each['name']}.yaml", each) for each in bodies]
    with counted_calls() as count, pytest.raises(DocumentsRejected) as refused:
        apply(World(), given, ApplyOptions())
    assert len(refused.value.faults) == 120
    assert all(each.error.hint for each in refused.value.faults)
    assert count.of(difflib.get_close_matches) == 20
    for field in ("fallback_group", "parent"):
        with pytest.raises(DocumentsRejected) as refused:
            apply(World(), [given[0], *(each for each in given if field in each.body)], ApplyOptions())
        hints = [each.error.hint for each in refused.value.faults]
        assert hints == ["did you mean 'game'?"] * 20 + ["create it first, or leave the reference out"] * 10


def test_documents_without_a_usable_name_are_counted_among_those_with_errors() -> None:
    world = World()
    with pytest.raises(DocumentsRejected, match=r"^1 error in 1 document \(bad\.yaml\)"):
        apply(world, [GivenDocument("bad.yaml", {"command": ["a"]})], ApplyOptions())
