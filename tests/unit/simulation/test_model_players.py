"""Players of the model: the curve of a load, and who is where."""

from __future__ import annotations

import random

import hypothesis
import hypothesis.strategies as st

from corral.simulation.model_players import GroupPlayers, LoadCurve
from corral.simulation.scenario import LoadModel, Seating


def curve(*points: tuple[int, float], **fields) -> LoadCurve:
    return LoadCurve(LoadModel(points=points, **fields), random.Random(1))


def changes(found: LoadCurve, until: float) -> list[tuple[float, int]]:
    at: float | None = 0.0
    seen = []
    while at is not None and at < until:
        seen.append((at, found.demand(at)))
        at = found.next_change(at)
    return seen


def test_a_load_changes_evenly_between_two_points():
    assert changes(curve((0, 0), (300, 50)), 1000) == [
        (0.0, 0),
        (60.0, 10),
        (120.0, 20),
        (180.0, 30),
        (240.0, 40),
        (300.0, 50),
    ]


def test_two_points_at_one_time_are_a_jump():
    assert changes(curve((0, 0), (90, 0), (90, 7)), 1000) == [(0.0, 0), (90.0, 7)]


def test_a_load_may_repeat():
    assert changes(curve((0, 5), (10, 5), (10, 0), (20, 0), repeat_seconds=30), 70) == [
        (0.0, 5),
        (10.0, 0),
        (20.0, 0),
        (30.0, 5),
        (40.0, 0),
        (50.0, 0),
        (60.0, 5),
    ]


def test_noise_stays_within_its_share():
    found = curve((0, 100), noise=0.1)
    seen = changes(found, 86_400)
    assert len(seen) == 1440
    assert {number for _, number in seen} <= set(range(90, 111))
    assert len({number for _, number in seen}) > 10


def settled(
    players: GroupPlayers, demand: int, *accepting: str, leaving: tuple[str, ...] = ()
) -> dict[str, int]:
    players.demand = demand
    players.settle(accepting, lambda each: each in leaving)
    return dict(sorted(players.seats.items()))


def test_packed_players_fill_the_fullest_and_leave_the_emptiest():
    players = GroupPlayers(capacity=20, seating=Seating.PACK)
    assert settled(players, 25, "a-1", "a-2") == {"a-1": 20, "a-2": 5}
    assert settled(players, 18, "a-1", "a-2") == {"a-1": 18}
    assert settled(players, 19, "a-1", "a-2") == {"a-1": 19}


def test_spread_players_fill_the_emptiest_and_leave_the_fullest():
    players = GroupPlayers(capacity=20, seating=Seating.SPREAD)
    assert settled(players, 5, "a-1", "a-2") == {"a-1": 3, "a-2": 2}
    assert settled(players, 10, "a-1", "a-2", "a-3") == {"a-1": 4, "a-2": 3, "a-3": 3}
    assert settled(players, 4, "a-1", "a-2", "a-3") == {"a-1": 2, "a-2": 1, "a-3": 1}


def test_players_leave_what_takes_no_more_of_them_first():
    players = GroupPlayers(capacity=20, seating=Seating.PACK)
    settled(players, 25, "a-1", "a-2")
    assert settled(players, 10, leaving=("a-1",)) == {"a-1": 5, "a-2": 5}


@hypothesis.given(
    seating=st.sampled_from(Seating),
    capacity=st.integers(1, 30),
    demands=st.lists(
        st.tuples(st.integers(0, 200), st.sets(st.integers(1, 6)), st.sets(st.integers(1, 6))), max_size=12
    ),
)
def test_as_many_play_as_want_to_and_have_a_place(seating, capacity, demands):
    players = GroupPlayers(capacity=capacity, seating=seating)
    for demand, accepting, leaving in demands:
        before, accepting = dict(players.seats), accepting - leaving
        names = {f"a-{number}" for number in accepting}
        players.demand = demand
        changed = players.settle(sorted(names), lambda each, gone=leaving: int(each[2:]) in gone)
        assert all(0 < count <= capacity for count in players.seats.values())
        assert players.seated == sum(players.seats.values()) <= demand
        assert players.waiting == demand - players.seated
        moved = {id for id in {*before, *players.seats} if before.get(id, 0) != players.seats.get(id, 0)}
        assert set(changed) == moved
        if players.waiting:
            assert all(players.seats.get(id, 0) == capacity for id in names), (
                "nobody waits while there is room"
            )
