"""Universe's instances: list, create, stop, forget, change, lifecycle, commands."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.consoles.service import Consoles
from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.attempts import Attempt
from corral.controller.http.pipeline.route_table import Mutate, Once, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.instances.instance_changes import AwaitRunning, placing
from corral.controller.http.resources.instances.instance_lifecycle import (
    LifecycleQuery,
    Target,
    is_to_run,
)
from corral.controller.http.resources.instances.instance_lifecycle import (
    change_lifecycle as native_lifecycle,
)
from corral.controller.http.resources.instances.instance_patches import (
    HostAddress,
    InstancePatch,
    patch_instance,
)
from corral.controller.http.resources.instances.instance_schemas import InstanceView
from corral.controller.http.resources.instances.instances import (
    CommandLine,
    NewInstance,
    Why,
    remove_instance,
    send_command,
    start_instance,
    stop_instance,
    the_instance,
)
from corral.controller.http.resources.universe.universe_schemas import (
    UniverseInstance,
    UniverseLifecycle,
    UniverseMessage,
    as_universe,
    is_listed,
    universe_instance,
    universe_name,
)
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.permissions import Permission

_AT_ONCE: Final = 500
"""Instances that are shown in one turn of the loop."""
_COST: Final = 5


class UniverseNewInstance(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    configuration_name: Annotated[str, msgspec.Meta(max_length=63)]


class UniverseInstancePatch(RequestBody, frozen=True, kw_only=True, rename=universe_name):
    host_address: HostAddress | UnsetType = UNSET


async def list_instances(view: InstanceView, call: ApiCall[None, NoQuery]) -> list[UniverseInstance]:
    access = call.caller.access
    found = []
    for number, stored in enumerate(sorted(view.state.instances, key=lambda each: each.record.id), start=1):
        record = stored.record
        if is_listed(record, call.now) and access.allows_on_instance(
            Permission.INSTANCES_READ, record.group, record.node
        ):
            found.append(universe_instance(view, stored))
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)  # others have their turn
    return found


async def get_instance(view: InstanceView, call: ApiCall[None, NoQuery]) -> UniverseInstance:
    return universe_instance(view, view.state.instances.require(call.path["id"]))


def create_instance(
    view: InstanceView, instances: InstanceControl, call: ApiCall[UniverseNewInstance, NoQuery]
) -> Mutation:
    asked = NewInstance(group=call.body.configuration_name.lower())
    mutation = start_instance(view, instances, call.with_body(asked).with_query(AwaitRunning()))
    return msgspec.structs.replace(mutation, body=as_universe(view.state, mutation.body))


def delete_instance(view: InstanceView, instances: InstanceControl, call: ApiCall[None, NoQuery]) -> Mutation:
    record = view.state.instances.require(call.path["id"]).record
    if live(record.state):
        mutation = stop_instance(view, instances, _with_reason(call))
        text = f"instance '{record.id}' is being stopped"
    else:
        mutation = remove_instance(view.state, instances, call)
        text = f"instance '{record.id}' had ended and is forgotten"
    return msgspec.structs.replace(mutation, body=UniverseMessage(message=text), status=200)


def _with_reason(call: ApiCall[Any, Any]) -> ApiCall[Why, Any]:
    """The same request as one of ours, which may give a reason."""
    return call.with_body(Why())


def change_instance(
    view: InstanceView, instances: InstanceControl, call: ApiCall[UniverseInstancePatch, NoQuery]
) -> Mutation:
    patch = InstancePatch(host_address=call.body.host_address)
    mutation = patch_instance(view, instances, call.with_body(patch))
    return msgspec.structs.replace(mutation, body=as_universe(view.state, mutation.body))


def change_lifecycle(
    view: InstanceView, instances: InstanceControl, call: ApiCall[None, LifecycleQuery]
) -> Mutation:
    record = view.state.instances.require(call.path["id"]).record
    mutation = native_lifecycle(view, instances, _with_reason(call))
    text = _lifecycle_text(record, call.query.target)
    body = UniverseLifecycle(message=text, instance=as_universe(view.state, mutation.body))
    return msgspec.structs.replace(mutation, body=body)


def _lifecycle_text(record: InstanceRecord, target: Target) -> str:
    match target:
        case "stop" if not live(record.state):
            done = "had ended already"
        case "stop":
            done = "is being stopped"
        case "start" if is_to_run(record):
            done = "runs already, or is about to"
        case "start":
            done = "is being started"
        case "restart":
            done = "is being restarted"
    return f"instance '{record.id}' {done}"


async def execute(
    state: ClusterState,
    instances: InstanceControl,
    consoles: Consoles,
    call: ApiCall[CommandLine, NoQuery],
    attempt: Attempt,
) -> Mutation:
    mutation = await send_command(state, instances, consoles, call, attempt)
    text = f"the command is in the input of instance '{mutation.subject}'"
    return msgspec.structs.replace(mutation, body=UniverseMessage(message=text))


_ALL: Final = "/api/instances"
_ONE: Final = f"{_ALL}/{{id}}"
_ID: Final = frozenset({"id"})

ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path=_ALL,
        permission=Permission.INSTANCES_READ,
        scope=Scoping.FILTERS,
        summary="List instances: those that live, and for some seconds those that have ended",
        response=list[UniverseInstance],
        handler=list_instances,
        cost=_COST,
    ),
    Mutate(
        method="POST",
        path=_ALL,
        permission=Permission.INSTANCES_MANAGE,
        scope=Scoping.FILTERS,
        summary="Create an instance of a configuration",
        body=UniverseNewInstance,
        response=UniverseInstance,
        status=201,
        handler=create_instance,
        turn=placing,
    ),
    Read(
        method="GET",
        path=_ONE,
        permission=Permission.INSTANCES_READ,
        summary="Show an instance",
        response=UniverseInstance,
        handler=get_instance,
        lowered=_ID,
    ),
    Mutate(
        method="DELETE",
        path=_ONE,
        permission=Permission.INSTANCES_MANAGE,
        summary="Stop an instance by its ladder, or forget one that has ended",
        response=UniverseMessage,
        handler=delete_instance,
        revises=the_instance,
        lowered=_ID,
    ),
    Mutate(
        method="PATCH",
        path=_ONE,
        permission=Permission.INSTANCES_MANAGE,
        summary="Change where an instance is reached",
        body=UniverseInstancePatch,
        response=UniverseInstance,
        handler=change_instance,
        revises=the_instance,
        lowered=_ID,
    ),
    Mutate(
        method="PATCH",
        path=f"{_ONE}/lifecycle",
        permission=Permission.INSTANCES_MANAGE,
        summary="Start, stop or restart an instance",
        query=LifecycleQuery,
        response=UniverseLifecycle,
        handler=change_lifecycle,
        revises=the_instance,
        turn=placing,
        lowered=_ID,
    ),
    Once(
        method="POST",
        path=f"{_ONE}/execute",
        permission=Permission.INSTANCES_COMMAND,
        summary="Put a line into the input of an instance",
        body=CommandLine,
        response=UniverseMessage,
        handler=execute,
        lowered=_ID,
    ),
)
