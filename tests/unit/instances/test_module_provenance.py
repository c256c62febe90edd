"""What modules on the node made of a run, folded into the instance's record."""

from __future__ import annotations

import pytest
from world import N1, NOW, TICKETS, World, spec

from corral.controller.instances.group_changes import create_group
from corral.controller.instances.instance_changes import start_instance
from corral.controller.instances.report_values import report_of
from corral.controller.instances.reports import fold_report
from corral.testing.scripted_peers import ticketed
from corral.wire.v1 import instance_pb2 as wire

S = wire.InstanceState
TUNED = wire.ModuleChange(module_id="tuner", version="1.0.0", jvm_args_added=["-Xlog:gc"], env_set=["A"])
DROPPED = wire.ModuleChange(module_id="wrong", dropped="it did not answer")


@pytest.fixture
def world() -> World:
    world = World()
    world.do(create_group, spec(ports={}, memory_mb=100))
    world.do(start_instance, "lobby")
    return world


def fold(world: World, state: int, *, later: int = 0, **fields: object) -> None:
    incarnation = world.record("lobby-1").incarnation + later
    message = wire.InstanceStatusUpdate(instance_id="lobby-1", incarnation=incarnation, state=state, **fields)
    report = report_of(message, NOW)
    assert report is not None
    world.do(lambda ws: fold_report(ws, N1, report))


def made(world: World) -> list[tuple[str, str]]:
    return [(change.module, change.dropped) for change in world.record("lobby-1").module_changes]


def test_the_changes_of_a_run_are_kept_with_its_record_to_its_end(world):
    fold(world, S.INSTANCE_STATE_STARTING, module_changes=[TUNED, DROPPED], modules_missing=["late: away"])
    record = world.record("lobby-1")
    assert made(world) == [("tuner", ""), ("wrong", "it did not answer")]
    assert record.module_changes[0].jvm_args_added == ("-Xlog:gc",)
    assert record.modules_missing == ("late: away",)
    fold(world, S.INSTANCE_STATE_RUNNING)
    fold(world, S.INSTANCE_STATE_STOPPED)
    assert made(world) == [("tuner", ""), ("wrong", "it did not answer")], (
        "who says nothing takes nothing back"
    )


@pytest.mark.system
def test_what_another_overrode_is_kept_and_is_short_whatever_a_node_says(world):
    lost = wire.ModuleOverride(kind="env", name="A", by="other")
    endless = wire.ModuleOverride(kind="k" * 999, name="n" * 9999, by="b" * 999)
    large = wire.ModuleChange(module_id="large", overridden=[endless] * 9999)
    tuned = wire.ModuleChange(module_id="tuner", env_set=["A"], overridden=[lost])
    fold(world, S.INSTANCE_STATE_RUNNING, module_changes=[tuned, *[large] * 9])
    first, *others = world.record("lobby-1").module_changes
    assert [(each.kind, each.name, each.by) for each in first.overridden] == [("env", "A", "other")]
    assert sum(len(each.name) for other in others for each in other.overridden) < 70_000


def test_another_run_begins_without_them(world):
    fold(world, S.INSTANCE_STATE_RUNNING, module_changes=[TUNED], modules_missing=["late: away"])
    fold(world, S.INSTANCE_STATE_SCHEDULED, later=1)
    assert made(world) == []
    assert world.record("lobby-1").modules_missing == ()
    fold(world, S.INSTANCE_STATE_STARTING, module_changes=[DROPPED])
    assert made(world) == [("wrong", "it did not answer")]


def test_changes_that_come_with_the_end_are_kept_too(world):
    fold(world, S.INSTANCE_STATE_CRASHED, module_changes=[TUNED])
    assert made(world) == [("tuner", "")]


def test_a_run_that_nobody_knew_is_adopted_with_them(world):
    entry = wire.RunningInstance(
        instance_id="lobby-9",
        group="lobby",
        incarnation=9 * 1024,
        state=S.INSTANCE_STATE_RUNNING,
        module_changes=[TUNED],
        modules_missing=["late: away"],
    )
    world.open(N1, ticketed(TICKETS, entry, node=N1, serial=50))
    assert world.record("lobby-9").module_changes[0].module == "tuner"
    assert world.record("lobby-9").modules_missing == ("late: away",)


def test_a_node_that_says_too_much_is_cut_short(world):
    long = wire.ModuleChange(module_id="m" * 100, jvm_args_added=["x" * 400] * 150, dropped="y" * 2000)
    fold(world, S.INSTANCE_STATE_STARTING, module_changes=[long] * 70, modules_missing=["z" * 2000] * 70)
    record = world.record("lobby-1")
    assert len(record.module_changes) == len(record.modules_missing) == 64
    first, last = record.module_changes[0], record.module_changes[-1]
    assert first.jvm_args_added == ("x" * 300,) * 100
    assert last.jvm_args_added == ()
    assert (len(last.module), len(last.dropped)) == (63, 1000)
