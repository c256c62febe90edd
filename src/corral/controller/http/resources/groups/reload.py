"""Reload of the directory of group documents (`--groups DIR`), with a report by file."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.messages.responses import DocumentError, document_error
from corral.controller.http.pipeline.route_table import Act, Route
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.groups.apply import (
    GroupChange,
    group_change,
    summary,
    touched_instances,
)
from corral.controller.http.resources.instances.instance_changes import workspace
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.instances.group_reload import reload_groups
from corral.controller.state.ledger import Ledger, Mutation
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected


class ReloadInput(RequestBody, frozen=True, kw_only=True):
    prune: bool = False
    confirm: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=63)], ...], msgspec.Meta(max_length=10_000)
    ] = ()


class ReloadShape(msgspec.Struct, frozen=True, kw_only=True):
    summary: str
    groups: tuple[GroupChange, ...]
    errors: tuple[DocumentError, ...]
    gone: tuple[str, ...]


async def reload_documents(
    instances: InstanceControl,
    ledger: Ledger,
    group_folder: GroupFolder | None,
    call: ApiCall[ReloadInput, NoQuery],
) -> Mutation:
    if group_folder is None:
        raise Rejected(
            Code.CONFLICT,
            "this controller has no directory of groups",
            hint="start it with 'corral controller --groups DIR', or use 'corral apply -f DIR'",
        )
    async with instances.documents:
        done = await reload_groups(
            group_folder,
            lambda: workspace(instances, call, "POST /groups/reload"),
            ledger,
            actor=call.caller.actor,
            prune=call.body.prune,
            confirm=frozenset(call.body.confirm),
        )
    now = workspace(instances, call, "POST /groups/reload")
    shape = ReloadShape(
        summary=summary(done.applied),
        groups=tuple(group_change(each, touched_instances(now, each)) for each in done.applied),
        errors=tuple(document_error(each) for each in done.faults),
        gone=tuple(done.gone),
    )
    return Mutation(
        action="groups.reload", subject="groups", steps=(), body=shape, after={"summary": shape.summary}
    )


ROUTES: Final[tuple[Route, ...]] = (
    Act(
        method="POST",
        path="/api/v1/groups/reload",
        permission=Permission.GROUPS_MANAGE,
        summary="Read the directory of group documents again; a report by file",
        body=ReloadInput,
        response=ReloadShape,
        handler=reload_documents,
        action="groups.reload",
        subject=lambda _: "groups",
    ),
)
