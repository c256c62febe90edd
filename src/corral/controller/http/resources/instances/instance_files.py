"""Routes that read the files of instances: listings, contents, directories as archives, and where a file comes from."""

from __future__ import annotations

import base64
import binascii
import contextlib
import datetime as dt
import hashlib
from dataclasses import replace
from typing import Annotated, Final

import msgspec

from corral.controller.distribution.instance_file_transfers import OpenedFile
from corral.controller.distribution.instance_files import ListedFile, WalkRequest
from corral.controller.http.messages.call import ApiCall, Query, TicketedQuery
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.route_table import Download, Read, Route
from corral.controller.http.pipeline.sse_stream import Content, Write
from corral.controller.http.pipeline.template_scopes import covers_template
from corral.controller.http.pipeline.term_ports import FileDistribution
from corral.controller.state.cluster_state import ClusterState
from corral.controller.templates.file_origins import FileOrigins, OriginKind, no_origin, origins_of
from corral.controller.templates.library import TemplateLibrary
from corral.domain.file_paths import (
    DEFAULT_ENTRIES,
    LEVELS,
    LISTED_DIGESTED,
    MOST_BYTES,
    MOST_ENTRIES,
    PATH_MAX,
    check_named,
)
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected
from corral.system.threads import to_end

_BYTES: Final = b"application/octet-stream"
_ARCHIVE: Final = "application/gzip"
_LEFT_OUT: Final = "Corral-Left-Out"
_TEXT_BYTES: Final = 1024 * 1024
"""The largest text of a template's file that is shown."""
FilePath = Annotated[str, msgspec.Meta(min_length=1, max_length=PATH_MAX)]
Directory = Annotated[str, msgspec.Meta(max_length=PATH_MAX)]


class InstanceFilesQuery(Query, frozen=True, kw_only=True):
    path: Annotated[Directory, msgspec.Meta(description="Only below this directory.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_ENTRIES)] = DEFAULT_ENTRIES
    depth: Annotated[
        int, msgspec.Meta(ge=1, le=LEVELS, description="So many levels; 1: the directory alone.")
    ] = LEVELS
    cursor: Annotated[
        str, msgspec.Meta(max_length=8192, description="`next` of the page before; empty: from the start.")
    ] = ""
    digests: Annotated[
        bool, msgspec.Meta(description=f"With digests of files up to {LISTED_DIGESTED // 2**20} MiB.")
    ] = False


class InstanceFileQuery(Query, frozen=True, kw_only=True):
    path: FilePath


class FileContentQuery(TicketedQuery, frozen=True, kw_only=True):
    path: FilePath
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    length: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)] | None = None


class FileArchiveQuery(TicketedQuery, frozen=True, kw_only=True):
    path: Annotated[Directory, msgspec.Meta(description="A directory; empty: all of it.")] = ""


class InstanceFileShape(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of an instance's directory."""

    path: str
    kind: str
    size: int
    modified_at: dt.datetime | None
    mode: str | None
    digest: str | None
    binary: bool | None
    origin: OriginKind
    template: str | None
    template_version: int | None


class InstanceFilesShape(msgspec.Struct, frozen=True, kw_only=True):
    """A directory comes before what is in it, names are in order; `truncated`: there is more."""

    items: tuple[InstanceFileShape, ...]
    next: str | None
    truncated: bool


class FileOriginShape(msgspec.Struct, frozen=True, kw_only=True):
    """What a template has at the path, before variables are filled in and patches applied."""

    path: str
    origin: OriginKind
    template: str
    template_version: int
    digest: str
    size: int
    content: str | None


async def list_files(
    state: ClusterState,
    templates: TemplateLibrary,
    distribution: FileDistribution,
    call: ApiCall[None, InstanceFilesQuery],
) -> InstanceFilesShape:
    query = call.query
    request = WalkRequest(
        path=query.path,
        limit=query.limit,
        depth=query.depth if query.depth < LEVELS else 0,
        after=_place(query.cursor),
        digests=LISTED_DIGESTED if query.digests else 0,
    )
    listing = await distribution.walk_files(call.path["id"], request, caller=call.caller.limit_key)
    origins = await origins_of(state, templates, state.instances.require(call.path["id"]).record)
    items = await to_end(lambda: tuple(_shape(entry, origins) for entry in listing.entries))
    return InstanceFilesShape(
        items=items,
        next=base64.urlsafe_b64encode(listing.next).decode() if listing.next else None,
        truncated=listing.truncated,
    )


async def get_status(
    state: ClusterState,
    templates: TemplateLibrary,
    distribution: FileDistribution,
    call: ApiCall[None, InstanceFileQuery],
) -> InstanceFileShape:
    found = await distribution.look_at_file(call.path["id"], call.query.path, caller=call.caller.limit_key)
    origins = await origins_of(state, templates, state.instances.require(call.path["id"]).record)
    return _shape(found, origins)


async def get_content(distribution: FileDistribution, call: ApiCall[None, FileContentQuery]) -> Content:
    """What fits into one answer of the node comes over its control stream, so that it needs no second connection."""
    query, id = call.query, call.path["id"]
    length = query.length or 0
    if length <= MOST_BYTES:
        part = await distribution.read_file(
            id,
            query.path,
            offset=query.offset,
            length=length or MOST_BYTES,
            caller=call.caller.limit_key,
        )
        if length or part.size <= query.offset + len(part.content):
            whole = not query.offset and part.size == len(part.content)
            digest = hashlib.sha256(part.content).hexdigest() if whole else ""
            return _held(part.content, _name(query.path), digest)
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(
            distribution.open_file(
                id, query.path, offset=query.offset, length=length, caller=call.caller.limit_key
            )
        )
        return _passed_on(opened, stack.pop_all(), _name(query.path), _BYTES)


async def get_archive(distribution: FileDistribution, call: ApiCall[None, FileArchiveQuery]) -> Content:
    path, id = call.query.path, call.path["id"]
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(
            distribution.open_file(id, path, archive=True, caller=call.caller.limit_key)
        )
        name = f"{_name(path) or id}.tar.gz"
        content = _passed_on(opened, stack.pop_all(), name, _ARCHIVE.encode())
        return replace(content, headers=((_LEFT_OUT.lower().encode(), b"%d" % opened.left_out),))


async def get_origin(
    state: ClusterState, templates: TemplateLibrary, call: ApiCall[None, InstanceFileQuery]
) -> FileOriginShape:
    """Who may not read a template does not get it by the files of an instance either: outside of the caller's scope it is
    as if there were none."""
    needed, access = Permission.TEMPLATES_CONTENT, call.caller.access
    authorise(call.caller, needed)
    record = state.instances.require(call.path["id"]).record
    path = check_named(call.query.path, field="path")
    origins = await origins_of(state, templates, record)
    found = origins.file(path)
    if found is None or not covers_template(access, needed, state, found[0].name):
        raise no_origin(record, path)
    template, file = found
    content: str | None = None
    if file.size <= _TEXT_BYTES:
        raw = b"".join([block async for block in templates.read_file(file)])
        with contextlib.suppress(UnicodeDecodeError):
            content = raw.decode()
    return FileOriginShape(
        path=path,
        origin=origins.of(path).kind,
        template=template.name,
        template_version=template.version,
        digest=file.digest,
        size=file.size,
        content=content,
    )


def _shape(entry: ListedFile, origins: FileOrigins) -> InstanceFileShape:
    origin = origins.of(entry.path)
    return InstanceFileShape(
        path=entry.path,
        kind=entry.kind,
        size=entry.size,
        modified_at=entry.modified_at,
        mode=None if entry.mode is None else f"{entry.mode:04o}",
        digest=entry.digest,
        binary=entry.binary,
        origin=origin.kind,
        template=origin.template or None,
        template_version=origin.version or None,
    )


def _held(content: bytes, name: str, digest: str) -> Content:
    async def pump(write: Write) -> None:
        await write(content)

    return Content(pump=pump, content_type=_BYTES, filename=name, length=len(content), digest=digest)


def _passed_on(
    opened: OpenedFile, stack: contextlib.AsyncExitStack, name: str, content_type: bytes
) -> Content:
    async def pump(write: Write) -> None:
        async for block in opened.blocks:
            await write(block)

    return Content(
        pump=pump,
        content_type=content_type,
        filename=name,
        length=opened.size,
        digest=opened.digest,
        close=stack.aclose,
    )


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _place(cursor: str) -> bytes:
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(
            Code.INVALID_CURSOR, "this cursor is none of ours", hint="use `next` as it came", field="cursor"
        ) from None


_FILES: Final = "/api/v1/instances/{id}/files"

ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path=_FILES,
        permission=Permission.INSTANCES_FILES,
        summary="List what lies in an instance's directory",
        query=InstanceFilesQuery,
        response=InstanceFilesShape,
        handler=list_files,
    ),
    Read(
        method="GET",
        path=f"{_FILES}/stat",
        permission=Permission.INSTANCES_FILES,
        summary="Show one file of an instance, with its digest",
        query=InstanceFileQuery,
        response=InstanceFileShape,
        handler=get_status,
    ),
    Download(
        method="GET",
        path=f"{_FILES}/content",
        permission=Permission.INSTANCES_FILES,
        summary="Read a file of an instance, or a part of it",
        query=FileContentQuery,
        handler=get_content,
    ),
    Download(
        method="GET",
        path=f"{_FILES}/archive",
        permission=Permission.INSTANCES_FILES,
        summary="Download a directory of an instance as tar.gz",
        query=FileArchiveQuery,
        handler=get_archive,
        media=_ARCHIVE,
        counts={
            _LEFT_OUT: "Entries that the archive lacks: links, special files, and files that have a second name "
            "or belong to others."
        },
    ),
    Read(
        method="GET",
        path=f"{_FILES}/origin",
        permission=Permission.INSTANCES_FILES,
        summary="Show what a template has at the path of an instance's file",
        query=InstanceFileQuery,
        response=FileOriginShape,
        handler=get_origin,
    ),
)
