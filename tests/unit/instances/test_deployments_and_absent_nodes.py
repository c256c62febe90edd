"""Deployments of groups of which a node is away: what is updated meanwhile, what is waited for, and what is found when it is
back."""

from __future__ import annotations

import msgspec
import pytest
from deployed_world import DeployedWorld, S

from corral.controller.instances import deployments, group_changes, instance_changes
from corral.controller.instances.node_drains import DrainOrder, drain_node
from corral.domain.groups.deployments import DeploymentTrigger
from corral.domain.groups.disconnect_spec import DisconnectSpec
from corral.domain.groups.group import CrashLoopSpec
from corral.domain.groups.instance_records import Readiness
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec
from corral.domain.instance_states import InstanceState, Wanted

NEVER = DisconnectSpec(replace_after_seconds=None)
"""The node of an instance is waited for as long as it takes."""
SOON = DisconnectSpec(replace_after_seconds=30)
WORLDS = {"nodes": 2, "static": True, "disconnect": SOON, "crash_loop": CrashLoopSpec(failures=100)}
KINDS = {
    "static, beyond the grace time": WORLDS,
    "static, without a time": {**WORLDS, "disconnect": NEVER},
    "without a time": {"nodes": 2, "disconnect": NEVER, "crash_loop": CrashLoopSpec(failures=100)},
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def away(kind: str, *nodes: str, count: int = 4) -> DeployedWorld:
    world = DeployedWorld(count, **KINDS[kind])
    for node in nodes:
        world.drop(node)
    world.live_on(66)
    return world


def ids(world: DeployedWorld) -> list[str]:
    return sorted(each.id for each in world.alive())


def known_ids(world: DeployedWorld) -> list[str]:
    return sorted(each.record.id for each in world.state.instances.of_group("lobby"))


def test_no_world_begins_in_the_place_of_one_whose_node_was_away():
    world = away("static, beyond the grace time", "n2")
    homes = {each.id: each.node for each in world.alive()}
    world.deploy()
    world.live_on(120)
    assert world.revisions() == [2, 2], "those within reach are updated"
    assert (world.state_now, world.group().stable_revision) == (S.ROLLING, 0)
    assert world.deployment.waiting == "waits for node 'n2' to reconnect"
    world.come_back("n2", with_runs=True)
    while world.deployment.active:
        world.live_on(0.5)
        assert len(world.alive()) <= 4
        assert len(known_ids(world)) == 4, known_ids(world)
    world.live_on(60)
    assert (world.state_now, world.revisions()) == (S.COMPLETED, [2, 2, 2, 2])
    assert {each.id: each.node for each in world.there()} == homes


def test_no_world_begins_in_the_place_of_one_whose_players_are_waited_for():
    world = away("static, beyond the grace time", "n2", count=2)
    there = next(each for each in world.alive() if each.node == "n2")
    world.deploy()
    world.live_on(60)
    world.come_back("n2", with_runs=True)
    world.live_on(1)
    world.count_players(there.id, 3)
    world.live_on(60)
    assert world.record(there.id).wanted is Wanted.DRAIN
    world.drop("n2")
    world.live_on(120)
    assert known_ids(world) == ["lobby-1", "lobby-2"]
    assert (world.state_now, world.deployment.waiting) == (S.ROLLING, "waits for node 'n2' to reconnect")


@each_kind
@pytest.mark.parametrize("strategy", ["rolling", "canary"])
def test_nothing_is_stable_that_has_run_nowhere(kind, strategy):
    world = away(kind, "n1", "n2")
    world.deploy(strategy=strategy, progress_seconds=100)
    world.live_on(2000)
    assert world.state_now is (S.CANARY if strategy == "canary" else S.ROLLING)
    assert world.deployment.waiting.startswith("waits for nodes 'n1', 'n2' to reconnect")
    assert world.group().stable_revision == 0
    for node in ("n1", "n2"):
        world.come_back(node, with_runs=True)
    world.until(S.COMPLETED)
    assert (world.revisions(), world.group().stable_revision) == ([2] * 4, 2)


@each_kind
def test_one_that_is_back_can_fail_the_deployment(kind):
    world = away(kind, "n1", "n2")
    former = ids(world)
    world.deploy()
    world.live_on(30)
    for node in ("n1", "n2"):
        world.come_back(node, with_runs=True)
    while not world.there(2):
        world.live_on(0.2)
    world.crash(world.there(2)[0], restarted=False)
    world.until(S.ROLLED_BACK)
    assert world.revisions() == [1] * 4
    assert world.group().pinned_revision == 1
    if world.group().spec.static:
        assert ids(world) == former


@each_kind
def test_a_restart_waits_for_nodes_as_a_deployment_does(kind):
    world = away(kind, "n1", "n2")
    world.do_as(deployments.restart_revision, "lobby", by="ada")
    world.live_on(30)
    assert (world.state_now, world.deployment.trigger) == (S.ROLLING, "restart")
    for node in ("n1", "n2"):
        world.come_back(node, with_runs=True)
    world.until(S.COMPLETED)
    assert world.revisions() == [2] * 4


def test_the_clock_runs_for_one_within_reach_that_does_not_get_ready():
    world = away("static, beyond the grace time", "n2")
    world.deploy(progress_seconds=100)
    while not world.there(2):
        world.live_on(0.2)
    new = world.there(2)[0]
    for _ in range(150):
        world.report(world.record(new.id), InstanceState.RUNNING, readiness=Readiness.WAITING)
        world.live_on(1)
    assert world.deployment.outcome == f"no progress for 100 s; waits for '{new.id}' to be healthy"


def test_the_clock_stands_still_while_no_node_is_there():
    world = DeployedWorld(4, **KINDS["without a time"])
    world.crash(world.there()[0], restarted=False)
    world.drop("n1")
    world.drop("n2")
    world.live_on(66)
    world.deploy(progress_seconds=100)
    world.live_on(600)
    assert world.state_now is S.ROLLING


def test_no_group_goes_back_because_no_node_is_there():
    world = DeployedWorld(4, nodes=2, disconnect=SOON)
    world.drop("n1")
    world.drop("n2")
    world.live_on(66)
    world.deploy(progress_seconds=100)
    world.live_on(600)
    assert world.state_now is S.ROLLING
    for node in ("n1", "n2"):
        world.come_back(node, with_runs=True)
    world.until(S.COMPLETED)
    assert (world.revisions(), world.group().pinned_revision) == ([2] * 4, 0)


def test_worlds_that_an_earlier_version_left_behind_stay_until_the_next_deployment():
    world = away("static, beyond the grace time", "n2")
    world.deploy()
    world.live_on(120)
    waiting = world.deployment
    left = {each.id: each.revision for each in world.alive() if each.node == "n2"}
    ws = world.workspace()
    over = waiting.stepped(DeploymentTrigger.COMPLETE, ws.now)
    ws.put_deployment(msgspec.structs.replace(over, stragglers=left))
    group = msgspec.structs.replace(world.group(), deployment="", unsettled=waiting.id, stable_revision=2)
    ws.put_group(group)
    world.apply(ws.steps())
    world.come_back("n2", with_runs=True)
    world.live_on(300)
    assert (world.revisions(), world.group().unsettled) == ([1, 1, 2, 2], "")
    assert known_ids(world) == [f"lobby-{number}" for number in range(1, 5)]
    world.deploy()
    world.until(S.COMPLETED)
    assert world.revisions() == [3] * 4


def test_a_world_within_reach_that_finds_no_place_is_not_forgotten_for_one_that_is_away():
    world = away("static, beyond the grace time", "n2")
    world.edit(memory_mb=10**6)
    world.deploy_again(progress_seconds=100)
    world.live_on(300)
    assert world.deployment.outcome.startswith("no progress for 100 s; NO_CAPACITY")
    assert world.state_now is S.ROLLED_BACK, "those that are away run by the stable revision anyway"
    assert len(world.there(1)) == 2


def test_what_is_updated_and_away_is_not_shown_as_starting():
    world = away("static, beyond the grace time")
    world.deploy()
    world.until_updated(2)
    world.drop("n1")
    world.drop("n2")
    world.live_on(60)
    assert (world.progress.starting, world.deployment.waiting) == (
        0,
        "waits for nodes 'n1', 'n2' to reconnect",
    )


def test_a_node_is_emptied_while_a_deployment_waits_for_another():
    world = DeployedWorld(4, nodes=3, disconnect=NEVER, min_available=1)
    nodes = sorted({each.node for each in world.there()})
    world.drop(nodes[0])
    world.live_on(66)
    world.deploy()
    world.live_on(60)
    world.ask(drain_node, nodes[1], DrainOrder(reason="test"))
    world.live_on(300)
    assert world.state_now is S.ROLLING
    assert not [each.id for each in world.alive() if each.node == nodes[1]]


def test_a_canary_on_a_node_that_is_away_opens_no_gate():
    world = away("static, beyond the grace time")
    world.deploy(strategy="canary", canary_seconds=20)
    world.until(S.GATE)
    canary = world.there(2)[0]
    world.drop(canary.node)
    world.live_on(300)
    assert (world.state_now, world.deployment.waiting) == (
        S.GATE,
        f"node '{canary.node}' of '{canary.id}' is away",
    )
    world.come_back(canary.node, with_runs=True)
    world.until(S.COMPLETED)


@each_kind
def test_a_rollback_waits_only_for_what_it_has_to_take_back(kind):
    world = away(kind)
    record = world.deploy()
    world.until_updated(1)
    new = world.there(2)[0]
    world.do_as(deployments.pause_deployment, record.id, by="ada")
    world.live_on(30)
    world.drop(new.node)
    world.live_on(60)
    world.do_as(deployments.roll_back_deployment, record.id, by="ada")
    world.live_on(300)
    assert world.state_now is S.ROLLING_BACK
    assert world.deployment.waiting == f"waits for node '{new.node}' to reconnect"
    world.come_back(new.node, with_runs=True)
    world.until(S.ROLLED_BACK)
    assert world.revisions() == [1] * 4


@each_kind
def test_one_that_waits_can_be_superseded_and_cancelled(kind):
    world = away(kind, "n1", "n2")
    first = world.deploy()
    world.live_on(10)
    second = world.deploy()
    world.live_on(10)
    assert world.state.deployments.require(first.id).record.state is S.SUPERSEDED
    assert (second.stable, world.group().deployment) == (1, second.id)
    world.do_as(deployments.cancel_deployment, second.id, by="ada")
    for node in ("n1", "n2"):
        world.come_back(node, with_runs=True)
    world.live_on(60)
    assert (world.state_now, world.revisions()) == (S.CANCELLED, [1] * 4)


def test_a_pause_keeps_the_revision_of_one_that_crashes_beside_one_that_is_away():
    world = away("static, beyond the grace time")
    record = world.deploy()
    world.until_updated(2)
    new = world.there(2)
    lost, kept = new[0], next(each for each in new if each.node != new[0].node)
    world.drop(lost.node)
    world.live_on(60)
    world.do_as(deployments.pause_deployment, record.id, by="ada")
    world.crash(world.record(kept.id), restarted=False)
    world.live_on(60)
    assert world.record(kept.id).revision == 2


def test_nothing_is_stable_while_an_operator_holds_every_instance_stopped():
    world = DeployedWorld(2, static=True)
    for id in ids(world):
        world.ask(instance_changes.stop_instance, id, reason="maintenance")
    world.live_on(30)
    world.deploy(strategy="canary", canary_seconds=10, progress_seconds=60)
    world.live_on(600)
    assert (world.state_now, world.group().stable_revision) == (S.CANARY, 0)
    assert "stopped by hand: 'lobby-1' (maintenance)" in world.deployment.waiting
    for id in ("lobby-1", "lobby-2"):
        world.ask(instance_changes.restart_instance, id, reason="")
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2]


@pytest.mark.parametrize("least", [1, 2])
def test_no_world_is_stopped_for_good_beside_one_that_an_operator_keeps_stopped(least):
    world = DeployedWorld(3, static=True)
    world.ask(instance_changes.stop_instance, "lobby-1", reason="maintenance")
    world.live_on(30)
    world.edit(min=least)
    world.live_on(30)
    here = ids(world)
    world.deploy(progress_seconds=100)
    world.live_on(300)
    assert (ids(world), len(here)) == (here, least)
    assert (world.state_now, world.revisions()) == (S.ROLLING, [1] * least)
    assert "stopped by hand: 'lobby-1' (maintenance)" in world.deployment.waiting
    world.ask(instance_changes.restart_instance, "lobby-1", reason="")
    world.until(S.COMPLETED)
    assert set(world.revisions()) == {2}


def test_worlds_within_reach_are_not_stopped_for_those_that_are_away_and_no_longer_wanted():
    world = away("static, beyond the grace time", "n2")
    here = [each.id for each in world.there()]
    world.edit(min=2)
    world.deploy()
    world.live_on(120)
    assert [each.id for each in world.there()] == here
    world.come_back("n2", with_runs=True)
    world.until(S.COMPLETED)
    assert world.revisions() == [2, 2]


def test_a_group_whose_node_is_waited_for_without_end_says_so():
    world = away("without a time", "n2")
    assert "its node 'n2' is away since" in world.group().reason
    assert "disconnect.replace_after_seconds" in world.group().reason
    world.come_back("n2", with_runs=True)
    world.live_on(10)
    assert world.group().reason == ""


def test_a_group_that_is_emptied_by_its_document_ends_its_deployment():
    world = away("without a time", "n1", "n2")
    world.deploy()
    world.ask(group_changes.scale_group, "lobby", 0)
    world.edit(min=0)
    for node in ("n1", "n2"):
        world.come_back(node, with_runs=True)
    world.until(S.COMPLETED)
    assert world.revisions() == []


@pytest.mark.parametrize("ends_as", [S.COMPLETED, S.ROLLED_BACK])
def test_a_group_that_follows_its_load_does_not_grow_when_a_lost_instance_is_back(ends_as):
    scaling = ScalingSpec(mode=ScalingMode.DYNAMIC)
    world = DeployedWorld(2, nodes=2, disconnect=SOON, scaling=scaling, max_players=10)
    world.drop("n2")
    world.live_on(66)
    world.deploy()
    if ends_as is S.ROLLED_BACK:
        world.do_as(deployments.roll_back_deployment, world.deployment.id, by="ada")
    world.until(ends_as)
    world.come_back("n2", with_runs=True)
    for _ in range(60):
        world.live_on(1)
        assert len(world.alive()) <= 4, ids(world)
    assert len(world.there()) == 2
