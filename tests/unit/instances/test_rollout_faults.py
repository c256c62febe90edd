"""Deployments that fail, and faults meanwhile: crashes, refusals, lost nodes, leaders that change, clocks that are set."""

from __future__ import annotations

import msgspec
import pytest
from deployed_world import DeployedWorld, S

from corral.controller.instances import deployments, group_changes, instance_changes
from corral.controller.instances.revisions import drop_revisions
from corral.domain.groups.disconnect_spec import DisconnectSpec
from corral.domain.groups.group import CrashLoopSpec
from corral.domain.groups.instance_records import AfterStop, Readiness, is_lost
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import Admission
from corral.errors import Code, Rejected


def canary_of(world: DeployedWorld):
    world.settle()
    return world.there(2)[0]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_crash_of_the_canary_takes_the_deployment_back(restarted):
    world = DeployedWorld(3)
    world.deploy(strategy="canary", canary_seconds=300)
    world.until(S.GATE)
    canary = canary_of(world)
    world.crash(canary, restarted=restarted)
    world.settle()
    assert world.state_now is S.ROLLING_BACK
    failure = world.deployment.failures[-1]
    assert (failure.instance, failure.phase, failure.reason) == (canary.id, "GATE", "crashed")
    assert (world.group().pinned_revision, world.group().paused) == (1, None)
    world.until(S.ROLLED_BACK)
    assert world.revisions() == [1, 1, 1]
    record = world.deployment
    assert record.outcome == f"1 instance failed (max_failures: 1): '{canary.id}' crashed"
    assert record.undone.startswith("every instance runs by revision 1 again")
    assert world.group().deployment == ""
    world.live_on(100)  # new ones are started by the revision that the group is pinned to
    world.crash(world.there()[0], restarted=False)
    world.live_on(30)
    assert world.revisions() == [1, 1, 1]


def test_a_probe_that_fails_for_a_moment_retires_nothing():
    world = DeployedWorld(4)
    former = world.there(1)
    world.deploy()
    world.settle()
    for each in former:
        world.report(world.record(each.id), InstanceState.RUNNING, readiness=Readiness.WAITING)
    world.settle()
    assert all(world.record(each.id).wanted is Wanted.RUN for each in former)
    for each in former:
        world.report(world.record(each.id), InstanceState.RUNNING, readiness=Readiness.READY)
    world.until(S.COMPLETED)


def test_former_ones_that_stay_unhealthy_go_as_new_ones_get_healthy():
    world = DeployedWorld(4)
    former = world.there(1)
    for each in former:
        world.report(world.record(each.id), InstanceState.RUNNING, readiness=Readiness.WAITING)
    world.live_on(15)
    world.deploy()
    while world.state_now is not S.COMPLETED:
        world.live_on(0.5)
        gone = sum(world.record(each.id).wanted is not Wanted.RUN for each in former)
        healthy = world.progress.updated if world.deployment.active else 4
        assert gone <= healthy + 1
    assert world.revisions() == [2, 2, 2, 2]


def test_a_refused_start_fails_the_deployment():
    world = DeployedWorld(3)
    world.deploy()
    new = canary_of(world)
    world.refuse(new, permanent=True)
    world.until(S.ROLLED_BACK)
    failure = world.deployment.failures[-1]
    assert (failure.code, failure.instance) == ("IO", new.id)
    assert world.revisions() == [1, 1, 1]


def test_fewer_failures_than_allowed_do_not_end_it():
    world = DeployedWorld(3)
    world.deploy(max_failures=3)
    for _ in range(2):
        world.settle()
        world.obey("n1")
        world.obey("n2")
        world.crash(world.there(2)[0], restarted=True)
    world.until(S.COMPLETED)
    assert world.deployment.failed == 2


def test_failures_of_other_revisions_do_not_count():
    world = DeployedWorld(3)
    world.deploy(strategy="canary", canary_seconds=300)
    world.until(S.GATE)
    world.live_on(15)
    world.crash(world.there(1)[0], restarted=False)
    world.live_on(30)
    assert (world.state_now, world.deployment.failed) == (S.GATE, 0)
    assert world.revisions() == [1, 1, 2]


def test_healthy_new_ones_stay_until_stable_ones_are_healthy():
    world = DeployedWorld(3)
    record = world.deploy()
    world.until_updated(2)
    world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    least = 3
    while world.state_now is not S.ROLLED_BACK:
        world.live_on(0.5)
        least = min(least, world.progress.healthy)
        assert world.clock.seconds < 500
    assert least == 3


def test_without_auto_rollback_it_fails_and_each_revision_is_healed_by_itself():
    world = DeployedWorld(4, nodes=6)
    world.deploy(auto_rollback=False, strategy="canary", canary=2, canary_seconds=300)
    world.until(S.GATE)
    world.live_on(15)
    world.crash(world.there(2)[0], restarted=True)
    world.live_on(30)
    record = world.deployment
    assert (record.state, record.undone) == (S.FAILED, "nothing was undone: update.auto_rollback is false")
    group = world.group()
    assert (group.deployment, group.unsettled, group.pinned_revision) == ("", record.id, 0)
    assert world.revisions() == [1, 1, 2, 2]
    for revision in (1, 2):
        world.crash(world.there(revision)[0], restarted=False)
        world.live_on(30)
        assert world.revisions() == [1, 1, 2, 2]
    world.ask(group_changes.scale_group, "lobby", 5)
    world.live_on(30)
    assert world.revisions() == [1, 1, 1, 2, 2]
    back = world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    assert back.target == 1
    world.until(S.COMPLETED)
    assert world.revisions() == [1, 1, 1, 1, 1]
    assert world.group().unsettled == ""


def test_without_a_stable_revision_it_fails():
    world = DeployedWorld(0)
    world.deploy()
    world.live_on(1)
    assert world.state_now is S.COMPLETED
    other = DeployedWorld(1)
    other.do_as(deployments.restart_revision, "lobby", by="ada")
    other.settle()
    other.obey("n1")
    other.obey("n2")
    other.crash(other.there(2)[0], restarted=False)
    other.until(S.ROLLED_BACK)
    assert other.revisions() == [1]


def test_no_progress_takes_it_back():
    world = DeployedWorld(3, nodes=2)
    world.edit(memory_mb=2000)
    world.deploy_again(progress_seconds=100)
    world.live_on(90)
    assert world.state_now is S.ROLLING
    assert "NO_CAPACITY" in world.deployment.waiting
    world.live_on(30)
    assert world.state_now is S.ROLLED_BACK
    assert world.deployment.outcome.startswith("no progress for 100 s; NO_CAPACITY")
    assert world.revisions() == [1, 1, 1]


def test_a_failing_target_is_taken_back_and_not_paused_with_its_group():
    world = DeployedWorld(3, nodes=6, crash_loop=CrashLoopSpec(failures=2, pause_seconds=3000))
    world.deploy(max_failures=2, max_surge=3)
    world.settle()
    for node in sorted(world.connected):
        world.obey(node)
    for record in world.there(2)[:2]:
        world.crash(record, restarted=False)
    assert world.group().paused is not None
    world.settle()
    assert (world.state_now, world.group().paused) == (S.ROLLING_BACK, None)
    world.until(S.ROLLED_BACK)


def test_a_deployment_of_a_group_that_is_paused_ends_the_pause():
    world = DeployedWorld(1, crash_loop=CrashLoopSpec(failures=1, pause_seconds=3000))
    world.crash(world.there()[0], restarted=False)
    world.live_on(10)
    assert world.group().paused is not None
    world.deploy()
    assert world.group().paused is None
    world.until(S.COMPLETED)


@pytest.mark.parametrize("state", [S.CANARY, S.GATE, S.ROLLING, S.PAUSED, S.ROLLING_BACK])
def test_another_leader_goes_on_in_each_state(state):
    world = DeployedWorld(3)
    record = world.deploy(strategy="canary", canary_seconds=30)
    if state is S.PAUSED:
        world.until(S.GATE)
        world.do_as(deployments.pause_deployment, record.id, by="ada")
    elif state is S.ROLLING_BACK:
        world.until(S.ROLLING)
        world.do_as(deployments.roll_back_deployment, record.id, by="ada")
        world.settle()
    else:
        world.until(state)
    world.change_leader(told=True)
    world.settle()
    assert world.state_now is state
    if state is S.PAUSED:
        world.do_as(deployments.resume_deployment, record.id, by="ada")
    world.until(S.ROLLED_BACK if state is S.ROLLING_BACK else S.COMPLETED)
    assert len(set(world.revisions())) == 1


def test_a_new_leader_takes_no_ready_instance_for_an_unhealthy_one():
    world = DeployedWorld(3)
    world.deploy()
    world.settle()
    known = {each.id for each in world.there(1)}
    world.change_leader(told=True)
    world.settle()
    assert {each.id for each in world.there(1)} == known


def test_the_time_without_progress_begins_anew_with_a_leader():
    world = DeployedWorld(3, nodes=2)
    world.edit(memory_mb=2000)
    world.deploy_again(progress_seconds=100)
    world.live_on(60)
    world.change_leader(told=True)
    world.live_on(60)
    assert world.state_now is S.ROLLING
    world.live_on(60)
    assert world.state_now is S.ROLLED_BACK


@pytest.mark.parametrize("seconds", [3600, -3600])
def test_a_clock_that_is_set_changes_no_times(seconds):
    world = DeployedWorld(3, nodes=2)
    world.edit(memory_mb=2000)
    world.deploy_again(progress_seconds=100)
    world.live_on(50)
    world.set_clock(seconds)
    world.look_at_everything()
    world.live_on(30)
    assert world.state_now is S.ROLLING
    world.live_on(40)
    assert world.state_now is S.ROLLED_BACK


def test_a_node_in_its_grace_stops_the_time_without_progress():
    world = DeployedWorld(3, nodes=3, disconnect=DisconnectSpec(replace_after_seconds=400))
    world.deploy(progress_seconds=100)
    world.settle()
    node = world.there(1)[0].node
    world.drop(node)
    world.live_on(300)
    assert world.state_now is S.ROLLING
    assert f"waits for node '{node}' to reconnect" in world.deployment.waiting
    world.come_back(node, with_runs=True)
    world.until(S.COMPLETED)


def test_lost_instances_are_stragglers_and_go_when_they_are_back():
    world = DeployedWorld(3, nodes=4)
    world.deploy()
    lost = world.there(1)[0]
    world.drop(lost.node)
    world.until(S.COMPLETED)
    assert is_lost(world.record(lost.id))
    assert (world.group().unsettled, world.revisions()) == (world.deployment.id, [2, 2, 2])
    world.come_back(lost.node, with_runs=True)
    world.count_players(lost.id, 4)
    world.live_on(30)
    assert world.record(lost.id).wanted is Wanted.DRAIN  # its players are not cut
    assert world.revisions() == [2, 2, 2]
    world.leave(lost.id)
    world.live_on(20)
    assert {each.revision for each in world.alive()} == {2}
    assert world.group().unsettled == ""


def test_static_instances_are_replaced_one_after_the_other_at_home():
    world = DeployedWorld(3, static=True)
    homes = {each.id: each.node for each in world.there()}
    world.deploy()
    least = 3
    while world.deployment.active:
        world.live_on(0.5)
        least = min(least, world.progress.healthy)
        assert len(world.alive()) <= 3
        assert world.clock.seconds < 600
    assert (world.state_now, least) == (S.COMPLETED, 2)
    assert {each.id: each.node for each in world.there()} == homes
    assert world.revisions() == [2, 2, 2]


def test_a_static_instance_with_players_is_waited_for_and_no_other_stands_in():
    world = DeployedWorld(2, static=True)
    world.enter("lobby-1")
    world.enter("lobby-2")
    world.deploy()
    world.live_on(2000)
    assert sorted(each.id for each in world.alive()) == ["lobby-1", "lobby-2"]
    assert [each.wanted for each in world.alive()].count(Wanted.DRAIN) == 1
    assert world.state_now is S.ROLLING
    world.leave("lobby-1")
    world.live_on(30)
    world.leave("lobby-2")
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2]


def test_a_static_deployment_goes_back_at_home():
    world = DeployedWorld(2, static=True)
    homes = {each.id: each.node for each in world.there()}
    world.deploy()
    while not world.there(2):
        world.live_on(0.5)
    world.crash(world.there(2)[0], restarted=False)
    world.until(S.ROLLED_BACK)
    assert {each.id: each.node for each in world.there()} == homes
    assert world.revisions() == [1, 1]


def test_a_restart_by_hand_meanwhile_is_not_undone():
    world = DeployedWorld(3)
    world.deploy()
    world.settle()
    world.ask(instance_changes.restart_instance, "lobby-2", reason="")
    assert world.record("lobby-2").after_stop is AfterStop.RESTART
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2, 2]


def test_a_rollback_is_refused_without_a_stable_revision():
    world = DeployedWorld(0)
    record = world.deploy()
    with pytest.raises(Rejected) as refused:
        world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    assert refused.value.code is Code.CONFLICT


def test_a_dynamic_group_keeps_its_number_while_it_is_deployed():
    world = DeployedWorld(
        1, nodes=6, max=8, max_players=10, scaling=ScalingSpec(mode=ScalingMode.DYNAMIC, cooldown_seconds=0)
    )
    for _count in range(1, 4):
        for each in world.there():
            world.count_players(each.id, 10)
        world.live_on(30)
    many = len(world.there())
    assert many >= 3
    for each in world.there():
        world.count_players(each.id, 7)
    world.live_on(30)
    many = len(world.there())
    world.deploy(max_surge=0, max_unavailable=1)
    most = many
    for _ in range(200):
        world.live_on(1)
        most = max(most, len(world.there()))
    assert most <= many + 1


def test_a_target_without_a_place_keeps_no_stable_instance_from_being_replaced():
    world = DeployedWorld(4, nodes=2)
    world.edit(memory_mb=2000)
    world.deploy_again(strategy="canary", canary=2, max_surge=2, progress_seconds=1000)
    world.live_on(10)
    assert "NO_CAPACITY" in world.deployment.waiting
    for each in world.there(1)[:3]:
        world.crash(each, restarted=True)
        world.ask(instance_changes.kill_instance, each.id, reason="")
    world.live_on(10)
    assert world.revisions() == [1, 1]  # the places of the canaries stay free for them


def test_what_is_started_by_a_later_document_is_no_straggler():
    world = DeployedWorld(3, nodes=4)
    world.deploy()
    lost = world.there(1)[0]
    world.drop(lost.node)
    world.until(S.COMPLETED)
    world.edit(env={"LATER": "1"})
    world.crash(world.there(2)[0], restarted=False)
    world.live_on(60)
    assert world.revisions() == [2, 2, 3]
    world.come_back(lost.node, with_runs=True)
    world.live_on(60)
    assert world.revisions() == [2, 2, 3]
    assert lost.id not in {each.id for each in world.alive()}
    assert world.group().unsettled == ""


def test_a_static_instance_that_an_operator_holds_stopped_blocks_nothing():
    world = DeployedWorld(3, static=True)
    world.ask(instance_changes.stop_instance, "lobby-2", reason="maintenance")
    world.live_on(30)
    world.deploy()
    world.until(S.COMPLETED)
    assert [each.id for each in world.there(2)] == ["lobby-1", "lobby-3"]


def test_what_still_has_players_serves_again_on_the_way_back():
    world = DeployedWorld(2)
    world.enter("lobby-1")
    world.enter("lobby-2")
    record = world.deploy()
    world.until_updated(2)
    world.settle()
    assert [each.wanted for each in world.alive() if each.revision == 1] == [Wanted.DRAIN] * 2
    world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    world.until(S.ROLLED_BACK)
    assert [each.id for each in world.alive()] == ["lobby-1", "lobby-2"]
    assert {each.retired_by for each in world.alive()} == {""}


def test_a_crash_pause_holds_back_a_deployment_that_allows_more_failures():
    world = DeployedWorld(2, crash_loop=CrashLoopSpec(failures=1, pause_seconds=60))
    world.deploy(max_failures=10)
    world.settle()
    world.obey(world.there(2)[0].node)
    world.crash(world.there(2)[0], restarted=False)
    world.live_on(30)
    assert world.there(2) == []
    assert "crash-looping" in world.deployment.waiting
    world.until(S.COMPLETED)


def test_a_canary_that_is_not_ready_for_a_while_is_watched_anew():
    world = DeployedWorld(3)
    world.deploy(strategy="canary", canary_seconds=60)
    world.until(S.GATE)
    world.live_on(50)
    canary = world.there(2)[0]
    world.report(canary, InstanceState.RUNNING, readiness=Readiness.WAITING, reason="lag")
    world.live_on(2)
    assert world.deployment.waiting == f"'{canary.id}' is not healthy"
    world.report(world.record(canary.id), InstanceState.RUNNING, readiness=Readiness.READY)
    world.live_on(50)
    assert world.state_now is S.GATE
    world.until(S.ROLLING, within=30)


def test_players_of_a_superseded_deployment_are_waited_for_as_long_as_of_the_present_one():
    world = DeployedWorld(1)
    world.enter("lobby-1")
    first = world.deploy(drain_seconds=60)
    world.until_updated(1)
    world.settle()
    assert world.record("lobby-1").retired_by == first.id
    second = world.deploy(drain_seconds=60)
    assert second.id != first.id
    world.until(S.COMPLETED, within=100)
    assert [each.revision for each in world.alive()] == [3]


@pytest.mark.parametrize("static", [False, True])
def test_a_rollout_does_not_fail_because_old_instances_take_long_to_stop(static):
    world = DeployedWorld(2, static=static)
    world.slow_to_stop = {"lobby-1", "lobby-2"}
    world.deploy(progress_seconds=30)
    world.live_on(200)
    assert (world.state_now, world.deployment.failed) == (S.ROLLING, 0)
    assert world.deployment.waiting in (
        "waits for 'lobby-1', 'lobby-2' to stop",
        "waits for 'lobby-1' to stop",
    )
    world.slow_to_stop = set()
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2]


def forget_revisions(world: DeployedWorld) -> None:
    """As if the instances had been started before revisions were recorded."""
    for each in world.alive():
        ws = world.workspace()
        ws.put_instance(msgspec.structs.replace(each, revision=0))
        world.apply(ws.steps())


def test_what_runs_without_a_number_goes_back_to_the_revision_with_its_contents():
    world = DeployedWorld(2)
    forget_revisions(world)
    assert world.deploy().stable == 1
    world.crash(canary_of(world), restarted=False)
    world.until(S.ROLLED_BACK)
    assert world.group().pinned_revision == 1


@pytest.mark.parametrize("static", [False, True])
def test_without_a_stable_revision_no_more_than_the_canaries_are_of_the_target(static):
    world = DeployedWorld(3, static=static)
    forget_revisions(world)
    ws = world.workspace()
    drop_revisions(ws, "lobby")
    world.apply(ws.steps())
    world.deploy(strategy="canary", canary=1, promote="manual")
    world.until(S.GATE)
    assert world.deployment.stable == 0
    old = next(each for each in world.there() if not world.deployment.is_target(each))
    world.crash(old, restarted=False)
    world.live_on(60)
    assert sum(map(world.deployment.is_target, world.there())) == 1
    assert "there is no stable revision" in world.deployment.waiting
    world.do_as(deployments.promote_deployment, world.deployment.id, by="ada")
    world.until(S.COMPLETED)
    assert len(world.there()) == 3


def test_a_failure_without_a_stable_revision_says_what_new_ones_are_started_by():
    world = DeployedWorld(2)
    forget_revisions(world)
    ws = world.workspace()
    drop_revisions(ws, "lobby")
    world.apply(ws.steps())
    world.deploy()
    new = next(each for each in (world.settle(), world.there())[1] if world.deployment.is_target(each))
    world.crash(new, restarted=False)
    world.settle()
    assert world.state_now is S.FAILED
    text = (
        "nothing was undone: there is no stable revision; new instances are started by the present document"
    )
    assert world.deployment.undone == text


def test_a_failure_after_a_change_of_static_pins_the_group_to_nothing():
    world = DeployedWorld(2)
    world.edit(static=True)
    record = world.deploy_again(max_unavailable=1)
    assert record.stable == 1
    world.settle()
    while not world.there(2):
        world.live_on(0.5)
    world.crash(world.there(2)[0], restarted=False)
    world.settle()
    assert (world.state_now, world.group().pinned_revision) == (S.FAILED, 0)
    why = "revision 1 of group 'lobby' is not static, and the group is"
    text = f"nothing was undone: {why}; new instances are started by the present document"
    assert world.deployment.undone == text
    world.live_on(60)
    assert len(world.there()) == 2


def test_a_rollback_to_a_revision_that_cannot_be_started_is_refused():
    world = DeployedWorld(2)
    world.edit(static=True)
    record = world.deploy_again(max_unavailable=1)
    with pytest.raises(Rejected, match="is not static, and the group is") as refused:
        world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    assert refused.value.code is Code.CONFLICT


def test_a_rollback_that_fails_says_what_was_undone_and_what_not():
    world = DeployedWorld(3, nodes=2)
    record = world.deploy(progress_seconds=60)
    world.until_updated(1)
    for node in list(world.connected):
        world.configure_node(node, Admission.CORDONED)
    world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    for each in world.there(1):
        world.crash(each, restarted=False)
    world.until(S.FAILED, within=1000)
    left = len(world.there(2))
    assert left
    assert world.deployment.undone.startswith(
        "not everything was undone: 0 instances run by revision 1 again"
    )
    assert world.deployment.undone.endswith("; the group is pinned to revision 1")
    assert world.group().pinned_revision == 1


def test_orders_about_deployments_that_have_ended_name_what_can_be_done():
    world = DeployedWorld(2)
    record = world.deploy()
    world.until(S.COMPLETED)
    with pytest.raises(Rejected) as refused:
        world.do_as(deployments.cancel_deployment, record.id, by="ada")
    assert f"corral deployment rollback {record.id}" in refused.value.hint
    undo = world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    world.until(S.COMPLETED)
    with pytest.raises(Rejected, match="it was a rollback itself, to revision 1") as refused:
        world.do_as(deployments.roll_back_deployment, undo.id, by="ada")
    assert (
        refused.value.hint == "to bring the document again: change what was wrong, then corral deploy lobby"
    )


def test_a_gate_does_not_pass_by_a_report_of_long_ago():
    world = DeployedWorld(3)
    world.deploy(strategy="canary", canary_seconds=90, progress_seconds=1000, gate={"tps": {"min": 18}})
    world.until(S.GATE)
    canary = world.there(2)[0]
    world.vitals.metrics(canary.id, canary.incarnation, {"tps": 20})
    world.live_on(200)
    assert (world.state_now, world.deployment.watched_since) == (S.GATE, None)
    assert world.deployment.waiting == f"'{canary.id}' has not reported 'tps' lately"
    for _ in range(7):
        world.vitals.metrics(canary.id, canary.incarnation, {"tps": 20})
        world.live_on(20)
    world.until(S.COMPLETED)
