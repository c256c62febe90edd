"""The number of instances by load: the examples of the design, and that it comes to rest."""

from __future__ import annotations

import datetime as dt
import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.decisions import Rule
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import LastScale, ScaleDirection
from corral.domain.groups.scaling_spec import MaintenanceSpec, ScalingMode, ScalingSpec, ScheduleSpec
from corral.domain.planning.player_loads import InstancePlayers, PlayerLoads
from corral.domain.planning.scaling import GroupLoad, ScalingInputs, load_need, scaled
from corral.domain.planning.schedules import scheduled

NOW = dt.datetime(2026, 11, 17, 12, tzinfo=dt.UTC)


def spec(*, min: int = 0, max: int | None = None, max_players: int = 20, **scaling) -> GroupSpec:
    fields = {
        name: scaling.pop(name)
        for name in ("schedules", "maintenance", "startup_timeout_seconds")
        if name in scaling
    }
    return GroupSpec(
        name="lobby",
        min=min,
        max=max,
        max_players=max_players,
        scaling=ScalingSpec(mode=ScalingMode.DYNAMIC, **scaling),
        **fields,
    )


@pytest.mark.parametrize(
    ("players", "wanted"), [(0, 2), (10, 2), (70, 5), (80, 5), (81, 6), (95, 6), (160, 10), (200, 10)]
)
def test_the_need_of_so_many_players(players: int, wanted: int) -> None:
    group = spec(min=2, max=10, up_threshold=0.8, free_slots=10)
    assert load_need(group, scheduled(group, NOW), players) == wanted


@pytest.mark.parametrize(
    ("threshold", "capacity", "players", "wanted"), [(0.7, 10, 7, 1), (0.1, 30, 3, 1), (0.3, 10, 3, 1)]
)
def test_a_threshold_is_the_number_that_was_written(threshold, capacity, players, wanted) -> None:
    """0.1 · 30 is 3.0000000000000004 in binary."""
    group = spec(max_players=capacity, up_threshold=threshold)
    assert load_need(group, scheduled(group, NOW), players) == wanted
    assert load_need(group, scheduled(group, NOW), players + 1) == wanted + 1


@pytest.mark.parametrize("scaling", [{"up_threshold": 1e-300}, {"free_slots": 1_000_000}])
def test_no_load_needs_more_instances_than_a_group_can_have(scaling) -> None:
    group = spec(max_players=1, **scaling)
    assert load_need(group, scheduled(group, NOW), 1_000_000) == 10_000


def verdict(group: GroupSpec, *, serving: int, starting: int = 0, **fields):
    load = {name: fields.pop(name) for name in ("players", "unknown", "peak", "peak_for") if name in fields}
    inputs = ScalingInputs(serving=serving, starting=starting, load=GroupLoad(**load), **fields)
    return scaled(group, scheduled(group, NOW), inputs)


def test_unknown_instances_count_as_empty_upwards_and_as_full_downwards() -> None:
    group = spec(min=1)
    assert verdict(group, serving=2, players=30, unknown=1).wanted == 2
    assert verdict(group, serving=4, players=0, unknown=2, peak=40).may_stop
    assert not verdict(group, serving=3, players=0, unknown=2, peak=40).may_stop


def test_nothing_known_keeps_the_minimum_and_the_floor() -> None:
    group = spec(min=2)
    assert verdict(group, serving=0).wanted == 2
    assert verdict(group, serving=1, unknown=1, floor=4).wanted == 4
    assert verdict(group, serving=3, unknown=3, peak=60).wanted == 3


def test_free_slots_are_kept_where_nothing_runs() -> None:
    found = verdict(spec(max=5, max_players=5, free_slots=4), serving=0, players=0, peak=0)
    assert (found.wanted, found.rule) == (1, Rule.SLOTS_UP)


def test_the_step_bounds_the_load_and_not_the_minimum() -> None:
    group = spec(min=8, max_step=2)
    assert verdict(group, serving=0).wanted == 8
    busy = spec(min=1, max_step=2)
    assert verdict(busy, serving=2, players=100).wanted == 4
    assert verdict(busy, serving=4, starting=2, players=100).wanted == 4
    assert "2 are starting" in verdict(busy, serving=4, starting=2, players=100).waits_for
    assert verdict(busy, serving=4, starting=1, players=100).wanted == 5


def test_none_is_stopped_while_another_one_is_starting() -> None:
    group = spec(min=1)
    waiting = verdict(group, serving=3, starting=1, players=0, peak=0)
    assert (waiting.may_stop, waiting.waits_for) == (False, "1 is starting")
    assert verdict(group, serving=3, starting=0, players=0, peak=0).may_stop


def test_after_a_stop_only_what_goes_beyond_it_waits() -> None:
    group = spec(min=1)
    down = LastScale(at=NOW, direction=ScaleDirection.DOWN, need=3)
    waiting = verdict(group, serving=2, players=70, last=down, cooldown_left=40.0)
    assert (waiting.wanted, waiting.need, waiting.look_after) == (3, 5, 40.0)
    assert "ends in 40 s" in waiting.waits_for
    up = LastScale(at=NOW, direction=ScaleDirection.UP, need=3)
    assert verdict(group, serving=2, players=70, last=up, cooldown_left=40.0).wanted == 5
    assert verdict(group, serving=2, players=70, last=down).wanted == 5


def test_maintenance_keeps_what_is_there_and_follows_no_load() -> None:
    group = spec(min=1, maintenance=MaintenanceSpec(enabled=True, message="back at noon"))
    assert verdict(group, serving=3, players=200).wanted == 3
    assert not verdict(group, serving=3, players=0, peak=0).may_stop
    assert verdict(group, serving=0).wanted == 1


def test_the_rule_names_what_asks_for_the_most() -> None:
    assert verdict(spec(min=1), serving=1, players=60).rule is Rule.LOAD_UP
    assert verdict(spec(min=1, free_slots=50), serving=1, players=1).rule is Rule.SLOTS_UP
    assert verdict(spec(min=3), serving=1, players=1).rule is Rule.MIN_RESTORE
    evening = ScheduleSpec(name="evening", cron="0 10 * * *", duration_seconds=4 * 3600, min=3)
    assert verdict(spec(min=1, schedules=(evening,)), serving=1, players=1).rule is Rule.SCHEDULE_UP


class Model:
    """A group whose instances start at once, and whose number follows the verdicts second by second."""

    def __init__(self, group: GroupSpec, *, boot: int = 0) -> None:
        self.group = group
        self.boot = boot
        self.at = 0.0
        self.loads = PlayerLoads()
        self.loads.set_group("lobby", capacity=group.max_players, window=group.scaling.window_seconds, at=0.0)
        self.players: dict[str, int | None] = {}
        self.ready_at: dict[str, float] = {}
        self.last: LastScale | None = None
        self.last_at = 0.0
        self.changes: list[tuple[float, int]] = []
        self._numbers = 0

    def set(self, id: str, players: int | None) -> None:
        self.players[id] = players
        seen = InstancePlayers(group="lobby", run=1, serves=True, watched=True, players=players)
        self.loads.set_instance(id, seen, at=self.at)

    def start(self, players: int | None = 0) -> None:
        self._numbers += 1
        self.ready_at[f"lobby-{self._numbers}"] = self.at + self.boot
        self.set(f"lobby-{self._numbers}", players)

    def second(self) -> None:
        scaling = self.group.scaling
        starting = sum(ready > self.at for ready in self.ready_at.values())
        cooldown = max(0.0, self.last_at + scaling.cooldown_seconds - self.at) if self.last else 0.0
        load = self.loads.load("lobby", at=self.at)
        inputs = ScalingInputs(
            serving=len(self.players), starting=starting, load=load, last=self.last, cooldown_left=cooldown
        )
        found = scaled(self.group, scheduled(self.group, NOW), inputs)
        before = len(self.players)
        if found.wanted > before:
            for _ in range(found.wanted - before):
                self.start()
        elif found.may_stop:
            idle = {id: self.loads.idle_seconds(id, at=self.at) for id in self.players}
            ripe = [id for id, time in idle.items() if time is not None and time >= scaling.idle_seconds]
            if ripe:
                gone = max(ripe, key=lambda each: (idle[each], int(each[6:])))
                del self.players[gone], self.ready_at[gone]
                self.loads.set_instance(gone, None, at=self.at)
        if (now := len(self.players)) != before:
            direction = ScaleDirection.UP if now > before else ScaleDirection.DOWN
            self.last = LastScale(at=NOW, direction=direction, need=now)
            self.last_at = self.at
            self.changes.append((self.at, now))
        self.at += 1.0

    def until(self, at: float) -> None:
        while self.at < at:
            self.second()


def test_an_evening_by_the_second() -> None:
    model = Model(spec(min=1))
    model.until(60)
    model.set("lobby-1", 17)
    model.until(300)
    model.set("lobby-1", 20)
    model.set("lobby-2", 13)
    model.until(600)
    model.set("lobby-1", 10)
    model.set("lobby-2", 0)
    model.until(2000)
    assert model.changes == [(0, 1), (60, 2), (300, 3), (900, 2), (960, 1)]


def test_a_visit_begins_the_idle_time_anew() -> None:
    model = Model(spec(min=1))
    model.until(60)
    model.set("lobby-1", 17)
    model.until(600)
    model.set("lobby-1", 10)
    model.until(880)
    model.set("lobby-2", 1)
    model.until(890)
    model.set("lobby-2", 0)
    model.until(2000)
    assert model.changes[-1] == (1190, 1)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 4),
    st.one_of(st.none(), st.integers(4, 9)),
    st.integers(1, 30),
    st.floats(0.05, 1.0),
    st.integers(0, 40),
    st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=8),
    st.integers(0, 20),
    st.integers(1, 4),
)
def test_constant_players_come_to_rest_with_at_most_one_change_of_direction(
    low, high, capacity, threshold, free, there, boot, step
):
    """I5, T23."""
    group = spec(
        min=low, max=high, max_players=capacity, up_threshold=threshold, free_slots=free,
        idle_seconds=20, window_seconds=30, cooldown_seconds=5, max_step=step,
    )  # fmt: skip
    model = Model(group, boot=boot)
    for players in there[: high or 8]:
        model.start(players)  # some say more than they have places
    model.until(600)
    counts = [len(there[: high or 8]), *(count for _, count in model.changes)]
    directions = [after > before for before, after in itertools.pairwise(counts)]
    assert sum(one != other for one, other in itertools.pairwise(directions)) <= 1
    bound = 30 + 20 + max(counts) * 5 + -(-max(counts) // step) * (boot + 1)
    assert all(at <= bound + 1 for at, _ in model.changes), (bound, model.changes)


def test_players_that_leave_one_by_one_are_remembered_by_peaks_of_a_bounded_number() -> None:
    """A report a millisecond, each of one player less: what is kept may be too high, never too low."""
    model = Model(spec(min=1, max_players=1_000_000, window_seconds=300))
    model.start()
    reports = 20_000
    tracemalloc.start()
    try:
        for number in range(reports):
            model.set("lobby-1", 1_000_000 - number)
            model.at += 0.001
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 500_000
    model.at = 300.0  # it was watched for the whole window
    peak = model.loads.load("lobby", at=model.at)
    assert peak.players == 1_000_000 - reports + 1
    assert peak.peak == 1_000_000
    for number in range(0, reports, 500):
        after = 300.0 + number / 1000  # the first reports have left the window one by one
        found = model.loads.load("lobby", at=after).peak
        assert found is not None
        assert found >= 1_000_000 - number - 1
    assert model.loads.load("lobby", at=400.0).peak == peak.players


SEEN = st.tuples(
    st.sampled_from(["lobby-1", "lobby-2", "lobby-3", "lobby-4"]),
    st.one_of(st.none(), st.integers(0, 40), st.just(2**31 - 1)),
    st.sampled_from(["serves", "warm", "gone"]),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(SEEN, st.integers(1, 50), st.just("deleted")), max_size=30),
    st.floats(0.01, 1.0),
    st.integers(0, 40),
)
def test_no_report_of_players_asks_for_more_than_full_instances_do(history, threshold, free):
    """Whatever instances report, one counts for as many as it has places, also after an edit of `max_players`."""
    loads, places = PlayerLoads(), 20
    serving: dict[str, int | None] = {}
    loads.set_group("lobby", capacity=places, window=0.0, at=0.0)
    for each in history:
        if each == "deleted":  # and created again, while the records of its instances are still there
            loads.forget_group("lobby")
            serving.clear()
            loads.set_group("lobby", capacity=places, window=0.0, at=0.0)
        elif isinstance(each, int):
            places = each
            loads.set_group("lobby", capacity=places, window=0.0, at=0.0)
        else:
            id, players, kind = each
            serves = kind == "serves"
            seen = InstancePlayers(group="lobby", run=1, serves=serves, watched=True, players=players)
            loads.set_instance(id, seen if kind != "gone" else None, at=0.0)
            serving.pop(id, None)
            if serves:
                serving[id] = players
        known = [count for count in serving.values() if count is not None]
        load = loads.load("lobby", at=1.0)
        assert load.players == sum(min(count, places) for count in known)
        assert load.players + load.above == sum(known)
        assert load.unknown == len(serving) - len(known)
        assert load.peak == load.players + load.unknown * places
        group = spec(max_players=places, up_threshold=threshold, free_slots=free)
        values = scheduled(group, NOW)
        full = load_need(group, values, len(serving) * places)
        assert load_need(group, values, load.players) <= load_need(group, values, load.peak) <= full


def test_one_instance_with_an_impossible_number_of_players_asks_for_what_a_full_one_does() -> None:
    group = spec(min=1, max_players=20, up_threshold=0.8, max_step=100)
    model = Model(group)
    model.start(2**31 - 1)
    model.until(30)
    assert [count for _, count in model.changes] == [2]
    load = model.loads.load("lobby", at=model.at)
    assert (load.players, load.above) == (20, 2**31 - 1 - 20)
