"""The number of players that the controller knows of a run: where it comes from, and when it is not true any more."""

from __future__ import annotations

import pytest
from test_folds import S, reports, status
from world import N1, World, spec

from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.group_changes import create_group
from corral.controller.instances.instance_changes import start_instance
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.report_values import report_of
from corral.controller.instances.reports import fold_report
from corral.controller.reconcile.lost_nodes import lose_node
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.planning.scaling import GroupLoad
from corral.system.clock import SystemClock


class Counted:
    """An instance that runs, and what its node and its workload report of it."""

    def __init__(self) -> None:
        self.world = world = World()
        dynamic = ScalingSpec(mode=ScalingMode.DYNAMIC)
        world.do(create_group, spec(ports={}, memory_mb=100, max_players=20, scaling=dynamic, min=1))
        world.do(start_instance, "lobby")
        self.heard = reports(world)
        self.vitals = self.heard._vitals
        self.signals = PlanSignals(
            world.state, clock=SystemClock(), drift=DriftView(world.state), players=self.vitals.players_of
        )
        self.woken: list[str] = []
        self.signals.wake = lambda group, instance: self.woken.append(instance)
        self.vitals.players_changed = self.signals.players_changed
        world.followers += [self.vitals.follow, self.signals.follow]
        self.signals.begin()
        self.run()

    def run(self) -> None:
        update = status(self.world, S.INSTANCE_STATE_RUNNING)
        self.world.do(lambda ws: fold_report(ws, N1, report_of(update, self.world.now)))

    def node_reports(self, players: int | None, *, spooled: bool = False) -> None:
        update = status(
            self.world,
            S.INSTANCE_STATE_RUNNING,
            players_known=players is not None,
            player_count=players or 0,
            max_players=20,
        )
        self.heard.transient(N1, update, spooled=spooled)

    def lose(self) -> None:
        self.world.do(lambda ws: lose_node(ws, "n1", limit=10))
        assert self.world.record("lobby-1").state == "OFFLINE"

    def workload_reports(self, players: int) -> None:
        run = self.world.record("lobby-1").incarnation
        self.vitals.players("lobby-1", run, count=players, maximum=0)

    @property
    def load(self) -> tuple[int, int]:
        """The known players of the group, and on how many instances they are not known."""
        load: GroupLoad = self.signals.scaling(self.world.group("lobby")).load
        return load.players + load.above, load.unknown


@pytest.fixture
def counted() -> Counted:
    return Counted()


def test_counts_of_the_node_and_of_the_workload_reach_the_load_of_the_group(counted: Counted) -> None:
    assert counted.load == (0, 1)
    counted.node_reports(17)
    assert counted.load == (17, 0)
    counted.workload_reports(3)
    assert counted.load == (3, 0)
    assert counted.woken == ["lobby-1"] * 2


def test_a_count_that_the_node_has_no_more_is_unknown(counted: Counted) -> None:
    """After some failed pings: an instance that cannot be asked is not empty."""
    counted.node_reports(0)
    counted.node_reports(None)
    assert (counted.load, counted.vitals.players_of("lobby-1")) == ((0, 1), None)
    assert len(counted.woken) == 2


def test_a_node_that_counts_nothing_leaves_the_count_of_the_workload_alone(counted: Counted) -> None:
    counted.workload_reports(4)
    counted.node_reports(None)
    assert counted.load == (4, 0)


def test_a_report_that_lay_in_the_spool_says_nothing_about_players(counted: Counted) -> None:
    """It may be older than the number that came with the new session."""
    counted.node_reports(5)
    counted.node_reports(0, spooled=True)
    counted.node_reports(None, spooled=True)
    assert counted.load == (5, 0)


def test_players_are_unknown_after_the_loss_of_the_node_until_they_are_reported_again(
    counted: Counted,
) -> None:
    counted.node_reports(0)
    assert counted.load == (0, 0)
    counted.lose()
    assert (counted.load, counted.vitals.players_of("lobby-1")) == ((0, 1), None)
    counted.run()
    assert counted.load == (0, 1)
    counted.node_reports(2)
    assert counted.load == (2, 0)


def test_what_the_workload_reported_is_unknown_while_its_node_is_away_and_known_when_it_is_back(
    counted: Counted,
) -> None:
    """What its node should have kept may have been lost with the line: nobody would report it again."""
    counted.workload_reports(7)
    counted.lose()
    assert (counted.load, counted.vitals.players_of("lobby-1")) == ((0, 1), None)
    woken = len(counted.woken)
    counted.run()
    assert counted.load == (7, 0)
    assert len(counted.woken) > woken
    counted.lose()
    counted.workload_reports(3)
    counted.run()
    assert counted.load == (3, 0)
    counted.workload_reports(0)
    counted.lose()
    counted.run()
    assert counted.load == (0, 1), "players may have come meanwhile"


def test_a_count_of_an_earlier_run_is_none_of_the_present_one(counted: Counted) -> None:
    counted.node_reports(6)
    old = counted.world.record("lobby-1").incarnation
    again = status(counted.world, S.INSTANCE_STATE_RUNNING, incarnation=old + 1)
    counted.world.do(lambda ws: fold_report(ws, N1, report_of(again, counted.world.now)))
    assert counted.load == (0, 1)
    late = status(counted.world, S.INSTANCE_STATE_RUNNING, incarnation=old - 1024, players_known=True)
    counted.heard.transient(N1, late, spooled=False)
    assert counted.load == (0, 1)


def test_a_count_that_its_node_kept_of_the_workload_is_older_than_every_other(counted: Counted) -> None:
    """The workload may have reported again before what its node kept arrives."""

    def kept(players: int) -> None:
        update = status(
            counted.world,
            S.INSTANCE_STATE_RUNNING,
            players_known=True,
            players_reported=True,
            player_count=players,
        )
        counted.heard.transient(N1, update, spooled=False)

    kept(0)
    assert counted.load == (0, 1), "players may have come since then"
    kept(7)
    assert counted.load == (7, 0)
    counted.node_reports(None)  # another report of a node that counts nothing itself
    assert counted.load == (7, 0)
    counted.workload_reports(2)
    kept(0)
    assert counted.load == (2, 0)


def test_a_node_claims_no_more_players_of_an_instance_than_a_workload_may() -> None:
    counted = Counted()
    counted.node_reports(2**31 - 1)
    assert counted.load == (1_000_000, 0)
