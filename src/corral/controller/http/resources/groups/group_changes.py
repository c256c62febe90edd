"""Changes of groups: what their routes share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.pipeline.caller_limits import RequestRates
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.groups.group_schemas import audited, group_shape
from corral.controller.http.resources.instances.instance_changes import workspace
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation, Step
from corral.domain.groups.inheritance import descendants_of, written_document
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.groups.pattern_limit import patterns_of

HEIRS_A_REQUEST: Final = 20
"""Every so many groups that inherit a changed one, or patterns to compile, count as one request more."""


def the_group(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[GroupRecord]:
    return state.groups.require(path["name"])


def writing(instances: InstanceControl, call: ApiCall[Any, Any]) -> asyncio.Lock:
    """The lock of group documents."""
    del call
    return instances.documents


def changing(
    state: ClusterState,
    instances: InstanceControl,
    call: ApiCall[Any, Any],
    action: str,
    change: Callable[[Workspace], GroupRecord],
) -> Mutation:
    stored = state.groups.require(call.path["name"])
    ws = workspace(instances, call, action)
    record = change(ws)
    return group_mutation(state, instances, ws.steps(), action, record.spec.name, stored, record)


def group_mutation(
    state: ClusterState,
    instances: InstanceControl,
    steps: tuple[Step, ...],
    action: str,
    name: str,
    before: StoredRecord[GroupRecord] | None,
    record: GroupRecord,
    *,
    status: int = 200,
) -> Mutation:
    return Mutation(
        action=action,
        subject=name,
        steps=steps,
        body=group_shape(
            state,
            StoredRecord(before.revision if before else 0, record),
            instances.signals,
        ),
        status=status,
        before=audited(before.record) if before else None,
        after=audited(record),
    )


def admit_change(
    state: ClusterState, rates: RequestRates, call: ApiCall[Any, Any], document: Mapping[str, Any]
) -> None:
    """Count the groups that inherit the one that is changed, each of which is resolved and checked anew, and the patterns of
    all of them."""
    name = call.path.get("name", "")
    parents = {name: {"parent": each.record.spec.parent} for name, each in state.groups.items()}
    heirs = descendants_of([name], parents)
    stored = [written_document(state.groups.require(each).record) for each in heirs]
    if name in parents:
        stored.append(written_document(state.groups.require(name).record))
    work = len(heirs) + len(patterns_of([document, *stored]))
    rates.admit_part(call.caller, work // HEIRS_A_REQUEST)
