"""The versions of a template: list, compare, roll back, export, push to nodes."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from corral.controller.distribution.node_caches import SyncAnswer
from corral.controller.http.messages.call import ApiCall, NoQuery, Query, RequestBody, TicketedQuery
from corral.controller.http.messages.paging import Page, PageQuery, page_of_sorted
from corral.controller.http.pipeline.route_table import (
    Act,
    Download,
    Mutate,
    Read,
    Route,
)
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.sse_stream import Content
from corral.controller.http.pipeline.term_ports import FileDistribution
from corral.controller.http.resources.templates.template_schemas import (
    ONE,
    TWO,
    ChangedTemplate,
    FileShape,
    VersionNumber,
    VersionShape,
    changed,
    file_shape,
    mode_text,
    name_of,
    pump_of,
    the_template,
    version_shape,
)
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.controller.templates import template_changes as changes
from corral.controller.templates.library import TemplateLibrary
from corral.domain.permissions import Permission
from corral.domain.template_diff import FileChange, SettingChange
from corral.domain.templates import TemplateRecord
from corral.errors import Code, Rejected

_TYPES: Final = {"tar.gz": b"application/gzip", "zip": b"application/zip"}

NodeName = Annotated[str, msgspec.Meta(max_length=63)]


class DiffQuery(Query, frozen=True, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[VersionNumber, msgspec.Meta(description="By default the one before `to`.")] | None = None
    to: Annotated[VersionNumber, msgspec.Meta(description="By default the current one.")] | None = None


class ExportQuery(TicketedQuery, frozen=True, kw_only=True):
    version: VersionNumber | None = None
    format: Literal["tar.gz", "zip"] = "tar.gz"


class Rollback(RequestBody, frozen=True, kw_only=True):
    version: VersionNumber


class Sync(RequestBody, frozen=True, kw_only=True):
    nodes: (
        Annotated[tuple[NodeName, ...], msgspec.Meta(max_length=10_000, description="Without: all.")] | None
    ) = None


class SyncShape(msgspec.Struct, frozen=True, kw_only=True):
    """How it went, node by node."""

    items: list[SyncAnswer]


class FileChangeShape(msgspec.Struct, frozen=True, kw_only=True):
    """`content` false: only the mode changed."""

    path: str
    old_size: int
    new_size: int
    old_mode: str
    new_mode: str
    content: bool


class DiffShape(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Files that version `to` added, removed and changed since `from`."""

    name: str
    from_: int
    to: int
    added: list[FileShape]
    removed: list[FileShape]
    changed: list[FileChangeShape]
    added_directories: list[str]
    removed_directories: list[str]
    settings: list[SettingChange]


async def list_versions(state: ClusterState, call: ApiCall[None, PageQuery]) -> Page[VersionShape]:
    """The newest first."""
    record = the_template(state, call.path).record
    return page_of_sorted(
        record.versions[::-1],
        call.query,
        kind=f"versions of {record.name}",
        key=lambda version: f"{2**53 - version.number:020}",
        shape=lambda version: version_shape(record, version),
    )


def roll_back(state: ClusterState, call: ApiCall[Rollback, NoQuery]) -> Mutation:
    record = the_template(state, call.path).record
    change = changes.rollback(
        state, record.name, call.body.version, now=call.now, actor=call.caller.actor.name
    )
    return changed(state, "templates.rollback", change)


async def diff_versions(
    state: ClusterState, templates: TemplateLibrary, call: ApiCall[None, DiffQuery]
) -> DiffShape:
    record = the_template(state, call.path).record
    newer = record.version(call.query.to)
    older = record.version(call.query.from_ or _before(record, newer.number))
    found = await templates.diff(older, newer)
    return DiffShape(
        name=record.name,
        from_=older.number,
        to=newer.number,
        added=[file_shape(file) for file in found.added],
        removed=[file_shape(file) for file in found.removed],
        changed=[_change_shape(change) for change in found.changed],
        added_directories=list(found.added_directories),
        removed_directories=list(found.removed_directories),
        settings=list(found.settings),
    )


def _change_shape(change: FileChange) -> FileChangeShape:
    return FileChangeShape(
        path=change.path,
        old_size=change.old_size,
        new_size=change.new_size,
        old_mode=mode_text(change.old_mode),
        new_mode=mode_text(change.new_mode),
        content=change.content,
    )


def _before(record: TemplateRecord, number: int) -> int:
    earlier = [version.number for version in record.versions if version.number < number]
    if not earlier:
        raise Rejected(
            Code.NOT_FOUND,
            f"template '{record.name}' has no version before {number} to compare it with",
            hint="name both versions, 'from' and 'to'",
            field="from",
        )
    return earlier[-1]


async def export_version(
    state: ClusterState, templates: TemplateLibrary, call: ApiCall[None, ExportQuery]
) -> Content:
    record = the_template(state, call.path).record
    version = record.version(call.query.version)
    form = call.query.format
    source = templates.export(version, form)
    return Content(
        pump=pump_of(source),
        content_type=_TYPES[form],
        filename=f"{record.name.replace('/', '-')}-{version.number}.{form}",
        length=version.archive_size if form == "tar.gz" else None,
    )


async def sync_template(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[Sync, NoQuery]
) -> Mutation:
    record = the_template(state, call.path).record
    answers = await distribution.sync(record.name, call.body.nodes)
    return Mutation(
        action="templates.sync",
        subject=record.name,
        steps=(),
        body=SyncShape(items=list(answers)),
        after={"hash": record.version().hash, "nodes": {answer.node: answer.code for answer in answers}},
    )


def _routes(base: str) -> tuple[Route, ...]:
    """For names of one part or of two."""
    read, manage = Permission.TEMPLATES_READ, Permission.TEMPLATES_MANAGE
    return (
        Read(
            method="GET",
            path=f"{base}/-/versions",
            permission=read,
            scope=Scoping.TEMPLATE,
            summary="List the versions of a template that are kept, the newest first",
            query=PageQuery,
            response=Page[VersionShape],
            handler=list_versions,
        ),
        Read(
            method="GET",
            path=f"{base}/-/diff",
            permission=read,
            scope=Scoping.TEMPLATE,
            summary="Compare two versions of a template",
            query=DiffQuery,
            response=DiffShape,
            handler=diff_versions,
        ),
        Mutate(
            method="POST",
            path=f"{base}/-/rollback",
            permission=manage,
            summary="Make an earlier version of a template the current one",
            body=Rollback,
            response=ChangedTemplate,
            handler=roll_back,
            revises=the_template,
        ),
        Download(
            method="GET",
            path=f"{base}/-/export",
            permission=Permission.TEMPLATES_CONTENT,
            scope=Scoping.TEMPLATE,
            summary="Download a version of a template",
            query=ExportQuery,
            handler=export_version,
        ),
        Act(
            method="POST",
            path=f"{base}/-/sync",
            permission=manage,
            summary="Push the current version of a template into the caches of nodes",
            body=Sync,
            response=SyncShape,
            handler=sync_template,
            action="templates.sync",
            subject=lambda call: name_of(call.path),
        ),
    )


ROUTES: Final[tuple[Route, ...]] = (*_routes(ONE), *_routes(TWO))
