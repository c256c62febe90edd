"""The catalog: programs by platform and version, at a URL or uploaded."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from corral.controller.distribution import artifact_catalog as changes
from corral.controller.http.messages.call import ApiCall, NoQuery, Query, RequestBody
from corral.controller.http.messages.paging import Page, PageQuery, page_of
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Mutate, Read, Route, Upload
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.resources.templates.template_files import file_limit
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.domain.access import Access
from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.group import Category, ConfigFormat
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import redacted
from corral.domain.urls import shown_url
from corral.errors import Code, Rejected
from corral.store.port import BlobEngine

_ENTRY: Final = "/api/v1/catalog/{platform}/{version}"

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

FileName = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Sha256 = Annotated[str, msgspec.Meta(max_length=64, description="64 lower-case hex digits.")]
Description = Annotated[str, msgspec.Meta(max_length=1000)]


class CatalogShape(msgspec.Struct, frozen=True, kw_only=True):
    """A program. `url` is empty for one that was uploaded; callers that may not manage the catalog see
    no more of it than host and path. `size` is 0 while it is unknown."""

    platform: str
    version: str
    file: str
    url: str
    sha256: str
    size: int
    category: Category
    config_format: ConfigFormat
    description: str
    used_by: list[str]
    created_at: dt.datetime
    updated_at: dt.datetime
    revision: int


class CatalogQuery(PageQuery, frozen=True, kw_only=True):
    platform: Annotated[str, msgspec.Meta(max_length=63)] | None = None


class NewEntry(RequestBody, frozen=True, kw_only=True):
    file: FileName
    url: Annotated[str, msgspec.Meta(min_length=1, max_length=2048)]
    sha256: Sha256
    category: Category = Category.NONE
    config_format: ConfigFormat = ConfigFormat.NONE
    description: Description = ""


class UploadQuery(Query, frozen=True, kw_only=True):
    """Parameters that are not given leave their values as they were."""

    name: Annotated[FileName, msgspec.Meta(description="Its file name.")] | None = None
    sha256: Annotated[Sha256, msgspec.Meta(description="Refuse other bytes than these.")] | None = None
    category: Category | None = None
    config_format: ConfigFormat | None = None
    description: Description | None = None


def the_entry(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[CatalogRecord]:
    return state.catalog.require(_id(path))


def _id(path: Mapping[str, str]) -> str:
    return f"{path['platform']}/{path['version']}"


def _shape(state: ClusterState, access: Access, stored: StoredRecord[CatalogRecord]) -> CatalogShape:
    """`used_by` has the groups within the scope of the caller."""
    record = stored.record
    users = changes.users_of(state, record.id)
    return CatalogShape(
        platform=record.platform,
        version=record.version,
        file=record.file,
        url=record.url,
        sha256=record.sha256,
        size=record.size,
        category=record.category,
        config_format=record.config_format,
        description=record.description,
        used_by=[each for each in users if _is_covered(access, each)],
        created_at=record.created_at,
        updated_at=record.updated_at,
        revision=stored.revision,
    )


def _is_covered(access: Access, group: str) -> bool:
    permission = Permission.CATALOG_READ
    return access.allows_everywhere(permission) or access.allows_on_group(permission, group)


async def list_entries(state: ClusterState, call: ApiCall[None, CatalogQuery]) -> Page[CatalogShape]:
    platform = call.query.platform
    found = page_of(
        state.catalog,
        call.query,
        accepts=lambda record: platform in (None, record.platform),
        shape=lambda stored: _shape(state, call.caller.access, stored),
    )
    # it belongs to no group: who sees what is sensitive within a scope does not see it here
    return found if call.caller.access.allows_everywhere(Permission.INSTANCES_SENSITIVE) else redacted(found)


async def get_entry(state: ClusterState, call: ApiCall[None, NoQuery]) -> CatalogShape:
    return _shape(state, call.caller.access, the_entry(state, call.path))


def put_entry(state: ClusterState, call: ApiCall[NewEntry, NoQuery]) -> Mutation:
    return _put(state, call, msgspec.structs.asdict(call.body))


async def put_file(
    state: ClusterState, blobs: BlobEngine, call: ApiCall[None, UploadQuery], source: AsyncIterator[bytes]
) -> Describe:
    query = call.query
    before = state.catalog.find(_id(call.path))
    name = query.name or (before.record.file if before else "")
    if not name:
        raise Rejected(
            Code.MISSING_FIELD, "a new entry needs a file name", hint="add ?name=server.jar", field="name"
        )
    if query.sha256 is not None and _DIGEST.fullmatch(query.sha256) is None:
        raise Rejected(
            Code.INVALID_FIELD,
            "sha256: it is not a SHA-256 in lower-case hex",
            hint="compute it with sha256sum",
            field="sha256",
        )
    blob = await blobs.put_blob(source, expect=query.sha256)
    if not blob.size:
        raise Rejected(Code.BAD_REQUEST, "the file is empty", hint="send its bytes as the body")
    given = {
        "category": query.category,
        "config_format": query.config_format,
        "description": query.description,
    }
    facts = {field: value for field, value in given.items() if value is not None}

    async def describe() -> Mutation:
        return _put(
            state,
            call,
            {**facts, "file": name, "url": "", "sha256": blob.digest, "size": blob.size},
        )

    return describe


def _put(state: ClusterState, call: ApiCall[Any, Any], fields: dict[str, Any]) -> Mutation:
    before = state.catalog.find(_id(call.path))
    kept = before.record if before else None
    known = kept is not None and kept.sha256 == fields["sha256"]
    record = CatalogRecord(
        **{
            "platform": call.path["platform"],
            "version": call.path["version"],
            "size": kept.size if kept is not None and known else 0,
            "category": kept.category if kept else Category.NONE,
            "config_format": kept.config_format if kept else ConfigFormat.NONE,
            "description": kept.description if kept else "",
            "created_at": kept.created_at if kept else call.now,
            "updated_at": call.now,
            **fields,
        }
    )
    steps = changes.put_entry(state, record)
    shown = record if steps or kept is None else kept
    return Mutation(
        action="catalog.put",
        subject=record.id,
        steps=steps,
        body=_shape(state, call.caller.access, StoredRecord(before.revision if before else 0, shown)),
        status=200 if before else 201,
        before=_audited(kept) if kept else None,
        after=_audited(record),
    )


def remove_entry(state: ClusterState, call: ApiCall[None, NoQuery]) -> Mutation:
    record = the_entry(state, call.path).record
    return Mutation(
        action="catalog.remove",
        subject=record.id,
        steps=changes.remove_entry(state, record.id),
        status=204,
        before=_audited(record),
    )


def _audited(record: CatalogRecord) -> dict[str, object]:
    """Without what a URL may carry beside its host and path: it may be secret."""
    return {
        "file": record.file,
        "url": shown_url(record.url) if record.url else "",
        "sha256": record.sha256,
        "size": record.size,
        "category": record.category.value,
        "config_format": record.config_format.value,
        "description": record.description,
    }


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/catalog",
        permission=Permission.CATALOG_READ,
        scope=Scoping.FILTERS,
        summary="List the catalog",
        query=CatalogQuery,
        response=Page[CatalogShape],
        handler=list_entries,
    ),
    Read(
        method="GET",
        path=_ENTRY,
        permission=Permission.CATALOG_READ,
        summary="Show an entry of the catalog",
        response=CatalogShape,
        handler=get_entry,
    ),
    Mutate(
        method="PUT",
        path=_ENTRY,
        permission=Permission.CATALOG_MANAGE,
        summary="Enter a program that nodes download from a URL",
        body=NewEntry,
        response=CatalogShape,
        handler=put_entry,
        revises=the_entry,
        creates=True,
    ),
    Upload(
        method="PUT",
        path=f"{_ENTRY}/file",
        permission=Permission.CATALOG_MANAGE,
        summary="Enter a program by uploading it",
        query=UploadQuery,
        response=CatalogShape,
        handler=put_file,
        limit=file_limit,
        revises=the_entry,
        creates=True,
    ),
    Mutate(
        method="DELETE",
        path=_ENTRY,
        permission=Permission.CATALOG_MANAGE,
        summary="Take a program that nothing needs out of the catalog",
        status=204,
        handler=remove_entry,
        revises=the_entry,
    ),
)
