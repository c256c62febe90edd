"""Runs as a node lists them, with the ticket of a start that the store does not know: as after a restore."""

from __future__ import annotations

import datetime as dt

from corral.controller.instances.tickets import StartTickets
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_records import InstanceRecord
from corral.domain.instance_states import InstanceState, Wanted
from corral.wire.v1.instance_pb2 import RunningInstance


def ticketed(tickets: StartTickets, run: RunningInstance, *, node: str, serial: int) -> RunningInstance:
    """The same run, with the ticket that its node would have been given."""
    record = InstanceRecord(
        id=InstanceId(run.instance_id),
        group=GroupName(run.group),
        node=NodeId(node),
        incarnation=Incarnation(run.incarnation),
        state=InstanceState.SCHEDULED,
        wanted=Wanted.RUN,
        plan_hash=run.plan_hash,
        created_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        serial=serial,
    )
    run.ticket = tickets.of(record)
    return run
