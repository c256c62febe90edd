"""Groups: their documents, as they were written and resolved."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.meanings import explain_fields
from corral.controller.http.messages.call import ApiCall, Confirmed, NoQuery
from corral.controller.http.messages.paging import Page, PageQuery, page_of
from corral.controller.http.pipeline.api_context import InstanceControl
from corral.controller.http.pipeline.route_table import Mutate, Read, Route
from corral.controller.http.resources.groups.group_changes import changed, changing, the_group, writing
from corral.controller.http.resources.groups.group_schemas import (
    GroupDocument,
    GroupPatch,
    GroupShape,
    NewGroup,
    audited,
    drift_shape,
    group_shape,
)
from corral.controller.http.resources.instances.instance_changes import workspace
from corral.controller.instances import group_changes
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.inheritance import written_document
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import redacted_document, sees_all


class WrittenDocument(dict[str, Any]):
    """A document as it was written, with the revision of its group as the entity tag."""

    def __init__(self, document: dict[str, Any], *, revision: int) -> None:
        super().__init__(document)
        self.revision = revision


class Cascade(Confirmed, frozen=True, kw_only=True):
    cascade: Annotated[bool, msgspec.Meta(description="Stop its instances first.")] = False


async def list_groups(state: ClusterState, call: ApiCall[None, PageQuery]) -> Page[GroupShape]:
    return page_of(
        state.groups, call.query, accepts=lambda _: True, shape=lambda stored: group_shape(state, stored)
    )


async def get_group(
    state: ClusterState, instances: InstanceControl, call: ApiCall[None, NoQuery]
) -> GroupShape:
    stored = state.groups.require(call.path["name"])
    return group_shape(state, stored, drift=drift_shape(instances.drift, stored.record.spec.name))


def create_group(state: ClusterState, instances: InstanceControl, call: ApiCall[Any, NoQuery]) -> Mutation:
    ws = workspace(instances, call, "POST /groups")
    record = group_changes.create_document(ws, _written(call))
    return changed(state, ws, "groups.create", record.spec.name, None, record, status=201)


def _written(call: ApiCall[Any, Any]) -> dict[str, Any]:
    """The document as it was sent: what it leaves out is not the same as a default."""
    document: dict[str, Any] = msgspec.json.decode(call.raw or b"{}")
    return document


def patch_group(state: ClusterState, instances: InstanceControl, call: ApiCall[Any, Confirmed]) -> Mutation:
    name, confirm = call.path["name"], call.query.confirm
    patch = _written(call)
    return changing(
        state,
        instances,
        call,
        "groups.update",
        lambda ws: group_changes.patch_group(ws, name, patch, confirm=confirm),
    )


async def get_document(state: ClusterState, call: ApiCall[None, NoQuery]) -> WrittenDocument:
    stored = state.groups.require(call.path["name"])
    document = written_document(stored.record)
    if not sees_all(call.caller.token.role):
        document = redacted_document(document, GroupSpec)
    return WrittenDocument(document, revision=stored.revision)


def put_document(state: ClusterState, instances: InstanceControl, call: ApiCall[Any, Confirmed]) -> Mutation:
    name, confirm, document = call.path["name"], call.query.confirm, _written(call)
    return changing(
        state,
        instances,
        call,
        "groups.update",
        lambda ws: group_changes.replace_document(ws, name, document, confirm=confirm),
    )


async def get_schema(call: ApiCall[None, NoQuery]) -> dict[str, Any]:
    del call
    return group_schema()


@functools.cache
def group_schema() -> dict[str, Any]:
    """The JSON schema of a group's document, with the meaning of each field."""
    schema = msgspec.json.schema(GroupSpec)
    parts = schema["$defs"]
    explain_fields({("NewGroup" if name == "GroupSpec" else name): part for name, part in parts.items()})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Group", **schema}


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
        before=audited(stored.record),
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
    Read(
        method="GET",
        path="/api/v1/groups/{name}/document",
        permission=Permission.GROUPS_READ,
        summary="The document of a group as it was written, without defaults and the fields of its parents",
        response=dict[str, Any],
        handler=get_document,
    ),
    Mutate(
        method="PUT",
        path="/api/v1/groups/{name}/document",
        permission=Permission.GROUPS_MANAGE,
        summary="Replace the document of a group: what is left out is as in its parent, or the default",
        body=GroupDocument,
        query=Confirmed,
        response=GroupShape,
        handler=put_document,
        revises=the_group,
        turn=writing,
    ),
    Read(
        method="GET",
        path="/api/v1/schemas/group",
        permission=Permission.GROUPS_READ,
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
        turn=writing,
    ),
)
