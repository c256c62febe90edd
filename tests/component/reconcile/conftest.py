"""A controller with pretended nodes."""

from __future__ import annotations

import contextlib

import pytest
from hostile_site import Site
from pretend_node import PretendNode

from corral.domain.groups.instance_records import live
from corral.testing.scripted_peers import ticketed
from corral.testing.waiting import eventually


class Fleet:
    """One controller, its nodes, and words for what tests ask of them."""

    def __init__(self, cluster, directory, stack) -> None:
        self._cluster = cluster
        self._directory = directory
        self._stack = stack
        self.controller = None

    async def begin(self, name="controller", **flags):
        settings = {"reconcile__resend_seconds": 0.2, "reconcile__offline_after_seconds": 0.2, **flags}
        self.controller = await self._cluster.controller(name, **settings)
        return self.controller

    async def node(self, name, *, connect=True, **handshake) -> PretendNode:
        node = await PretendNode.enrol(self.controller, self._directory, name, **handshake)
        await self._stack.enter_async_context(node)
        if connect:
            await node.connect()
        return node

    @property
    def term(self):
        return self.controller.app.role.term

    @property
    def state(self):
        return self.term.state

    def ticketed(self, node, run, *, serial=50):
        """A run with the ticket of a start that the store has forgotten."""
        return ticketed(self.term.instances.tickets, run, node=node.id, serial=serial)

    async def group(self, name="lobby", **fields):
        document = {"name": name, "command": ["serve"], **fields}
        return await self.controller.call("POST", "/api/v1/groups", document)

    def record(self, id):
        stored = self.state.instances.find(id)
        return stored.record if stored else None

    def group_record(self, name="lobby"):
        return self.state.groups.require(name).record

    def alive(self, group="lobby"):
        return [s.record for s in self.state.instances.of_group(group) if live(s.record.state)]

    def states(self, group="lobby"):
        return {s.record.id: s.record.state.value for s in self.state.instances.of_group(group)}

    async def running(self, count, group="lobby"):
        await eventually(
            lambda: [r.state for r in self.alive(group)].count("RUNNING") == count == len(self.alive(group)),
            state=lambda: (self.states(group), self.group_record(group).reason),
        )
        return sorted(record.id for record in self.alive(group))

    async def reaches(self, id, state):
        await eventually(
            lambda: self.record(id) is not None and self.record(id).state == state,
            state=lambda: self.record(id),
        )
        return self.record(id)

    async def events(self, *types):
        listed = await self.controller.call("GET", "/api/v1/events?limit=500")
        return [e for e in listed["items"] if not types or e["type"] in types]

    def reservations(self):
        return {stored.record.instance: stored.record for stored in self.state.reservations}


@pytest.fixture
async def fleet(cluster, scratch):
    async with contextlib.AsyncExitStack() as stack:
        yield Fleet(cluster, scratch, stack)


@pytest.fixture
async def site(fleet) -> Site:
    await fleet.begin()
    honest = await fleet.node("n1")
    await fleet.group(min=1)
    await fleet.group("world", static=True)
    await fleet.running(1)
    await fleet.controller.call("POST", "/api/v1/instances", {"group": "world"})
    await fleet.reaches("world-1", "RUNNING")
    await fleet.controller.call("POST", "/api/v1/instances/world-1/stop", {})
    await fleet.reaches("world-1", "STOPPED")
    rogue = await fleet.node("rogue")
    await fleet.group("mine", nodes=["rogue"], min=1)
    await fleet.running(1, "mine")
    await eventually(lambda: not honest._spool and not rogue._spool)
    return Site(fleet, honest, rogue)
