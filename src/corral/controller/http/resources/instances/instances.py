"""Instances: look, start, stop, kill, restart, command, forget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from corral.controller.consoles.service import Consoles
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody, Text, pattern_rule
from corral.controller.http.messages.list_pages import ITEMS_A_REQUEST, SummaryPage
from corral.controller.http.messages.paging import Page
from corral.controller.http.pipeline.attempts import Attempt
from corral.controller.http.pipeline.route_table import Mutate, Once, Read, Route
from corral.controller.http.pipeline.scoping import Scoping, refuse_start_outside
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.dry_runs import DryRun, DryRunShape, described, dry_mutation
from corral.controller.http.resources.instances import command_input as commanding
from corral.controller.http.resources.instances.instance_changes import (
    AwaitRunning,
    AwaitStopped,
    caller_name,
    placing,
    until_running,
    until_stopped,
    workspace,
)
from corral.controller.http.resources.instances.instance_schemas import (
    InstanceShape,
    InstanceView,
    instance_shape,
)
from corral.controller.http.resources.instances.instance_summaries import (
    InstanceQuery,
    InstanceSummary,
    list_instances,
)
from corral.controller.instances import instance_changes
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Mutation
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import InstanceId
from corral.domain.permissions import Permission
from corral.domain.spec import Argument, invalid

LINE_MAX: Final = 4095
_NAME_MAX: Final = 63
_VARIABLES: Final = 200


class NewInstance(RequestBody, frozen=True, kw_only=True):
    group: Annotated[str, msgspec.Meta(max_length=_NAME_MAX)]
    node: Annotated[str, msgspec.Meta(max_length=_NAME_MAX, description="Only there.")] | None = None
    variables: Annotated[
        dict[str, Argument], msgspec.Meta(max_length=_VARIABLES, description="Above the group's own.")
    ] = msgspec.field(default_factory=dict)


class Why(RequestBody, frozen=True, kw_only=True):
    reason: Text = ""


CommandText = Annotated[
    str,
    # one line: what a newline would make of it is a second command
    msgspec.Meta(
        max_length=LINE_MAX,
        pattern=r"^[^\x00\n\r]*(?!\n)$",
        extra=pattern_rule("a command is one line without NUL", "send each line as a command of its own"),
    ),
]


class CommandLine(RequestBody, frozen=True, kw_only=True):
    command: CommandText


class CommandTaken(msgspec.Struct, frozen=True, kw_only=True):
    """The line is in the instance's input; what it does with it shows on the console, behind `offset`."""

    id: str
    command: str
    incarnation: int
    offset: int | None


async def get_instance(view: InstanceView, call: ApiCall[None, NoQuery]) -> InstanceShape:
    return instance_shape(view, view.state.instances.require(call.path["id"]))


def the_instance(state: ClusterState, path: Mapping[str, str]) -> StoredRecord[InstanceRecord]:
    return state.instances.require(path["id"])


def start_instance(
    view: InstanceView, instances: InstanceControl, call: ApiCall[NewInstance, AwaitRunning]
) -> Mutation:
    asked = call.body
    access = call.caller.access
    if not access.allows_everywhere(Permission.INSTANCES_MANAGE):
        refuse_start_outside(access, Permission.INSTANCES_MANAGE, view.state, asked.group, asked.node)
    return _started(view, instances, call, asked.group, asked.node, asked.variables)


def start_in_group(
    view: InstanceView, instances: InstanceControl, call: ApiCall[None, AwaitRunning]
) -> Mutation:
    return _started(
        view, instances, call, view.state.groups.require(call.path["name"]).record.spec.name, None
    )


def _started(
    view: InstanceView,
    instances: InstanceControl,
    call: ApiCall[Any, Any],
    group: str,
    node: str | None,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Mutation:
    ws = workspace(instances, call, "instances.start")
    record = instance_changes.start_instance(ws, group, node=node, variables=variables)
    return Mutation(
        action="instances.start",
        subject=record.id,
        steps=ws.steps(),
        body=instance_shape(view, StoredRecord(0, record)),
        status=201,
        after={
            "group": record.group,
            "node": record.node,
            "incarnation": record.incarnation,
            "variables": sorted(record.variables),  # their values may be secret
        },
    )


def changing(
    view: InstanceView,
    instances: InstanceControl,
    call: ApiCall[Any, Any],
    action: str,
    change: Callable[[Workspace, str], InstanceRecord],
) -> Mutation:
    """The mutation of a change of the instance in the path."""
    stored = view.state.instances.require(call.path["id"])
    ws = workspace(instances, call, action)
    changed = change(ws, stored.record.id)
    return Mutation(
        action=action,
        subject=stored.record.id,
        steps=ws.steps(),
        body=instance_shape(view, StoredRecord(stored.revision, changed)),
        before=_audited(stored.record),
        after=_audited(changed),
    )


def _audited(record: InstanceRecord) -> dict[str, object]:
    return {"state": record.state.value, "wanted": record.wanted.value, "incarnation": record.incarnation}


def reason_of(call: ApiCall[Why, Any]) -> str:
    """Why it is changed; without a word of the caller's, who asked for it."""
    return call.body.reason or f"asked for by {caller_name(call)}"


def stop_instance(view: InstanceView, instances: InstanceControl, call: ApiCall[Why, Any]) -> Mutation:
    reason = reason_of(call)
    return changing(
        view,
        instances,
        call,
        "instances.stop",
        lambda ws, name: instance_changes.stop_instance(ws, name, reason=reason),
    )


class Kill(AwaitStopped, frozen=True, kw_only=True):
    dry_run: DryRun = False


def kill_instance(view: InstanceView, instances: InstanceControl, call: ApiCall[Why, Kill]) -> Mutation:
    reason = reason_of(call)
    if call.query.dry_run:
        return _dry_kill(view, instances, call, reason)
    return changing(
        view,
        instances,
        call,
        "instances.kill",
        lambda ws, name: instance_changes.kill_instance(ws, name, reason=reason),
    )


def _dry_kill(
    view: InstanceView, instances: InstanceControl, call: ApiCall[Why, Kill], reason: str
) -> Mutation:
    if call.query.wait is not None:
        raise invalid("wait", "a dry run changes nothing that could be waited for", "leave one of them out")
    ws = workspace(instances, call, "instances.kill")
    record = instance_changes.kill_instance(ws, call.path["id"], reason=reason)
    return dry_mutation("instances.kill", record.id, described(ws, instances.signals, view.workload))


def restart_instance(view: InstanceView, instances: InstanceControl, call: ApiCall[Why, Any]) -> Mutation:
    reason = reason_of(call)
    return changing(
        view,
        instances,
        call,
        "instances.restart",
        lambda ws, name: instance_changes.restart_instance(ws, name, reason=reason),
    )


def remove_instance(
    state: ClusterState, instances: InstanceControl, call: ApiCall[None, NoQuery]
) -> Mutation:
    stored = state.instances.require(call.path["id"])
    ws = workspace(instances, call, "instances.remove")
    instance_changes.remove_instance(ws, stored.record.id)
    return Mutation(
        action="instances.remove",
        subject=stored.record.id,
        steps=ws.steps(),
        status=204,
        before=_audited(stored.record),
    )


async def send_command(
    state: ClusterState,
    instances: InstanceControl,
    consoles: Consoles,
    call: ApiCall[CommandLine, NoQuery],
    attempt: Attempt,
) -> Mutation:
    id, line = InstanceId(call.path["id"]), call.body.command
    sent = await commanding.send(state, instances, consoles, id, line, attempt)
    taken = CommandTaken(id=id, command=line, incarnation=sent.target.incarnation, offset=sent.offset)
    return Mutation(action=commanding.ACTION, subject=id, steps=(sent.event(), sent.entry()), body=taken)


def _operation(verb: str, summary: str, handler: Callable[..., Mutation], **more: Any) -> Mutate:
    return Mutate(
        method="POST",
        path=f"/api/v1/instances/{{id}}/{verb}",
        permission=Permission.INSTANCES_MANAGE,
        summary=summary,
        body=Why,
        response=InstanceShape,
        handler=handler,
        revises=the_instance,
        **more,
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/instances",
        permission=Permission.INSTANCES_READ,
        scope=Scoping.FILTERS,
        summary="List instances",
        query=InstanceQuery,
        response=Page[InstanceShape],
        compact=SummaryPage[InstanceSummary],
        items_a_request=ITEMS_A_REQUEST,
        handler=list_instances,
    ),
    Mutate(
        method="POST",
        path="/api/v1/instances",
        permission=Permission.INSTANCES_MANAGE,
        scope=Scoping.FILTERS,
        summary="Start one more instance of a group",
        body=NewInstance,
        query=AwaitRunning,
        response=InstanceShape,
        status=201,
        handler=start_instance,
        settle=until_running,
        turn=placing,
    ),
    Mutate(
        method="POST",
        path="/api/v1/groups/{name}/start",
        permission=Permission.INSTANCES_MANAGE,
        summary="Start one more instance of this group",
        query=AwaitRunning,
        response=InstanceShape,
        status=201,
        handler=start_in_group,
        settle=until_running,
        turn=placing,
    ),
    Read(
        method="GET",
        path="/api/v1/instances/{id}",
        permission=Permission.INSTANCES_READ,
        summary="Show an instance",
        response=InstanceShape,
        handler=get_instance,
    ),
    _operation(
        "stop",
        "Stop an instance by its group's ladder; its group keeps `min` of them all the same",
        stop_instance,
        query=AwaitStopped,
        settle=until_stopped,
    ),
    _operation(
        "kill",
        "Kill everything of an instance at once",
        kill_instance,
        query=Kill,
        settle=until_stopped,
        dry_run=DryRunShape,
    ),
    _operation(
        "restart",
        "Stop an instance and start it again under its id",
        restart_instance,
        query=AwaitRunning,
        settle=until_running,
        turn=placing,
    ),
    Once(
        method="POST",
        path="/api/v1/instances/{id}/command",
        permission=Permission.INSTANCES_COMMAND,
        summary="Put a line into an instance's input",
        body=CommandLine,
        response=CommandTaken,
        handler=send_command,
    ),
    Mutate(
        method="DELETE",
        path="/api/v1/instances/{id}",
        permission=Permission.INSTANCES_MANAGE,
        summary="Forget an instance that has ended",
        status=204,
        handler=remove_instance,
        revises=the_instance,
    ),
)
