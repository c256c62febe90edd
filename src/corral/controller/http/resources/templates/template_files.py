"""The files of a template, one by one. The rest of the path is the path of the file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, TicketedQuery
from corral.controller.http.messages.paging import Page, PageQuery, page_of_sorted
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Build, Download, Read, Route, Upload
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.sse_stream import Content
from corral.controller.http.resources.templates.template_schemas import (
    ONE,
    TWO,
    ChangedTemplate,
    FileShape,
    VersionNumber,
    changed,
    file_shape,
    making,
    name_of,
    pump_of,
    still,
    the_template,
)
from corral.controller.http.resources.templates.templates import NoteQuery
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.controller.templates import template_changes as changes
from corral.controller.templates.library import TemplateLibrary
from corral.domain.file_paths import FileMode, check_path
from corral.domain.permissions import Permission
from corral.domain.templates import TemplateFile, TemplateManifest, template_name
from corral.errors import Code, Rejected
from corral.system.aio.keyed_locks import KeyedLocks

_BYTES: Final = b"application/octet-stream"


class FileQuery(TicketedQuery, frozen=True, kw_only=True):
    version: VersionNumber | None = None


class FilesQuery(PageQuery, frozen=True, kw_only=True):
    version: VersionNumber | None = None
    prefix: Annotated[str, msgspec.Meta(max_length=4096)] = ""


class PutFileQuery(NoteQuery, frozen=True, kw_only=True):
    mode: (
        Annotated[FileMode, msgspec.Meta(description="Without: as it was, or 644. Without w: read-only.")]
        | None
    ) = None


async def list_files(
    state: ClusterState, templates: TemplateLibrary, call: ApiCall[None, FilesQuery]
) -> Page[FileShape]:
    query = call.query
    record = the_template(state, call.path).record
    version = record.version(query.version)
    tree = await templates.tree_of(version)
    return page_of_sorted(
        [file for file in tree.files if file.path.startswith(query.prefix)],
        query,
        kind=f"files of {record.name} {version.number} {query.prefix}",
        key=lambda file: file.path,
        shape=file_shape,
    )


async def get_file(
    state: ClusterState, templates: TemplateLibrary, call: ApiCall[None, FileQuery]
) -> Content:
    path = _path(call)
    version = the_template(state, call.path).record.version(call.query.version)
    file, source = await templates.open_file(version, path)
    name = path.rpartition("/")[2]
    return Content(pump=pump_of(source), content_type=_BYTES, filename=name, length=file.size)


async def put_file(
    state: ClusterState,
    templates: TemplateLibrary,
    setting: ProcessContext,
    call: ApiCall[None, PutFileQuery],
    source: AsyncIterator[bytes],
) -> Describe:
    return await stored_file(
        state, templates, setting, call, source, note=call.query.note, mode=call.query.mode
    )


async def stored_file(
    state: ClusterState,
    templates: TemplateLibrary,
    setting: ProcessContext,
    call: ApiCall[None, Any],
    source: AsyncIterator[bytes],
    *,
    note: str = "",
    mode: FileMode | None = None,
    creates: bool = False,
    replaces: bool = False,
) -> Describe:
    """The content is stored once; laying it over what the template then is may happen again. `creates`: a template that
    is not there is made; `replaces`: NOT_FOUND unless there is such a file."""
    path, given, name = _path(call), mode, template_name(name_of(call.path))
    alone = await templates.with_file(TemplateManifest(), path, source, mode=int(given or "644", 8))
    (content,) = alone.manifest.files

    async def describe() -> Mutation:
        stored = state.templates.find(name) if creates else the_template(state, call.path)
        version = stored.record.version() if stored is not None else None
        base = await templates.tree_of(version) if version is not None else TemplateManifest()
        if replaces and all(each.path != path for each in base.files):
            raise _no_file(name, path)
        file = content if given else _as_it_was(content, base)
        intake = await templates.overlaid(base, TemplateManifest(files=(file,)))
        still(state, name, stored)
        change = changes.new_version(
            state,
            name,
            intake,
            base=version.number if version is not None else None,
            **making(setting, call, note or f"put {path}"),
        )
        return changed(state, "templates.put_file", change, path=path, digest=file.digest)

    return describe


def _no_file(name: str, path: str) -> Rejected:
    return Rejected(
        Code.NOT_FOUND,
        f"template '{name}' has no file '{path[:200]}'",
        hint="look at the list of its files",
        field="path",
    )


def _as_it_was(file: TemplateFile, base: TemplateManifest) -> TemplateFile:
    """With the mode of the file that it replaces."""
    mode = next((each.mode for each in base.files if each.path == file.path), file.mode)
    return msgspec.structs.replace(file, mode=mode)


async def remove_file(
    state: ClusterState, templates: TemplateLibrary, setting: ProcessContext, call: ApiCall[None, NoteQuery]
) -> Describe:
    path = _path(call)

    async def describe() -> Mutation:
        stored = the_template(state, call.path)
        version = stored.record.version()
        base = await templates.tree_of(version)
        intake = await templates.without_file(base, path)
        still(state, stored.record.name, stored)
        change = changes.new_version(
            state,
            stored.record.name,
            intake,
            base=version.number,
            saved_from=stored.record.saved_from,
            **making(setting, call, call.query.note or f"remove {path}"),
        )
        return changed(state, "templates.remove_file", change, path=path)

    return describe


def edit_turn(edits: KeyedLocks[str], call: ApiCall[Any, Any]) -> AbstractAsyncContextManager[None]:
    return edits.hold(name_of(call.path))


def _path(call: ApiCall[Any, Any]) -> str:
    return check_path(call.path["path"], field="path")


def file_limit(setting: ProcessContext) -> int:
    return setting.templates.max_bytes


def _routes(base: str) -> tuple[Route, ...]:
    one = f"{base}/-/files/{{path}}"
    return (
        Read(
            method="GET",
            path=f"{base}/-/files",
            permission=Permission.TEMPLATES_READ,
            scope=Scoping.TEMPLATE,
            summary="List the files of a version of a template",
            query=FilesQuery,
            response=Page[FileShape],
            handler=list_files,
        ),
        Download(
            method="GET",
            path=one,
            permission=Permission.TEMPLATES_CONTENT,
            scope=Scoping.TEMPLATE,
            summary="Download a file of a template",
            query=FileQuery,
            handler=get_file,
            rest=True,
        ),
        Upload(
            method="PUT",
            path=one,
            permission=Permission.TEMPLATES_MANAGE,
            summary="Put a file into a template, as a new version",
            query=PutFileQuery,
            response=ChangedTemplate,
            handler=put_file,
            limit=file_limit,
            revises=the_template,
            turn=edit_turn,
            rest=True,
        ),
        Build(
            method="DELETE",
            path=one,
            permission=Permission.TEMPLATES_MANAGE,
            summary="Take a file out of a template, as a new version",
            query=NoteQuery,
            response=ChangedTemplate,
            handler=remove_file,
            revises=the_template,
            turn=edit_turn,
            rest=True,
        ),
    )


ROUTES: Final[tuple[Route, ...]] = (*_routes(ONE), *_routes(TWO))
