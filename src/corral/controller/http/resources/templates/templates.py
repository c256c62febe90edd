"""Templates: look, upload, set, delete. Their versions and single files: `template_versions`, `template_files`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, Query, RequestBody, Text
from corral.controller.http.messages.paging import Page, PageQuery, page_of
from corral.controller.http.messages.request_decoder import BodyDecoder
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Mutate, Read, Route, Upload
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.template_scopes import covers_template
from corral.controller.http.resources.templates.template_schemas import (
    ONE,
    TWO,
    ChangedTemplate,
    TemplateShape,
    audited,
    changed,
    making,
    name_of,
    template_shape,
    the_template,
)
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.controller.templates import template_changes as changes
from corral.controller.templates.library import TemplateLibrary
from corral.domain.groups.group_documents import merged
from corral.domain.permissions import Permission
from corral.domain.templates import TemplateRecord, TemplateSettings, template_name

ARCHIVES: Final = ("application/gzip", "application/zip", "application/x-tar", "application/octet-stream")
_OVERHEAD: Final = 4096
"""Bytes that an archive may need for an entry beside its contents."""


class TemplateQuery(PageQuery, frozen=True, kw_only=True):
    prefix: Annotated[str, msgspec.Meta(max_length=127)] = ""
    group: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class NoteQuery(Query, frozen=True, kw_only=True):
    note: Text = ""


class ImportQuery(NoteQuery, frozen=True, kw_only=True):
    name: Annotated[str, msgspec.Meta(max_length=127, description="NAME or GROUP/NAME.")]


class SettingsPatch(RequestBody, frozen=True, kw_only=True):
    """A merge patch (RFC 7396) of the settings: what is not named stays, null goes back to the default."""

    settings: dict[str, Any]
    note: Text = ""


class _Settings(RequestBody, frozen=True, kw_only=True):
    settings: TemplateSettings


_SETTINGS: Final = BodyDecoder(_Settings)


async def list_templates(state: ClusterState, call: ApiCall[None, TemplateQuery]) -> Page[TemplateShape]:
    query, access = call.query, call.caller.access

    def accepts(record: TemplateRecord) -> bool:
        group, _, _ = record.name.rpartition("/")
        asked = record.name.startswith(query.prefix) and query.group in (None, group)
        return asked and covers_template(access, Permission.TEMPLATES_READ, state, record.name)

    return page_of(
        state.templates, query, accepts=accepts, shape=lambda each: template_shape(state, each, access)
    )


async def get_template(state: ClusterState, call: ApiCall[None, NoQuery]) -> TemplateShape:
    return template_shape(state, the_template(state, call.path), call.caller.access)


async def put_template(
    state: ClusterState,
    templates: TemplateLibrary,
    setting: ProcessContext,
    call: ApiCall[None, NoteQuery],
    source: AsyncIterator[bytes],
) -> Describe:
    return await _upload(state, templates, setting, call, name_of(call.path), source)


async def import_template(
    state: ClusterState,
    templates: TemplateLibrary,
    setting: ProcessContext,
    call: ApiCall[None, ImportQuery],
    source: AsyncIterator[bytes],
) -> Describe:
    return await _upload(state, templates, setting, call, call.query.name, source)


async def _upload(
    state: ClusterState,
    templates: TemplateLibrary,
    setting: ProcessContext,
    call: ApiCall[Any, Any],
    name: str,
    source: AsyncIterator[bytes],
) -> Describe:
    template_name(name, field="name")
    intake = await templates.intake_archive(source)

    async def describe() -> Mutation:
        change = changes.new_version(state, name, intake, **making(setting, call, call.query.note))
        return changed(state, "templates.upload", change)

    return describe


def archive_limit(setting: ProcessContext) -> int:
    limits = setting.templates
    return limits.max_bytes + limits.max_files * _OVERHEAD


def set_settings(
    state: ClusterState, setting: ProcessContext, call: ApiCall[SettingsPatch, NoteQuery]
) -> Mutation:
    record = the_template(state, call.path).record
    document = merged(msgspec.to_builtins(record.version().settings), call.body.settings)
    settings = _SETTINGS.decode(msgspec.json.encode({"settings": document})).settings
    note = call.body.note or call.query.note
    change = changes.set_settings(state, record.name, settings, **making(setting, call, note))
    return changed(state, "templates.set", change)


def delete_template(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    record = the_template(state, call.path).record
    return Mutation(
        action="templates.delete",
        subject=record.name,
        steps=changes.delete(state, record.name),
        status=204,
        before=audited(record),
    )


def _routes(base: str) -> tuple[Route, ...]:
    """Everything there is about one template, for names of one part or of two."""
    read, manage = Permission.TEMPLATES_READ, Permission.TEMPLATES_MANAGE
    return (
        Read(
            method="GET",
            path=base,
            permission=read,
            scope=Scoping.TEMPLATE,
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
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/templates",
        permission=Permission.TEMPLATES_READ,
        scope=Scoping.FILTERS,
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
