"""What an instance's record remembers of its earlier starts: where their consoles lie, and by which plans they ran."""

from __future__ import annotations

from world import NOW, World, spec

from corral.controller.instances.group_changes import create_group, patch_group
from corral.controller.instances.instance_changes import restart_instance
from corral.controller.instances.report_values import RunReport
from corral.controller.instances.reports import fold_report
from corral.controller.instances.retention import forgotten
from corral.domain.groups.instance_records import EARLIER_STARTS
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState
from corral.system.controller_config import InstanceRetentionSection


def told(world, state, **fields):
    record = world.record("lobby-1")
    said = RunReport(id="lobby-1", incarnation=record.incarnation, state=state, **fields)
    world.do(fold_report, record.node, said)


def test_a_record_remembers_the_starts_before_it_with_their_nodes_and_plans():
    world = World()
    world.add_node(NodeId("n2"))
    world.do(create_group, spec(min=1, memory_mb=100, nodes=("n1",)))
    world.keep()
    first = world.record("lobby-1")
    assert first.earlier == ()
    told(world, InstanceState.RUNNING, started_at=NOW)
    world.do(patch_group, "lobby", {"nodes": ["n2"], "env": {"A": "b"}})
    world.do(restart_instance, "lobby-1", reason="")
    told(world, InstanceState.STOPPED, console_end=77)
    moved = world.record("lobby-1")
    assert moved.node == "n2"
    (start,) = moved.earlier
    assert (start.node, start.incarnation, start.console_end) == ("n1", first.incarnation, 77)
    assert (start.plan_hash, start.exit is not None) == (first.plan_hash, True)
    assert first.plan_hash != moved.plan_hash
    assert not forgotten(world.state, config=InstanceRetentionSection(), now=NOW, limit=100), (
        "both plans stay"
    )
    for number in range(20):
        told(world, InstanceState.RUNNING, started_at=NOW)
        world.do(restart_instance, "lobby-1", reason=str(number))
        told(world, InstanceState.STOPPED)
    assert len(world.record("lobby-1").earlier) == EARLIER_STARTS


def test_a_start_that_never_ran_is_not_remembered():
    world = World()
    world.do(create_group, spec(min=1, memory_mb=100))
    world.keep()
    world.do(restart_instance, "lobby-1", reason="")
    told(world, InstanceState.STOPPED)
    assert world.record("lobby-1").earlier == ()
