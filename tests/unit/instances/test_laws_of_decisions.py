"""Laws that hold whatever operators, nodes, players, leaders and clocks do, over the real reconciler."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_chains_of_decisions import CHANGES
from watched_world import WatchedWorld
from world_histories import (
    act,
    any_histories,
    clock_acts,
    histories,
    instance,
    leader_acts,
    lived,
    scaled_documents,
    schedule_acts,
)

from corral.controller.instances import group_changes
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.instance_records import live
from corral.domain.ids import instance_number
from corral.domain.instance_states import InstanceState
from corral.domain.planning.planner import plan

SLOW = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "report_multiple_bugs": False,
    "derandomize": True,
}


def changes(world, since: int = 0) -> list[tuple]:
    """What was decided and done, without what differs in every world."""
    return [
        (each.kind, each.rule, each.subject, each.node)
        for each in world.made()[since:]
        if each.kind in CHANGES and each.rule != Rule.OPERATOR
    ]


@pytest.mark.trap("T20")
@settings(max_examples=60, **SLOW)
@given(any_histories)
def test_players_are_cut_by_operators_only_and_what_was_stopped_stays_stopped(history):
    """I6, I7, I8: the world watches each commit. At rest, I4: a reason for each shortage; I11: two plans are equal, and
    nothing is left to do; I12: nor does a look at every group find something."""
    world = lived(history, WatchedWorld())
    for group in world.short_groups():
        assert group.reason, f"I4: {group.spec.name} is short, and nothing says why"
    names = [each.record.spec.name for each in world.state.groups]
    view = world.signals_of_term.view
    first, second = plan(view(world.workspace()), names), plan(view(world.workspace()), names)
    assert first == second
    left = [each for each in first.decisions if each.kind in CHANGES]
    assert not left, f"I11: {left}"
    before = len(world.made())
    world.look_at_everything()
    world.settle()
    assert not changes(world, before), f"I12: {changes(world, before)}"


@pytest.mark.trap("T36")
@settings(max_examples=25, **SLOW)
@given(histories(schedule_acts, clock_acts), st.booleans())
def test_a_new_leader_stops_and_starts_nothing(history, told):
    """I16: what one leader has brought to rest the next one leaves as it is."""
    world = lived(history, WatchedWorld())
    world.live_on(1)  # and nodes that have come back have told of their players
    before, numbers = len(world.made()), world.numbers()
    world.change_leader(told=told)
    world.settle()
    made = changes(world, before)
    assert not made, made
    assert world.numbers() == numbers


@pytest.mark.trap("T28")
@settings(max_examples=20, **SLOW)
@given(
    histories(),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from([3600, -3600])), min_size=1, max_size=3),
)
def test_a_step_of_the_wall_clock_changes_no_decision_without_schedules(history, steps):
    """I17: the same things are decided in the same order."""
    stepped = list(history)
    for at, seconds in steps:
        stepped.insert(min(at, len(stepped)), (("clock", seconds), False))
    steady, moved = lived(history, WatchedWorld()), lived(stepped, WatchedWorld())
    steady.live_on(1500)
    moved.live_on(1500)
    found = [
        (one, other) for one, other in itertools.zip_longest(changes(steady), changes(moved)) if one != other
    ]
    assert not found, f"I17: {found[0]}"


@pytest.mark.trap("T23")
@settings(max_examples=10, **SLOW)
@given(
    histories(clock_acts, leader_acts), st.lists(st.sampled_from([0, 0, 1, 4, None]), min_size=8, max_size=8)
)
def test_at_constant_load_the_number_comes_to_rest(history, constants):
    """I5: before that it changes its direction once at most. The players of an instance depend on its number alone."""
    world = lived(history, WatchedWorld())
    for node in ("n1", "n2"):
        world.come_back(node, with_runs=True)
    for each in list(world.state.groups):
        world.ask(group_changes.release_group, each.record.spec.name, by="ada")

    def have_players() -> None:
        for stored in list(world.state.instances):
            if stored.record.state is InstanceState.RUNNING:
                world.count_players(stored.record.id, constants[instance_number(stored.record.id)[1] % 8])

    have_players()
    world.live_on(1)
    since = len(world.made())
    for _ in range(25):
        have_players()
        world.live_on(100)
    scales = [each for each in world.made()[since:] if each.kind is DecisionKind.SCALE]
    ups = [each.inputs["to"] > each.inputs["from"] for each in scales if each.subject == "s0"]
    assert sum(one != other for one, other in itertools.pairwise(ups)) <= 1, f"I5: {scales}"
    since = len(world.made())
    have_players()
    world.live_on(1500)
    made = [each for each in changes(world, since) if each[0] is not DecisionKind.RESTART]
    assert not made, f"I5: {made}"


@pytest.mark.trap("T22")
@settings(max_examples=8, **SLOW)
@given(scaled_documents, st.sampled_from(["crash", "refuse"]))
def test_a_group_that_always_fails_is_started_a_bounded_number_of_times(document, how):
    """I9: a pause of one minute at first, twice as long each time, an hour at most."""
    world = WatchedWorld()
    act(world, "create", "s0", document)
    hours = 12
    end = world.clock.seconds + hours * 3600
    while world.clock.seconds < end:
        world.settle()
        for stored in list(world.state.instances.of_group("s0")):
            record = stored.record
            if live(record.state) and how == "crash":
                world.report(record, InstanceState.RUNNING)
                world.crash(world.record(record.id), restarted=False)
            elif live(record.state):
                world.refuse(record, permanent=True)
        world.settle()
        world.wait(min(end - world.clock.seconds, max(1.0, world.reconciler._pause())) or 1)
    starts = sum(each.kind is DecisionKind.START for each in world.made())
    pauses = 7 + hours
    group = world.group("s0")
    at_once = max(group.spec.min, 1) + group.spec.warm + group.spec.crash_loop.failures + 10
    assert starts <= pauses * at_once, f"I9: {starts} starts"


@pytest.mark.trap("T88")
@settings(max_examples=10, **SLOW)
@given(scaled_documents, st.lists(st.tuples(st.integers(0, 7), st.sampled_from([0, 1, 6, 30])), max_size=40))
def test_clean_ends_never_pause_a_group(document, ends):
    """I20: and its places are taken again."""
    world = WatchedWorld()
    act(world, "create", "s0", document)
    world.live_on(1)
    for number, seconds in ends:
        record = instance(world, number)
        if record is not None and live(record.state):
            world.end(record)
        world.live_on(seconds)
        group = world.group("s0")
        assert (group.paused, group.failures) == (None, ()), "I20"
    world.live_on(60)
    assert not world.short_groups()


@settings(max_examples=8, **SLOW)
@given(histories(), st.booleans())
def test_a_change_of_leaders_alters_times_only(history, told):
    """I16: the same numbers of instances serve in the end."""
    steady, moved = lived(history, WatchedWorld()), lived(history, WatchedWorld())
    moved.change_leader(told=told)
    for world in (steady, moved):
        world.live_on(5000)
    assert moved.numbers() == steady.numbers()
