"""Orders to nodes: which one a record calls for, when it is sent, and the message.

A start order carries the plan as it was hashed, and the values of this run that are in no plan: id, ports,
token, variables.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Self

import msgspec

from corral.controller.state.instance_mirror import InstanceMirror
from corral.controller.state.sorted_keys import KeyIndex
from corral.domain.groups.group import PRIMARY
from corral.domain.groups.instance_records import InstanceRecord, PlanRecord, live
from corral.domain.groups.plans import Plan
from corral.domain.groups.variables import run_variables
from corral.domain.ids import RESTARTS_PER_START
from corral.domain.instance_states import InstanceState, Wanted
from corral.errors import Code
from corral.system.aio.backoff import doubled
from corral.system.http_config import HttpSection
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1 import plan_pb2 as parts
from corral.wire.v1.link_pb2 import ControllerMessage

_MAX_DELAY: Final = 300.0


class ApiAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where instances reach the API. `cluster_tls`: with a certificate of the cluster's authority."""

    url: str = ""
    cluster_tls: bool = False

    @classmethod
    def of(cls, http: HttpSection, advertised: str) -> Self:
        """Of a controller that is reached at this HOST:PORT, or through a proxy, whose certificate is its own affair. Who
        has no proxy may have named the controller's own address as the public one."""
        own = f"{http.scheme}://{advertised}"
        if http.public_url and http.public_url != own.lower().removesuffix(":443"):
            return cls(url=http.public_url)
        return cls(url=http.public_url or own, cluster_tls=http.tls.mode == "cluster")


class OrderKind(enum.Enum):
    START = "start"
    STOP = "stop"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order to a node. Two equal orders are one, sent again."""

    kind: OrderKind
    incarnation: int
    force: bool = False


def order_for(record: InstanceRecord) -> Order | None:
    """The order that a record calls for. None: the run is in its desired state, or its node is about to reach
    it."""
    if not live(record.state) or record.state is InstanceState.OFFLINE:
        return None
    if record.wanted is Wanted.STOP:
        if record.state is InstanceState.STOPPING and not record.force_stop:
            return None
        return Order(kind=OrderKind.STOP, incarnation=record.incarnation, force=record.force_stop)
    ours = record.incarnation % RESTARTS_PER_START == 0
    if record.state is InstanceState.SCHEDULED and ours and not record.adopted:
        return Order(kind=OrderKind.START, incarnation=record.incarnation)
    return None


class OrderedInstances:
    """The instances that need an order, by node: a session that opens looks at no others."""

    def __init__(self, instances: InstanceMirror) -> None:
        self._instances = instances
        self._node_of: dict[str, str] = {}
        self._by_node = KeyIndex()
        for id in instances.ids():
            self.note(id)

    def note(self, id: str) -> None:
        """After a change of an instance. One whose record cannot be dealt with may need an order."""
        stored = self._instances.find(id)
        try:
            needed = stored is not None and order_for(stored.record) is not None
        except Exception:  # it is logged when the order is made
            needed = True
        before = self._node_of.pop(id, None)
        if stored is not None and needed:
            self._node_of[id] = stored.record.node
        self._by_node.move(id, before, self._node_of.get(id))

    def on(self, node: str) -> list[str]:
        """The ids of those that need an order on this node, in order."""
        return list(self._by_node.of(node))


def first_delay(record: InstanceRecord, resend_seconds: float) -> float:
    """The delay of a start because nodes have refused it before."""
    failure = record.start_failure
    if not record.attempts or failure is None:
        return 0.0
    if failure.code == Code.PORT_IN_USE.name:  # other ports are tried at once, the same when they are free
        return min(float(failure.retry_after_seconds), _MAX_DELAY)
    delay = max(doubled(resend_seconds, record.attempts - 1), float(failure.retry_after_seconds))
    return min(delay, _MAX_DELAY)


def stop_message(
    record_id: str, incarnation: int, *, force: bool, reason: str, decision: str
) -> ControllerMessage:
    return ControllerMessage(
        stop_instance=wire.StopInstance(
            instance_id=record_id, incarnation=incarnation, force=force, reason=reason, decision_id=decision
        )
    )


def start_message(
    record: InstanceRecord,
    stored: PlanRecord,
    plan: Plan,
    *,
    labels: Mapping[str, str],
    token: str,
    ticket: str,
    api: ApiAddress,
) -> ControllerMessage:
    """The start message; `plan` is what `stored` holds. The token is in no plan and no log."""
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
        deployment_revision=record.revision,
        decision_id=record.decision,
        api_url=api.url,
        api_cluster_tls=api.cluster_tls,
        ticket=ticket,
    )
    return ControllerMessage(start_instance=order)
