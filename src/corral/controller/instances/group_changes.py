"""Operations of operators on a group, as changes of a workspace."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from corral.controller.instances.confirmations import before_group_goes, before_static_goes
from corral.controller.instances.crash_loops import end_pause
from corral.controller.instances.instance_changes import order_stop, refuse_abstract, refuse_deleting
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.group import GroupSpec, ScalingMode
from corral.domain.groups.group_checks import check_group
from corral.domain.groups.group_documents import changed_fields, patched
from corral.domain.groups.instance_records import GroupRecord, live, stays
from corral.domain.groups.placement_checks import check_references
from corral.errors import Code, Rejected


def create_group(ws: Workspace, spec: GroupSpec) -> GroupRecord:
    """Create a group; its minimum is started right after."""
    check_group(spec)
    if ws.group(spec.name) is not None:
        raise Rejected(
            Code.ALREADY_EXISTS,
            f"group '{spec.name}' already exists",
            hint="change it, or choose another name",
            field="name",
        )
    _check_references(ws, spec)
    if not spec.abstract:
        ws.resolve(spec)  # refuse it here, with its field, rather than at every start
    record = GroupRecord(spec=spec, created_at=ws.now, updated_at=ws.now, request=ws.request)
    ws.put_group(record)
    ws.event(EventType.GROUP_CREATED, spec.name, min=spec.min, max=spec.max)
    return record


def patch_group(ws: Workspace, name: str, patch: Mapping[str, object], *, confirm: str = "") -> GroupRecord:
    """Change the document by a merge patch. Running instances continue as they were started.
    CONFIRMATION_REQUIRED when worlds would be left behind."""
    record = ws.require_group(name)
    refuse_deleting(record)
    spec = patched(record.spec, patch)
    fields = changed_fields(record.spec, spec)
    if not fields:
        return record
    _check_references(ws, spec)
    _refuse_unresolvable(ws, record.spec, spec)
    if record.spec.static and not spec.static:
        before_static_goes(ws.state, name, confirm)
    target = record.target if spec.max is None else min(record.target, spec.max)
    changed = msgspec.structs.replace(record, spec=spec, target=target, updated_at=ws.now, request=ws.request)
    ws.put_group(changed)
    ws.event(EventType.GROUP_UPDATED, name, changed=fields)
    return changed


def _check_references(ws: Workspace, spec: GroupSpec) -> None:
    check_references({**_specs(ws, without=spec.name), spec.name: spec}, [spec.name])


def _specs(ws: Workspace, *, without: str) -> dict[str, GroupSpec]:
    """The documents of all groups that are not being deleted, but one."""
    return {
        name: record.spec for name, record in ws.groups().items() if not record.deleting and name != without
    }


def _refuse_unresolvable(ws: Workspace, old: GroupSpec, new: GroupSpec) -> None:
    """Refuse a patch that breaks a group. One that is broken already, because something was removed since,
    can still be scaled down, or repaired in several steps."""
    if new.abstract:
        return
    try:
        ws.resolve(new)
    except Rejected as error:
        try:
            ws.resolve(old)
        except Rejected as before:
            if (before.code, before.message) == (error.code, error.message):
                return
        raise


def delete_group(ws: Workspace, name: str, *, cascade: bool, confirm: str = "") -> GroupRecord | None:
    """Delete a group that has no instances; with `cascade` stop them first. None: it is deleted.
    CONFIRMATION_REQUIRED when instances are stopped or worlds left behind."""
    record = ws.require_group(name)
    if not record.deleting:
        check_references(_specs(ws, without=name), [name])
    present = [each for each in ws.instances_of(name) if live(each.state)]
    if present and not cascade:
        raise Rejected(
            Code.GROUP_NOT_EMPTY,
            f"group '{name}' has {len(present)} instances",
            hint="stop them first, or let them be stopped with 'cascade' (--cascade)",
        )
    before_group_goes(ws.state, name, confirm)
    if not present:
        drop_group(ws, name)
        return None
    for each in present:
        order_stop(ws, each, reason=f"its group is deleted by {ws.cause}")
    if record.deleting:
        return record
    changed = msgspec.structs.replace(record, deleting=True, updated_at=ws.now)
    ws.put_group(changed)
    ws.event(EventType.GROUP_UPDATED, name, changed=["deleting"])
    return changed


def drop_group(ws: Workspace, name: str) -> None:
    ws.delete_group(name)
    ws.event(EventType.GROUP_DELETED, name)


def scale_group(ws: Workspace, name: str, count: int) -> GroupRecord:
    """Set the desired number of instances: the youngest ones are stopped, or further ones started right
    after."""
    record = ws.require_group(name)
    refuse_deleting(record)
    if record.spec.scaling.mode is ScalingMode.STATIC:
        raise Rejected(
            Code.CONFLICT,
            f"group '{name}' has as many instances as 'min' says: its scaling.mode is STATIC",
            hint="change 'min', or set scaling.mode to MANUAL",
            field="scaling.mode",
        )
    refuse_abstract(record)
    low, high = record.spec.min, record.spec.max
    if count < low or (high is not None and count > high):
        bounds = f"at least {low}" if high is None else f"between {low} and {high}"
        raise Rejected(
            Code.INVALID_FIELD,
            f"count {count} is out of bounds for group '{name}'",
            hint=f"use {bounds}, or change min and max first",
            field="count",
        )
    present = [each for each in ws.instances_of(name) if stays(each)]
    surplus = sorted(present, key=lambda each: (each.created_at, each.incarnation))[count:]
    if record.target == count and record.desired_count == count and not surplus:
        return record
    ws.decide(
        DecisionKind.SCALE,
        group=name,
        reason=f"scaled from {record.desired_count} to {count} by {ws.cause}",
        inputs={"from": record.desired_count, "to": count, "present": len(present)},
    )
    for each in surplus:
        order_stop(ws, each, reason=f"scaled down to {count} by {ws.cause}")
    changed = msgspec.structs.replace(record, target=count, updated_at=ws.now, request=ws.request)
    ws.put_group(changed)
    ws.event(EventType.GROUP_SCALED, name, **{"from": record.desired_count, "to": count})
    return changed


def unpause_group(ws: Workspace, name: str) -> GroupRecord:
    """End the pause at once, and reset the count of failures."""
    record = ws.require_group(name)
    return record if record.paused is None else end_pause(ws, record, by="operator")
