"""Groups: their documents, as they were written and resolved."""

from __future__ import annotations

import asyncio
import datetime as dt
import functools
from collections.abc import Callable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.http.meanings import explain_fields
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.messages.list_pages import ITEMS_A_REQUEST, SummaryPage
from corral.controller.http.messages.paging import Page
from corral.controller.http.pipeline.caller_limits import RequestRates
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Build, Mutate, Read, Route
from corral.controller.http.pipeline.scoping import (
    Scoping,
    refuse_users_outside,
)
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.dry_runs import (
    ConfirmedOrDry,
    DryRunQuery,
    DryRunShape,
    described,
    dry_mutation,
)
from corral.controller.http.resources.groups.document_scopes import refuse_references, refuse_specs_outside
from corral.controller.http.resources.groups.group_changes import (
    admit_change,
    group_mutation,
    the_group,
    writing,
)
from corral.controller.http.resources.groups.group_schemas import (
    GroupDocument,
    GroupPatch,
    GroupShape,
    NewGroup,
    audited,
    drift_shape,
    group_shape,
)
from corral.controller.http.resources.groups.group_summaries import GroupQuery, GroupSummary, list_groups
from corral.controller.http.resources.instances.instance_changes import workspace
from corral.controller.instances import group_changes
from corral.controller.instances.document_checks import DocumentChecks
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.instances.group_writes import StoredGroups
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.controller.workload.service import Workloads
from corral.domain.groups.document_faults import MOST_ENTRIES
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.inheritance import written_document
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.groups.scaling_spec import BypassList, MaintenanceMessage
from corral.domain.groups.schema_bounds import MAPS, OTHERS
from corral.domain.permissions import Permission
from corral.domain.planning.group_decisions import look_at_group
from corral.domain.planning.plan_results import DecisionList
from corral.domain.sensitive_fields import redacted_document, sees_all

_ATTEMPTS: Final = 20
Revised = Callable[[StoredGroups], group_changes.RevisedGroup]
"""What becomes of a group, by all that are stored. Pure."""


class WrittenDocument(dict[str, Any]):
    """A document as it was written, with the revision of its group as the entity tag."""

    def __init__(self, document: dict[str, Any], *, revision: int) -> None:
        super().__init__(document)
        self.revision = revision


class Cascade(ConfirmedOrDry, frozen=True, kw_only=True):
    cascade: Annotated[bool, msgspec.Meta(description="Stop its instances first.")] = False


async def get_group(
    state: ClusterState,
    instances: InstanceControl,
    group_folder: GroupFolder | None,
    call: ApiCall[None, NoQuery],
) -> GroupShape:
    stored = state.groups.require(call.path["name"])
    copies = copies_text(instances, stored.record, call.now)
    ws = instances.workspace(cause="drift", now=call.now)
    drift = drift_shape(instances.drift, ws, stored.record.spec.name)
    return group_shape(
        state, stored, instances.signals, drift=drift, folder=group_folder, surplus_reason=copies
    )


def copies_text(instances: InstanceControl, record: GroupRecord, now: dt.datetime) -> str:
    """Why a group has returned instances and their replacements; empty: it has not, or not for long."""
    view = instances.signals.view(instances.workspace(cause="status", now=now))
    found = look_at_group(view, record, DecisionList())
    return "; ".join(each.reason for each in found.copies[:1])


async def create_group(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    rates: RequestRates,
    call: ApiCall[Any, DryRunQuery],
) -> Describe:
    document = _written(call)
    admit_change(state, rates, call, document)
    refuse_references(state, call, document)
    revised = functools.partial(group_changes.new_group, document)
    return _checked_change(
        state, instances, workload, call, lambda: revised, action="groups.create", status=201
    )


def _written(call: ApiCall[Any, Any]) -> dict[str, Any]:
    """The document as it was sent: what it leaves out is not the same as a default."""
    document: dict[str, Any] = msgspec.json.decode(call.raw or b"{}")
    return document


class MaintenanceOrder(RequestBody, frozen=True, kw_only=True):
    enabled: bool
    message: MaintenanceMessage | UnsetType = UNSET
    bypass: BypassList | UnsetType = UNSET


async def set_maintenance(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    rates: RequestRates,
    call: ApiCall[MaintenanceOrder, ConfirmedOrDry],
) -> Describe:
    """An edit of the document: what is left out stays as it is there."""
    admit_change(state, rates, call, {})
    patch = {"maintenance": msgspec.to_builtins(call.body)}
    return revision(
        state, instances, workload, call, group_changes.patched(patch), action="groups.maintenance"
    )


async def patch_group(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    rates: RequestRates,
    call: ApiCall[Any, ConfirmedOrDry],
) -> Describe:
    patch = _written(call)
    admit_change(state, rates, call, patch)
    refuse_references(state, call, patch, state.groups.require(call.path["name"]).record.spec)
    return revision(state, instances, workload, call, group_changes.patched(patch))


def _confirmed(name: str, query: ConfirmedOrDry) -> str:
    """A dry run shows what has to be confirmed, and needs no confirmation itself."""
    return name if query.dry_run else query.confirm


def revision(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[Any, ConfirmedOrDry],
    revise: group_changes.Revise,
    *,
    action: str = "groups.update",
) -> Describe:
    """A new document of a group that is there."""

    def revised() -> Revised:
        name = state.groups.require(call.path["name"]).record.spec.name
        return functools.partial(group_changes.revised_group, name, revise)

    return _checked_change(state, instances, workload, call, revised, action=action)


def _checked_change(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    call: ApiCall[Any, DryRunQuery] | ApiCall[Any, ConfirmedOrDry],
    revised: Callable[[], Revised],
    *,
    action: str,
    status: int = 200,
) -> Describe:
    """A document, checked with all that inherit it: aside from the loop, for these may be many, and it may be large."""
    checks = DocumentChecks(lambda: workspace(instances, call, action), attempts=_ATTEMPTS)

    async def describe() -> Mutation:
        ws, plans, found = await checks.run(revised(), lambda found: found.specs.values())
        name = found.name
        before = state.groups.find(name)
        refuse_specs_outside(state, call, found.specs.values())
        confirm = _confirmed(name, call.query) if isinstance(call.query, ConfirmedOrDry) else ""
        record = group_changes.write_revised(ws, plans, found, confirm=confirm)
        if call.query.dry_run:
            return dry_mutation(action, name, described(ws, instances.signals, workload))
        steps = await asyncio.to_thread(ws.pending_steps())
        return group_mutation(state, instances, steps, action, name, before, record, status=status)

    return describe


async def get_document(state: ClusterState, call: ApiCall[None, NoQuery]) -> WrittenDocument:
    stored = state.groups.require(call.path["name"])
    document = written_document(stored.record)
    if not sees_all(call.caller.access):
        document = redacted_document(document, GroupSpec)
    return WrittenDocument(document, revision=stored.revision)


async def put_document(
    state: ClusterState,
    instances: InstanceControl,
    workload: Workloads,
    rates: RequestRates,
    call: ApiCall[Any, ConfirmedOrDry],
) -> Describe:
    document = _written(call)
    admit_change(state, rates, call, document)
    refuse_references(state, call, document, state.groups.require(call.path["name"]).record.spec)
    return revision(state, instances, workload, call, lambda *_: document)


async def get_schema(call: ApiCall[None, NoQuery]) -> dict[str, Any]:
    del call
    return group_schema()


@functools.cache
def group_schema() -> dict[str, Any]:
    """The JSON schema of a group's document, with the meaning of each field."""
    schema = msgspec.json.schema(GroupSpec)
    parts = schema["$defs"]
    for field, bounds in {**MAPS, **OTHERS}.items():
        parts["GroupSpec"]["properties"][field].update(bounds)
    for part in parts.values():
        for value in part.get("properties", {}).values():
            if value.get("type") == "array":
                value.setdefault("maxItems", MOST_ENTRIES)
    explain_fields({("NewGroup" if name == "GroupSpec" else name): part for name, part in parts.items()})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Group", **schema}


def delete_group(
    state: ClusterState, instances: InstanceControl, workload: Workloads, call: ApiCall[None, Cascade]
) -> Mutation:
    stored = state.groups.require(call.path["name"])
    refuse_users_outside(call.caller.access, state, stored.record.spec.name)
    ws = workspace(instances, call, f"DELETE /groups/{stored.record.spec.name}")
    confirm = _confirmed(stored.record.spec.name, call.query)
    group_changes.delete_group(ws, stored.record.spec.name, cascade=call.query.cascade, confirm=confirm)
    if call.query.dry_run:
        return dry_mutation(
            "groups.delete", stored.record.spec.name, described(ws, instances.signals, workload)
        )
    return Mutation(
        action="groups.delete",
        subject=stored.record.spec.name,
        steps=ws.steps(),
        status=204,
        before=audited(stored.record),
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/groups",
        permission=Permission.GROUPS_READ,
        scope=Scoping.FILTERS,
        summary="List groups",
        query=GroupQuery,
        response=Page[GroupShape],
        compact=SummaryPage[GroupSummary],
        items_a_request=ITEMS_A_REQUEST,
        handler=list_groups,
    ),
    Build(
        method="POST",
        path="/api/v1/groups",
        permission=Permission.GROUPS_MANAGE,
        scope=Scoping.FILTERS,
        summary="Create a group; its instances follow at once",
        body=NewGroup,
        response=GroupShape,
        status=201,
        handler=create_group,
        query=DryRunQuery,
        dry_run=DryRunShape,
        turn=writing,
    ),
    Read(
        method="GET",
        path="/api/v1/groups/{name}",
        permission=Permission.GROUPS_READ,
        summary="Show a group",
        response=GroupShape,
        handler=get_group,
    ),
    Build(
        method="PATCH",
        path="/api/v1/groups/{name}",
        permission=Permission.GROUPS_MANAGE,
        summary="Change some fields of a group (RFC 7396); what runs goes on as it was started",
        body=GroupPatch,
        query=ConfirmedOrDry,
        response=GroupShape,
        handler=patch_group,
        revises=the_group,
        dry_run=DryRunShape,
        turn=writing,
    ),
    Build(
        method="POST",
        path="/api/v1/groups/{name}/maintenance",
        permission=Permission.GROUPS_MANAGE,
        summary="Close a group to players, or open it; its instances run on",
        body=MaintenanceOrder,
        query=ConfirmedOrDry,
        response=GroupShape,
        handler=set_maintenance,
        revises=the_group,
        dry_run=DryRunShape,
        turn=writing,
    ),
    Read(
        method="GET",
        path="/api/v1/groups/{name}/document",
        permission=Permission.GROUPS_READ,
        summary="The document of a group as it was written, without defaults and the fields of its parents",
        response=dict[str, Any],
        handler=get_document,
    ),
    Build(
        method="PUT",
        path="/api/v1/groups/{name}/document",
        permission=Permission.GROUPS_MANAGE,
        summary="Replace the document of a group: what is left out is as in its parent, or the default",
        body=GroupDocument,
        query=ConfirmedOrDry,
        response=GroupShape,
        handler=put_document,
        revises=the_group,
        dry_run=DryRunShape,
        turn=writing,
    ),
    Read(
        method="GET",
        path="/api/v1/schemas/group",
        permission=Permission.GROUPS_READ,
        scope=Scoping.NEUTRAL,
        summary="The JSON schema of a group's document",
        response=dict[str, Any],
        handler=get_schema,
    ),
    Mutate(
        method="DELETE",
        path="/api/v1/groups/{name}",
        permission=Permission.GROUPS_MANAGE,
        summary="Delete a group; with `cascade` it goes when its last instance has ended",
        query=Cascade,
        status=204,
        handler=delete_group,
        revises=the_group,
        dry_run=DryRunShape,
        turn=writing,
    ),
)
