"""A node that is emptied while a group is deployed: both go on, with one surge for the two."""

from __future__ import annotations

import pytest
from deployed_world import DeployedWorld, S

from corral.controller.instances import deployments
from corral.controller.instances.node_drains import DrainOrder, drain_node
from corral.domain.groups.instance_records import is_ready
from corral.domain.ids import NodeId
from corral.domain.node_states import Admission


class BusyWorld(DeployedWorld):
    """Three instances, and others on each node so that all nodes are used."""

    def __init__(self, **update: object) -> None:
        super().__init__(3, update=update)
        for number in range(1, 5):
            self.reconciler.inventory_complete(NodeId(f"n{number}"))

    def drain_busiest(self) -> str:
        """Empty the node with most instances of the group."""
        nodes = [each.node for each in self.there()]
        node = max(sorted(nodes), key=nodes.count)
        self.do(drain_node, node, DrainOrder(deadline_seconds=None))
        return node

    def watch(self, seconds: int) -> int:
        """Let time pass; the most instances that served at once. Those that are wanted are always ready."""
        most = 0
        for _ in range(seconds):
            self.live_on(1)
            most = max(most, len(self.there()))
            assert sum(is_ready(each) for each in self.there()) >= 3
        return most

    def starts(self) -> int:
        return sum(each.kind == "start" for each in self.made())


@pytest.mark.parametrize("after", [0, 3, 8, 12, 16, 25])
def test_a_rollout_goes_on_and_the_node_is_emptied(after: int) -> None:
    world = BusyWorld()
    world.deploy()
    world.watch(after)
    node = world.drain_busiest()
    assert world.watch(240) <= 4
    assert world.state.nodes.require(node).record.admission is Admission.DRAINED
    assert world.state_now is S.COMPLETED
    assert world.revisions() == [2, 2, 2]
    assert world.starts() <= 3 + 3 + 3, "nothing is started and stopped in turns"


def test_canaries_that_wait_for_an_operator_hold_up_no_drain() -> None:
    world = BusyWorld(strategy="canary", promote="manual", canary=1)
    world.deploy()
    world.until(S.GATE)
    node = world.drain_busiest()
    assert world.watch(240) <= 4
    assert world.state.nodes.require(node).record.admission is Admission.DRAINED
    assert world.state_now is S.GATE
    assert world.revisions() == [1, 1, 2], "each is replaced by one of its own revision"
    assert world.starts() <= 3 + 1 + 3
    world.do_as(deployments.promote_deployment, world.deployment.id, by="ada")
    world.until(S.COMPLETED)


def test_a_paused_deployment_holds_up_no_drain() -> None:
    world = BusyWorld()
    world.deploy()
    world.until_updated(1)
    world.do_as(deployments.pause_deployment, world.deployment.id, by="ada")
    world.live_on(20)
    assert world.revisions() == [1, 1, 2, 2]
    node = world.drain_busiest()
    assert world.watch(240) <= 4
    assert world.state.nodes.require(node).record.admission is Admission.DRAINED
    assert world.revisions() in ([1, 2, 2], [1, 1, 2]), "the one that was there more takes its place"
    world.do_as(deployments.resume_deployment, world.deployment.id, by="ada")
    world.until(S.COMPLETED)


def test_a_deployment_lets_no_warm_instance_serve_on_a_node_that_is_emptied() -> None:
    world = DeployedWorld(2, nodes=5, warm=1, update={"strategy": "canary", "canary_seconds": 600})
    world.deploy()
    world.until(S.GATE)
    [warm] = [each for each in world.alive() if each.warm]
    world.ask(drain_node, warm.node, DrainOrder(reason="kernel update"))
    world.crash(world.there(1)[0], restarted=False)
    world.live_on(5)
    assert not [each for each in world.made() if each.rule == "warm.promote"]
    assert world.revisions() == [1, 2]
