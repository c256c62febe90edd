"""Operations of operators on a group, as changes of a workspace."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from corral.controller.instances.confirmations import before_group_goes
from corral.controller.instances.crash_loops import OPERATOR, end_pause
from corral.controller.instances.deployments import drop_deployments, end_deployments_of
from corral.controller.instances.group_writes import (
    StoredGroups,
    documents_of,
    resolve_documents,
    stored_groups,
    write_resolved,
)
from corral.controller.instances.instance_changes import (
    order_stop,
    refuse_abstract,
    refuse_by_mode,
    refuse_deleting,
)
from corral.controller.instances.plan_checks import PlanChecks
from corral.controller.instances.revisions import drop_revisions
from corral.controller.instances.serving_counts import serving_count
from corral.controller.instances.starts import insist_on_group
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import check_group
from corral.domain.groups.group_documents import brief_document, parse_group, refuse_renaming
from corral.domain.groups.inheritance import (
    changing_part,
    parent_of,
    patched_document,
    written_document,
)
from corral.domain.groups.instance_records import GroupRecord, Hold, ScaleFloor, live
from corral.domain.groups.placement_checks import check_references
from corral.domain.groups.scaling_spec import ScalingMode
from corral.domain.ids import group_name
from corral.domain.planning.scaling import wanted_count
from corral.domain.planning.schedules import ScheduledValues, scheduled
from corral.errors import Code, Rejected, counted, short_list

_SHOWN: Final = 10


def create_group(ws: Workspace, spec: GroupSpec) -> GroupRecord:
    """Create a group; its minimum is started right after."""
    check_group(spec)
    return create_document(ws, brief_document(spec))


def create_document(ws: Workspace, document: Mapping[str, Any]) -> GroupRecord:
    """Create a group by its document; its minimum is started right after."""
    return write_revised(ws, PlanChecks(ws), new_group(document, stored_groups(ws)))


Revise = Callable[[GroupRecord, StoredGroups], Mapping[str, Any]]
"""The new document of a group that is there. Pure."""


class RevisedGroup(NamedTuple):
    """The document of a group, and what it and its descendants are resolved to."""

    name: str
    document: Mapping[str, Any]
    specs: dict[str, GroupSpec]


def new_group(document: Mapping[str, Any], stored: StoredGroups) -> RevisedGroup:
    """What a group that is not there yet is resolved to. Pure, and may take a while."""
    name = document.get("name")
    if not isinstance(name, str):
        parse_group(document)  # refuses it, with the field
    assert isinstance(name, str)
    group_name(name)
    if name in stored.records:
        raise Rejected(
            Code.ALREADY_EXISTS,
            f"group '{name}' already exists",
            hint="change it, or choose another name",
            field="name",
        )
    return RevisedGroup(name, document, resolve_documents({name: document}, stored))


def patched(patch: Mapping[str, object]) -> Revise:
    """The document after a merge patch."""
    return lambda record, stored: patched_document(
        written_document(record), changing_part(patch, record.spec), stored.documents
    )


def revised_group(name: str, revise: Revise, stored: StoredGroups) -> RevisedGroup:
    """What becomes of a group and its descendants. Pure, and may take a while."""
    record = stored.records[name]
    refuse_deleting(record)
    document = revise(record, stored)
    refuse_renaming(name, document)
    return RevisedGroup(name, document, resolve_documents({name: document}, stored))


def write_revised(
    ws: Workspace, plans: PlanChecks, revised: RevisedGroup, *, confirm: str = ""
) -> GroupRecord:
    """Change the document. Running instances continue as they were started. CONFIRMATION_REQUIRED when worlds would be
    left behind."""
    write_resolved(ws, plans, {revised.name: revised.document}, revised.specs, confirm=confirm)
    return ws.require_group(revised.name)


def patch_group(ws: Workspace, name: str, patch: Mapping[str, object], *, confirm: str = "") -> GroupRecord:
    """Change the document by a merge patch, at once; see `write_revised`."""
    ws.require_group(name)
    revised = revised_group(name, patched(patch), stored_groups(ws))
    return write_revised(ws, PlanChecks(ws), revised, confirm=confirm)


def delete_group(ws: Workspace, name: str, *, cascade: bool, confirm: str = "") -> GroupRecord | None:
    """Delete a group that has no instances; with `cascade` stop them first. None: it is deleted.
    CONFIRMATION_REQUIRED when instances are stopped or worlds left behind."""
    record = ws.require_group(name)
    if not record.deleting:
        _refuse_used(ws, name)
    present = [each for each in ws.instances_of(name) if live(each.state)]
    if present and not cascade:
        raise Rejected(
            Code.GROUP_NOT_EMPTY,
            f"group '{name}' has {counted(len(present), 'instance')}",
            hint="stop them first, or let them be stopped with 'cascade' (--cascade)",
        )
    before_group_goes(ws.state, name, confirm)
    return end_group(ws, record)


def end_group(ws: Workspace, record: GroupRecord) -> GroupRecord | None:
    """Remove a group, after its instances have been stopped; None: it has none and is removed."""
    name = record.spec.name
    present = [each for each in ws.instances_of(name) if live(each.state)]
    insist_on_group(ws, name)
    end_deployments_of(ws, name, by=ws.by)
    if not present:
        drop_group(ws, name)
        return None
    for each in present:
        order_stop(ws, each, reason=f"its group is deleted by {ws.by}")
    if record.deleting:
        return record
    changed = msgspec.structs.replace(ws.require_group(name), deleting=True, updated_at=ws.now)
    ws.put_group(changed)
    ws.event(EventType.GROUP_UPDATED, name, changed=["deleting"])
    return changed


def _refuse_used(ws: Workspace, name: str) -> None:
    documents = documents_of(ws)
    children = sorted(each for each, document in documents.items() if parent_of(document) == name)
    if children:
        raise Rejected(
            Code.CONFLICT,
            f"group '{name}' is the parent of {short_list(map(repr, children), _SHOWN)}",
            hint="give these another parent or delete them first",
        )
    specs = {each: ws.require_group(each).spec for each in documents if each != name}
    check_references(specs, [name])


def drop_group(ws: Workspace, name: str) -> None:
    drop_deployments(ws, name)
    ws.delete_group(name)
    drop_revisions(ws, name)
    ws.event(EventType.GROUP_DELETED, name)


def scale_group(ws: Workspace, name: str, count: int, *, seconds: int | None = None) -> GroupRecord:
    """Set the desired number of instances; what is missing is started right after, and what is too many goes. Where the
    load decides it is a lower bound, for `seconds`."""
    record = ws.require_group(name)
    refuse_deleting(record)
    refuse_abstract(record)
    values = scheduled(record.spec, ws.now)
    refuse_by_mode(record, values)
    _check_count(record, values, count)
    dynamic = values.mode is ScalingMode.DYNAMIC
    if dynamic != (seconds is not None):
        raise _wrong_kind(record, count, dynamic=dynamic)
    before = serving_count(ws, name) if dynamic else wanted_count(record, values)
    if seconds is not None:
        until = ws.now + dt.timedelta(seconds=seconds)
        changed = msgspec.structs.replace(record, floor=ScaleFloor(count=count, until=until))
    elif record.target == count and before == count:
        return record
    else:
        changed = msgspec.structs.replace(record, target=count)
    lasting = f" for {seconds} s" if seconds is not None else ""
    made = ws.decide(
        DecisionKind.SCALE,
        group=name,
        reason=f"scaled from {before} to {count}{lasting} by {ws.by}",
        inputs={"from": before, "to": count, "present": serving_count(ws, name)},
    )
    ws.put_group(msgspec.structs.replace(changed, updated_at=ws.now, request=ws.request))
    ws.event(EventType.GROUP_SCALED, name, **{"from": before, "to": count, "decision": made})
    return ws.require_group(name)


def _check_count(record: GroupRecord, values: ScheduledValues, count: int) -> None:
    low, high = values.min, values.max
    if count < low or (high is not None and count > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise Rejected(
            Code.INVALID_FIELD,
            f"count {count} is out of bounds for group '{record.spec.name}'",
            hint=f"use {bounds}, or change min and max first",
            field="count",
        )


def _wrong_kind(record: GroupRecord, count: int, *, dynamic: bool) -> Rejected:
    name = record.spec.name
    if dynamic:
        return Rejected(
            Code.CONFLICT,
            f"the load decides how many instances group '{name}' has: its scaling.mode is DYNAMIC",
            hint=f"keep at least so many for a while: corral group scale {name} {count} --for 15m",
            field="for_seconds",
        )
    return Rejected(
        Code.CONFLICT,
        f"group '{name}' keeps the number until the next 'scale': its scaling.mode is not DYNAMIC",
        hint="leave out 'for_seconds' (--for)",
        field="for_seconds",
    )


def unpause_group(ws: Workspace, name: str) -> GroupRecord:
    """End the pause at once, and reset the count of failures."""
    record = ws.require_group(name)
    return record if record.paused is None else end_pause(ws, record, by=OPERATOR)


def hold_group(ws: Workspace, name: str, *, by: str, reason: str, when_empty: bool) -> GroupRecord:
    """Keep every instance of a group stopped, until it is released: those that run are stopped right after, or with
    `when_empty` each when it has no players."""
    record = ws.require_group(name)
    refuse_deleting(record)
    refuse_abstract(record)
    before = record.hold
    if before is not None and (before.reason, before.when_empty) == (reason, when_empty):
        return record
    hold = Hold(by=by, reason=reason, since=before.since if before else ws.now, when_empty=when_empty)
    changed = msgspec.structs.replace(record, hold=hold, request=ws.request)
    ws.put_group(changed)
    insist_on_group(ws, name)
    ws.event(EventType.GROUP_HELD, name, by=by, reason=reason, when_empty=when_empty)
    return changed


def release_group(ws: Workspace, name: str, *, by: str) -> GroupRecord:
    """End the hold; what is wanted is started right after."""
    record = ws.require_group(name)
    if record.hold is None:
        return record
    changed = msgspec.structs.replace(record, hold=None, request=ws.request)
    ws.put_group(changed)
    ws.event(EventType.GROUP_RELEASED, name, by=by, reason=record.hold.reason)
    return changed
