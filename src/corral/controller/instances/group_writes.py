"""Writing of group documents: resolved with their ancestors, checked with all groups that they concern, and stored
together or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from corral.controller.instances.confirmations import before_static_goes
from corral.controller.instances.crash_loops import follow_change
from corral.controller.instances.plan_checks import PlanChecks
from corral.controller.instances.starts import insist_on_group
from corral.controller.instances.workspace import Workspace
from corral.domain.events import EventType
from corral.domain.groups.field_effects import FieldEffect, effect_of
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import changed_fields
from corral.domain.groups.inheritance import of_descendant, resolve_groups, written_document
from corral.domain.groups.instance_records import GroupRecord, live
from corral.domain.groups.placement_checks import check_references
from corral.domain.spec import invalid
from corral.errors import Rejected, short_list

_SHOWN = 10


class GroupWrite(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of documents makes of one group."""

    name: str
    before: GroupRecord | None
    """None: it is new."""
    after: GroupRecord
    changed: tuple[str, ...]
    """The fields that differ; of a new group none."""

    @property
    def started_with(self) -> list[str]:
        """Those of them that the next run takes over, and no instance that runs."""
        old, new = self.before.spec if self.before else self.after.spec, self.after.spec
        effects = {each: effect_of(each, getattr(old, each), getattr(new, each)) for each in self.changed}
        return [each for each, effect in effects.items() if effect is FieldEffect.RESTART]


def documents_of(ws: Workspace) -> dict[str, dict[str, Any]]:
    """All documents as they were written, without those of groups that are being deleted."""
    return {name: written_document(each) for name, each in ws.groups().items() if not each.deleting}


class StoredGroups(NamedTuple):
    """What is stored of all groups, apart from the state, and their documents as they were written, without those of
    groups that are being deleted."""

    records: dict[str, GroupRecord]
    documents: dict[str, dict[str, Any]]


def stored_groups(ws: Workspace) -> StoredGroups:
    return StoredGroups(ws.groups(), documents_of(ws))


def resolve_documents(
    documents: Mapping[str, Mapping[str, Any]], stored: StoredGroups
) -> dict[str, GroupSpec]:
    """The groups of these documents and all of their descendants. Pure, and may take a while. One refused group refuses
    all; a descendant is named."""
    every = {**stored.documents, **{name: dict(each) for name, each in documents.items()}}
    specs, faults = resolve_groups(documents, every)
    if faults:
        raise faults[0].error
    others = {name: record.spec for name, record in stored.records.items() if name in every}
    check_references(others | specs, specs)
    return specs


def write_resolved(
    ws: Workspace,
    plans: PlanChecks,
    documents: Mapping[str, Mapping[str, Any]],
    specs: Mapping[str, GroupSpec],
    *,
    confirm: str = "",
) -> list[GroupWrite]:
    """Write these documents and what they and their descendants are resolved to. One refused group refuses all; a
    descendant is named. What is as it was is not written again. CONFIRMATION_REQUIRED when worlds would be left behind:
    `confirm` is the name of one of these groups."""
    writes = []
    for name, spec in specs.items():
        try:
            write = planned_write(ws, name, spec, dict(documents[name]) if name in documents else None)
            if write is not None:
                writes.append(write)
                by = name if name in documents else next(iter(documents))
                check_write(ws, plans, write, confirm, by=by)
        except Rejected as error:
            if name in documents:
                raise
            raise of_descendant(name, error) from error
    for write in writes:
        store_write(ws, write)
    return writes


def planned_write(
    ws: Workspace, name: str, spec: GroupSpec, written: dict[str, Any] | None
) -> GroupWrite | None:
    """What writing this document makes of a group. None: nothing of it changes. `written` None: an ancestor was written."""
    before = ws.group(name)
    if written is not None:
        written = {"name": name, **written}
    if before is None:
        assert written is not None, "a descendant exists"
        after = GroupRecord(
            spec=spec, written=written, created_at=ws.now, updated_at=ws.now, request=ws.request
        )
        return GroupWrite(name=name, before=None, after=after, changed=())
    fields = changed_fields(before.spec, spec)
    if written is None:
        written = before.written
    if not fields and (written is before.written or written == written_document(before)):
        return None
    after = msgspec.structs.replace(
        before,
        spec=spec,
        written=written,
        target=before.target if spec.max is None else min(before.target, spec.max),
        updated_at=ws.now,
        request=ws.request,
    )
    return GroupWrite(name=name, before=before, after=after, changed=tuple(fields))


def check_write(ws: Workspace, plans: PlanChecks, write: GroupWrite, confirm: str, *, by: str) -> None:
    """Refuse a group that could not be started, or leaves something behind."""
    spec = write.after.spec
    if write.before is None:
        if not spec.abstract:
            plans.check(spec)  # refuse it here, with its field, rather than at every start
        return
    if spec.abstract:
        _refuse_running(ws, write)
    elif write.changed:
        _refuse_unresolvable(plans, write.before.spec, spec)
    if write.before.spec.static and not spec.static:
        before_static_goes(ws.state, write.name, confirm, by=by)


def _refuse_running(ws: Workspace, write: GroupWrite) -> None:
    running = [each.id for each in ws.instances_of(write.name) if live(each.state)]
    if running and not (write.before and write.before.spec.abstract):
        raise invalid(
            "abstract",
            f"group '{write.name}' has instances: {short_list(running, _SHOWN)}",
            "stop them first: an abstract group has none",
        )


def _refuse_unresolvable(plans: PlanChecks, old: GroupSpec, new: GroupSpec) -> None:
    """Refuse a change that breaks a group. One that is broken already, because something was removed since,
    can still be scaled down, or repaired in several steps."""
    try:
        plans.check(new)
    except Rejected as error:
        try:
            plans.check(old)
        except Rejected as before:
            if (before.code, before.message) == (error.code, error.message):
                return
        raise


def store_write(ws: Workspace, write: GroupWrite) -> None:
    """Add the write and its event to the transaction."""
    ws.put_group(write.after)
    spec = write.after.spec
    if write.before is None:
        ws.event(EventType.GROUP_CREATED, write.name, min=spec.min, max=spec.max)
    else:
        if fields := write.started_with:
            follow_change(ws, write.name, f"{ws.by} changed {short_list(map(repr, fields), _SHOWN)}")
        if not {"max", "abstract"}.isdisjoint(write.changed):
            insist_on_group(ws, write.name)
        ws.event(EventType.GROUP_UPDATED, write.name, changed=list(write.changed))
