"""Groups: what is wanted, how many, and why there are fewer."""

from __future__ import annotations

import asyncio
import builtins
import datetime as dt
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.http.messages.call import ApiCall, Confirmed, NoQuery, RequestBody
from corral.controller.http.messages.paging import Page, PageQuery, page_of
from corral.controller.http.pipeline.api_context import InstanceControl
from corral.controller.http.pipeline.route_table import Mutate, Read, Route
from corral.controller.http.resources.instances.instance_changes import placing, workspace
from corral.controller.instances import group_changes, instance_changes
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.domain.groups.drift import Drift
from corral.domain.groups.group import ArtifactSpec, GroupSpec
from corral.domain.groups.instance_records import CrashLoop, GroupRecord, Hold, live
from corral.domain.instance_states import Wanted
from corral.domain.permissions import Permission
from corral.domain.spec import Count, Spec
from corral.domain.urls import shown_url

_NODES_NAMED: Final = 5


class GroupDriftShape(msgspec.Struct, frozen=True, kw_only=True):
    """Instances that do not run as the present document says; at most 100 ids of each kind are listed."""

    outdated: tuple[str, ...]
    outdated_count: int
    placement: tuple[str, ...]
    placement_count: int
    unknown_count: int
    command: str


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a group fares. `wanted` instances are kept, `instances` exist, `ready` of them are ready."""

    wanted: int
    target: int
    instances: int
    ready: int
    reason: str
    paused: CrashLoop | None
    deleting: bool
    owner: str
    hold: Hold | None
    drift: GroupDriftShape | None
    created_at: dt.datetime
    updated_at: dt.datetime


class GroupShape(GroupSpec, frozen=True, kw_only=True):
    """A group's document with the fields of its parents and all defaults, and how it fares."""

    status: GroupStatus
    revision: int


def _document_type(name: str, *, whole: bool) -> type[RequestBody]:
    """Every field of a group's document, optional but for the name of a `whole` one; null goes back to the default.
    What is written inside objects is checked with the group: a part may be given, and is merged into what is there."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(GroupSpec):
        if whole and field.required:
            fields.append((field.name, field.type))
            continue
        kind = dict[str, Any] if _is_object(field.type) else field.type
        fields.append((field.name, kind | None | UnsetType, UNSET))
    made: Any = msgspec.defstruct(
        name,
        fields,
        bases=(RequestBody,),
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
        module=__name__,
    )
    document: type[RequestBody] = made
    return document


def _is_object(type: Any) -> bool:
    """Is it written as a JSON object?"""
    kinds = typing.get_args(type) if isinstance(type, types.UnionType) else (type,)
    return any(
        typing.get_origin(kind) is dict or (isinstance(kind, builtins.type) and issubclass(kind, Spec))
        for kind in kinds
    )


NewGroup: Final = _document_type("NewGroup", whole=True)
GroupPatch: Final = _document_type("GroupPatch", whole=False)


class Scale(RequestBody, frozen=True, kw_only=True):
    count: Count


class Cascade(Confirmed, frozen=True, kw_only=True):
    cascade: Annotated[bool, msgspec.Meta(description="Stop its instances first.")] = False


def group_shape(
    state: ClusterState, stored: StoredRecord[GroupRecord], *, drift: GroupDriftShape | None = None
) -> GroupShape:
    record = stored.record
    counts = state.instances.counts(record.spec.name)
    status = GroupStatus(
        wanted=record.desired_count,
        target=record.target,
        instances=counts.live,
        ready=counts.ready,
        reason=record.reason or _away(counts.away),
        paused=record.paused,
        deleting=record.deleting,
        owner=record.owner,
        hold=record.hold,
        drift=drift,
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
    return GroupShape(**msgspec.structs.asdict(record.spec), status=status, revision=stored.revision)


def _away(away: Mapping[str, int]) -> str:
    """Why fewer are ready than are there, where that is because of nodes that are not connected: the number of such
    instances by node."""
    if not away:
        return ""
    named = ", ".join(sorted(away)[:_NODES_NAMED]) + (", …" if len(away) > _NODES_NAMED else "")
    return f"{sum(away.values())} of its instances are on nodes that are away ({named})"


async def list_groups(state: ClusterState, call: ApiCall[None, PageQuery]) -> Page[GroupShape]:
    return page_of(
        state.groups, call.query, accepts=lambda _: True, shape=lambda stored: group_shape(state, stored)
    )


async def get_group(
    state: ClusterState, instances: InstanceControl, call: ApiCall[None, NoQuery]
) -> GroupShape:
    stored = state.groups.require(call.path["name"])
    return group_shape(state, stored, drift=_drift(instances, stored.record.spec.name))


def _drift(instances: InstanceControl, name: str) -> GroupDriftShape:
    found = instances.drift.of_group(name)
    ids, counts = found.ids, found.counts
    stale = counts.get(Drift.OUTDATED, 0) + counts.get(Drift.PLACEMENT, 0)
    return GroupDriftShape(
        outdated=tuple(ids.get(Drift.OUTDATED, ())),
        outdated_count=counts.get(Drift.OUTDATED, 0),
        placement=tuple(ids.get(Drift.PLACEMENT, ())),
        placement_count=counts.get(Drift.PLACEMENT, 0),
        unknown_count=counts.get(Drift.UNKNOWN, 0),
        command=f"corral group restart {name}" if stale else "",
    )


def the_group(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[GroupRecord]:
    return state.groups.require(path["name"])


def create_group(state: ClusterState, instances: InstanceControl, call: ApiCall[Any, NoQuery]) -> Mutation:
    ws = workspace(instances, call, "POST /groups")
    record = group_changes.create_document(ws, _written(call))
    return _changed(state, ws, "groups.create", record.spec.name, None, record, status=201)


def _written(call: ApiCall[Any, Any]) -> dict[str, Any]:
    """The document as it was sent: what it leaves out is not the same as a default."""
    document: dict[str, Any] = msgspec.json.decode(call.raw or b"{}")
    return document


def writing(instances: InstanceControl, call: ApiCall[Any, Any]) -> asyncio.Lock:
    """The lock of group documents."""
    del call
    return instances.documents


def patch_group(state: ClusterState, instances: InstanceControl, call: ApiCall[Any, Confirmed]) -> Mutation:
    name, confirm = call.path["name"], call.query.confirm
    patch = _written(call)
    return _changing(
        state,
        instances,
        call,
        "groups.update",
        lambda ws: group_changes.patch_group(ws, name, patch, confirm=confirm),
    )


def scale_group(state: ClusterState, instances: InstanceControl, call: ApiCall[Scale, NoQuery]) -> Mutation:
    name, count = call.path["name"], call.body.count
    return _changing(
        state, instances, call, "groups.scale", lambda ws: group_changes.scale_group(ws, name, count)
    )


def unpause_group(state: ClusterState, instances: InstanceControl, call: ApiCall[None, NoQuery]) -> Mutation:
    name = call.path["name"]
    return _changing(
        state, instances, call, "groups.unpause", lambda ws: group_changes.unpause_group(ws, name)
    )


def restart_group(state: ClusterState, instances: InstanceControl, call: ApiCall[None, NoQuery]) -> Mutation:
    """All of its instances that are wanted, at once."""
    name = call.path["name"]

    def restart(ws: Workspace) -> GroupRecord:
        record = ws.require_group(name)
        for instance in ws.instances_of(name):
            if live(instance.state) and instance.wanted is Wanted.RUN:
                instance_changes.restart_instance(ws, instance.id, reason="the group is restarted")
                ws.put_group(record)  # the revision in the answer is the group's own
        return record

    return _changing(state, instances, call, "groups.restart", restart)


def delete_group(state: ClusterState, instances: InstanceControl, call: ApiCall[None, Cascade]) -> Mutation:
    stored = state.groups.require(call.path["name"])
    ws = workspace(instances, call, f"DELETE /groups/{stored.record.spec.name}")
    query = call.query
    group_changes.delete_group(ws, stored.record.spec.name, cascade=query.cascade, confirm=query.confirm)
    return Mutation(
        action="groups.delete",
        subject=stored.record.spec.name,
        steps=ws.steps(),
        status=204,
        before=_audited(stored.record),
    )


def _changing(
    state: ClusterState,
    instances: InstanceControl,
    call: ApiCall[Any, Any],
    action: str,
    change: Callable[[Workspace], GroupRecord],
) -> Mutation:
    stored = state.groups.require(call.path["name"])
    ws = workspace(instances, call, action)
    return _changed(state, ws, action, stored.record.spec.name, stored, change(ws))


def _changed(
    state: ClusterState,
    ws: Workspace,
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
        steps=ws.steps(),
        body=group_shape(state, StoredRecord(before.revision if before else 0, record)),
        status=status,
        before=_audited(before.record) if before else None,
        after=_audited(record),
    )


def _audited(record: GroupRecord) -> dict[str, object]:
    """The document without values that may be secret, for the audit is for many: of variables, of patches,
    and of what a URL carries beside its host and path."""
    spec = record.spec
    document: dict[str, object] = msgspec.to_builtins(_with_shown_urls(spec))
    for field in ("env", "variables", "properties"):
        document[field] = sorted(getattr(spec, field))
    document["patches"] = [
        {"file": patch.file, "path": patch.path, "op": patch.op.value} for patch in spec.patches
    ]
    return {**document, "target": record.target, "paused": record.paused is not None}


def _with_shown_urls(spec: GroupSpec) -> GroupSpec:
    def shown(artifact: ArtifactSpec | None) -> ArtifactSpec | None:
        if artifact is None or not artifact.url:
            return artifact
        return msgspec.structs.replace(artifact, url=shown_url(artifact.url))

    return msgspec.structs.replace(
        spec,
        artifact=shown(spec.artifact),
        extensions=tuple(
            msgspec.structs.replace(each, artifact=shown(each.artifact)) for each in spec.extensions
        ),
    )


def _operation(verb: str, summary: str, handler: Callable[..., Mutation], **more: Any) -> Mutate:
    return Mutate(
        method="POST",
        path=f"/api/v1/groups/{{name}}/{verb}",
        permission=Permission.GROUPS_MANAGE,
        summary=summary,
        response=GroupShape,
        handler=handler,
        revises=the_group,
        **more,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/groups",
        permission=Permission.GROUPS_READ,
        summary="List groups",
        query=PageQuery,
        response=Page[GroupShape],
        handler=list_groups,
    ),
    Mutate(
        method="POST",
        path="/api/v1/groups",
        permission=Permission.GROUPS_MANAGE,
        summary="Create a group; its instances follow at once",
        body=NewGroup,
        response=GroupShape,
        status=201,
        handler=create_group,
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
    Mutate(
        method="PATCH",
        path="/api/v1/groups/{name}",
        permission=Permission.GROUPS_MANAGE,
        summary="Change some fields of a group (RFC 7396); what runs goes on as it was started",
        body=GroupPatch,
        query=Confirmed,
        response=GroupShape,
        handler=patch_group,
        revises=the_group,
        turn=writing,
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
        turn=writing,
    ),
    _operation("scale", "How many instances a group shall have", scale_group, body=Scale),
    _operation("unpause", "Try a crash-looping group again now", unpause_group),
    _operation(
        "restart",
        "Restart every instance of a group, all at once",
        restart_group,
        turn=placing,
    ),
)
