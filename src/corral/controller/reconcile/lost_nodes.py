"""Nodes out of reach: their instances are OFFLINE, not dead. Nodes that were removed are for good."""

from __future__ import annotations

import msgspec

from corral.controller.instances.confirmations import GIVEN_UP
from corral.controller.instances.report_values import exit_record
from corral.controller.instances.run_exits import end_run
from corral.controller.instances.workspace import Workspace
from corral.domain.events import EventType
from corral.domain.instance_records import AfterStop, live, next_state
from corral.domain.instance_states import InstanceState, InstanceTrigger, Wanted


def lose_node(ws: Workspace, node: str, *, limit: int) -> bool:
    """Mark the node's instances OFFLINE, at most so many; is anything left to do?"""
    marked = 0
    for stored in ws.state.instances.of_node(node):
        record = stored.record
        if not live(record.state) or record.state is InstanceState.OFFLINE:
            continue
        if marked == limit:
            return True
        marked += 1
        ws.put_instance(
            msgspec.structs.replace(
                record,
                state=next_state(record, InstanceTrigger.UNWATCHED),
                state_before_offline=record.state,
                reason=f"node '{node}' is out of reach",
            )
        )
        ws.event(
            EventType.INSTANCE_OFFLINE,
            record.id,
            group=record.group,
            node=node,
            incarnation=record.incarnation,
            **{"from": record.state.value},
        )
    return False


def forget_node(ws: Workspace, node: str, *, limit: int) -> bool:
    """The node is no member any more: nobody will ever tell what became of its instances.

    They may be alive where they are, so none is restarted: whatever replaces them has an id of its own.
    """
    ended = 0
    for stored in ws.state.instances.of_node(node):
        record = stored.record
        if not live(record.state):
            continue
        if ended == limit:
            return True
        ended += 1
        wanted = record.wanted is Wanted.RUN
        exit = msgspec.structs.replace(exit_record(None, crashed=wanted, now=ws.now), summary=GIVEN_UP)
        state = InstanceState.CRASHED if wanted else InstanceState.STOPPED
        lost = msgspec.structs.replace(record, after_stop=AfterStop.END)
        end_run(ws, lost, state, exit, reason=f"node '{node}' was removed; {GIVEN_UP}")
    return False
