"""Groups whose number follows their players, schedules and operators, as the planner decides and the records show."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from world import NOW, World, spec

from corral.controller.instances.group_changes import create_group, patch_group, scale_group
from corral.controller.instances.instance_changes import start_instance, stop_instance
from corral.controller.instances.report_values import RunReport
from corral.controller.instances.reports import fold_report
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.instance_records import DecisionRecord, Readiness, ScaleDirection, live, stays
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec, ScheduleSpec
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.player_loads import InstancePlayers, PlayerLoads
from corral.domain.planning.signals import Signals
from corral.errors import Code, Rejected

DYNAMIC = ScalingSpec(mode=ScalingMode.DYNAMIC)


class KnownPlayers(Signals):
    """Signals of a model: the test says how many players there are and what time it is."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.loads = PlayerLoads()
        self.counts: dict[str, int | None] = {}
        self.at = 0.0

    def follow(self) -> None:
        """Note the instances as they are recorded."""
        for stored in self._world.state.groups:
            group = stored.record.spec
            window = float(group.scaling.window_seconds)
            self.loads.set_group(group.name, capacity=group.max_players, window=window, at=self.at)
        for stored in self._world.state.instances:
            record = stored.record
            seen = InstancePlayers(
                group=record.group,
                run=record.incarnation,
                serves=stays(record) and not record.warm,
                watched=record.state is not InstanceState.OFFLINE,
                players=self.players(record.id),
            )
            self.loads.set_instance(record.id, seen if live(record.state) else None, at=self.at)

    def players(self, instance):
        running = self._world.record(instance).state is not InstanceState.SCHEDULED
        return self.counts.get(instance) if running else 0

    def idle_seconds(self, instance):
        return self.loads.idle_seconds(instance, at=self.at)

    def unknown_seconds(self, instance):
        return self.loads.unknown_seconds(instance, at=self.at)

    def load(self, group):
        return self.loads.load(group.spec.name, at=self.at)

    def cooldown_left(self, group):
        if group.last_scale is None:
            return 0.0
        ended = group.last_scale.at + dt.timedelta(seconds=group.spec.scaling.cooldown_seconds)
        return max(0.0, (ended - self._world.now).total_seconds())

    def floor(self, group):
        lasts = group.floor is not None and self._world.now < group.floor.until
        return group.floor.count if lasts else 0


class Scene(World):
    """A world whose instances run as soon as they are started, with known players."""

    def __init__(self) -> None:
        super().__init__()
        self.known = self.signals = KnownPlayers(self)

    def pass_time(self, seconds: float, **players: int | None) -> None:
        """Let time pass, then have players; every started instance runs by then, and the group is checked."""
        self.now += dt.timedelta(seconds=seconds)
        self.known.at += seconds
        for id, count in players.items():
            self.known.counts[id.replace("_", "-")] = count
        for _ in range(20):
            self.run_all()
            self.known.follow()
            if not self.keep_all(["lobby"]).decisions:
                return
        raise AssertionError("it does not come to rest")

    def run_all(self) -> None:
        for stored in list(self.state.instances):
            record = stored.record
            if record.state is InstanceState.SCHEDULED and record.wanted is Wanted.RUN:
                self.report(record, InstanceState.RUNNING)
            elif record.wanted is Wanted.STOP and live(record.state):
                self.report(record, InstanceState.STOPPED)

    def report(self, record, state: InstanceState) -> None:
        ready = Readiness.READY if state is InstanceState.RUNNING else None
        said = RunReport(
            id=record.id, incarnation=record.incarnation, state=state, started_at=self.now, readiness=ready
        )
        self.do(fold_report, record.node, said)

    def serving(self) -> list[str]:
        return [each.record.id for each in self.state.instances.of_group("lobby") if stays(each.record)]

    def rules(self) -> list[tuple[str, str]]:
        found = [msgspec.json.decode(entry.body, type=DecisionRecord) for entry in self.decisions]
        once = {each.id: (each.kind.value, each.rule) for each in found}  # it is in two journals
        return list(once.values())

    def last(self, kind: DecisionKind) -> DecisionRecord:
        found = [msgspec.json.decode(entry.body, type=DecisionRecord) for entry in self.decisions]
        return next(each for each in reversed(found) if each.kind is kind)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def dynamic(**fields):
    return spec(scaling=fields.pop("scaling", DYNAMIC), max_players=20, **fields)


def test_players_start_further_instances_and_the_decision_names_them(scene):
    scene.do(create_group, dynamic(min=1))
    scene.pass_time(0)
    assert scene.serving() == ["lobby-1"]
    scene.pass_time(60, lobby_1=17)
    assert scene.serving() == ["lobby-1", "lobby-2"]
    scale = scene.last(DecisionKind.SCALE)
    assert (scale.rule, scale.inputs["players"], scale.inputs["to"]) == (Rule.LOAD_UP, 17, 2)
    start = scene.last(DecisionKind.START)
    assert (start.rule, start.causes[0]) == (Rule.LOAD_UP, scale.id)
    assert scene.group().last_scale.direction is ScaleDirection.UP


def test_an_idle_instance_goes_after_its_time_and_one_with_players_never(scene):
    scene.do(create_group, dynamic(min=1))
    scene.pass_time(0)
    scene.pass_time(60, lobby_1=17)
    scene.pass_time(1, lobby_2=0)
    scene.pass_time(299, lobby_1=3)
    assert len(scene.serving()) == 2
    scene.pass_time(300)
    assert scene.serving() == ["lobby-1"]
    stop = scene.last(DecisionKind.STOP)
    assert (stop.rule, stop.causes[0]) == (Rule.IDLE_DOWN, scene.last(DecisionKind.SCALE).id)
    scene.pass_time(10_000)
    assert scene.serving() == ["lobby-1"]


@pytest.mark.trap("T23")
def test_unknown_players_stop_nothing(scene):
    scene.do(create_group, dynamic(min=0))
    for _ in range(3):
        scene.do(start_instance, "lobby")
    scene.pass_time(100_000)
    assert len(scene.serving()) == 3
    scene.pass_time(0, lobby_1=0, lobby_2=0, lobby_3=0)
    scene.pass_time(100_000)
    scene.pass_time(100)
    scene.pass_time(100)
    assert scene.serving() == []


def test_a_surplus_without_players_stops_and_with_players_drains_until_they_are_gone(scene):
    scene.do(create_group, spec(min=3, max_players=20))
    scene.pass_time(0)
    scene.pass_time(1, lobby_1=5, lobby_2=1, lobby_3=0)
    scene.do(patch_group, "lobby", {"min": 1})
    scene.do(scale_group, "lobby", 1)
    scene.pass_time(1)
    assert scene.record("lobby-3").state is InstanceState.STOPPED
    assert scene.record("lobby-2").state is InstanceState.DRAINING
    assert scene.serving() == ["lobby-1"]
    scene.report(scene.record("lobby-2"), InstanceState.RUNNING)
    assert scene.record("lobby-2").state is InstanceState.DRAINING, "its node does not know that it drains"
    scene.pass_time(1, lobby_2=0)
    assert scene.record("lobby-2").state is InstanceState.STOPPED
    assert [each for each in scene.rules() if each[0] in ("stop", "drain")] == [
        ("stop", "surplus.stop"),
        ("drain", "surplus.stop"),
        ("stop", "surplus.stop"),
    ]


def test_one_that_drains_serves_again_before_another_is_started(scene):
    scene.do(create_group, spec(min=2, max_players=20))
    scene.pass_time(0)
    scene.pass_time(1, lobby_1=5, lobby_2=9)
    scene.do(patch_group, "lobby", {"min": 1})
    scene.pass_time(1)
    assert scene.record("lobby-1").state is InstanceState.DRAINING
    scene.do(patch_group, "lobby", {"min": 2})
    scene.pass_time(1)
    record = scene.record("lobby-1")
    assert (record.state, record.wanted) == (InstanceState.RUNNING, Wanted.RUN)
    assert scene.serving() == ["lobby-1", "lobby-2"]


def test_a_lowered_max_parts_with_instances_also_where_the_load_decides(scene):
    scene.do(create_group, dynamic(min=0))
    for _ in range(3):
        scene.do(start_instance, "lobby")
    scene.pass_time(1, lobby_1=10, lobby_2=9, lobby_3=0)
    scene.do(patch_group, "lobby", {"max": 1})
    scene.pass_time(1)
    assert scene.serving() == ["lobby-1"]
    assert scene.record("lobby-2").state is InstanceState.DRAINING
    assert scene.last(DecisionKind.DRAIN).reason.startswith("1 is wanted, 3 are there")


def test_a_schedule_raises_the_minimum_and_its_end_lets_the_idle_ones_go(scene):
    evening = ScheduleSpec(name="evening", cron="0 18 * * *", duration_seconds=3600, min=3)
    scene.do(create_group, dynamic(min=1, schedules=(evening,)))
    scene.pass_time(0)
    assert scene.keep_all(["lobby"]).wake_at == NOW.replace(hour=18)
    scene.pass_time(18 * 3600)
    assert len(scene.serving()) == 3
    assert scene.last(DecisionKind.START).rule == Rule.SCHEDULE_UP
    scene.pass_time(1, lobby_1=0, lobby_2=0, lobby_3=0)
    scene.pass_time(3500)
    assert len(scene.serving()) == 3
    scene.pass_time(99)
    scene.pass_time(61)
    assert len(scene.serving()) == 1


def test_a_floor_holds_for_its_time(scene):
    scene.do(create_group, dynamic(min=1))
    scene.do(scale_group, "lobby", 3, seconds=900)
    scene.pass_time(0)
    assert len(scene.serving()) == 3
    scene.pass_time(1, lobby_1=0, lobby_2=0, lobby_3=0)
    scene.pass_time(898)
    assert len(scene.serving()) == 3
    scene.pass_time(1)
    scene.pass_time(60)
    assert len(scene.serving()) == 1


def test_scale_is_refused_where_the_load_decides_unless_it_is_for_a_while(scene):
    scene.do(create_group, dynamic(min=1))
    with pytest.raises(Rejected) as caught:
        scene.do(scale_group, "lobby", 3)
    assert caught.value.code is Code.CONFLICT
    assert "--for 15m" in caught.value.hint


def test_a_start_by_hand_is_kept_and_a_stop_by_hand_lowers_the_number(scene):
    scene.do(create_group, spec(min=1))
    scene.pass_time(0)
    scene.do(start_instance, "lobby")
    scene.pass_time(1)
    assert scene.group().target == 2
    scene.do(stop_instance, "lobby-1", reason="")
    scene.pass_time(1)
    assert scene.serving() == ["lobby-2"]


def test_maintenance_keeps_instances_and_follows_no_load(scene):
    scene.do(create_group, dynamic(min=1))
    scene.pass_time(0)
    scene.do(patch_group, "lobby", {"maintenance": {"enabled": True, "message": "back soon"}})
    scene.pass_time(60, lobby_1=20)
    assert scene.serving() == ["lobby-1"]
    scene.do(patch_group, "lobby", {"maintenance": None})
    scene.pass_time(1)
    assert scene.serving() == ["lobby-1", "lobby-2"]
