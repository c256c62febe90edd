"""Deployments with the real reconciler: phases, floors, players, and what operators order."""

from __future__ import annotations

import pytest
from deployed_world import DeployedWorld, S

from corral.controller.instances import deployments, group_changes, instance_changes
from corral.domain.groups.group import CrashLoopSpec
from corral.domain.groups.instance_records import Readiness, is_ready
from corral.domain.instance_states import InstanceState, Wanted
from corral.errors import Code, Rejected


def ready(world: DeployedWorld) -> int:
    return sum(is_ready(each) for each in world.there())


def test_a_deployment_replaces_one_after_the_other_and_never_has_fewer_ready_than_wanted():
    world = DeployedWorld(3)
    record = world.deploy()
    assert (record.state, record.target, record.stable) == (S.PENDING, 2, 1)
    counts = set()
    while world.state_now is not S.COMPLETED:
        world.live_on(1)
        counts.add(len(world.there()))
        assert ready(world) >= 3
        assert world.clock.seconds < 400
    assert world.revisions() == [2, 2, 2]
    assert max(counts) == 4
    group = world.group()
    assert (group.deployment, group.unsettled, group.stable_revision) == ("", "", 2)
    assert world.phases() == ["ROLLING", "COMPLETED"]


def test_nothing_is_left_to_do_after_a_deployment():
    world = DeployedWorld(3)
    world.deploy()
    world.until(S.COMPLETED)
    known = world.state.number
    world.look_at_everything()
    world.live_on(60)
    assert world.state.number == known


def test_an_active_deployment_always_names_what_it_waits_for():
    world = DeployedWorld(3, update={"strategy": "canary"})
    world.deploy()
    while world.deployment.active:
        world.live_on(1)
        assert world.deployment.waiting or not world.deployment.active
        assert world.clock.seconds < 600


@pytest.mark.parametrize(
    ("options", "most", "least"),
    [
        ({"max_surge": 1, "max_unavailable": 0}, 5, 4),
        ({"max_surge": 2, "max_unavailable": 0}, 6, 4),
        ({"max_surge": 0, "max_unavailable": 1}, 4, 3),
        ({"max_surge": 0, "max_unavailable": "50%"}, 4, 2),
        ({"max_surge": "50%", "max_unavailable": 1}, 6, 3),
    ],
)
def test_surge_and_unavailable_bound_what_serves(options, most, least):
    world = DeployedWorld(4, nodes=6)
    world.deploy(**options)
    seen = []
    while world.deployment.active:
        world.live_on(0.5)
        seen.append((len(world.there()), world.progress.healthy))
        assert world.clock.seconds < 600
    assert world.state_now is S.COMPLETED
    assert max(count for count, _ in seen) == most
    assert min(count for _, count in seen) == least


def test_min_available_is_a_floor_of_a_deployment_too():
    world = DeployedWorld(4, nodes=6, min_available=3)
    world.deploy(max_surge=0, max_unavailable=4)
    least = 4
    while world.deployment.active:
        world.live_on(0.5)
        least = min(least, world.progress.healthy)
        assert world.clock.seconds < 600
    assert (world.state_now, least) == (S.COMPLETED, 3)


def test_players_are_waited_for_and_block_nothing_else():
    world = DeployedWorld(3)
    world.enter("lobby-1")
    world.deploy()
    world.live_on(120)
    assert world.state_now is S.ROLLING
    assert world.revisions() == [2, 2, 2]
    record = world.record("lobby-1")
    assert (record.wanted, record.state) == (Wanted.DRAIN, InstanceState.DRAINING)
    assert world.deployment.waiting == "waits for the players of 'lobby-1' to leave"
    progress = world.progress
    assert (progress.wanted, progress.updated, progress.outdated, progress.draining) == (3, 3, 0, 1)
    assert [(each.id, each.players) for each in progress.waiting_players] == [("lobby-1", 1)]
    world.live_on(5000)  # no time without progress counts while players are waited for
    assert world.state_now is S.ROLLING
    world.leave("lobby-1")
    world.live_on(10)
    assert world.state_now is S.COMPLETED


def test_players_are_waited_for_no_longer_than_drain_seconds():
    world = DeployedWorld(2)
    world.enter("lobby-1")
    world.enter("lobby-2")
    world.deploy(drain_seconds=100)
    world.live_on(90)
    assert world.state_now is S.ROLLING
    world.until(S.COMPLETED, within=60)
    assert {each.rule for each in world.made() if each.subject == "lobby-1" and each.kind == "stop"} == {
        "deploy.retire"
    }


def test_empty_instances_go_first_then_those_with_the_fewest_players():
    world = DeployedWorld(3)
    world.count_players("lobby-1", 5)
    world.count_players("lobby-2", 2)
    world.count_players("lobby-3", 0)
    world.deploy()
    world.live_on(100)
    order = [each.subject for each in world.made() if each.rule == "deploy.retire" and each.kind != "start"]
    assert order == ["lobby-3", "lobby-2", "lobby-1"]


def test_an_unhealthy_outdated_instance_is_replaced_first_whatever_the_floor_says():
    world = DeployedWorld(3)
    world.report(world.record("lobby-2"), InstanceState.RUNNING, readiness=Readiness.WAITING, reason="lag")
    world.live_on(15)
    world.deploy()
    world.settle()
    stops = [each for each in world.made() if each.rule == "deploy.retire"]
    assert [each.subject for each in stops] == ["lobby-2"]
    assert len(world.there(2)) == 2
    assert len(world.there()) == 4


def test_a_canary_is_watched_before_the_others_follow():
    world = DeployedWorld(4, nodes=6)
    world.deploy(strategy="canary", canary=1, canary_seconds=60)
    world.until(S.GATE)
    at = world.clock.seconds
    assert world.revisions() == [1, 1, 1, 2] or world.revisions() == [1, 1, 1, 1, 2]
    world.live_on(50)
    assert world.state_now is S.GATE
    assert world.revisions() == [1, 1, 1, 2]
    world.until(S.ROLLING)
    assert world.clock.seconds - at >= 60
    world.until(S.COMPLETED)
    assert world.phases() == ["CANARY", "GATE", "ROLLING", "COMPLETED"]


def test_a_share_of_canaries_is_rounded_up():
    world = DeployedWorld(5, nodes=6)
    world.deploy(strategy="canary", canary="25%", canary_seconds=600)
    world.until(S.GATE)
    world.live_on(60)
    assert world.revisions() == [1, 1, 1, 2, 2]


def test_a_manual_gate_waits_for_promote():
    world = DeployedWorld(3)
    record = world.deploy(strategy="canary", promote="manual", canary_seconds=1, progress_seconds=50)
    world.until(S.GATE)
    world.live_on(3000)
    assert world.state_now is S.GATE
    assert f"corral deployment promote {record.id}" in world.deployment.waiting
    world.do_as(deployments.promote_deployment, record.id, by="ada")
    assert world.do_as(deployments.promote_deployment, record.id, by="ada").state is S.ROLLING
    world.until(S.COMPLETED)


def test_a_gate_passes_only_with_all_metrics_in_their_bounds():
    world = DeployedWorld(3)
    world.deploy(strategy="canary", canary_seconds=30, gate={"tps": {"min": 18}})
    world.until(S.GATE)
    world.live_on(100)
    canary = world.there(2)[0]
    assert world.deployment.waiting == f"'{canary.id}' has not reported 'tps' lately"
    world.vitals.metrics(canary.id, canary.incarnation, {"tps": 20})
    world.live_on(20)
    assert world.state_now is S.GATE
    world.until(S.ROLLING, within=20)


def test_a_metric_out_of_its_bounds_fails_the_deployment():
    world = DeployedWorld(3)
    world.deploy(strategy="canary", canary_seconds=300, gate={"tps": {"min": 18}, "players": {"max": 50}})
    world.until(S.GATE)
    canary = world.there(2)[0]
    world.enter(canary.id)
    world.vitals.metrics(canary.id, canary.incarnation, {"tps": 9})
    world.until(S.ROLLING_BACK, within=6)
    world.leave(canary.id)
    world.until(S.ROLLED_BACK)
    assert world.revisions() == [1, 1, 1]
    assert world.deployment.outcome == f"the gate is not met: 'tps' of '{canary.id}' is 9, less than 18"


def test_a_paused_deployment_keeps_what_there_is_and_goes_on_where_it_was():
    world = DeployedWorld(4, nodes=6, crash_loop=CrashLoopSpec(failures=100))
    record = world.deploy(max_failures=100)
    world.until_updated(1)
    world.do_as(deployments.pause_deployment, record.id, by="ada")
    world.live_on(2000)
    assert world.state_now is S.PAUSED
    assert world.revisions() == [1, 1, 1, 2, 2]
    world.crash(world.there(1)[0], restarted=False)
    world.live_on(30)
    assert world.revisions() == [1, 1, 2, 2]  # the surge is not filled up
    for revision in (1, 2):  # what fails is replaced by its own revision
        world.crash(world.there(revision)[0], restarted=False)
        world.live_on(30)
        assert world.revisions() == [1, 1, 2, 2]
    world.do_as(deployments.resume_deployment, record.id, by="ada")
    assert world.state_now is S.ROLLING


def test_an_operator_rolls_back_and_the_group_is_pinned():
    world = DeployedWorld(3)
    record = world.deploy()
    while len(world.there(2)) < 2:
        world.live_on(1)
    world.do_as(deployments.roll_back_deployment, record.id, by="ada", reason="it is slow")
    assert world.group().pinned_revision == 1
    world.until(S.ROLLED_BACK)
    assert world.revisions() == [1, 1, 1]
    assert world.deployment.outcome == "rolled back by ada: it is slow"
    assert "env" in (world.group().written or {})
    world.deploy_again()
    assert world.group().pinned_revision == 0
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2, 2]


def test_a_completed_deployment_is_taken_back_by_another():
    world = DeployedWorld(2)
    record = world.deploy()
    world.until(S.COMPLETED)
    back = world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    assert (back.target, back.trigger, world.group().pinned_revision) == (1, "rollback", 1)
    world.until(S.COMPLETED)
    assert world.revisions() == [1, 1]
    assert world.group().pinned_revision == 1


def test_a_cancelled_deployment_takes_nothing_back():
    world = DeployedWorld(3)
    record = world.deploy()
    world.until_updated(1)
    world.settle()
    assert world.revisions() == [1, 1, 2, 2]
    world.do_as(deployments.cancel_deployment, record.id, by="ada", reason="later")
    world.live_on(100)
    assert world.revisions() == [1, 2, 2]
    assert (world.state_now, world.deployment.outcome) == (S.CANCELLED, "cancelled by ada: later")
    with pytest.raises(Rejected) as refused:
        world.do_as(deployments.pause_deployment, record.id, by="ada")
    assert refused.value.code is Code.CONFLICT


def test_a_second_deployment_supersedes_the_first_and_keeps_its_stable_revision():
    world = DeployedWorld(3)
    first = world.deploy()
    world.until_updated(1)
    second = world.deploy()
    assert (second.target, second.stable) == (3, 1)
    assert world.state.deployments.require(first.id).record.state is S.SUPERSEDED
    world.until(S.COMPLETED)
    assert world.revisions() == [3, 3, 3]


def test_the_same_deployment_again_is_the_one_that_is_active():
    world = DeployedWorld(3)
    first = world.deploy()
    world.live_on(5)
    known = len(world.events), len(world.decisions)
    assert world.deploy_again().id == first.id
    assert (len(world.events), len(world.decisions)) == known


def test_a_restart_is_a_deployment_of_a_revision_that_differs_in_this_alone():
    world = DeployedWorld(3)
    before = {each.id for each in world.there()}
    record = world.do_as(deployments.restart_revision, "lobby", by="ada")
    assert (record.target, record.trigger) == (2, "restart")
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2, 2]
    assert not before & {each.id for each in world.there()}


def test_a_held_group_is_deployed_when_it_is_released():
    world = DeployedWorld(3)
    world.deploy(strategy="canary")
    world.until(S.CANARY)
    world.ask(group_changes.hold_group, "lobby", by="ada", reason="night", when_empty=False)
    world.live_on(2000)
    assert (world.state_now, world.deployment.resumes) == (S.PENDING, S.CANARY)
    assert "held by ada" in world.deployment.waiting
    world.ask(group_changes.release_group, "lobby", by="ada")
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2, 2]


def test_a_group_that_is_deleted_ends_its_deployment():
    world = DeployedWorld(3)
    record = world.deploy()
    world.live_on(5)
    world.ask(group_changes.delete_group, "lobby", cascade=True, confirm="lobby")
    assert "DEPLOYMENT_CANCELLED" in world.types()
    world.live_on(20)
    assert world.state.groups.find("lobby") is None
    assert world.state.deployments.find(record.id) is None


def test_edits_meanwhile_are_drift_and_what_counts_at_once_does():
    world = DeployedWorld(3)
    world.deploy()
    world.live_on(5)
    world.edit(min=4, env={"OTHER": "1"})
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2, 2, 2]


def test_scale_ups_are_by_the_stable_revision_until_it_is_rolling():
    world = DeployedWorld(2, nodes=6)
    world.deploy(strategy="canary", canary_seconds=600)
    world.until(S.GATE)
    world.live_on(30)
    world.ask(group_changes.scale_group, "lobby", 4)
    world.live_on(30)
    assert world.revisions() == [1, 1, 1, 2]


def test_scaling_down_meanwhile_takes_outdated_ones():
    world = DeployedWorld(1, nodes=6)
    world.ask(group_changes.scale_group, "lobby", 4)
    world.live_on(30)
    record = world.deploy()
    while len(world.there(2)) < 2:
        world.live_on(0.5)
    world.live_on(12)
    world.do_as(deployments.pause_deployment, record.id, by="ada")
    world.ask(group_changes.scale_group, "lobby", 2)
    world.live_on(30)
    world.do_as(deployments.resume_deployment, record.id, by="ada")
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2]


def test_warm_instances_are_replaced_too():
    world = DeployedWorld(2, nodes=6, warm=2)
    world.deploy()
    world.until(S.COMPLETED)
    assert {each.revision for each in world.alive()} == {2}
    assert sum(each.warm for each in world.alive()) == 2


def test_a_group_without_instances_is_deployed_at_once():
    world = DeployedWorld(0)
    world.edit(env={"A": "1"})
    world.deploy_again(strategy="canary")
    world.live_on(1)
    assert world.state_now is S.COMPLETED


def test_every_decision_of_a_deployment_leads_to_its_request():
    world = DeployedWorld(3)
    record = world.deploy(strategy="canary", canary_seconds=5)
    world.until(S.COMPLETED)
    made = {each.id: each for each in world.made()}
    of_deployment = [each for each in made.values() if each.rule.startswith("deploy.")]
    assert {each.rule for each in of_deployment} == {"deploy.start", "deploy.retire", "deploy.gate"}
    for each in of_deployment:
        current, steps = each, 0
        while (before := next((made[id] for id in current.causes if id in made), None)) is not None:
            current, steps = before, steps + 1
            assert steps < 50
        assert current.root.startswith("request:"), each
        assert current.deployment == record.id


def test_options_are_refused_with_their_path():
    world = DeployedWorld(1)
    with pytest.raises(Rejected) as refused:
        world.deploy(max_surge=0, max_unavailable=0)
    assert refused.value.field is not None
    assert refused.value.field.startswith("update/")


def test_a_start_and_a_stop_by_hand_change_the_number_by_one_each():
    world = DeployedWorld(1, nodes=6)
    world.ask(group_changes.scale_group, "lobby", 3)
    world.live_on(30)
    world.deploy()
    world.settle()
    assert len(world.there()) == 4
    world.ask(instance_changes.start_instance, "lobby")
    assert world.group().target == 4
    world.ask(instance_changes.stop_instance, "lobby-1", reason="")
    assert world.group().target == 3
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2, 2]


def test_what_is_started_by_hand_before_all_follow_is_of_the_stable_revision():
    world = DeployedWorld(2, nodes=6)
    world.deploy(strategy="canary", canary_seconds=300)
    world.until(S.GATE)
    world.live_on(20)
    world.ask(instance_changes.start_instance, "lobby")
    canary = world.there(2)[0]
    world.ask(instance_changes.restart_instance, canary.id, reason="")
    world.live_on(30)
    assert world.revisions() == [1, 1, 2]


def test_warm_ones_are_of_the_stable_revision_until_it_is_rolling():
    world = DeployedWorld(2, nodes=6, warm=1)
    world.deploy(strategy="canary", canary_seconds=300)
    world.until(S.GATE)
    warm = next(each for each in world.alive() if each.warm)
    world.crash(warm, restarted=False)
    world.live_on(30)
    assert [each.revision for each in world.alive() if each.warm] == [1]


def test_the_time_without_progress_begins_anew_with_each_step():
    world = DeployedWorld(4, nodes=6)
    began = world.clock.seconds
    world.deploy(progress_seconds=15)
    world.until(S.COMPLETED)
    assert world.clock.seconds - began > 30


def test_nothing_goes_back_to_what_a_cancelled_deployment_brought():
    world = DeployedWorld(3, static=True)
    record = world.deploy(min_healthy_seconds=1)
    world.until_updated(2)
    world.do_as(deployments.cancel_deployment, record.id, by="ada")
    world.live_on(30)
    assert world.revisions().count(2) >= 2
    assert (world.state_now, world.deploy().stable) == (S.CANCELLED, 1)
