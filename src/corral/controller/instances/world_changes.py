"""The place of a static instance that does not run yet: its node, for files that it shall find at its first start."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.instances.confirmations import has_world
from corral.controller.instances.instance_changes import refuse_abstract, refuse_deleting
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, live
from corral.domain.ids import GroupName, InstanceId, NodeId, instance_number
from corral.domain.instance_states import InstanceState, Wanted
from corral.errors import Code, Rejected

MOST_OF_GROUP: Final = 1000
"""Instances of a group, also those that have ended, up to which a further place is reserved."""


def reserve_world(ws: Workspace, group: str, id: InstanceId, node: str, *, reason: str) -> InstanceRecord:
    """The record of a static instance that belongs to this node and is held stopped, so that nothing starts it; as it is if
    it is so already. CONFLICT for an instance that runs or has its directory on another node, GROUP_FULL, INVALID_FIELD."""
    record = ws.require_group(group)
    refuse_deleting(record)
    refuse_abstract(record)
    _refuse_other_id(record.spec, id)
    before = ws.instance(id)
    if before is not None:
        _refuse_in_use(ws, record, before, node)
        if before.held and before.home == node and before.created_at >= record.created_at:
            return before
    if before is None and len(ws.instances_of(group)) >= MOST_OF_GROUP:
        raise Rejected(
            Code.GROUP_FULL,
            f"group '{group}' has {MOST_OF_GROUP} instances, those that do not run included",
            hint="delete some that are not needed: 'corral instance delete'",
        )
    decision = ws.decide(
        DecisionKind.PLACE,
        group=group,
        instance=id,
        reason=f"{reason}; node '{node}' was chosen for it",
        inputs={"node": node},
        node=node,
    )
    reserved = InstanceRecord(
        id=id,
        group=GroupName(group),
        node=NodeId(node),
        home=node,
        incarnation=before.incarnation if before is not None else ws.next_incarnation(),
        state=InstanceState.STOPPED,
        wanted=Wanted.STOP,
        held=reason,
        reason=reason,
        decision=decision,
        request=ws.request,
        created_at=ws.now,
        ended_at=ws.now,
    )
    if before is not None and before.created_at >= record.created_at:
        reserved = msgspec.structs.replace(
            before, node=NodeId(node), home=node, held=reason, reason=reason, decision=decision
        )
    ws.put_instance(reserved)
    ws.event(EventType.INSTANCE_RESERVED, id, group=group, node=node, reason=reason, decision=decision)
    return reserved


def _refuse_other_id(spec: GroupSpec, id: str) -> None:
    if not spec.static:
        raise Rejected(
            Code.CONFLICT,
            f"group '{spec.name}' is not static: its instances keep no directory",
            hint="set 'static' to true",
        )
    prefix, number = instance_number(id)
    if id not in spec.static_names and (prefix != spec.name or number <= len(spec.static_names)):
        raise Rejected(
            Code.INVALID_FIELD,
            f"'{id[:80]}' is no instance that group '{spec.name}' could have",
            hint=f"its instances are '{spec.name}-NUMBER', or those of 'static_names'",
            field="instance",
        )


def _refuse_in_use(ws: Workspace, group: GroupRecord, before: InstanceRecord, node: str) -> None:
    if before.group != group.spec.name or live(before.state):
        raise Rejected(
            Code.CONFLICT,
            f"instance '{before.id}' is {before.state}",
            hint=f"stop it first, and wait until it has ended: 'corral instance stop {before.id} --wait'",
        )
    if has_world(ws.state, before) and before.home != node:
        raise Rejected(
            Code.CONFLICT,
            f"the directory of instance '{before.id}' is on node '{before.home}'",
            hint="name that node; a world does not move by itself",
            field="node",
        )
