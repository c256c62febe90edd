"""What an operator asks of a module on nodes beyond what is wanted of it anyway: another try, or its settings once
more. Both are stored, so that nodes that are away hear of them, too."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Protocol

import msgspec

from corral.controller.modules_on_nodes.module_states import is_unhealthy, request_recovery, runs_with_refusal
from corral.controller.state.ledger import Actor, Ledger, audit
from corral.domain.ids import NodeId
from corral.domain.module_manifest import ModuleHost
from corral.domain.module_phases import ModulePhase
from corral.domain.module_records import NodeModuleState, PackageRecord, next_wish, node_module_key
from corral.errors import Code, Rejected
from corral.store.port import Conflict
from corral.system.clock import Clock


class NodeSyncView(Protocol):
    """What modules need of the way to nodes."""

    def connected(self, node_id: NodeId) -> bool: ...

    def progress(self, node_id: NodeId, id: str) -> str: ...


def with_reload_request(
    record: PackageRecord, rows: Iterable[NodeModuleState], *, now: dt.datetime
) -> PackageRecord:
    """With the wish that every node gives the module its settings once more; `rows` are how it stands there."""
    done = [row.reload_done_ms or 0 for row in rows]
    return msgspec.structs.replace(record, reload_asked_ms=next_wish(now, record.reload_asked_ms, *done))


class RecoverRequest:
    """The wish for another try. It is stored with the nodes that it is for: connected ones are told at once, others when
    they are back, and each until it has carried it out."""

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
        """Does it stand badly on some node?"""
        return any(map(self._stands_badly, self._state.module_node_states.rows_of_module(self._record.id)))

    def _stands_badly(self, row: NodeModuleState) -> bool:
        return is_unhealthy(row, self._record.sha256) or runs_with_refusal(row)

    def check_node(self, node: str) -> None:
        """NOT_FOUND, NOT_SUPPORTED, CONFLICT when the node never said anything of the module."""
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
                f"node '{node}' has said nothing of '{self._record.id}' yet: nothing of it has failed there",
                hint="it gets the module as soon as it is connected",
            )

    async def carry_out(self, node: str | None, actor: Actor) -> None:
        """Write down what the nodes shall hear, whether they are there or not. The audit knows of it."""
        if ModuleHost.DAEMON not in self._record.manifest.hosts or self._nodes is None:
            return
        id = self._record.id
        after: dict[str, object] | None = {"node": node} if node is not None else None
        entry = audit(actor, "modules.recover", id, after=after)
        stepped = node is None and self._record.phase is ModulePhase.FAILED
        while True:
            nodes = self._concerned() if node is None else {NodeId(node)}
            marks = request_recovery(self._state, id, nodes, now=self._clock.now())
            try:
                if marks or not stepped:
                    await self._ledger.commit(*marks, *(() if stepped else (entry,)))
                return
            except Conflict:
                continue  # a node said something new meanwhile

    def _concerned(self) -> set[NodeId]:
        """Where it stands badly; also where that cannot be known now."""
        assert self._nodes is not None
        rows = self._state.module_node_states.rows_of_module(self._record.id)
        return {row.node for row in rows if self._stands_badly(row) or not self._nodes.connected(row.node)}
