"""What a node has when it connects, against what the records say.

In two steps. Right away: runs it lists as alive are updated or adopted, copies that lost are
strays. Once its spool is taken in as far as it reached at the handshake: what it did not list is
decided, for only then is everything known that the node knows.
"""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.instances.answers import end_missing
from corral.controller.instances.reports import Kinship, Stray, announce, fold_report, kinship
from corral.controller.instances.starts import release, reserve
from corral.controller.instances.wire_values import RunReport, leased_ports, report_of
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.ids import (
    RESTARTS_PER_START,
    GroupName,
    Incarnation,
    InstanceId,
    NodeId,
    group_name,
    instance_id,
)
from corral.domain.instance_records import InstanceRecord, Readiness, live
from corral.domain.instance_states import InstanceState, Wanted
from corral.errors import Rejected
from corral.wire.v1.instance_pb2 import RunningInstance
from corral.wire.v1.node_pb2 import Handshake

Listed = dict[str, list[tuple[RunReport, RunningInstance]]]

_OURS: Final = (Kinship.SAME, Kinship.RESTARTED)


def listed_runs(hello: Handshake) -> Listed:
    """What a handshake lists, by instance, newest run first; entries that make no sense are left out."""
    listed: Listed = {}
    for entry in hello.running_instances:
        report = report_of(entry)
        if report is not None and _valid(entry):
            listed.setdefault(report.id, []).append((report, entry))
    for runs in listed.values():
        runs.sort(key=lambda run: -run[0].incarnation)
    return listed


def _valid(entry: RunningInstance) -> bool:
    try:
        instance_id(entry.instance_id)
        group_name(entry.group)
    except Rejected:
        return False
    return True


def fold_opening(ws: Workspace, node: NodeId, hello: Handshake) -> list[Stray]:
    """Take in the runs that the node says are alive."""
    strays: list[Stray] = []
    for runs in listed_runs(hello).values():
        alive = [run for run in runs if live(run[0].state)]
        if not alive:
            continue
        stray = _take(ws, node, *alive[0])
        newest = alive[0][0].incarnation
        strays += [stray] if stray else []
        strays += [
            Stray(id=r.id, incarnation=r.incarnation, group=e.group, reason=f"run {newest} of it is newer")
            for r, e in alive[1:]
        ]
    return strays


def _take(ws: Workspace, node: NodeId, report: RunReport, entry: RunningInstance) -> Stray | None:
    record = ws.instance(report.id)
    if record is None:
        _adopt(ws, node, report, entry)
        return None
    if kinship(record, report.incarnation) is Kinship.FOREIGN:
        if live(record.state) and record.node != node:
            reason = f"run {record.incarnation} of it is on '{record.node}'"
            return Stray(id=record.id, incarnation=report.incarnation, group=record.group, reason=reason)
        release(ws, record)
        _adopt(ws, node, report, entry)
        return None
    return fold_report(ws, node, report)


def _adopt(ws: Workspace, node: NodeId, report: RunReport, entry: RunningInstance) -> None:
    """A run of ours that the store does not know: it goes on, under a record made from its node's."""
    known = ws.group(entry.group) is not None
    reason = f"node '{node}' runs it and there was no record" + ("" if known else "; its group is unknown")
    decision = ws.decide(
        DecisionKind.PLACE,
        group=entry.group if known else "",
        instance=report.id,
        reason=f"adopted: {reason}",
        inputs={"node": node, "incarnation": report.incarnation, "state": report.state.value},
    )
    record = InstanceRecord(
        id=InstanceId(report.id),
        group=GroupName(entry.group),
        node=node,
        incarnation=Incarnation(report.incarnation),
        state=report.state,
        wanted=Wanted.RUN,
        readiness=report.readiness or Readiness.WAITING,
        ports=leased_ports(entry),
        memory_mb=max(0, min(entry.memory_mb, 2**31)),
        plan_hash=entry.plan_hash[:128],
        decision=decision,
        reason=reason,
        pid=report.pid,
        created_at=report.started_at or ws.now,
        started_at=report.started_at,
        console_end=report.console_end,
        adopted=True,
        module_changes=report.module_changes,
        modules_missing=report.modules_missing,
        home=node if _static(ws, entry.group) else "",
    )
    ws.put_instance(record)
    reserve(ws, record, cpu=0.0)
    ws.event(
        EventType.INSTANCE_ADOPTED,
        record.id,
        group=record.group,
        node=node,
        incarnation=record.incarnation,
        state=record.state.value,
    )


def _static(ws: Workspace, group: str) -> bool:
    found = ws.group(group)
    return found is not None and found.spec.static


def fold_judgement(ws: Workspace, node: NodeId, hello: Handshake) -> None:
    """The node's spool is taken in: what it did not list, and whose end it did not tell, is gone."""
    listed = listed_runs(hello)
    for stored in ws.state.instances.of_node(node):
        record = ws.instance(stored.record.id)
        if record is None or record.node != node or not live(record.state):
            continue
        own = [r for r, _ in listed.get(record.id, ()) if kinship(record, r.incarnation) in _OURS]
        if own:
            if not live(own[0].state):
                fold_report(ws, node, own[0])
        else:
            _judge_missing(ws, record)


def _judge_missing(ws: Workspace, record: InstanceRecord) -> None:
    state = record.state_before_offline or record.state
    sendable = record.incarnation % RESTARTS_PER_START == 0 and not record.adopted
    if state is InstanceState.SCHEDULED and sendable and record.wanted is Wanted.RUN:
        if record.state is InstanceState.OFFLINE:
            back = msgspec.structs.replace(
                record, state=state, state_before_offline=None, reason="its node is back"
            )
            ws.put_instance(back)
            announce(ws, back)
        return  # the order is sent (again)
    end_missing(ws, record)
