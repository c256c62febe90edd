"""What operators ask for, as descriptions of a change."""

from __future__ import annotations

import msgspec
import pytest
from world import NOW, World, spec

from corral.controller.instances.group_changes import create_group, delete_group, patch_group, scale_group
from corral.controller.instances.instance_changes import remove_instance, restart_instance, start_instance
from corral.controller.instances.retention import forgotten
from corral.controller.instances.starts import release, reserve
from corral.domain.groups.group import PortSpec
from corral.domain.groups.group_documents import parse_group
from corral.domain.groups.plans import read_plan
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.instance_states import InstanceState, Wanted
from corral.errors import Code, Rejected
from corral.system.controller_config import InstanceRetentionSection


@pytest.fixture
def world() -> World:
    return World()


def refused(world, change, *args, **named) -> Rejected:
    ws = world.workspace()
    with pytest.raises(Rejected) as caught:
        change(ws, *args, **named)
    return caught.value


def test_a_start_is_one_transaction_of_record_reservation_plan_decision_and_event(world):
    world.do(create_group, spec(memory_mb=10, ports={"primary": PortSpec(range=(80, 81))}))
    ws = world.workspace("somebody")
    record = start_instance(ws, "lobby")
    collections = {step.collection for step in ws.steps() if hasattr(step, "collection")}
    assert collections == {"groups", "instances", "node_ledgers", "plans", "reservations", "revisions"}
    world.apply(ws.steps())
    assert world.types()[-1] == "INSTANCE_SCHEDULED"
    assert [entry.journal for entry in world.decisions] == [
        "decisions:instance/lobby-1",
        "decisions:group/lobby",
        "decisions:node/n1",
    ]
    assert world.state.reservations.usage("n1").memory_mb == 10
    assert read_plan(world.state.plans.require(record.plan_hash).record).command == ("serve",)


def test_ids_are_the_lowest_that_no_record_has(world):
    world.do(create_group, spec())
    names = [world.do(start_instance, "lobby").id for _ in range(3)]
    assert names == ["lobby-1", "lobby-2", "lobby-3"]
    ws = world.workspace()
    ws.delete_instance("lobby-2")
    world.apply(ws.steps())
    assert world.do(start_instance, "lobby").id == "lobby-2"


def test_bounds_and_states_are_refused_with_their_codes(world):
    world.do(create_group, spec(max=1))
    assert refused(world, create_group, spec()).code is Code.ALREADY_EXISTS
    world.do(start_instance, "lobby")
    assert refused(world, start_instance, "lobby").code is Code.GROUP_FULL
    assert refused(world, scale_group, "lobby", 2).code is Code.INVALID_FIELD
    assert refused(world, delete_group, "lobby", cascade=False).code is Code.GROUP_NOT_EMPTY
    assert refused(world, remove_instance, "lobby-1").code is Code.CONFLICT
    assert refused(world, start_instance, "lobbi").code is Code.NOT_FOUND
    assert refused(world, start_instance, "lobby", node="n9").code is Code.NOT_FOUND
    assert refused(world, restart_instance, "nobody-1", reason="").code is Code.NOT_FOUND


def test_in_a_group_of_mode_static_only_min_decides_about_the_number(world):
    world.do(create_group, spec(min=1, scaling=ScalingSpec(mode=ScalingMode.STATIC)))
    assert world.wanted() == 1
    started = world.do(start_instance, "lobby")
    for change, *more in ((scale_group, 2), (start_instance,)):
        error = refused(world, change, "lobby", *more)
        assert (error.code, error.field, "min" in error.hint) == (Code.CONFLICT, "scaling/mode", True)
    ws = world.workspace()
    ws.put_instance(msgspec.structs.replace(started, state=InstanceState.STOPPED, wanted=Wanted.STOP))
    world.apply(ws.steps())
    assert world.do(start_instance, "lobby").group == "lobby", "one that was stopped is missing to min"


def test_a_patch_merges_removes_and_refuses_what_it_does_not_know(world):
    world.do(create_group, spec(min=1, env={"A": "1", "B": "2"}))
    record = world.do(patch_group, "lobby", {"env": {"A": None, "C": "3"}, "min": None})
    assert record.spec.env == {"B": "2", "C": "3"}
    assert record.spec.min == 0
    assert world.events[-1].data["changed"] == ["env", "min"]
    ws = world.workspace()
    patch_group(ws, "lobby", {"env": {"C": "3"}})
    assert ws.steps() == ()
    assert refused(world, patch_group, "lobby", {"mim": 1}).code is Code.UNKNOWN_FIELD
    assert refused(world, patch_group, "lobby", {"name": "other"}).field == "name"
    wrong = refused(world, patch_group, "lobby", {"ports": {"primary": {"range": [1, 70000]}}})
    assert wrong.code is Code.INVALID_FIELD
    assert wrong.field.startswith("ports")


def test_a_group_name_leaves_room_for_its_instances_numbers():
    with pytest.raises(Rejected, match="57 characters"):
        parse_group({"name": "a" * 57, "command": ["x"]})
    assert parse_group({"name": "a" * 56, "command": ["x"]}).name == "a" * 56


def test_plans_have_one_hash_for_equal_content_and_hold_nothing_of_a_single_run(world):
    def plan_of(group):
        return world.workspace().resolve(group).record

    one = plan_of(spec(env={"a": "1", "b": "2"}, min=1))
    two = plan_of(spec(env={"b": "2", "a": "1"}, min=5))
    assert one == two
    assert one.hash != plan_of(spec(env={"a": "2", "b": "2"})).hash


def test_a_live_instance_is_never_forgotten(world):
    world.do(create_group, spec())
    world.do(start_instance, "lobby")
    config = InstanceRetentionSection(ended_seconds=1, ended_per_group=1, crashes=1)
    later = msgspec.structs.replace(config)
    assert forgotten(world.state, config=later, now=NOW.replace(year=2030), limit=100) == []


def ledger_writes(ws) -> list[tuple[str, int]]:
    return [
        (step.id, step.expect) for step in ws.steps() if getattr(step, "collection", "") == "node_ledgers"
    ]


@pytest.mark.trap("T21")
def test_whatever_reserves_on_a_node_writes_its_ledger_so_that_one_of_two_at_once_conflicts(world):
    world.do(create_group, spec(memory_mb=600, ports={"primary": PortSpec(range=(80, 81))}))
    started = world.do(start_instance, "lobby")
    revision = world.state.node_ledgers.revision("n1")
    one, two = world.workspace(), world.workspace()
    released = world.workspace()
    adopted = msgspec.structs.replace(started, id="lobby-9", serial=0)
    reserve(one, adopted, cpu=0.0)
    reserve(two, msgspec.structs.replace(started, id="lobby-2", serial=2), cpu=0.0)
    release(released, started)
    assert ledger_writes(one) == ledger_writes(two) == [("n1", revision)]
    assert ledger_writes(released) == [], "an end conflicts with no start"
    world.apply(released.steps())
    assert world.reserved("n1") == []
