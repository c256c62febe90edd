"""A start as one transaction: record, reservation, plan, decision and event, or none of them."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator

import msgspec

from corral.controller.fleet_mirrors import port_keys
from corral.controller.instances.workspace import Workspace
from corral.controller.placement.nodes import BUSY, refused_ports
from corral.controller.placement.placing import Placement, Refused, place
from corral.domain.decisions import Alternative, DecisionKind
from corral.domain.events import EventType
from corral.domain.ids import GroupName, InstanceId, NodeId, same_start
from corral.domain.instance_records import (
    GroupRecord,
    InstanceRecord,
    LeasedPort,
    Reservation,
    StartFailure,
)
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.plans import plan_of


class StartRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a start before it is placed."""

    id: InstanceId
    kind: DecisionKind = DecisionKind.START
    reason: str
    only: str | None = None
    avoid: str | None = None
    prefer: str | None = None
    attempts: int = 0
    failure: StartFailure | None = None
    created_at: dt.datetime | None = None
    """Of the first run under this id; None: this is it."""


def free_instance_ids(ws: Workspace, group: GroupName) -> Iterator[InstanceId]:
    """`GROUP-N` with the lowest N that no record has, then with the next ones."""
    return (InstanceId(id) for n in itertools.count(1) if ws.instance(id := f"{group}-{n}") is None)


def start_run(ws: Workspace, group: GroupRecord, request: StartRequest) -> InstanceRecord | Refused:
    """Place and reserve a new run. When no node can take it, nothing is changed."""
    found = place(group.spec, ws.nodes(), only=request.only, avoid=request.avoid, prefer=request.prefer)
    if isinstance(found, Refused):
        return found
    plan = plan_of(group.spec)
    decision = ws.decide(
        request.kind,
        group=group.spec.name,
        instance=request.id,
        reason=f"{request.reason}; node '{found.node}' scores best",
        inputs={
            "node": found.node,
            "score": found.score,
            "memory_mb": group.spec.memory_mb,
            "ports": ", ".join(f"{port.name}={port.port}/{port.protocol}" for port in found.ports),
            "plan": plan.hash,
            "attempts": request.attempts,
        },
        rejected=passed_over(found),
    )
    record = InstanceRecord(
        id=request.id,
        group=GroupName(group.spec.name),
        node=NodeId(found.node),
        incarnation=ws.next_incarnation(),
        state=InstanceState.SCHEDULED,
        wanted=Wanted.RUN,
        ports=found.ports,
        memory_mb=group.spec.memory_mb,
        plan_hash=plan.hash,
        decision=decision,
        reason=request.reason,
        created_at=request.created_at or ws.now,
        start_failure=request.failure,
        attempts=request.attempts,
        pinned=request.only is not None,
    )
    ws.put_plan(plan)
    ws.put_instance(record)
    reserve(ws, record, cpu=group.spec.cpu)
    ws.event(
        EventType.INSTANCE_SCHEDULED,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=record.incarnation,
        decision=decision,
    )
    return record


def passed_over(found: Placement | Refused) -> list[Alternative]:
    """The nodes that did not get it, and why."""
    rejected = [Alternative(subject=f"node/{each.node}", reason=each.reason) for each in found.refusals]
    if isinstance(found, Placement):
        rejected += [
            Alternative(subject=f"node/{id}", reason=f"scores {score:g}, less than {found.score:g}")
            for id, score in found.others
        ]
    return rejected


def reserve(ws: Workspace, record: InstanceRecord, *, cpu: float) -> None:
    """Take memory and ports of the record's node in its name."""
    ledger = ws.ledger(record.node)
    reservation = Reservation(
        instance=record.id,
        incarnation=record.incarnation,
        memory_mb=record.memory_mb,
        cpu=cpu,
        ports=record.ports,
    )
    ws.put_ledger(msgspec.structs.replace(ledger, runs={**ledger.runs, record.id: reservation}))
    if record.ports:
        ws.insist_on_neighbours(record.node)


def release(ws: Workspace, record: InstanceRecord) -> None:
    """Give back what the run holds; harmless when it holds nothing."""
    ledger = ws.ledger(record.node)
    held = ledger.runs.get(record.id)
    if held is not None and same_start(held.incarnation, record.incarnation):
        runs = {id: run for id, run in ledger.runs.items() if id != record.id}
        ws.put_ledger(msgspec.structs.replace(ledger, runs=runs))


def refuse_ports(ws: Workspace, node: NodeId, ports: tuple[LeasedPort, ...]) -> None:
    """The node found these in use: nobody gets them for a while. Older refusals that are over go."""
    ledger = ws.ledger(node)
    busy = refused_ports(ledger, ws.now)
    kept = {
        f"{number}/{protocol}": ledger.refused_ports[f"{number}/{protocol}"]
        for number, protocol in busy
        if f"{number}/{protocol}" in ledger.refused_ports
    }
    for port in ports:
        for number, protocol in port_keys(port.port, port.protocol):
            kept[f"{number}/{protocol}"] = ws.now + BUSY
    ws.put_ledger(msgspec.structs.replace(ledger, refused_ports=kept))
