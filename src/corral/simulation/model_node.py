"""One node of the model: what it is, what it runs, and what it has to report."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import msgspec

from corral.controller.instances.report_values import RunReport
from corral.controller.instances.workspace import Workspace
from corral.domain.ids import NodeId
from corral.domain.instance_states import ISOLATED, InstanceState
from corral.domain.node_claims import NodeSettings
from corral.domain.node_states import NodeState
from corral.domain.records import NodeRecord
from corral.simulation.model_runs import ModelRun, exit_status
from corral.simulation.scenario import NodeModel
from corral.wire.v1.node_pb2 import Handshake

Fold = Callable[[Workspace], object]


class ModelNode(msgspec.Struct, kw_only=True, eq=False):
    model: NodeModel
    powered: bool = True
    linked: bool = True
    """Nothing cuts it off; it may be connecting all the same."""
    faults: int = 0
    """How many faults it has had: the end of an earlier one does not end a later one."""
    sessions: int = 0
    """How many connections it has had."""
    runs: dict[str, ModelRun] = msgspec.field(default_factory=dict)
    interrupted: list[ModelRun] = msgspec.field(default_factory=list)
    """What ran when it lost its power."""
    boots: int = 1
    spool: list[Fold] = msgspec.field(default_factory=list)
    """What ended while it had no connection."""

    def enrolled(self, now: dt.datetime) -> NodeRecord:
        """Its record before it connects for the first time."""
        return NodeRecord(
            id=NodeId(self.model.id),
            state=NodeState.ENROLLED,
            state_since=now,
            reason="",
            enrolled_at=now,
            serials=(),
            settings=NodeSettings(labels=self.model.labels),
        )

    def handshake(self) -> Handshake:
        model = self.model
        return Handshake(
            node_id=model.id,
            version="model",
            boot_id=f"boot-{self.boots}",
            advertise_address=f"{model.id}.simulation",
            total_memory_mb=model.memory_mb,
            available_cpus=model.cpus,
            runtimes=list(model.runtimes),
            capabilities=list(model.capabilities),
        )


def stop_report(id: str, incarnation: int, outcome: str = "stopped") -> RunReport:
    """A run has ended, because it was ordered or as its group has it."""
    summary = "its node had no controller for too long" if outcome == ISOLATED else "stopped as ordered"
    return RunReport(
        id=id,
        incarnation=incarnation,
        state=InstanceState.STOPPED,
        exit=exit_status(outcome, summary),
    )
