"""Deployments in the corners: orders, failures and a lack of room meanwhile."""

from __future__ import annotations

import pytest
from deployed_world import DeployedWorld, S

from corral.controller.instances import deployments
from corral.domain.decisions import DecisionKind
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.instance_states import Wanted
from corral.domain.node_states import Admission
from corral.domain.planning.planner import plan


def retiring_world(**options: object) -> tuple[DeployedWorld, InstanceRecord]:
    """A deployment that waits for the players of an instance."""
    world = DeployedWorld(2, max_players=20)
    for each in world.there():
        world.count_players(each.id, 3)
    world.live_on(5)
    world.deploy(**options)
    for _ in range(100):
        world.live_on(1)
        if leaving := [each for each in world.alive() if each.wanted is Wanted.DRAIN]:
            return world, leaving[0]
    raise AssertionError(world.deployment.waiting)


@pytest.mark.parametrize("state", [S.PAUSED, S.FAILED])
def test_a_retired_instance_stops_when_it_is_empty_though_the_deployment_does_not_go_on(state):
    world, leaving = retiring_world(auto_rollback=False)
    if state is S.PAUSED:
        world.do_as(deployments.pause_deployment, world.deployment.id, by="ada")
    else:
        world.crash(world.there(2)[0], restarted=False)
    world.live_on(30)
    assert world.state_now is state
    assert world.record(leaving.id).wanted is Wanted.DRAIN
    world.count_players(leaving.id, 0)
    world.live_on(10)
    assert leaving.id not in {each.id for each in world.alive()}


def test_an_instance_that_a_superseded_deployment_has_retired_is_stopped_once():
    world, leaving = retiring_world()
    world.deploy()
    world.live_on(2)
    world.vitals.players(leaving.id, leaving.incarnation, count=0, maximum=0)
    found = plan(world.signals_of_term.view(world.workspace()), ["lobby"])
    stops = [each.instance for each in found.decisions if each.kind is DecisionKind.STOP]
    assert stops == [leaving.id]


@pytest.mark.parametrize("state", [S.CANARY, S.GATE])
def test_canaries_are_watched_though_no_node_takes_an_instance_of_the_stable_revision(state):
    world = DeployedWorld(4, nodes=3, update={"strategy": "canary", "canary_seconds": 60})
    world.deploy()
    world.until(state)
    world.live_on(2)
    for node in sorted(world.connected):
        world.configure_node(node, Admission.CORDONED)
    for each in world.there(1)[:2]:
        world.crash(each, restarted=False)
    world.until(S.ROLLING, within=120)
    assert world.group().reason == "NO_CAPACITY: of 3 nodes: 3 takes nothing new"


def test_what_a_group_lacks_is_placed_before_what_a_deployment_brings():
    world = DeployedWorld(2, nodes=2, memory_mb=300, priority=60)
    world.create("base", min=2, memory_mb=500, priority=50)
    world.live_on(20)  # 200 MB are left on each node
    world.deploy()
    world.live_on(30)
    lacking = world.state.instances.of_group("base")[0].record
    world.crash(lacking, restarted=False)
    world.look_at_everything()
    world.live_on(60)
    assert world.serving("base") == 2
    assert world.revisions() == [1, 1]


def test_failures_before_a_resume_count_no_more():
    world = DeployedWorld(3)
    world.deploy()
    world.until_updated(1)
    world.do_as(deployments.pause_deployment, world.deployment.id, by="ada")
    world.live_on(5)
    world.crash(world.there(2)[0], restarted=False)
    world.live_on(60)
    assert (world.state_now, world.deployment.failed) == (S.PAUSED, 1)
    world.do_as(deployments.resume_deployment, world.deployment.id, by="ada")
    world.live_on(1)
    assert world.state_now is S.ROLLING
    assert len(world.deployment.failures) == 1
    world.crash(world.there(2)[0], restarted=False)
    world.live_on(1)
    assert world.state_now is S.ROLLING_BACK
