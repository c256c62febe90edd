"""Operator requests for a module on nodes: recover (another try) and reload (its settings once more). Both are
stored, so that nodes that are offline receive them later."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Protocol

import msgspec

from corral.controller.modules_on_nodes.module_states import is_unhealthy, request_recovery, runs_with_refusal
from corral.controller.state.ledger import Actor, Ledger, audit
from corral.domain.ids import NodeId
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.records import NodeModuleState, PackageRecord, next_request_ms, node_module_key
from corral.errors import Code, Rejected
from corral.store.store_errors import Conflict
from corral.system import log_context
from corral.system.clock import Clock


class NodeSyncView(Protocol):
    """Which nodes are connected, and how far a module's sync with them is."""

    def connected(self, node_id: NodeId) -> bool: ...

    def progress(self, node_id: NodeId, id: str) -> str: ...


def with_reload_request(
    record: PackageRecord, rows: Iterable[NodeModuleState], *, now: dt.datetime
) -> PackageRecord:
    """The record with the request that every node reloads the module; `rows` are its states there."""
    done = [row.reload_done_ms or 0 for row in rows]
    return msgspec.structs.replace(
        record, reload_asked_ms=next_request_ms(now, record.reload_asked_ms, *done)
    )


class RecoverRequest:
    """A recover request. It is stored with the states of its nodes: connected nodes receive it at once, others when they
    are back, and each until it has carried it out."""

    def __init__(
        self, ledger: Ledger, record: PackageRecord, nodes: NodeSyncView | None, *, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._record = record
        self._nodes = nodes
        self._clock = clock

    @property
    def helps(self) -> bool:
        """Is the module unhealthy on some node?"""
        return any(map(self._is_unhealthy, self._state.module_node_states.rows_of_module(self._record.id)))

    def _is_unhealthy(self, row: NodeModuleState) -> bool:
        return is_unhealthy(row, self._record.sha256) or runs_with_refusal(row)

    def check_node(self, node: str) -> None:
        """NOT_FOUND, NOT_SUPPORTED, CONFLICT when the node never reported the module."""
        node_id = self._state.nodes.require(node).record.id
        if ModuleHost.DAEMON not in self._record.manifest.hosts:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"module '{self._record.id}' has no part for nodes",
                hint="leave the node out",
                field="node",
            )
        if self._state.module_node_states.find(node_module_key(node_id, self._record.id)) is None:
            raise Rejected(
                Code.CONFLICT,
                f"node '{node}' has reported nothing about '{self._record.id}' yet: nothing of it has failed there",
                hint="it gets the module as soon as it is connected",
            )

    async def carry_out(self, node: str | None, actor: Actor) -> None:
        """Store the request for its nodes, whether they are connected or not, with an audit entry."""
        if ModuleHost.DAEMON not in self._record.manifest.hosts or self._nodes is None:
            return
        id = self._record.id
        after: dict[str, object] | None = {"node": node} if node is not None else None
        entry = audit(actor, "modules.recover", id, after=after)
        stepped = node is None and self._record.phase is ModulePhase.FAILED
        while True:
            nodes = self._concerned() if node is None else {NodeId(node)}
            marks = request_recovery(
                self._state, id, nodes, request=log_context.bound_request(), now=self._clock.now()
            )
            try:
                if marks or not stepped:
                    await self._ledger.commit(*marks, *(() if stepped else (entry,)))
                return
            except Conflict:
                continue  # a node reported a new state meanwhile

    def _concerned(self) -> set[NodeId]:
        """Nodes where the module is unhealthy, and those where that is not known at present."""
        assert self._nodes is not None
        rows = self._state.module_node_states.rows_of_module(self._record.id)
        return {row.node for row in rows if self._is_unhealthy(row) or not self._nodes.connected(row.node)}
