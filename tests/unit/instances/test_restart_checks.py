"""Restarts are planned before anything is stopped."""

from __future__ import annotations

import msgspec
import pytest
from world import N1, World, spec

from corral.controller.instances.group_changes import create_group, patch_group
from corral.controller.instances.instance_changes import restart_all, restart_instance
from corral.controller.state.collections import INSTANCES
from corral.controller.state.ledger import RecordedRefusal
from corral.domain.groups.instance_records import AfterStop, Readiness
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import Admission, NodeState
from corral.errors import Code

N2 = NodeId("n2")


@pytest.fixture
def world() -> World:
    return World()


def running(world: World, *ids: str) -> None:
    for id in ids:
        facts = {"state": InstanceState.RUNNING, "readiness": Readiness.READY, "started_at": world.now}
        record = msgspec.structs.replace(world.record(id), **facts)
        world.apply([INSTANCES.put(id, record, expect=world.state.instances.revision(id))])


def started(world: World, **fields) -> None:
    """A group with all of its instances running."""
    world.do(create_group, spec(**fields))
    world.keep()
    running(world, *(f"lobby-{number}" for number in range(1, fields["min"] + 1)))


def restart(world: World) -> int:
    return world.do(lambda ws: restart_all(ws, ws.require_group("lobby"), reason="test"))


def refusal(world: World, change, *args, **named) -> RecordedRefusal:
    """It is refused, and nothing is stopped."""
    before = list(world.state.instances)
    ws = world.workspace()
    with pytest.raises(RecordedRefusal) as caught:
        change(ws, *args, **named)
    assert {step.collection for step in ws.steps() if hasattr(step, "collection")} == set()
    world.apply(caught.value.steps)
    assert list(world.state.instances) == before
    return caught.value


def refused_group(world: World) -> RecordedRefusal:
    return refusal(world, lambda ws: restart_all(ws, ws.require_group("lobby"), reason="test"))


def test_a_group_that_no_node_would_take_again_is_not_stopped(world):
    world.add_node(N1, labels={"tier": "gold"})
    started(world, min=2, node_labels={"tier": "gold"})
    world.add_node(N1)
    error = refused_group(world)
    assert error.code is Code.NO_CAPACITY
    assert error.message == (
        "group 'lobby' is not restarted, and nothing is stopped: no node could take 'lobby-1' again "
        "(n1: label 'tier' is missing, 'gold' is wanted)"
    )
    assert error.hint == "first: label tier=gold on n1"
    one = refusal(world, restart_instance, "lobby-2", reason="")
    assert "instance 'lobby-2' is not restarted, and nothing is stopped: " in one.message
    assert [step.journal for step in one.steps] == ["decisions:instance/lobby-2", "decisions:group/lobby"]
    world.add_node(N2, labels={"tier": "gold"})
    assert restart(world) == 2
    assert {world.record(f"lobby-{n}").after_stop for n in (1, 2)} == {AfterStop.RESTART}


@pytest.mark.parametrize(
    ("change", "node", "first"),
    [
        ({"nodes": ["n9"]}, {}, "n1 in 'nodes'"),
        ({"runtime": "tmux"}, {}, "runtime 'tmux' on n1"),
        ({"node_capabilities": ["tty"]}, {}, "tty proven on n1"),
        ({"affinity": [{"label": "a=b", "required": True}]}, {}, "label a=b on n1"),
        ({"affinity": [{"group": "near", "required": True}]}, {}, "an instance of 'near' on n1"),
        ({}, {"admission": Admission.CORDONED}, "uncordon n1"),
        ({"memory_mb": 1100}, {}, "memory_mb ≤ 1000"),
    ],
)
def test_each_lasting_reason_refuses_it(world, change, node, first):
    world.do(create_group, spec("near"))
    started(world, min=1, memory_mb=100)
    world.do(patch_group, "lobby", change)
    world.add_node(N1, **node)
    assert first in (refused_group(world).hint or "")


def test_what_an_instance_has_itself_is_free_for_it_and_for_no_other(world):
    started(world, min=2, memory_mb=500)
    assert restart(world) == 2
    other = World()
    started(other, min=2, memory_mb=400)
    other.do(patch_group, "lobby", {"memory_mb": 700})
    assert "'lobby-1'" in refused_group(other).message
    other.do(patch_group, "lobby", {"memory_mb": 590})
    assert "'lobby-2'" in refused_group(other).message, "the first takes what was free"
    assert other.do(restart_instance, "lobby-2", reason="").wanted is Wanted.STOP


def test_an_instance_on_a_node_that_is_away_is_restarted_when_that_is_back(world):
    started(world, min=1)
    world.add_node(N1, state=NodeState.UNREACHABLE)
    assert restart(world) == 1
