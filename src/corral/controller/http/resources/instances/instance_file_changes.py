"""Routes that change the files of instances: write, rename, make directories, delete, unpack.

Each is audited before its effect, with paths and digests and never with contents, and published afterwards. With an
Idempotency-Key it takes effect once: a repetition asks the node what became of the first attempt.
"""

from __future__ import annotations

import pathlib
from typing import Annotated, Any, Final

import msgspec

from corral.controller.distribution.instance_file_transfers import (
    UNPACK,
    ChangedFiles,
    FileBody,
    FileChange,
)
from corral.controller.distribution.instance_files import is_digest
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.messages.uploads import ReceivedForm
from corral.controller.http.pipeline.admission import parse_match
from corral.controller.http.pipeline.attempts import IN_DOUBT, Attempt, may_have_arrived
from corral.controller.http.pipeline.route_handlers import OnceHandler
from corral.controller.http.pipeline.route_table import FormUpload, Once, Route, path_id
from corral.controller.http.pipeline.term_ports import FileDistribution
from corral.controller.http.resources.instances.instance_files import Directory, FilePath, InstanceFileQuery
from corral.controller.modules.module_service import Modules
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.events import Draft, EventType
from corral.domain.file_paths import FileMode, check_named, check_path
from corral.domain.permissions import Permission
from corral.domain.records import BegunEffect
from corral.errors import Code, CorralError, Rejected

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
WRITE: Final = "write"
_NOT_SETTLED: Final = IN_DOUBT | {Code.NOT_SUPPORTED, Code.RATE_LIMITED}
"""Refusals of a repetition that say nothing of the first attempt: the node has not looked for its answer."""


class WriteFileQuery(InstanceFileQuery, frozen=True, kw_only=True):
    mode: Annotated[FileMode, msgspec.Meta(description="Without: as it was, or 644.")] | None = None


class RenameFile(RequestBody, frozen=True, kw_only=True):
    path: FilePath
    to: FilePath
    replace: bool = False
    digest: Digest | None = None


class MakeDirectory(RequestBody, frozen=True, kw_only=True):
    path: FilePath


class DeleteFile(RequestBody, frozen=True, kw_only=True):
    path: FilePath
    recursive: bool = False
    digest: Digest | None = None


class UnpackFile(RequestBody, frozen=True, kw_only=True):
    path: FilePath
    to: Directory = ""
    replace: bool = False


class InstanceFileChangeShape(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a change."""

    id: str
    path: str
    to: str | None
    digest: str | None
    size: int | None
    entries: int
    changed: bool


def check_write(distribution: FileDistribution, call: ApiCall[None, WriteFileQuery]) -> None:
    """What is wrong with the request, and whether the node can be asked at all: a body of gigabytes is not read in vain."""
    check_path(call.query.path, field="path")
    change = _write(call)
    distribution.require_changeable(call.path["id"], modes=change.mode != 0)


async def write_file(
    state: ClusterState,
    distribution: FileDistribution,
    call: ApiCall[None, WriteFileQuery],
    form: ReceivedForm,
    attempt: Attempt,
) -> Mutation:
    body = FileBody(file=form.file, size=form.size, sha256=form.sha256)
    details = _written(call) | {"digest": form.sha256}
    return await _changed(state, distribution, call, attempt, _write(call), details, body)


def _write(call: ApiCall[None, WriteFileQuery]) -> FileChange:
    """With what `If-Match` and `If-None-Match` require. BAD_REQUEST."""
    change = FileChange(verb=WRITE, path=call.query.path, mode=int(call.query.mode or "0", 8))
    assert call.http is not None
    match = parse_match(call.http.header(b"if-match"))
    if match is not None:
        if match.tags is None:
            change = msgspec.structs.replace(change, must_exist=True)
        elif not match.tags or not all(is_digest(tag) for tag in match.tags):
            raise Rejected(
                Code.BAD_REQUEST,
                "If-Match has no digest of a file",
                hint="send the ETag of its content, or its `digest` in quotes",
                field="If-Match",
            )
        else:
            change = msgspec.structs.replace(change, if_digests=tuple(sorted(match.tags)))
    absent = call.http.header(b"if-none-match")
    if absent is not None:
        if absent.strip() != "*" or match is not None:
            raise Rejected(
                Code.BAD_REQUEST,
                "If-None-Match can only be '*' here, and alone",
                hint="it means: only if there is no such file",
                field="If-None-Match",
            )
        change = msgspec.structs.replace(change, must_be_absent=True)
    return change


async def rename_file(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[RenameFile, NoQuery], attempt: Attempt
) -> Mutation:
    asked = call.body
    change = FileChange(
        verb="rename",
        path=asked.path,
        target=asked.to,
        replace=asked.replace,
        if_digests=_digests(asked.digest),
    )
    return await _changed(state, distribution, call, attempt, change, _paths(call.body))


async def make_directory(
    state: ClusterState,
    distribution: FileDistribution,
    call: ApiCall[MakeDirectory, NoQuery],
    attempt: Attempt,
) -> Mutation:
    change = FileChange(verb="mkdir", path=call.body.path)
    return await _changed(state, distribution, call, attempt, change, _paths(call.body))


async def delete_file(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[DeleteFile, NoQuery], attempt: Attempt
) -> Mutation:
    asked = call.body
    change = FileChange(
        verb="delete", path=asked.path, recursive=asked.recursive, if_digests=_digests(asked.digest)
    )
    return await _changed(state, distribution, call, attempt, change, _paths(call.body))


async def unpack_file(
    state: ClusterState, distribution: FileDistribution, call: ApiCall[UnpackFile, NoQuery], attempt: Attempt
) -> Mutation:
    asked = call.body
    change = FileChange(verb=UNPACK, path=asked.path, target=asked.to, replace=asked.replace)
    return await _changed(state, distribution, call, attempt, change, _paths(call.body))


async def _changed(
    state: ClusterState,
    distribution: FileDistribution,
    call: ApiCall[Any, Any],
    attempt: Attempt,
    change: FileChange,
    details: dict[str, object],
    body: FileBody | None = None,
) -> Mutation:
    """`details`: what the audit has from before the effect."""
    instance = state.instances.require(call.path["id"]).record
    action, repeated = f"instances.files.{change.verb}", attempt.in_doubt
    check_named(change.path, field="path")
    distribution.require_changeable(instance.id, modes=change.mode != 0)
    if attempt.begun is None or not repeated:
        begun = await attempt.begin(action=action, subject=instance.id, after=details, node=instance.node)
    else:
        begun = attempt.begun
        attempt.resume(action=action, subject=instance.id)
        if begun.node != instance.node:
            raise _in_doubt(change, begun)
    try:
        done = await distribution.change_files(
            instance.id,
            change,
            body,
            caller=call.caller.limit_key,
            change_id=begun.id,
            repeated=repeated,
        )
    except CorralError as error:
        if error.code not in (IN_DOUBT if not repeated else _NOT_SETTLED):
            await attempt.undo(error)
        raise
    named = {"path": change.path} | ({"to": change.target} if change.target else {})
    event = Draft(
        type=EventType.INSTANCE_FILE_CHANGED,
        subject=instance.id,
        data={
            **named,
            "verb": change.verb,
            "by": call.caller.actor.name,
            "digest": done.digest or None,
            "group": instance.group,
            "node": instance.node,
        },
    )
    return Mutation(
        action=action,
        subject=instance.id,
        steps=() if done.unchanged else (event,),
        body=_shape(instance.id, change, done),
        before={"digest": done.former} if done.former else None,
        after={**named, "digest": done.digest} if done.digest else dict(named),
        headers=((b"etag", f'"{done.digest}"'.encode()),) if done.digest and change.verb == WRITE else (),
    )


def _in_doubt(change: FileChange, begun: BegunEffect) -> Rejected:
    return may_have_arrived(
        f"'{change.path}' may have been changed on node '{begun.node}'",
        hint="nothing was done now; look at the file, and ask with a new key if it was not changed",
    )


def _shape(id: str, change: FileChange, done: ChangedFiles) -> InstanceFileChangeShape:
    return InstanceFileChangeShape(
        id=id,
        path=change.path,
        to=change.target or None,
        digest=done.digest or None,
        size=done.size if change.verb == WRITE else None,
        entries=done.entries,
        changed=not done.unchanged,
    )


def _digests(digest: str | None) -> tuple[str, ...]:
    return () if digest is None else (digest,)


def size_limit(distribution: FileDistribution) -> int:
    return distribution.file_limits.max_bytes


def spool_directory(modules: Modules) -> pathlib.Path:
    """Where uploads lie meanwhile; a starting controller empties it."""
    return modules.uploads


def _paths(body: RenameFile | UnpackFile | DeleteFile | MakeDirectory) -> dict[str, object]:
    """What the audit has from before the effect."""
    named: dict[str, object] = {"path": body.path}
    for field in ("to", "recursive", "replace", "digest"):
        if value := getattr(body, field, None):
            named["if_digest" if field == "digest" else field] = value
    return named


def _written(call: ApiCall[None, WriteFileQuery]) -> dict[str, object]:
    """What the audit has from before a write."""
    asked: dict[str, object] = {"path": call.query.path}
    return asked | ({"mode": call.query.mode} if call.query.mode else {})


def _once(verb: str, handler: OnceHandler, body: type[RequestBody], summary: str) -> Once:
    return Once(
        method="POST",
        path=f"/api/v1/instances/{{id}}/files/{verb}",
        permission=Permission.INSTANCES_FILES_WRITE,
        summary=summary,
        body=body,
        response=InstanceFileChangeShape,
        handler=handler,
    )


ROUTES: Final[tuple[Route, ...]] = (
    FormUpload(
        method="PUT",
        path="/api/v1/instances/{id}/files/content",
        permission=Permission.INSTANCES_FILES_WRITE,
        summary="Write a file of an instance: the body is its content",
        query=WriteFileQuery,
        response=InstanceFileChangeShape,
        handler=write_file,
        action="instances.files.write",
        subject=path_id,
        limit=size_limit,
        check=check_write,
        directory=spool_directory,
        small={},
        bare=True,
        once=True,
    ),
    _once("rename", rename_file, RenameFile, "Rename or move a file or directory of an instance"),
    _once("mkdir", make_directory, MakeDirectory, "Make a directory of an instance, and those above it"),
    _once("delete", delete_file, DeleteFile, "Delete a file or directory of an instance"),
    _once("unpack", unpack_file, UnpackFile, "Unpack an archive that lies in an instance's directory"),
)
