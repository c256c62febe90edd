"""Starts that were decided, and not stored yet, when an operator changes what they were decided by."""

from __future__ import annotations

import pytest

from corral.controller.instances.instance_changes import start_instance
from corral.controller.reconcile.apply_plan import Wake, keep_groups
from corral.store.store_errors import Conflict

pytestmark = pytest.mark.trap("T21")


def placed(fleet, group="lobby"):
    """The transaction of a start that is not committed yet."""
    ws = fleet.term.instances.workspace(cause="test")
    start_instance(ws, group)
    return ws.steps()


def kept(fleet, group="lobby"):
    """The same, decided by the reconciler."""
    ws = fleet.term.instances.workspace(cause="test")
    keep_groups(ws, {group: Wake(cause="test")})
    return ws.steps()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/nodes/n1/cordon", {"reason": "kernel"}),
        ("PATCH", "/api/v1/nodes/n1", {"memory_mb": 10}),
        ("PATCH", "/api/v1/nodes/n1", {"labels": {"zone": "b"}}),
        ("DELETE", "/api/v1/groups/lobby", None),
        ("DELETE", "/api/v1/groups/lobby?cascade=true", None),
        ("POST", "/api/v1/groups/lobby/hold", {"reason": "rebuild"}),
        ("PATCH", "/api/v1/groups/lobby", {"max": 0}),
        ("PATCH", "/api/v1/groups/lobby", {"abstract": True}),
    ],
)
async def test_a_start_does_not_follow_what_forbids_it(fleet, method, path, body):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group()
    steps = placed(fleet)
    await fleet.controller.call(method, path, body)
    with pytest.raises(Conflict):
        await fleet.term.ledger.commit(*steps)
    assert fleet.alive() == []
    assert fleet.reservations() == {}


async def test_a_start_of_the_reconciler_does_not_follow_the_end_of_its_group(fleet):
    await fleet.begin()
    await fleet.node("n1")
    await fleet.group()
    async with fleet.term.instances.placing:  # the reconciler waits
        await fleet.controller.call("PATCH", "/api/v1/groups/lobby", {"min": 1})
        steps = kept(fleet)
        await fleet.controller.call("DELETE", "/api/v1/groups/lobby")
        with pytest.raises(Conflict):
            await fleet.term.ledger.commit(*steps)
    assert fleet.alive() == []
