"""I15, I10, I7, I3: whatever happens to nodes that are emptied, to their lines, leaders and instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from changing_world import LADDER_SECONDS, ChangingWorld
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from test_chains_of_decisions import CHANGES

from corral.controller.instances import group_changes, instance_changes
from corral.domain.groups.group import CrashLoopSpec
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.groups.update_spec import UpdateSpec
from corral.domain.node_states import Admission
from corral.domain.planning.planner import plan

NODES = ("n1", "n2", "n3")
nodes = st.sampled_from(NODES)
which = st.integers(0, 7)
"""One of the runs, by its place among all."""
documents = st.fixed_dictionaries(
    {
        "min": st.integers(1, 4),
        "static": st.sampled_from([False, False, True]),
        "max_players": st.just(10),
        "memory_mb": st.sampled_from([10, 300]),
        "nodes": st.sampled_from([(), (), (), ("n1",)]),
        "min_available": st.sampled_from([None, None, 1, "50%"]),
        "scaling": st.sampled_from([ScalingSpec(), ScalingSpec(), ScalingSpec(mode=ScalingMode.DYNAMIC)]),
        "update": st.builds(
            UpdateSpec, max_surge=st.sampled_from([None, 2]), min_healthy_seconds=st.sampled_from([0, 5])
        ),
        "crash_loop": st.just(CrashLoopSpec(failures=1000)),
        "min_alive_ms": st.just(0),
    }
)
drain_acts = st.one_of(
    st.tuples(st.just("drain"), nodes, st.sampled_from([None, None, 0, 30, 200]), st.booleans()),
    st.tuples(st.just("drain"), nodes, st.sampled_from([None, 0, 30, 200]), st.just(False)),
    st.tuples(st.just("undrain"), nodes),
)
common_acts = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([1, 3, 7, 30, 70, 130])),
    st.tuples(st.just("pass"), st.sampled_from([1, 3, 7])),
    st.tuples(st.just("cut"), nodes, st.booleans()),
    st.tuples(st.sampled_from(["mend", "kill"]), nodes),
    st.just(("lead",)),
    st.tuples(st.just("lead_after"), st.integers(1, 4)),
    st.tuples(st.just("die"), which),
    st.tuples(st.just("players"), which, st.sampled_from([0, 0, 3, 9, None])),
    st.tuples(st.just("scale"), st.integers(0, 5)),
    st.tuples(st.just("stop"), which),
    st.tuples(st.just("hold"), st.booleans()),
    st.just(("release",)),
)
LONG = ("pass", 130)


def act(world: ChangingWorld, what: tuple[Any, ...]) -> None:
    running = sorted(world.alive())
    match what:
        case "pass", seconds:
            world.pass_time(seconds)
        case "cut", node, silent:
            world.cut(node, silent=silent)
        case "mend", node:
            world.mend(node)
        case "kill", node:
            world.kill(node)
        case ("lead",):
            world.lead()
        case "lead_after", commits:
            world.lead_after = commits
        case "die", number if running:
            world.die(running[number % len(running)])
        case "players", number, count if running:
            world.run_of(running[number % len(running)]).players = count
        case "scale", count:
            world.ask(group_changes.scale_group, "lobby", count)
        case "stop", number if running and not world.group().spec.static:  # that would keep it stopped
            world.ask(instance_changes.stop_instance, running[number % len(running)], reason="by hand")
        case "hold", when_empty:
            world.ask(group_changes.hold_group, "lobby", by="ada", reason="test", when_empty=when_empty)
        case ("release",):
            world.ask(group_changes.release_group, "lobby", by="ada")
        case "drain", node, deadline, shutdown:
            world.drain(node, deadline=deadline, shutdown=shutdown)
        case "undrain", node:
            world.undrain(node)


def lived(
    document: dict[str, Any], history: list[Any], happen: Callable[[ChangingWorld, Any], None] = act
) -> ChangingWorld:
    world = ChangingWorld()
    update = document.get("update", UpdateSpec())
    if document.get("static"):  # each has one directory, so that none can be started beside it
        document = {**document, "update": msgspec.structs.replace(update, max_surge=None)}
    world.create("lobby", **document)
    for each in history:
        happen(world, each)
        world.pass_time(1)  # which checks what has to hold at any time
    world.lead_after = 0
    for node in NODES:
        world.mend(node)
    return world


def everybody_leaves(world: ChangingWorld) -> None:
    for each in sorted(world.alive()):
        world.run_of(each).players = 0


def rests(world: ChangingWorld) -> None:
    """The records are what runs, a plan is empty and the same twice, and a look at everything changes nothing."""
    records = {each.id: each for each in world.there()}
    assert {id: [each.node] for id, each in records.items()} == world.alive(), "the records are what runs"
    view = world.signals_now.view
    first, second = plan(view(world.workspace()), ["lobby"]), plan(view(world.workspace()), ["lobby"])
    assert first == second, "I11"
    left = [each for each in first.decisions if each.kind in CHANGES]
    assert not left, f"I11: {left}"
    before = len(world.made())
    world.look_at_everything()
    world.pass_time(300)
    made = [each for each in world.made()[before:] if each.kind in CHANGES]
    assert not made, f"I12: {made}"


def open_again(world: ChangingWorld) -> None:
    """Everything is as before the first order, and has to come to rest with the wanted number."""
    for node in NODES:
        world.undrain(node)
    world.ask(group_changes.release_group, "lobby", by="ada")
    world.pass_time(30)
    everybody_leaves(world)
    world.pass_time(900)
    group = world.group()
    enough = len(world.there()) == world.signals_now.wanted(group)
    assert enough or "NO_CAPACITY" in group.reason, f"I4: {world.states()} {group.reason}"
    assert set(world.states().values()) <= {"RUNNING"}, f"some leave for ever: {world.states()}"
    assert {world.node(node).admission for node in NODES} == {Admission.OPEN}
    rests(world)


def drained(document: dict[str, Any], history: list[Any]) -> None:
    world = lived(document, history)
    world.pass_time(30)
    everybody_leaves(world)
    world.pass_time(600 + LADDER_SECONDS)
    group = world.group()
    for node in NODES:
        record = world.node(node)
        if record.drain is not None and record.admission is not Admission.DRAINED:
            assert world._on(node), f"I15: {node} is empty, and {record.admission}"
            assert group.drain_wait, f"I15: {node} waits, and nothing says for what: {world._on(node)}"
            assert node not in world.drained_by, f"I15: the deadline of {node} is over"
    rests(world)
    open_again(world)


histories = st.lists(st.one_of(common_acts, drain_acts, drain_acts), min_size=2, max_size=14)
OCCUPIED = (LONG, ("players", 0, 5), ("players", 1, 5), ("players", 2, 5))
YOUNG = {"min": 3, "update": UpdateSpec(min_healthy_seconds=5)}
"""Its instances are healthy some seconds after they are ready."""
SLOW = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@pytest.mark.system
@pytest.mark.trap("T90")
@settings(max_examples=10, **SLOW)
@given(documents, histories)
@example({"min": 3}, [LONG, ("drain", "n1", None, False), LONG])
@example({"min": 3}, [*OCCUPIED, ("drain", "n1", 30, False), ("drain", "n2", 200, True), LONG])
@example({"min": 3}, [*OCCUPIED, ("drain", "n1", 30, False), ("lead",), LONG])
@example({"min": 3, "static": True}, [*OCCUPIED, ("drain", "n1", 30, False), ("pass", 7), ("undrain", "n1")])
@example({"min": 2, "static": True}, [LONG, ("drain", "n1", None, False), LONG, ("lead",), LONG])
@example(YOUNG, [LONG, ("drain", "n1", None, False), ("pass", 3), ("die", 0), LONG])
@example(YOUNG, [LONG, ("drain", "n1", None, False), ("pass", 3), ("die", 1), LONG])
@example(
    {"min": 4, "min_available": 1}, [LONG, ("drain", "n1", None, False), ("drain", "n2", 30, False), LONG]
)
def test_a_drain_ends_and_keeps_as_many_healthy_as_it_has_to(
    document: dict[str, Any], history: list[Any]
) -> None:
    drained(document, history)


@pytest.mark.system
@pytest.mark.timeout(300)
@settings(max_examples=150, **SLOW)
@given(documents, histories)
def test_drains_end_in_many_histories(document: dict[str, Any], history: list[Any]) -> None:
    drained(document, history)
