"""The files of a template, one by one. The rest of the path is the path of the file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any, Final, Literal

import msgspec

from corral.controller.http.messages.call import ApiCall, TicketedQuery
from corral.controller.http.messages.paging import Page, PageQuery, page_of_sorted
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_table import (
    Build,
    Describe,
    Download,
    Read,
    Route,
    Upload,
)
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
from corral.domain.file_paths import check_path
from corral.domain.permissions import Permission
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.system.aio.keyed_locks import KeyedLocks

_BYTES: Final = b"application/octet-stream"

Mode = Literal["444", "555", "644", "755"]


class FileQuery(TicketedQuery, frozen=True, kw_only=True):
    version: VersionNumber | None = None


class FilesQuery(PageQuery, frozen=True, kw_only=True):
    version: VersionNumber | None = None
    prefix: Annotated[str, msgspec.Meta(max_length=4096)] = ""


class PutFileQuery(NoteQuery, frozen=True, kw_only=True):
    mode: (
        Annotated[Mode, msgspec.Meta(description="Without: as it was, or 644. Without w: read-only.")] | None
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
    """The content is stored once; laying it over what the template then is may happen again."""
    path = _path(call)
    given = call.query.mode
    alone = await templates.with_file(TemplateManifest(), path, source, mode=int(given or "644", 8))
    (stored_file,) = alone.manifest.files

    async def describe() -> Mutation:
        stored = the_template(state, call.path)
        version = stored.record.version()
        base = await templates.tree_of(version)
        file = stored_file if given else _as_it_was(stored_file, base)
        intake = await templates.overlaid(base, TemplateManifest(files=(file,)))
        still(state, stored)
        change = changes.new_version(
            state,
            stored.record.name,
            intake,
            base=version.number,
            **making(setting, call, call.query.note or f"put {path}"),
        )
        return changed(state, "templates.put_file", change, path=path, digest=file.digest)

    return describe


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
        still(state, stored)
        change = changes.new_version(
            state,
            stored.record.name,
            intake,
            base=version.number,
            **making(setting, call, call.query.note or f"remove {path}"),
        )
        return changed(state, "templates.remove_file", change, path=path)

    return describe


def _turn(edits: KeyedLocks[str], call: ApiCall[Any, Any]) -> AbstractAsyncContextManager[None]:
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
            turn=_turn,
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
            turn=_turn,
            rest=True,
        ),
    )


ROUTES: Final[tuple[Route, ...]] = (*_routes(ONE), *_routes(TWO))
