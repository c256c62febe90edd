"""Schemas of templates in the API, and helpers that the routes of templates share."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.sse_stream import Pump, Write
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation, Step
from corral.controller.templates.template_changes import TemplateChange
from corral.controller.templates.template_usage import groups_using
from corral.domain.access import Access
from corral.domain.permissions import Permission
from corral.domain.template_diff import FileState
from corral.domain.templates import (
    TemplateFile,
    TemplateRecord,
    TemplateSettings,
    TemplateVersion,
    group_of,
)
from corral.store.port import ABSENT, Refusal
from corral.store.store_errors import Conflict

ONE: Final = "/api/v1/templates/{name}"
TWO: Final = "/api/v1/templates/{group}/{name}"
"""Names have one part or two."""

VersionNumber = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class TemplateShape(msgspec.Struct, frozen=True, kw_only=True):
    """A template and its current version. `versions` is the number of kept ones, `used_by` the groups that
    name it, themselves or through its children."""

    name: str
    group: str
    version: int
    hash: str
    files: int
    size: int
    settings: TemplateSettings
    note: str
    created_at: dt.datetime
    updated_at: dt.datetime
    created_by: str
    versions: int
    used_by: list[str]
    revision: int


class ChangedTemplate(TemplateShape, frozen=True, kw_only=True):
    """`unchanged`: it was so already, and no version was made."""

    unchanged: bool


class VersionShape(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    current: bool
    hash: str
    files: int
    size: int
    note: str
    created_at: dt.datetime
    created_by: str
    settings: TemplateSettings


class FileShape(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a version; `digest` is the SHA-256 of its content."""

    path: str
    mode: str
    size: int
    digest: str


def file_shape(file: TemplateFile | FileState) -> FileShape:
    return FileShape(path=file.path, mode=mode_text(file.mode), size=file.size, digest=file.digest)


def mode_text(mode: int) -> str:
    """As people write modes: 644."""
    return f"{mode:o}"


def name_of(path: Mapping[str, str]) -> str:
    """`NAME` or `GROUP/NAME`: templates are reached by paths of one or of two parts."""
    return f"{path['group']}/{path['name']}" if "group" in path else path["name"]


def the_template(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[TemplateRecord]:
    return state.templates.require(name_of(path))


def template_shape(
    state: ClusterState, stored: StoredRecord[TemplateRecord], access: Access
) -> TemplateShape:
    """`used_by` has the groups within the scope of the caller."""
    shape = TemplateShape(**_fields(state, stored))
    permission = Permission.TEMPLATES_READ
    if access.allows_everywhere(permission):
        return shape
    covered = [each for each in shape.used_by if access.allows_on_group(permission, each)]
    return msgspec.structs.replace(shape, used_by=covered)


def _fields(state: ClusterState, stored: StoredRecord[TemplateRecord]) -> dict[str, Any]:
    record = stored.record
    version = record.version()
    return {
        "name": record.name,
        "group": group_of(record.name),
        "version": version.number,
        "hash": version.hash,
        "files": version.files,
        "size": version.size,
        "settings": version.settings,
        "note": version.note,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "created_by": version.created_by,
        "versions": len(record.versions),
        "used_by": groups_using(state, record.name),
        "revision": stored.revision,
    }


def version_shape(record: TemplateRecord, version: TemplateVersion) -> VersionShape:
    return VersionShape(
        number=version.number,
        current=version.number == record.current,
        hash=version.hash,
        files=version.files,
        size=version.size,
        note=version.note,
        created_at=version.created_at,
        created_by=version.created_by,
        settings=version.settings,
    )


def changed(
    state: ClusterState, action: str, change: TemplateChange, *more: Step, **facts: object
) -> Mutation:
    """The mutation that makes a change of a template, with `facts` for its audit entry."""
    record = change.record
    before = state.templates.find(record.name)
    shown = StoredRecord(before.revision if before else 0, record)
    return Mutation(
        action=action,
        subject=record.name,
        steps=() if change.unchanged else (*change.steps, *more),
        body=ChangedTemplate(**_fields(state, shown), unchanged=change.unchanged),
        status=200 if before else 201,
        before=audited(before.record) if before else None,
        after={**audited(record), **facts},
    )


def audited(record: TemplateRecord) -> dict[str, object]:
    """A version for the audit, without the values of its variables: they may be secret."""
    version = record.version()
    settings: dict[str, object] = msgspec.to_builtins(version.settings)
    settings["variables"] = sorted(version.settings.variables)
    settings["variable_types"] = sorted(version.settings.variable_types)
    return {
        "version": version.number,
        "hash": version.hash,
        "files": version.files,
        "size": version.size,
        "note": version.note,
        "settings": settings,
    }


def still(state: ClusterState, name: str, stored: StoredRecord[TemplateRecord] | None) -> None:
    """Start over when a template is no longer what contents were made from, or is there by now."""
    expected = stored.revision if stored is not None else ABSENT
    found = state.templates.revision(name)
    if found != expected:
        raise Conflict(Refusal(collection="templates", id=name, expect=expected, found=found))


def making(setting: ProcessContext, call: ApiCall[Any, Any], note: str) -> dict[str, Any]:
    """Fields that every new version has beside its contents."""
    return {
        "note": note,
        "actor": call.caller.actor.name,
        "now": call.now,
        "keep": setting.templates.keep_versions,
    }


def pump_of(source: AsyncIterator[bytes]) -> Pump:
    """Writes what comes; when it has to end early it closes the source at once."""

    async def pump(write: Write) -> None:
        async with contextlib.AsyncExitStack() as stack:
            if isinstance(source, AsyncGenerator):
                stack.push_async_callback(source.aclose)
            async for piece in source:
                await write(piece)

    return pump
