"""How many crashes of a node are kept, which ones, and what keeping them costs."""

from __future__ import annotations

import datetime as dt
import sys

import pytest
from world import N1, World, spec

from corral.controller.instances.group_changes import create_group
from corral.controller.instances.instance_changes import start_instance
from corral.controller.instances.reports import CRASHES_OF_A_NODE, fold_crash
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import CRASHES
from corral.store.port import Delete, Put
from corral.wire.v1 import instance_pb2 as wire


@pytest.fixture
def world() -> World:
    world = World()
    world.do(create_group, spec(ports={}, memory_mb=100))
    for _ in range(3):
        world.do(start_instance, "lobby")
    return world


def crash(world, id: str, restart: int) -> wire.CrashReport:
    incarnation = world.record(id).incarnation + restart
    return wire.CrashReport(instance_id=id, group="lobby", incarnation=incarnation, exit_code=1)


def told(world, id: str, restarts, **how) -> tuple:
    """Reports of one transaction; what it writes."""
    ws = world.workspace()
    for restart in restarts:
        fold_crash(ws, N1, crash(world, id, restart), **how)
    steps = ws.steps()
    world.apply(steps)
    world.now += dt.timedelta(seconds=1)
    return tuple(step for step in steps if isinstance(step, Put | Delete))


def calls_during(work) -> int:
    count = 0

    def counted(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.trap("T66")
def test_a_crash_costs_the_same_however_many_are_kept(world):
    few = calls_during(lambda: told(world, "lobby-1", range(1, 501)))
    told(world, "lobby-1", range(501, 1001))
    many = calls_during(lambda: told(world, "lobby-2", range(1, 501)))
    assert len(world.state.crashes) == CRASHES_OF_A_NODE
    assert many < 2 * few


def test_a_node_loses_its_oldest_crashes_and_never_has_more_than_its_share(world):
    told(world, "lobby-1", range(1, 801))
    told(world, "lobby-2", range(1, 501))
    kept = world.state.crashes.of_node(N1)
    assert len(kept) == CRASHES_OF_A_NODE
    first = world.record("lobby-1").incarnation
    assert kept[0] == f"lobby-1.{first + 301}"
    assert kept[-1] == f"lobby-2.{world.record('lobby-2').incarnation + 500}"


def test_a_crash_beyond_the_rate_takes_the_place_of_the_one_before_it(world):
    told(world, "lobby-1", range(1, 3))
    told(world, "lobby-2", [1])
    writes = told(world, "lobby-1", range(3, 503), within_rate=lambda: False)
    first = world.record("lobby-1").incarnation
    assert [(type(step), step.id) for step in writes] == [
        (Delete, f"lobby-1.{first + 2}"),
        (Put, f"lobby-1.{first + 502}"),
    ]
    other = f"lobby-2.{world.record('lobby-2').incarnation + 1}"
    assert world.state.crashes.of_node(N1) == [f"lobby-1.{first + 1}", other, f"lobby-1.{first + 502}"]


def test_the_first_crash_of_an_instance_is_kept_beyond_the_rate_and_ends_its_run(world):
    told(world, "lobby-1", [1])
    told(world, "lobby-3", [0], within_rate=lambda: False)
    assert len(world.state.crashes) == 2
    assert world.record("lobby-3").state == "CRASHED"


def test_what_is_taken_back_leaves_the_order_as_it_was(world):
    told(world, "lobby-1", range(1, 1001))
    ws = world.workspace()
    mark = ws.mark()
    fold_crash(ws, N1, crash(world, "lobby-2", 1))
    ws.back_to(mark)
    fold_crash(ws, N1, crash(world, "lobby-2", 2))
    world.apply(ws.steps())
    kept = world.state.crashes.of_node(N1)
    assert len(kept) == CRASHES_OF_A_NODE
    assert kept[0] == f"lobby-1.{world.record('lobby-1').incarnation + 2}"
    assert kept[-1] == f"lobby-2.{world.record('lobby-2').incarnation + 2}"


def test_a_state_from_a_snapshot_knows_the_order_of_receipt(world):
    for restart in (9, 30, 4, 200):
        told(world, "lobby-1", [restart])
    expected = world.state.crashes.of_node(N1)
    loaded = ClusterState()
    for id in sorted(expected):
        stored = world.state.crashes.require(id)
        loaded.crashes.fold(id, stored.revision, CRASHES.put(id, stored.record, expect=None).body)
    assert loaded.crashes.of_node(N1) == expected
    assert loaded.crashes.newest_of("lobby-1") == expected[-1]
