"""Groups that went back to a revision, over the real reconciler: what is started in them until the next deployment."""

from __future__ import annotations

import pytest
from deployed_world import DeployedWorld, S

from corral.controller.instances import deployments, group_changes
from corral.controller.instances.plans import decoded
from corral.domain.groups.instance_records import InstanceRecord


@pytest.fixture
def world() -> DeployedWorld:
    """Three instances of revision 1, to which a deployment of revision 2 was taken back."""
    made = DeployedWorld(3)
    record = made.deploy()
    made.until(S.COMPLETED)
    made.do_as(deployments.roll_back_deployment, record.id, by="ada")
    made.until(S.COMPLETED)
    assert (made.revisions(), made.group().pinned_revision) == ([1, 1, 1], 1)
    return made


def env(world: DeployedWorld, record: InstanceRecord) -> dict[str, str]:
    return decoded(world.state.plans.require(record.plan_hash).record).env


def test_what_crashes_and_what_is_added_is_of_the_pinned_revision(world: DeployedWorld) -> None:
    crashed = world.there()[0]
    world.crash(crashed, restarted=False)
    world.live_on(20)
    world.ask(group_changes.scale_group, "lobby", 5)
    world.live_on(20)
    assert world.revisions() == [1] * 5
    assert crashed.id not in {each.id for each in world.there()}
    assert [env(world, each) for each in world.there()] == [{}] * 5


def test_an_edit_takes_numbers_at_once_and_nothing_else(world: DeployedWorld) -> None:
    world.edit(min=4, env={"OTHER": "1"}, memory_mb=999)
    world.live_on(30)
    assert world.revisions() == [1] * 4
    assert {each.memory_mb for each in world.there()} == {100}


def test_a_new_leader_stays_with_the_pin(world: DeployedWorld) -> None:
    world.change_leader(told=True)
    world.ask(group_changes.scale_group, "lobby", 4)
    world.live_on(30)
    assert world.revisions() == [1] * 4


def test_a_restart_restarts_the_pinned_revision_and_the_pin_goes_with_it(world: DeployedWorld) -> None:
    record = world.do_as(deployments.restart_revision, "lobby", by="ada")
    assert (record.target, record.stable) == (3, 1)
    world.until(S.COMPLETED)
    assert (world.revisions(), world.group().pinned_revision) == ([3, 3, 3], 3)
    assert [env(world, each) for each in world.there()] == [{}] * 3
    world.crash(world.there()[0], restarted=False)
    world.live_on(20)
    assert world.revisions() == [3, 3, 3]
    world.deploy_again()
    world.until(S.COMPLETED)
    assert world.group().pinned_revision == 0
    assert all("NUMBER" in env(world, each) for each in world.there())


def test_a_restart_that_is_cancelled_leaves_the_pin_as_it_was(world: DeployedWorld) -> None:
    record = world.do_as(deployments.restart_revision, "lobby", by="ada")
    world.do_as(deployments.cancel_deployment, record.id, by="ada")
    assert world.group().pinned_revision == 1


def test_a_deployment_that_is_cancelled_restores_the_pin_and_says_so(world: DeployedWorld) -> None:
    world.deploy_again()
    world.live_on(15)
    record = world.deployment
    assert (world.group().pinned_revision, record.active) == (0, True)
    there = sorted(each.id for each in world.there())
    world.do_as(deployments.cancel_deployment, record.id, by="ada")
    assert world.group().pinned_revision == 1
    assert world.deployment.outcome == "cancelled by ada; the group is pinned to revision 1, as before"
    assert sorted(each.id for each in world.there()) == there, "what runs stays"
