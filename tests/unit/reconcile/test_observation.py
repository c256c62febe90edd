"""Looking before acting: who is waited for, and how long."""

from __future__ import annotations

from corral.controller.reconcile.lost_nodes import Observation
from corral.domain.ids import NodeId


async def test_it_is_over_when_every_awaited_node_has_reported():
    observation = Observation({"a", "b"})
    observation.reported(NodeId("a"))
    assert await observation.finish(0.01) == {"b"}
    observation.reported(NodeId("stranger"))
    observation.reported(NodeId("b"))
    assert await observation.finish(60) == set()


async def test_nobody_to_wait_for_is_no_wait():
    assert await Observation(()).finish(60) == set()
