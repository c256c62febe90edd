"""The pure parts of a deployment: its sums, its clock, its gate, its phases."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.groups.update_spec import GateSpec, UpdateSpec, UpdateStrategy
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning import rollout_phases as phases
from corral.domain.planning.health import Health
from corral.domain.planning.rollout_clocks import after_progress, run_clock, stalled_seconds
from corral.domain.planning.rollout_members import Member, RolloutMembers, is_incoming
from corral.domain.planning.rollout_sums import starts_of, to_retire
from corral.domain.planning.signals import RolloutClock, Signals

S = DeploymentState
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
LATER = NOW + dt.timedelta(seconds=30)


def deployment(state: S = S.ROLLING, **fields: Any) -> DeploymentRecord:
    facts: dict[str, Any] = {
        "id": "dep-1",
        "group": GroupName("lobby"),
        "state": state,
        "phase_since": NOW,
        "created_at": NOW,
        "target": 2,
        "target_basis": "b2",
        "stable": 1,
        "stable_basis": "b1",
        "options": UpdateSpec(),
        "trigger": "manual",
        "by": "ada",
        "last_progress_at": NOW,
    }
    return DeploymentRecord(**facts | fields)


def instance(number: int, **fields: Any) -> InstanceRecord:
    facts: dict[str, Any] = {
        "id": InstanceId(f"lobby-{number}"),
        "group": GroupName("lobby"),
        "node": NodeId("n1"),
        "incarnation": Incarnation(number * 1024),
        "state": InstanceState.RUNNING,
        "wanted": Wanted.RUN,
        "created_at": NOW,
    }
    return InstanceRecord(**facts | fields)


@pytest.mark.parametrize(
    ("wanted", "goal", "incoming", "outgoing", "surge", "new", "former"),
    [
        (3, 3, 0, 3, 1, 1, 0),  # one above the number
        (3, 3, 1, 3, 1, 0, 0),  # which is there
        (3, 3, 1, 2, 1, 1, 0),
        (3, 3, 3, 0, 1, 0, 0),
        (3, 3, 0, 0, 1, 3, 0),  # nothing is there: not more than the goal
        (4, 4, 0, 4, 2, 2, 0),
        (3, 3, 0, 3, 0, 0, 0),  # one has to go first
        (3, 3, 0, 2, 0, 1, 0),
        (3, 1, 0, 3, 1, 1, 0),  # a canary
        (3, 1, 1, 2, 1, 0, 0),
        (3, 1, 1, 1, 1, 0, 1),  # one of the others has failed
        (3, 1, 0, 1, 1, 1, 1),  # the canary, too
        (5, 1, 1, 2, 1, 0, 2),  # more are wanted: of the former revision
        (3, 1, 1, 3, 1, 0, 0),
        (0, 0, 0, 2, 1, 0, 0),
        (2, 2, 3, 0, 1, 0, 0),
    ],
)
def test_the_starts(wanted, goal, incoming, outgoing, surge, new, former):
    room = wanted + surge - incoming - outgoing
    found = starts_of(wanted=wanted, goal=goal, incoming=incoming, outgoing=outgoing, room=room)
    assert found == (new, former)


H, U, Y, A = Health.HEALTHY, Health.UNHEALTHY, Health.UNSETTLED, Health.AWAY


class View(Signals):
    """Players by instance, and nodes that are emptied."""

    def __init__(self, players: dict[str, int] | None = None, emptied: tuple[str, ...] = ()) -> None:
        self._players = players or {}
        self.emptied = frozenset(emptied)

    def players(self, instance: str) -> int | None:
        return self._players.get(instance, 0)


@pytest.mark.parametrize(
    ("outgoing", "incoming", "wanted", "goal", "floor", "gone"),
    [
        ([H, H, H], [], 3, 3, 3, 0),  # nobody stands in yet
        ([H, H, H], [H], 3, 3, 3, 1),
        ([H, H, H], [Y], 3, 3, 3, 0),  # not for long enough
        ([H, H, H], [H, H], 3, 3, 3, 2),
        ([H, H, H], [], 3, 3, 2, 1),  # one may be missing
        ([H, H, H], [], 3, 3, 0, 3),
        ([H, H, H], [H], 3, 1, 3, 1),  # no more than the canary replaces
        ([H, H], [H], 3, 1, 0, 0),
        ([U, H, H], [], 3, 3, 3, 1),  # an unhealthy one goes whatever the floor is
        ([U, U, U], [], 3, 1, 3, 1),  # but not more than the goal leaves room for
        ([U, U, U], [], 3, 3, 3, 2),  # nor more than move at a time
        ([U, H, H], [H], 3, 3, 3, 1),
        ([Y, H, H], [H], 3, 3, 2, 1),  # one that is not known to be healthy is left alone
        ([A, H, H], [H], 3, 3, 2, 1),
        ([H, H], [H, H], 2, 2, -1, 2),
    ],
)
def test_who_is_retired(outgoing, incoming, wanted, goal, floor, gone):
    members = RolloutMembers(
        incoming=tuple(Member(instance(9 + number), each) for number, each in enumerate(incoming)),
        outgoing=tuple(Member(instance(1 + number), each) for number, each in enumerate(outgoing)),
    )
    chosen = to_retire(
        View(), GroupSpec(name="lobby"), members, wanted=wanted, goal=goal, floor=floor, sick=2
    )
    assert len(chosen) == gone
    assert all(each.health in (H, U) for each in chosen)


def test_the_order_of_retirement():
    members = RolloutMembers(
        outgoing=(
            Member(instance(1), H),
            Member(instance(2), H),
            Member(instance(3), H),
            Member(instance(4), H),
            Member(instance(5, node=NodeId("n2")), H),
            Member(instance(6, wanted=Wanted.STOP), H),
            Member(instance(7), U),
        )
    )
    view = View({"lobby-1": 5, "lobby-2": 0, "lobby-3": 2, "lobby-4": 0, "lobby-5": 9}, emptied=("n2",))
    chosen = to_retire(view, GroupSpec(name="lobby"), members, wanted=7, goal=7, floor=0, sick=1)
    assert [each.record.id for each in chosen] == [f"lobby-{number}" for number in (7, 5, 2, 4, 3, 1)]


def test_the_clock_counts_what_it_ran_and_goes_on_where_it_stopped():
    before = deployment(clock_since=NOW)
    clock = RolloutClock(running=40.0)
    assert stalled_seconds(before, clock) == 40.0
    stopped, used = run_clock(before, before, clock, stops=True, now=LATER)
    assert (stopped.clock_since, stopped.clock_used, used) == (None, 40.0, 40.0)
    assert run_clock(stopped, stopped, RolloutClock(), stops=True, now=LATER) == (stopped, 40.0)
    again, used = run_clock(stopped, stopped, RolloutClock(), stops=False, now=LATER)
    assert (again.clock_since, again.clock_used, used) == (LATER, 40.0, 40.0)
    assert stalled_seconds(again, RolloutClock(running=5.0)) == 45.0


@pytest.mark.parametrize(
    ("healthy", "retired", "anew"), [(1, 0, False), (2, 0, False), (3, 0, True), (1, 1, True)]
)
def test_progress_is_one_more_healthy_than_ever_or_a_retirement(healthy, retired, anew):
    before = deployment(clock_since=NOW, clock_used=99.0, best_healthy=2)
    after = after_progress(before, healthy=healthy, retired=retired, now=LATER)
    assert (after is not before) is anew
    assert after.clock_used == (0.0 if anew else 99.0)
    assert after.best_healthy == max(2, healthy)
    _, used = run_clock(after, before, RolloutClock(running=500.0), stops=False, now=LATER)
    assert used == (0.0 if anew else 599.0)


@pytest.mark.parametrize(
    ("state", "goal"),
    [
        (S.CANARY, 2),
        (S.GATE, 2),
        (S.ROLLING, 5),
        (S.ROLLING_BACK, 5),
        (S.PAUSED, 3),
        (S.FAILED, 3),
        (S.COMPLETED, 5),
    ],
)
def test_the_goal_of_each_state(state, goal):
    record = deployment(state, goal=3, options=UpdateSpec(canary="25%"))
    assert phases.goal_of(record, 5) == goal
    assert phases.goal_of(record, 1) == 1


@pytest.mark.parametrize(
    ("strategy", "wanted", "resumes", "state"),
    [
        (UpdateStrategy.ROLLING, 3, None, S.ROLLING),
        (UpdateStrategy.CANARY, 3, None, S.CANARY),
        (UpdateStrategy.CANARY, 0, None, S.ROLLING),
        (UpdateStrategy.CANARY, 3, S.GATE, S.GATE),
        (UpdateStrategy.CANARY, 3, S.ROLLING_BACK, S.ROLLING_BACK),
    ],
)
def test_how_it_begins(strategy, wanted, resumes, state):
    record = deployment(S.PENDING, resumes=resumes, options=UpdateSpec(strategy=strategy))
    found = phases.begun(record, wanted, LATER)
    assert (found.record.state, found.record.resumes, found.record.phase_since) == (state, None, LATER)


@pytest.mark.parametrize("state", list(S))
def test_a_hold_interrupts_what_goes_on_and_nothing_else(state):
    found = phases.held(deployment(state), LATER, "held by ada").record
    if state in (S.CANARY, S.GATE, S.ROLLING, S.ROLLING_BACK):
        assert (found.state, found.resumes, found.waiting) == (S.PENDING, state, "held by ada")
    else:
        assert found.state is state


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, ""),
        ({"stable": 0}, "there is no stable revision"),
        ({"stable": 2}, "the stable revision 2 is the same"),
        ({"stable_basis": "b2"}, "the stable revision 1 is the same"),
        ({"state": S.ROLLING_BACK}, "it was going back already"),
        ({"state": S.PAUSED, "resumes": S.ROLLING_BACK}, "it was going back already"),
    ],
)
def test_the_way_back(fields, why):
    record = deployment(**fields)
    assert phases.no_way_back(record) == why
    if record.state is S.PAUSED:
        return
    found = phases.failed(record, "it crashed", of_target=2, now=LATER)
    if why:
        assert (found.record.state, found.record.goal) == (S.FAILED, 2)
        assert found.group == {"deployment": "", "unsettled": "dep-1"}
    else:
        assert (found.record.state, found.group, found.ends_pause) == (
            S.ROLLING_BACK,
            {"pinned_revision": 1},
            True,
        )
    assert found.record.outcome == "it crashed"


@pytest.mark.parametrize(
    ("value", "players", "broken", "unknown"),
    [
        (20.0, 5, "", ""),
        (18.0, 50, "", ""),
        (17.9, 5, "'tps' of 'lobby-1' is 17.9, less than 18", ""),
        (20.0, 51, "'players' of 'lobby-1' is 51, more than 50", ""),
        (None, 5, "", "'lobby-1' has not reported 'tps' lately"),
        (20.0, None, "", "'lobby-1' has not reported 'players' lately"),
    ],
)
def test_the_gate(value, players, broken, unknown):
    gate = {"tps": GateSpec(min=18), "players": GateSpec(max=50)}
    record = deployment(S.GATE, options=UpdateSpec(gate=gate))
    view: Any = SimpleNamespace(metric=lambda _id, _name: value, players=lambda _id: players)
    found = phases.gate_verdict(view, record, [Member(instance(1), H)], 1)
    assert (found.broken, found.unknown) == (broken, unknown)
    sick = phases.gate_verdict(view, record, [Member(instance(1), U)], 1)
    assert (sick.broken, sick.unknown) == ("", "'lobby-1' is not healthy")
    assert phases.gate_verdict(view, record, [], 1).unknown == "0 of 1 canaries are healthy"


@pytest.mark.parametrize(
    ("state", "resumes", "of_target", "others"),
    [
        (S.CANARY, None, 2, 1),
        (S.GATE, None, 2, 1),
        (S.ROLLING, None, 2, 2),
        (S.PAUSED, S.ROLLING, 2, 1),
        (S.PAUSED, S.ROLLING_BACK, 1, 1),
        (S.ROLLING_BACK, None, 1, 1),
        (S.FAILED, None, 2, 1),
        (S.COMPLETED, None, 0, 0),
        (S.ROLLED_BACK, None, 0, 0),
    ],
)
def test_the_revision_of_a_start_by_hand_or_again(state, resumes, of_target, others):
    record = deployment(state, resumes=resumes)
    assert record.revision_of(instance(1, revision=2)) == of_target
    assert record.revision_of(instance(1, revision=1)) == others
    assert record.revision_of(None) == others


def test_a_revision_with_the_same_contents_is_the_same():
    record = deployment()
    assert is_incoming(record, instance(1, revision=7, basis="b2"))
    assert is_incoming(record, instance(1, revision=2))
    assert not is_incoming(record, instance(1, revision=1, basis="b1"))
    back = deployment(S.ROLLING_BACK)
    assert is_incoming(back, instance(1, revision=1, basis="b1"))
    assert not is_incoming(back, instance(1, revision=2, basis="b2"))
