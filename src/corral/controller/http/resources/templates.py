"""Templates: look, upload, set, roll back, compare, export, push, delete. Single files: `template_files`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, Final, Literal

import msgspec

from corral.controller.distribution.reports import SyncAnswer
from corral.controller.http.call import Body, Call, NoQuery, Query
from corral.controller.http.decoding import BodyDecoder
from corral.controller.http.fields import Text
from corral.controller.http.paging import Page, PageQuery, page_of, page_of_sorted
from corral.controller.http.resources.template_shapes import (
    ChangedTemplate,
    TemplateShape,
    VersionNumber,
    VersionShape,
    audited,
    changed,
    making,
    name_of,
    template_shape,
    the_template,
    version_shape,
)
from corral.controller.http.route_table import (
    Act,
    Content,
    Describe,
    Download,
    Mutate,
    Pump,
    Read,
    Route,
    Upload,
    Write,
)
from corral.controller.http.setting import Leading
from corral.controller.mutations import Mutation
from corral.controller.templates import changes
from corral.domain.group_documents import merged
from corral.domain.permissions import Permission
from corral.domain.template_diff import FileChange, FileState, SettingChange, TemplateDiff
from corral.domain.templates import TemplateRecord, TemplateSettings, template_name
from corral.errors import Code, Rejected

ONE: Final = "/api/v1/templates/{name}"
TWO: Final = "/api/v1/templates/{group}/{name}"
ARCHIVES: Final = ("application/gzip", "application/zip", "application/x-tar", "application/octet-stream")
_OVERHEAD: Final = 4096
"""What an archive may need for an entry beside its contents."""
_TYPES: Final = {"tar.gz": b"application/gzip", "zip": b"application/zip"}

NodeName = Annotated[str, msgspec.Meta(max_length=63)]
Prefix = Annotated[str, msgspec.Meta(max_length=4096)]


class TemplateQuery(PageQuery, frozen=True, kw_only=True):
    prefix: Annotated[str, msgspec.Meta(max_length=127)] = ""
    group: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class NoteQuery(Query, frozen=True, kw_only=True):
    note: Text = ""


class ImportQuery(NoteQuery, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(max_length=127, description="NAME or GROUP/NAME.")]


class DiffQuery(Query, frozen=True, kw_only=True, rename={"from_": "from"}):
    from_: Annotated[VersionNumber, msgspec.Meta(description="By default the one before `to`.")] | None = None
    to: Annotated[VersionNumber, msgspec.Meta(description="By default the current one.")] | None = None


class ExportQuery(Query, frozen=True, kw_only=True):
    version: VersionNumber | None = None
    format: Literal["tar.gz", "zip"] = "tar.gz"


class SettingsPatch(Body, frozen=True, kw_only=True):
    """A merge patch (RFC 7396) of the settings: what is not named stays, null goes back to the default."""

    settings: dict[str, Any]
    note: Text = ""


class Rollback(Body, frozen=True, kw_only=True):
    version: VersionNumber


class Sync(Body, frozen=True, kw_only=True):
    nodes: (
        Annotated[tuple[NodeName, ...], msgspec.Meta(max_length=10_000, description="Without: all.")] | None
    ) = None


class SyncShape(msgspec.Struct, frozen=True, kw_only=True):
    """How it went, node by node."""

    items: list[SyncAnswer]


class DiffShape(msgspec.Struct, frozen=True, kw_only=True, rename={"from_": "from"}):
    """What version `to` has, has no more, and has otherwise than `from`."""

    name: str
    from_: int
    to: int
    added: tuple[FileState, ...]
    removed: tuple[FileState, ...]
    changed: tuple[FileChange, ...]
    added_directories: tuple[str, ...]
    removed_directories: tuple[str, ...]
    settings: tuple[SettingChange, ...]


class _Settings(Body, frozen=True, kw_only=True):
    settings: TemplateSettings


_SETTINGS: Final = BodyDecoder(_Settings)


async def list_templates(leading: Leading, call: Call[None, TemplateQuery]) -> Page[TemplateShape]:
    query = call.query

    def wanted(record: TemplateRecord) -> bool:
        group, _, _ = record.name.rpartition("/")
        return record.name.startswith(query.prefix) and query.group in (None, group)

    state = leading.state
    return page_of(state.templates, query, wanted=wanted, shape=lambda each: template_shape(state, each))


async def get_template(leading: Leading, call: Call[None, NoQuery]) -> TemplateShape:
    return template_shape(leading.state, the_template(leading.state, call.path))


async def list_versions(leading: Leading, call: Call[None, PageQuery]) -> Page[VersionShape]:
    """The newest first."""
    record = the_template(leading.state, call.path).record
    return page_of_sorted(
        record.versions[::-1],
        call.query,
        kind=f"versions of {record.name}",
        key=lambda version: f"{2**53 - version.number:020}",
        shape=lambda version: version_shape(record, version),
    )


async def put_template(
    leading: Leading, call: Call[None, NoteQuery], source: AsyncIterator[bytes]
) -> Describe:
    return await _upload(leading, call, name_of(call.path), source)


async def import_template(
    leading: Leading, call: Call[None, ImportQuery], source: AsyncIterator[bytes]
) -> Describe:
    return await _upload(leading, call, call.query.name, source)


async def _upload(
    leading: Leading, call: Call[Any, Any], name: str, source: AsyncIterator[bytes]
) -> Describe:
    template_name(name, field="name")
    intake = await leading.templates.intake_archive(source)

    async def describe() -> Mutation:
        change = changes.new_version(leading.state, name, intake, **making(leading, call, call.query.note))
        return changed(leading, "templates.upload", change)

    return describe


def archive_limit(leading: Leading) -> int:
    limits = leading.setting.templates
    return limits.max_bytes + limits.max_files * _OVERHEAD


def set_settings(leading: Leading, call: Call[SettingsPatch, NoteQuery]) -> Mutation:
    record = the_template(leading.state, call.path).record
    document = merged(msgspec.to_builtins(record.version().settings), call.body.settings)
    settings = _SETTINGS.decode(msgspec.json.encode({"settings": document})).settings
    note = call.body.note or call.query.note
    change = changes.set_settings(leading.state, record.name, settings, **making(leading, call, note))
    return changed(leading, "templates.set", change)


def roll_back(leading: Leading, call: Call[Rollback, NoQuery]) -> Mutation:
    record = the_template(leading.state, call.path).record
    change = changes.rollback(
        leading.state, record.name, call.body.version, now=call.now, actor=call.caller.actor.name
    )
    return changed(leading, "templates.rollback", change)


def delete_template(leading: Leading, call: Call[None, NoQuery]) -> Mutation:
    record = the_template(leading.state, call.path).record
    return Mutation(
        action="templates.delete",
        subject=record.name,
        steps=changes.delete(leading.state, record.name),
        status=204,
        before=audited(record),
    )


async def diff_versions(leading: Leading, call: Call[None, DiffQuery]) -> DiffShape:
    record = the_template(leading.state, call.path).record
    newer = record.version(call.query.to)
    older = record.version(call.query.from_ or _before(record, newer.number))
    found: TemplateDiff = await leading.templates.diff(older, newer)
    return DiffShape(name=record.name, from_=older.number, to=newer.number, **msgspec.structs.asdict(found))


def _before(record: TemplateRecord, number: int) -> int:
    earlier = [version.number for version in record.versions if version.number < number]
    if not earlier:
        raise Rejected(
            Code.NOT_FOUND,
            f"template '{record.name}' has no version before {number}",
            hint="say with which to compare it: ?from=",
            field="from",
        )
    return earlier[-1]


async def export_version(leading: Leading, call: Call[None, ExportQuery]) -> Content:
    record = the_template(leading.state, call.path).record
    version = record.version(call.query.version)
    form = call.query.format
    source = leading.templates.export(version, form)
    return Content(
        pump=pump_of(source),
        content_type=_TYPES[form],
        filename=f"{record.name.replace('/', '-')}-{version.number}.{form}",
        length=version.archive_size if form == "tar.gz" else None,
    )


def pump_of(source: AsyncIterator[bytes]) -> Pump:
    """Writes what comes; when it has to end early it closes the source at once."""

    async def pump(write: Write) -> None:
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(source, AsyncGenerator):
                stack.push_async_callback(source.aclose)
            async for piece in source:
                await write(piece)

    return pump


async def sync_template(leading: Leading, call: Call[Sync, NoQuery]) -> Mutation:
    record = the_template(leading.state, call.path).record
    answers = await leading.distribution.sync(record.name, call.body.nodes)
    return Mutation(
        action="templates.sync",
        subject=record.name,
        steps=(),
        body=SyncShape(items=list(answers)),
        after={"hash": record.version().hash, "nodes": {answer.node: answer.code for answer in answers}},
    )


def _routes(base: str) -> tuple[Route, ...]:
    """Everything there is about one template, for names of one part or of two."""
    read, manage = Permission.TEMPLATES_READ, Permission.TEMPLATES_MANAGE
    return (
        Read(
            method="GET",
            path=base,
            permission=read,
            summary="Show a template",
            response=TemplateShape,
            handler=get_template,
        ),
        Upload(
            method="PUT",
            path=base,
            permission=manage,
            summary="Upload a version of a template as tar.gz, tar or zip; its settings stay",
            query=NoteQuery,
            response=ChangedTemplate,
            handler=put_template,
            limit=archive_limit,
            media=ARCHIVES,
            revises=the_template,
            creates=True,
        ),
        Mutate(
            method="PATCH",
            path=base,
            permission=manage,
            summary="Change settings of a template (RFC 7396), as a new version with the same files",
            query=NoteQuery,
            body=SettingsPatch,
            response=ChangedTemplate,
            handler=set_settings,
            revises=the_template,
        ),
        Mutate(
            method="DELETE",
            path=base,
            permission=manage,
            summary="Delete a template that nothing needs",
            status=204,
            handler=delete_template,
            revises=the_template,
        ),
        Read(
            method="GET",
            path=f"{base}/-/versions",
            permission=read,
            summary="List the versions of a template that are kept, the newest first",
            query=PageQuery,
            response=Page[VersionShape],
            handler=list_versions,
        ),
        Read(
            method="GET",
            path=f"{base}/-/diff",
            permission=read,
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
        ),
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/templates",
        permission=Permission.TEMPLATES_READ,
        summary="List templates",
        query=TemplateQuery,
        response=Page[TemplateShape],
        handler=list_templates,
    ),
    Upload(
        method="POST",
        path="/api/v1/templates/import",
        permission=Permission.TEMPLATES_MANAGE,
        summary="Upload a version of the template that the query names",
        query=ImportQuery,
        response=ChangedTemplate,
        handler=import_template,
        limit=archive_limit,
        media=ARCHIVES,
        creates=True,
    ),
    *_routes(ONE),
    *_routes(TWO),
)
