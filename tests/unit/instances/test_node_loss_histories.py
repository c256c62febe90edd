"""I3: whatever happens to nodes, lines, leaders and instances, no id runs twice, and in the end all is as wanted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lossy_world import LossyWorld

from corral.controller.instances import group_changes, instance_changes
from corral.domain.groups.disconnect_spec import DisconnectSpec
from corral.domain.groups.group import CrashLoopSpec
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec

NODES = ("n1", "n2", "n3")
nodes = st.sampled_from(NODES)
which = st.integers(0, 7)
"""One of the runs, by its place among all."""
documents = st.fixed_dictionaries(
    {
        "min": st.integers(1, 4),
        "static": st.booleans(),
        "max_players": st.just(10),
        "scaling": st.sampled_from([ScalingSpec(), ScalingSpec(mode=ScalingMode.DYNAMIC)]),
        "disconnect": st.sampled_from([DisconnectSpec(), DisconnectSpec(replace_after_seconds=None)]),
        "crash_loop": st.just(CrashLoopSpec(failures=1000)),
        "min_alive_ms": st.just(0),
    }
)
acts = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([1, 3, 7, 30, 70, 130])),
    st.tuples(st.just("cut"), nodes, st.booleans()),
    st.tuples(st.sampled_from(["mend", "kill"]), nodes),
    st.tuples(st.just("lead")),
    st.tuples(st.just("die"), which),
    st.tuples(st.just("players"), which, st.sampled_from([0, 3, 9, None])),
    st.tuples(st.just("scale"), st.integers(0, 5)),
    st.tuples(st.just("stop"), which),
)
LONG = ("pass", 130)


def act(world: LossyWorld, what: tuple[Any, ...]) -> None:
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
        case "die", number if running:
            world.die(running[number % len(running)])
        case "players", number, count if running:
            world.run_of(running[number % len(running)]).players = count
        case "scale", count:
            world.ask(group_changes.scale_group, "lobby", count)
        case "stop", number if running and not world.group().spec.static:  # that would keep it stopped
            world.ask(instance_changes.stop_instance, running[number % len(running)], reason="by hand")


@pytest.mark.system
@pytest.mark.trap("T11")
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(documents, st.lists(acts, max_size=14))
@example({"min": 3}, [LONG, ("cut", "n2", False), LONG, ("lead",), ("pass", 1), ("mend", "n2"), ("pass", 7)])
@example({"min": 3}, [LONG, ("cut", "n2", True), LONG, LONG, ("cut", "n1", False), LONG, ("mend", "n2")])
@example({"min": 2}, [LONG, ("cut", "n1", False), LONG, ("kill", "n1"), ("mend", "n1"), ("lead",)])
def test_no_id_runs_twice_and_everything_converges(document: dict[str, Any], history: list[Any]) -> None:
    world = LossyWorld()
    world.create("lobby", **document)
    for each in history:
        act(world, each)
        world.pass_time(1)  # which checks the ids
    for node in NODES:
        world.mend(node)
    world.pass_time(30)
    for each in sorted(world.alive()):
        world.run_of(each).players = 0
    world.pass_time(1500)
    records = {each.id: each for each in world.there()}
    assert {id: [each.node] for id, each in records.items()} == world.alive(), "the records are what runs"
    assert not any(each.lost or each.lost_at for each in records.values())
    assert len(records) == world.signals_now.wanted(world.group())
    before = len(world.decisions)
    world.pass_time(300)
    assert len(world.decisions) == before, "it is at rest"
