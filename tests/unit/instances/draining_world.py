"""A world of three nodes in which an operator empties nodes; the real reconciler decides what follows."""

from __future__ import annotations

from typing import Any

import msgspec
from reconciled_world import ReconciledWorld

from corral.controller.instances import group_changes
from corral.controller.instances.node_drains import DrainOrder, drain_node, undrain_node
from corral.controller.state import node_changes
from corral.domain.events import Event, EventType
from corral.domain.groups.instance_records import DecisionRecord, InstanceRecord, live
from corral.domain.ids import NodeId
from corral.domain.node_states import Admission
from corral.domain.records import NodeRecord


class DrainingWorld(ReconciledWorld):
    def __init__(self, *, nodes: int = 3) -> None:
        super().__init__()
        for number in range(3, nodes + 1):
            self.join(f"n{number}")

    def join(self, node: str) -> None:
        """A node is enrolled and connects."""
        self.add_node(NodeId(node))
        self.connected.add(node)
        self.reconciler.inventory_complete(NodeId(node))

    def node(self, id: str) -> NodeRecord:
        return self.state.nodes.require(id).record

    def admission(self, id: str) -> Admission:
        return self.node(id).admission

    def drain(self, node: str, **order: Any) -> None:
        self.ask(drain_node, node, DrainOrder(**order))

    def undrain(self, node: str, **order: Any) -> None:
        self.ask(undrain_node, node, **order)

    def cordon(self, node: str, *, reason: str) -> None:
        self.apply(node_changes.cordon(self.state.nodes.require(node), reason=reason).steps)

    def create(self, name: str, **fields: Any) -> None:
        document = {"name": name, "command": ["serve"], **msgspec.to_builtins(fields)}
        self.do(group_changes.create_document, document)

    def edit(self, group: str, **fields: Any) -> None:
        self.do(group_changes.patch_group, group, fields)

    def on(self, node: str, group: str = "") -> list[InstanceRecord]:
        """The live instances on a node."""
        there = [stored.record for stored in self.state.instances.of_node(node)]
        return [each for each in there if live(each.state) and group in ("", each.group)]

    def live(self, group: str = "lobby") -> list[InstanceRecord]:
        return [each.record for each in self.state.instances.of_group(group) if live(each.record.state)]

    def placed(self, group: str, node: str, count: int = 1, **fields: Any) -> list[str]:
        """A group whose instances are all on one node, and are healthy there; afterwards it may run anywhere."""
        others = [each.record.id for each in self.state.nodes if each.record.id != node]
        for other in others:
            self.configure_node(other, Admission.CORDONED)
        self.create(group, min=count, **fields)
        self.live_on(30)
        for other in others:
            self.configure_node(other, Admission.OPEN)
        self.live_on(1)
        found = self.on(node, group)
        assert len(found) == count, self.state.groups.require(group).record.reason
        return [each.id for each in found]

    def told(self, type: EventType) -> list[Event]:
        return [event for event in self.events if event.type is type]

    def by_rule(self, *rules: str) -> list[DecisionRecord]:
        return [each for each in self.made() if each.rule in rules]

    def passing(self, seconds: float, step: float = 1.0) -> Any:
        """Seconds one after the other, with everything that happens in them."""
        for _ in range(int(seconds / step)):
            self.live_on(step)
            yield self
