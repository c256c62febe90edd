"""Static instances: ordinals that go on where their directories are."""

from __future__ import annotations

import msgspec
import pytest
from world import NOW, World, spec

from corral.controller.instances.group_changes import create_group, delete_group, patch_group, scale_group
from corral.controller.instances.instance_changes import (
    kill_instance,
    remove_instance,
    restart_instance,
    start_instance,
    stop_instance,
)
from corral.controller.instances.report_values import RunReport, report_of
from corral.controller.instances.reports import fold_report
from corral.controller.instances.retention import forgotten
from corral.controller.state.collections import NODES
from corral.domain.groups.group import PortSpec
from corral.domain.groups.instance_records import live
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import NodeState
from corral.errors import Rejected
from corral.system.controller_config import InstanceRetentionSection
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.instance_pb2 import ExitStatus


@pytest.fixture
def world() -> World:
    return World()


def report(world, id, state, **fields):
    record = world.record(id)
    said = RunReport(id=id, incarnation=record.incarnation, state=state, **fields)
    world.do(fold_report, record.node, said)


def ran(world, id):
    """It ran where it is, and has ended."""
    report(world, id, InstanceState.RUNNING)
    report(world, id, InstanceState.STOPPED)


def keep(world, name="lobby"):
    return world.keep(name)


def become(world, node, state):
    record = world.state.nodes.require(node).record
    world.apply([NODES.put(node, msgspec.structs.replace(record, state=state), expect=None)])


def test_a_static_group_takes_its_ordinals_up_again_where_their_worlds_are(world):
    world.add_node(NodeId("n2"), memory=9000)
    world.do(create_group, spec(static=True, min=1, memory_mb=100))
    world.keep()
    first = world.record("lobby-1")
    said = RunReport(id="lobby-1", incarnation=first.incarnation, state=InstanceState.RUNNING)
    world.do(fold_report, first.node, said)
    assert world.record("lobby-1").home == first.node == "n2"
    ended = msgspec.structs.replace(said, state=InstanceState.CRASHED)
    world.do(fold_report, first.node, ended)
    world.add_node(NodeId("n3"), memory=900_000)
    world.keep()
    again = world.record("lobby-1")
    assert again.incarnation > first.incarnation
    assert again.node == "n2"
    assert world.state.instances.find("lobby-2") is None


def test_a_static_instance_that_never_ran_may_go_elsewhere(world):
    world.do(create_group, spec(static=True))
    world.do(start_instance, "lobby")
    report(world, "lobby-1", InstanceState.STOPPED)
    assert world.record("lobby-1").home == ""
    world.add_node(NodeId("n2"), memory=9000)
    assert world.do(start_instance, "lobby", node="n2").id == "lobby-1"


def test_an_ordinal_whose_world_is_elsewhere_is_not_started_on_the_node_that_was_chosen(world):
    world.do(create_group, spec(static=True))
    world.do(start_instance, "lobby")
    report(world, "lobby-1", InstanceState.RUNNING)
    report(world, "lobby-1", InstanceState.STOPPED)
    world.add_node(NodeId("n2"))
    assert world.do(start_instance, "lobby", node="n2").id == "lobby-2"
    assert world.do(start_instance, "lobby").node == "n1"


def test_a_run_of_which_nothing_but_its_end_is_heard_has_left_its_world_there(world):
    world.do(create_group, spec(static=True))
    world.do(start_instance, "lobby")
    report(world, "lobby-1", InstanceState.CRASHED, exit=ExitStatus(known=True, code=3))
    assert world.record("lobby-1").home == "n1"
    world.add_node(NodeId("n2"), memory=9000)
    assert world.do(start_instance, "lobby").node == "n1"


def test_an_ordinal_that_waits_for_its_node_says_so_and_holds_up_no_other(world):
    world.do(create_group, spec(static=True, memory_mb=100))
    world.do(start_instance, "lobby")
    ran(world, "lobby-1")
    become(world, "n1", NodeState.REVOKED)
    world.add_node(NodeId("n2"))
    world.do(scale_group, "lobby", 3)
    assert keep(world) == (2, False)
    assert {record.id for record in live_ones(world)} == {"lobby-2", "lobby-3"}
    reason = world.group().reason
    assert "the directory of 'lobby-1' is on node 'n1': it is REVOKED" in reason
    assert "delete the instance" in reason
    assert keep(world) == (0, False)
    assert (world.group().reason, world.types().count("GROUP_SHORT")) == (reason, 1)
    with pytest.raises(Rejected) as caught:
        world.do(start_instance, "lobby")
    assert "REVOKED" in caught.value.message
    assert "delete the instance" in caught.value.hint
    world.do(remove_instance, "lobby-1")
    assert keep(world) == (1, False)
    assert (world.record("lobby-1").node, world.group().reason) == ("n2", "")


def live_ones(world):
    return [s.record for s in world.state.instances if s.record.state is InstanceState.SCHEDULED]


def test_why_it_waits_is_not_told_again_whenever_room_changes(world):
    world.do(create_group, spec(static=True, min=1, memory_mb=600))
    keep(world)
    ran(world, "lobby-1")
    world.do(create_group, spec("other", memory_mb=100))
    for _ in range(5):
        world.do(start_instance, "other")
    keep(world)
    world.do(start_instance, "other")
    keep(world)
    assert "not enough memory" in world.group().reason
    assert world.types().count("GROUP_SHORT") == 1


def test_a_world_and_a_choice_that_went_with_a_node_bind_nobody(world):
    world.add_node(NodeId("n2"))
    world.do(create_group, spec(static=True))
    assert world.do(start_instance, "lobby", node="n2").pinned
    ran(world, "lobby-1")
    world.apply([NODES.delete("n2", expect=None)])
    world.add_node(NodeId("n3"))
    again = world.do(start_instance, "lobby", node="n3")
    assert (again.id, again.node) == ("lobby-1", "n3")
    ran(world, "lobby-1")
    world.apply([NODES.delete("n3", expect=None)])
    world.do(scale_group, "lobby", 1)
    keep(world)
    last = world.record("lobby-1")
    assert (last.node, last.pinned, last.home) == ("n1", False, "")


def test_a_group_made_anew_finds_the_world_and_inherits_nothing_else(world):
    world.add_node(NodeId("n2"), memory=9000)
    world.do(create_group, spec(static=True))
    world.do(start_instance, "lobby", node="n1", variables={"LEVEL": "old"})
    ran(world, "lobby-1")
    world.do(delete_group, "lobby", cascade=False, confirm="lobby")
    world.now = NOW.replace(hour=1)
    world.do(create_group, spec(static=True, min=1))
    keep(world)
    again = world.record("lobby-1")
    assert (again.node, again.home) == ("n1", "n1")
    assert (again.variables, again.pinned, again.created_at) == ({}, False, world.now)


def test_the_record_of_a_world_stays_as_long_as_its_node(world):
    def sweep():
        config = InstanceRetentionSection(ended_per_group=1, ended_seconds=1)
        world.apply(forgotten(world.state, config=config, now=NOW.replace(year=2030), limit=100))
        return [stored.record.id for stored in world.state.instances]

    world.add_node(NodeId("n2"), memory=9000)
    world.do(create_group, spec(static=True))
    for node in ("n1", "n2"):
        ran(world, world.do(start_instance, "lobby", node=node).id)
    assert sweep() == ["lobby-1", "lobby-2"]
    world.apply([NODES.delete("n2", expect=None)])
    assert sweep() == ["lobby-1"]
    world.do(delete_group, "lobby", cascade=False, confirm="lobby")
    assert sweep() == ["lobby-1"], "nobody else knows where the world is"
    world.apply([NODES.delete("n1", expect=None)])
    assert sweep() == []


def test_a_world_is_known_while_its_group_is_not_static_and_used_again_afterwards(world):
    world.add_node(NodeId("n2"), memory=900_000)
    world.do(create_group, spec(static=True, min=1, memory_mb=100, nodes=("n1",)))
    keep(world)
    ran(world, "lobby-1")
    world.do(patch_group, "lobby", {"static": False, "nodes": ["n2"]}, confirm="lobby")
    world.do(restart_instance, "lobby-1", reason="")
    ran(world, "lobby-1")
    assert world.record("lobby-1").node == "n2"
    assert world.record("lobby-1").home == "n1"
    world.do(patch_group, "lobby", {"static": True, "nodes": []})
    keep(world)
    assert world.record("lobby-1").node == "n1"


@pytest.mark.trap("T75")
def test_files_that_a_start_kept_are_known_until_the_next_start(world):
    world.do(create_group, spec(static=True, min=1, memory_mb=100))
    keep(world)
    first = wire.InstanceStatusUpdate(
        instance_id="lobby-1",
        incarnation=world.record("lobby-1").incarnation,
        state=wire.InstanceState.INSTANCE_STATE_STARTING,
        files_kept=["ops.json: it was changed since it was laid", *["x" * 2000] * 99],
    )
    world.do(fold_report, world.record("lobby-1").node, report_of(first, NOW))
    report(world, "lobby-1", InstanceState.RUNNING)
    kept = world.record("lobby-1").files_kept
    assert kept[0] == "ops.json: it was changed since it was laid"
    assert (len(kept), max(map(len, kept))) == (32, 1000), "whatever a node says it is short"
    report(world, "lobby-1", InstanceState.CRASHED)
    keep(world)
    assert world.record("lobby-1").files_kept == ()


def ids_of(world):
    return {stored.record.id for stored in world.state.instances if live(stored.record.state)}


def test_a_static_instance_that_was_stopped_by_hand_stays_stopped_until_it_is_started(world):
    world.do(create_group, spec(static=True, min=2, memory_mb=100))
    keep(world)
    report(world, "lobby-1", InstanceState.RUNNING)
    report(world, "lobby-2", InstanceState.RUNNING)
    world.do(stop_instance, "lobby-1", reason="a copy is made")
    report(world, "lobby-1", InstanceState.STOPPED)
    keep(world)
    assert ids_of(world) == {"lobby-2"}
    assert world.state.instances.find("lobby-3") is None, "nothing runs in its place"
    reason = world.state.groups.require("lobby").record.reason
    assert "'lobby-1' (a copy is made)" in reason
    assert "'corral instance restart lobby-1' starts it again" in reason
    report(world, "lobby-2", InstanceState.CRASHED)
    keep(world)
    assert ids_of(world) == {"lobby-2"}, "the other one is kept as ever"
    assert world.do(start_instance, "lobby").id == "lobby-1"
    keep(world)
    assert ids_of(world) == {"lobby-1", "lobby-2"}
    assert world.state.groups.require("lobby").record.reason == ""
    report(world, "lobby-1", InstanceState.CRASHED)
    keep(world)
    assert ids_of(world) == {"lobby-1", "lobby-2"}, "a crash is no order"


def test_a_restart_by_hand_ends_the_rest_and_a_stop_holds_what_has_crashed(world):
    world.do(create_group, spec(static=True, min=1, memory_mb=100))
    keep(world)
    report(world, "lobby-1", InstanceState.RUNNING)
    report(world, "lobby-1", InstanceState.CRASHED)
    world.do(kill_instance, "lobby-1", reason="")
    keep(world)
    assert ids_of(world) == set()
    world.do(restart_instance, "lobby-1", reason="")
    assert ids_of(world) == {"lobby-1"}
    world.do(stop_instance, "lobby-1", reason="")
    world.do(restart_instance, "lobby-1", reason="on second thoughts")
    report(world, "lobby-1", InstanceState.STOPPED)
    keep(world)
    assert ids_of(world) == {"lobby-1"}


def test_what_a_group_stops_on_its_own_account_it_starts_again(world):
    world.do(create_group, spec(static=True, min=1, memory_mb=100))
    keep(world)
    world.do(scale_group, "lobby", 2)
    keep(world)
    report(world, "lobby-2", InstanceState.RUNNING)
    world.do(scale_group, "lobby", 1)
    report(world, "lobby-2", InstanceState.STOPPED)
    world.do(scale_group, "lobby", 2)
    keep(world)
    assert ids_of(world) == {"lobby-1", "lobby-2"}


def test_one_that_was_stopped_by_hand_beside_those_wanted_takes_the_place_of_none(world):
    world.do(create_group, spec(static=True, min=2, memory_mb=100))
    keep(world)
    assert world.do(start_instance, "lobby").id == "lobby-3"
    for id in ("lobby-1", "lobby-2", "lobby-3"):
        report(world, id, InstanceState.RUNNING)
    world.do(stop_instance, "lobby-3", reason="one too many")
    report(world, "lobby-3", InstanceState.STOPPED)
    keep(world)
    assert world.group().reason == "", "as many are there as are wanted"
    report(world, "lobby-2", InstanceState.CRASHED)
    keep(world)
    assert ids_of(world) == {"lobby-1", "lobby-2"}
    world.do(scale_group, "lobby", 3)
    keep(world)
    assert ids_of(world) == {"lobby-1", "lobby-2"}, "it stays stopped"
    assert "'lobby-3' (one too many)" in world.group().reason


def test_an_instance_that_is_not_static_is_replaced_when_it_is_stopped_by_hand(world):
    world.do(create_group, spec(min=1, memory_mb=100))
    keep(world)
    report(world, "lobby-1", InstanceState.RUNNING)
    world.do(stop_instance, "lobby-1", reason="")
    report(world, "lobby-1", InstanceState.STOPPED)
    keep(world)
    assert ids_of(world) == {"lobby-2"}


def test_a_static_instance_gets_its_last_ports_again_while_they_are_free(world):
    ports = {"primary": PortSpec(range=(25000, 25009)), "query": PortSpec(of="primary", offset=100)}
    world.do(create_group, spec(static=True, min=2, memory_mb=100, ports=ports))
    keep(world)
    assert ports_of(world, "lobby-2") == {"primary": 25001, "query": 25101}
    ran(world, "lobby-1")
    ran(world, "lobby-2")
    world.do(restart_instance, "lobby-2", reason="")
    assert ports_of(world, "lobby-2") == {"primary": 25001, "query": 25101}, "though 25000 is free"
    world.do(
        create_group, spec(name="other", memory_mb=100, ports={"primary": PortSpec(range=(25000, 25009))})
    )
    world.do(start_instance, "other")
    world.do(restart_instance, "lobby-1", reason="")
    assert ports_of(world, "lobby-1") == {"primary": 25002, "query": 25102}, "its last ones are taken"


def ports_of(world, id):
    return {port.name: port.port for port in world.record(id).ports}
