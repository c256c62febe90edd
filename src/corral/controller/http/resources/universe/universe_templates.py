"""Universe's templates: list, files, archives, distribution to nodes. All have a group and a name."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, Final

import msgspec

from corral.controller.distribution.node_caches import SyncAnswer
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody, TicketedQuery
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Act, Build, Download, Read, Route, Upload
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.sse_stream import Content
from corral.controller.http.pipeline.template_scopes import covers_template
from corral.controller.http.pipeline.term_ports import FileDistribution
from corral.controller.http.resources.templates.template_files import (
    FileQuery,
    edit_turn,
    file_limit,
    get_file,
    remove_file,
    stored_file,
)
from corral.controller.http.resources.templates.template_schemas import name_of, the_template
from corral.controller.http.resources.templates.template_versions import (
    ExportQuery,
    Sync,
    export_version,
    sync_template,
)
from corral.controller.http.resources.templates.templates import NoteQuery, archive_limit, put_template
from corral.controller.http.resources.universe.universe_schemas import universe_name
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.controller.templates.library import TemplateLibrary
from corral.domain.file_paths import check_glob, globs
from corral.domain.permissions import Permission
from corral.domain.templates import group_of
from corral.domain.universe.group_configurations import LOCAL
from corral.errors import Code, Rejected

_TEXT: Final = b"text/plain; charset=utf-8"
_ZIP: Final = "application/zip"
_MOST_SYNCED: Final = 100

Storage = Annotated[str, msgspec.Meta(max_length=63)]


class UniverseTemplate(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """A template; `path` is where Universe would have it."""

    group: str
    name: str
    path: str


class UniverseTemplateFiles(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """A template and the paths of its files."""

    group: str
    name: str
    files: list[str]


class UniverseFileChange(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """What was done, and to which file."""

    message: str
    path: str


class UniverseSync(msgspec.Struct, frozen=True, kw_only=True, rename=universe_name):
    """How the distribution of a template to a node went."""

    template: str
    node: str
    storage: str
    success: bool
    message: str


class UniverseSyncOrder(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    storage: Storage = LOCAL


class UniverseSyncPattern(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    pattern: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]


async def list_templates(state: ClusterState, call: ApiCall[None, NoQuery]) -> list[UniverseTemplate]:
    access = call.caller.access
    return [
        UniverseTemplate(group=group_of(name), name=name.rpartition("/")[2], path=f"templates/{name}")
        for name in sorted(stored.record.name for stored in state.templates)
        if covers_template(access, Permission.TEMPLATES_READ, state, name)
    ]


async def list_files(
    state: ClusterState, templates: TemplateLibrary, call: ApiCall[None, NoQuery]
) -> UniverseTemplateFiles:
    record = the_template(state, call.path).record
    tree = await templates.tree_of(record.version())
    return UniverseTemplateFiles(
        group=call.path["group"], name=call.path["name"], files=[file.path for file in tree.files]
    )


async def read_file(
    state: ClusterState, templates: TemplateLibrary, call: ApiCall[None, TicketedQuery]
) -> Content:
    content = await get_file(state, templates, call.with_query(FileQuery()))
    return dataclasses.replace(content, content_type=_TEXT)


async def write_file(
    state: ClusterState,
    templates: TemplateLibrary,
    setting: ProcessContext,
    call: ApiCall[None, NoQuery],
    source: AsyncIterator[bytes],
) -> Describe:
    describe = await stored_file(state, templates, setting, call, source, creates=True)
    return _answered(describe, call, "the file is stored", status=201)


async def change_file(
    state: ClusterState,
    templates: TemplateLibrary,
    setting: ProcessContext,
    call: ApiCall[None, NoQuery],
    source: AsyncIterator[bytes],
) -> Describe:
    describe = await stored_file(state, templates, setting, call, source, replaces=True)
    return _answered(describe, call, "the file is changed")


async def delete_file(
    state: ClusterState, templates: TemplateLibrary, setting: ProcessContext, call: ApiCall[None, NoQuery]
) -> Describe:
    describe = await remove_file(state, templates, setting, call.with_query(NoteQuery()))
    return _answered(describe, call, "the file is deleted")


def _answered(describe: Describe, call: ApiCall[Any, Any], message: str, *, status: int = 200) -> Describe:
    """The same change with Universe's answer."""
    path = call.path.get("path") or name_of(call.path)

    async def described() -> Mutation:
        body = UniverseFileChange(message=message, path=path)
        return msgspec.structs.replace(await describe(), body=body, status=status)

    return described


async def export_template(
    state: ClusterState, templates: TemplateLibrary, call: ApiCall[None, TicketedQuery]
) -> Content:
    return await export_version(state, templates, call.with_query(ExportQuery(format="zip")))


async def import_template(
    state: ClusterState,
    templates: TemplateLibrary,
    setting: ProcessContext,
    call: ApiCall[None, NoQuery],
    source: AsyncIterator[bytes],
) -> Describe:
    describe = await put_template(state, templates, setting, call.with_query(NoteQuery()), source)
    return _answered(describe, call, "the archive is the current version of the template", status=201)


async def sync_one(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[UniverseSyncOrder, NoQuery]
) -> Mutation:
    if call.body.storage not in ("", LOCAL):
        raise Rejected(
            Code.INVALID_FIELD,
            f"storage: Corral has no storage {call.body.storage!r}",
            hint=f"write '{LOCAL}', or leave it out",
            field="storage",
        )
    mutation = await sync_template(state, distribution, call.with_body(Sync()))
    return msgspec.structs.replace(mutation, body=_synced(mutation.subject, mutation.body.items))


def _synced(template: str, answers: Sequence[SyncAnswer]) -> list[UniverseSync]:
    return [
        UniverseSync(
            template=template,
            node=answer.node,
            storage=LOCAL,
            success=answer.ok,
            message=answer.message or "the node has it",
        )
        for answer in answers
    ]


async def sync_matching(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[UniverseSyncPattern, NoQuery]
) -> Mutation:
    """One after the other; what fails on a node is in its answer."""
    names = _matching(state, call.body.pattern)
    done = [(name, await distribution.sync(name)) for name in names]
    return Mutation(
        action="templates.sync",
        subject="templates",
        steps=(),
        body=[each for name, answers in done for each in _synced(name, answers)],
        after={"pattern": call.body.pattern, "templates": names},
    )


def _matching(state: ClusterState, pattern: str) -> list[str]:
    """Names that match as a whole; a pattern without a slash may also match their group."""
    matcher = globs((check_glob(pattern.lower(), field="pattern"),))
    names = sorted(stored.record.name for stored in state.templates)
    found = [
        name
        for name in names
        if matcher.matches(name) or ("/" not in pattern and matcher.matches(group_of(name) or name))
    ]
    if len(found) > _MOST_SYNCED:
        raise Rejected(
            Code.INVALID_FIELD,
            f"pattern: {len(found)} templates match, and {_MOST_SYNCED} can be sent with one request",
            hint="nodes fetch what they need by themselves; use a narrower pattern to prepare them",
            field="pattern",
        )
    return found


_ALL: Final = "/api/templates"
_ONE: Final = f"{_ALL}/{{group}}/{{name}}"
_FILE: Final = f"{_ONE}/files/{{path}}"
_NAMES: Final = frozenset({"group", "name"})
_READ, _MANAGE = Permission.TEMPLATES_READ, Permission.TEMPLATES_MANAGE


def _files(path: str, summary: str) -> Read:
    return Read(
        method="GET",
        path=path,
        permission=_READ,
        scope=Scoping.TEMPLATE,
        summary=summary,
        response=UniverseTemplateFiles,
        handler=list_files,
        lowered=_NAMES,
    )


def _writing(method: str, summary: str, handler: Any, *, status: int) -> Upload:
    return Upload(
        method=method,
        path=_FILE,
        permission=_MANAGE,
        summary=summary,
        response=UniverseFileChange,
        status=status,
        handler=handler,
        limit=file_limit,
        revises=the_template,
        creates=status == 201,
        turn=edit_turn,
        rest=True,
        lowered=_NAMES,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path=_ALL,
        permission=_READ,
        scope=Scoping.FILTERS,
        summary="List templates",
        response=list[UniverseTemplate],
        handler=list_templates,
    ),
    _files(_ONE, "Show a template with its files"),
    _files(f"{_ONE}/files", "List the files of a template"),
    Download(
        method="GET",
        path=_FILE,
        permission=Permission.TEMPLATES_CONTENT,
        scope=Scoping.TEMPLATE,
        summary="Read a file of a template",
        handler=read_file,
        media="text/plain",
        rest=True,
        lowered=_NAMES,
    ),
    _writing("POST", "Write a file of a template, which need not exist", write_file, status=201),
    _writing("PATCH", "Replace a file of a template", change_file, status=200),
    Build(
        method="DELETE",
        path=_FILE,
        permission=_MANAGE,
        summary="Delete a file of a template",
        response=UniverseFileChange,
        handler=delete_file,
        revises=the_template,
        turn=edit_turn,
        rest=True,
        lowered=_NAMES,
    ),
    Download(
        method="POST",
        path=f"{_ONE}/export",
        permission=Permission.TEMPLATES_CONTENT,
        scope=Scoping.TEMPLATE,
        summary="Download a template as a zip archive",
        handler=export_template,
        media=_ZIP,
        lowered=_NAMES,
    ),
    Upload(
        method="POST",
        path=f"{_ONE}/import",
        permission=_MANAGE,
        summary="Upload a zip archive as the next version of a template",
        response=UniverseFileChange,
        status=201,
        handler=import_template,
        limit=archive_limit,
        media=(_ZIP, "application/octet-stream"),
        revises=the_template,
        creates=True,
        lowered=_NAMES,
    ),
    Act(
        method="POST",
        path=f"{_ONE}/sync",
        permission=_MANAGE,
        summary="Push a template into the caches of all nodes",
        body=UniverseSyncOrder,
        response=list[UniverseSync],
        handler=sync_one,
        action="templates.sync",
        subject=lambda call: name_of(call.path),
        lowered=_NAMES,
    ),
    Act(
        method="POST",
        path=f"{_ALL}/sync",
        permission=_MANAGE,
        summary="Push the templates that match a pattern into the caches of all nodes",
        body=UniverseSyncPattern,
        response=list[UniverseSync],
        handler=sync_matching,
        action="templates.sync",
        subject=lambda _: "templates",
    ),
)
