"""What follows each kind of end: a restart under its id, another instance, or nothing. Over the real reconciler."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from reconciled_world import ReconciledWorld

from corral.controller.instances.group_changes import delete_group, hold_group
from corral.controller.instances.instance_changes import stop_instance
from corral.domain.groups.group import CrashLoopSpec, RestartOn, RestartSpec
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.instance_states import PLACE_SECONDS, InstanceState
from corral.wire.v1 import instance_pb2 as wire

CRASHED, STOPPED = InstanceState.CRASHED, InstanceState.STOPPED
RULE = CrashLoopSpec(failures=3, within_seconds=300)


def begun(**fields: Any) -> ReconciledWorld:
    """A group with one instance that runs."""
    world = ReconciledWorld()
    world.create("lobby", min=1, memory_mb=100, crash_loop=RULE, **fields)
    world.settle()
    obeyed(world)
    return world


def obeyed(world: ReconciledWorld) -> None:
    for node in ("n1", "n2"):
        world.obey(node)


def there(world: ReconciledWorld) -> list[InstanceRecord]:
    found = [stored.record for stored in world.state.instances if live(stored.record.state)]
    return sorted(found, key=lambda record: record.id)


def ends(world: ReconciledWorld, state: InstanceState, outcome: str, *, known: bool = True) -> InstanceRecord:
    """The one that runs ends like this, and its node does nothing about it."""
    (record,) = there(world)
    summary = outcome.replace("_", " ")
    exit = wire.ExitStatus(known=known, code=int(state is CRASHED), outcome=outcome, summary=summary)
    world.report(record, state, exit=exit)
    world.settle()
    return record


@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize(
    ("state", "outcome", "known", "failures"),
    [
        (CRASHED, "crashed", True, 1),
        (CRASHED, "clean", True, 1),  # before `min_alive_ms`
        (CRASHED, "start_failed", False, 1),
        (CRASHED, "unknown", False, 0),
        (STOPPED, "never_started", False, 0),
        (STOPPED, "host_rebooted", False, 0),
        (STOPPED, "isolated", True, 0),
    ],
)
def test_an_end_that_its_node_leaves_to_the_controller_is_followed_by_another(
    state, outcome, known, failures, static
):
    world = begun(static=static)
    ended = ends(world, state, outcome, known=known)
    (next,) = there(world)
    if static:
        assert (next.id, next.node) == (ended.id, ended.node)
    else:
        assert next.id != ended.id
    assert next.incarnation > ended.incarnation
    assert len(world.group().failures) == failures
    assert (ended.node in world.group().failed_on) == bool(failures)
    assert world.wanted() == 1


def test_a_replacement_goes_to_a_node_where_the_group_has_not_failed():
    world = begun()
    ended = ends(world, CRASHED, "crashed")
    (next,) = there(world)
    assert next.node != ended.node


@pytest.mark.parametrize("static", [False, True])
def test_a_crash_that_its_node_follows_up_keeps_its_id_and_is_no_failure(static):
    world = begun(static=static)
    (record,) = there(world)
    world.crash(record, restarted=True)
    world.settle()
    (next,) = there(world)
    assert (next.id, next.incarnation, next.restarts) == (record.id, record.incarnation + 1, 1)
    assert world.group().failures == ()


def test_failures_in_a_row_pause_the_group_and_an_outage_of_its_node_does_not():
    world = begun()
    for _ in range(2 * RULE.failures):
        ends(world, CRASHED, "unknown", known=False)
        obeyed(world)
    assert world.group().paused is None
    for _ in range(RULE.failures):
        ends(world, CRASHED, "crashed")
        obeyed(world)
    assert world.group().paused is not None
    assert there(world) == []


@pytest.mark.trap("T20")
@pytest.mark.parametrize("static", [False, True])
@pytest.mark.parametrize("told_first", [False, True], ids=["stop, then crash", "crash, then stop"])
def test_a_stop_during_the_handling_of_a_crash_holds(static, told_first):
    world = begun(static=static)
    (record,) = there(world)
    if told_first:
        world.crash(record, restarted=True)
    world.ask(stop_instance, record.id, reason="enough")
    if not told_first:
        world.crash(record, restarted=True)
    world.settle()
    obeyed(world)
    world.settle()
    for seconds in (1, 60, 3600):
        world.wait(seconds)
        world.look_at_everything()
        world.settle()
        obeyed(world)
    others = [each.id for each in there(world)]
    assert record.id not in others
    assert others == ([] if static else ["lobby-2"])
    assert world.group().failures == ()
    if static:
        assert "'lobby-1' (enough)" in world.group().reason


@pytest.mark.parametrize("outcome", ["crashed", "unknown", "isolated", "ended"])
@pytest.mark.parametrize("how", ["deleted", "held"])
def test_nothing_follows_in_a_group_that_is_deleted_or_held(outcome, how):
    world = begun()
    if how == "deleted":
        world.ask(delete_group, "lobby", cascade=True, confirm="lobby")
    else:
        world.ask(hold_group, "lobby", reason="maintenance", by="ada", when_empty=False)
    if there(world):
        ends(world, CRASHED if outcome == "crashed" else STOPPED, outcome)
    world.wait(60)
    world.look_at_everything()
    world.settle()
    assert there(world) == []


@pytest.mark.trap("T88")
@pytest.mark.parametrize("on", RestartOn)
def test_short_matches_end_again_and_again_and_their_group_is_never_paused(on):
    world = begun(restart=RestartSpec(on=on))
    for _ in range(5 * RULE.failures):
        before = ends(world, STOPPED, "ended")
        if on is not RestartOn.ALWAYS:
            assert there(world) == [], "not sooner than a place takes starts"
        world.wait(2 * PLACE_SECONDS)
        world.look_at_everything()
        world.settle()
        (next,) = there(world)
        assert next.incarnation > before.incarnation
        obeyed(world)
        world.wait(1)
    group = world.group()
    assert (group.paused, group.failures, group.pauses) == (None, (), 0)
    assert msgspec.to_builtins(group.failed_on) == {}
