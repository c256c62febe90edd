"""Another try for a module on nodes, asked for by an operator."""

from __future__ import annotations

from typing import Protocol

from corral.controller.ledger import Actor, Ledger, audit
from corral.controller.node_modules.states import remember_recovery, troubled
from corral.domain.ids import NodeId
from corral.domain.module_manifest import ModuleHost
from corral.domain.module_phases import ModulePhase
from corral.domain.module_records import PackageRecord
from corral.errors import Code, Rejected, Retryable
from corral.store.port import Conflict


class NodeOrders(Protocol):
    """What modules need of the way to nodes."""

    def recover(self, id: str, node_id: NodeId | None = None) -> None: ...

    def reload(self, id: str) -> None: ...

    def connected(self, node_id: NodeId) -> bool: ...

    def progress(self, node_id: NodeId, id: str) -> str: ...


class Recovery:
    """One such wish. Connected nodes are told at once; of the others those where it failed are marked."""

    def __init__(self, ledger: Ledger, record: PackageRecord, nodes: NodeOrders | None) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._record = record
        self._nodes = nodes

    @property
    def helps(self) -> bool:
        """Does it stand badly on some node?"""
        rows = self._state.module_node_states.of_module(self._record.id)
        return any(troubled(stored.record, self._record.sha256) for stored in rows)

    def check_node(self, node: str) -> None:
        """NOT_FOUND, NOT_SUPPORTED, NODE_OFFLINE."""
        node_id = self._state.nodes.require(node).record.id
        if ModuleHost.DAEMON not in self._record.manifest.hosts:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"module '{self._record.id}' has no part for nodes",
                hint="leave the node out",
                field="node",
            )
        if self._nodes is None or not self._nodes.connected(node_id):
            raise Retryable(
                Code.NODE_OFFLINE,
                f"node '{node}' is not connected: '{self._record.id}' was not tried again there",
                hint="recover it without a node: that is remembered, and done when the node is back",
                retry_after=5.0,
            )

    async def carry_out(self, node: str | None, actor: Actor) -> None:
        """Tell the nodes, and write down what those that are away shall hear. The audit knows of it."""
        if ModuleHost.DAEMON not in self._record.manifest.hosts or self._nodes is None:
            return
        id = self._record.id
        after: dict[str, object] | None = {"node": node} if node is not None else None
        entry = audit(actor, "modules.recover", id, after=after)
        stepped = node is None and self._record.phase is ModulePhase.FAILED
        while True:
            marks = remember_recovery(self._state, id, self._away()) if node is None else []
            try:
                if marks or not stepped:
                    await self._ledger.commit(*marks, *(() if stepped else (entry,)))
                break
            except Conflict:
                continue  # a node said something new meanwhile
        self._nodes.recover(id, NodeId(node) if node is not None else None)

    def _away(self) -> set[NodeId]:
        nodes = (stored.record.id for stored in self._state.nodes)
        return {id for id in nodes if self._nodes is not None and not self._nodes.connected(id)}
