"""Each phase of a deployment, and of the instances that leave by it, is told by an event."""

from __future__ import annotations

from typing import Any

from deployed_world import DeployedWorld

from corral.controller.instances import deployments
from corral.domain.events import Event
from corral.domain.groups.deployments import DeploymentState as S


def told(world: DeployedWorld) -> list[Event]:
    return [event for event in world.events if event.type.startswith("DEPLOYMENT_")]


def last(world: DeployedWorld) -> dict[str, Any]:
    event = told(world)[-1]
    assert event.subject == world.deployment.id
    return {"type": event.type.value, **event.data}


def test_a_deployment_tells_its_begin_its_phases_its_pause_and_its_end() -> None:
    world = DeployedWorld(3)
    record = world.deploy(strategy="canary", canary_seconds=30)
    created = next(event for event in told(world) if event.type == "DEPLOYMENT_CREATED")
    assert (created.data["target"], created.data["stable"], created.data["by"]) == (2, 1, "ada")
    world.until(S.GATE)
    assert {"type": "DEPLOYMENT_PHASE", "group": "lobby", "to": "GATE"}.items() <= last(world).items()
    world.do_as(deployments.pause_deployment, record.id, by="ada")
    assert {"type": "DEPLOYMENT_PAUSED", "from": "GATE", "by": "ada"}.items() <= last(world).items()
    world.do_as(deployments.resume_deployment, record.id, by="ada")
    assert {"type": "DEPLOYMENT_RESUMED", "to": "GATE"}.items() <= last(world).items()
    world.until(S.COMPLETED)
    assert {"type": "DEPLOYMENT_COMPLETED", "from": "ROLLING"}.items() <= last(world).items()
    passed = [event.data["to"] for event in told(world) if event.type == "DEPLOYMENT_PHASE"]
    assert passed == ["CANARY", "GATE", "ROLLING"]


def test_a_deployment_that_is_taken_back_cancelled_or_superseded_says_so() -> None:
    world = DeployedWorld(3)
    world.do_as(deployments.roll_back_deployment, world.deploy().id, by="ada", reason="it is slow")
    world.until(S.ROLLED_BACK)
    assert {"type": "DEPLOYMENT_ROLLED_BACK", "to": "ROLLED_BACK"}.items() <= last(world).items()
    world.do_as(deployments.cancel_deployment, world.deploy().id, by="ada", reason="later")
    assert {"type": "DEPLOYMENT_CANCELLED", "by": "ada"}.items() <= last(world).items()
    first = world.deploy()
    second = world.deploy()
    ended = next(event for event in told(world) if event.type == "DEPLOYMENT_SUPERSEDED")
    assert (ended.subject, ended.data["by"]) == (first.id, second.id)


def test_a_deployment_that_fails_and_stays_says_what_was_undone() -> None:
    world = DeployedWorld(3, update={"auto_rollback": False})
    world.deploy()
    while not world.there(2):
        world.live_on(1)
    world.crash(world.there(2)[0], restarted=False)
    world.until(S.FAILED)
    assert last(world)["type"] == "DEPLOYMENT_FAILED"
    assert last(world)["undone"] == "nothing was undone: update.auto_rollback is false"


def test_what_leaves_by_a_deployment_is_drained_and_then_stopped() -> None:
    world = DeployedWorld(2)
    world.enter("lobby-1")
    world.deploy()
    world.live_on(120)
    world.leave("lobby-1")
    world.until(S.COMPLETED)
    types = [event.type.value for event in world.events if event.subject == "lobby-1"]
    assert types[-2:] == ["INSTANCE_DRAINING", "INSTANCE_STOPPED"]
