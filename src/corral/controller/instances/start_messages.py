"""The order to start a run: the plan as it was hashed, and what belongs to this run alone (id, ports, token, variables)
and is in no plan."""

from __future__ import annotations

from collections.abc import Mapping

from corral.domain.groups import PRIMARY
from corral.domain.instance_records import InstanceRecord, PlanRecord
from corral.domain.plans import Plan
from corral.domain.variables import run_variables
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1 import plan_pb2 as parts
from corral.wire.v1.link_pb2 import ControllerMessage


def start_message(
    record: InstanceRecord,
    stored: PlanRecord,
    plan: Plan,
    *,
    labels: Mapping[str, str],
    token: str,
    ticket: str,
    api_url: str,
) -> ControllerMessage:
    """Everything the node needs; `plan` is what `stored` holds. The token is in no plan and no log."""
    primary = next((port.port for port in record.ports if port.name == PRIMARY), 0)
    order = wire.StartInstance(
        instance_id=record.id,
        group=record.group,
        port=primary or next((port.port for port in record.ports), 0),
        ports=[
            wire.NamedPort(name=port.name, port=port.port, protocol=port.protocol.value)
            for port in record.ports
        ],
        plugin_token=token,
        composition_plan=parts.CompositionPlan(plan_hash=stored.hash, canonical_json=stored.body.encode()),
        resolved_variables=run_variables(
            plan.variables, node_labels=labels, instance=record.variables, built_in={}
        ),
        incarnation=record.incarnation,
        plan_hash=record.plan_hash,
        decision_id=record.decision,
        api_url=api_url,
        ticket=ticket,
    )
    return ControllerMessage(start_instance=order)
