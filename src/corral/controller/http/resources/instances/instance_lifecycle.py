"""Lifecycle of an instance by the state that it shall have: start again, stop, restart."""

from __future__ import annotations

from typing import Any, Final, Literal

from corral.controller.http.messages.call import ApiCall, Query
from corral.controller.http.pipeline.route_table import Mutate, Route
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.instances.instance_changes import (
    AwaitRunning,
    placing,
    until_running,
)
from corral.controller.http.resources.instances.instance_schemas import (
    InstanceShape,
    InstanceView,
    instance_shape,
)
from corral.controller.http.resources.instances.instances import (
    Why,
    changing,
    reason_of,
    restart_instance,
    stop_instance,
    the_instance,
)
from corral.controller.instances import instance_changes
from corral.controller.state.ledger import Mutation
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.instance_states import Wanted
from corral.domain.permissions import Permission

Target = Literal["start", "stop", "restart"]


class LifecycleQuery(Query, frozen=True, kw_only=True):
    target: Target


def is_to_run(record: InstanceRecord) -> bool:
    """Whether a start would change nothing."""
    return live(record.state) and record.wanted is Wanted.RUN


def start_again(view: InstanceView, instances: InstanceControl, call: ApiCall[Why, Any]) -> Mutation:
    """Start an instance that has ended, under its id; one that stops is started when it has ended. One that runs, or is
    about to, is left as it is."""
    stored = view.state.instances.require(call.path["id"])
    if is_to_run(stored.record):
        return Mutation(
            action="instances.start", subject=stored.record.id, steps=(), body=instance_shape(view, stored)
        )
    reason = reason_of(call)
    return changing(
        view,
        instances,
        call,
        "instances.start",
        lambda ws, name: instance_changes.restart_instance(ws, name, reason=reason),
    )


def change_lifecycle(
    view: InstanceView, instances: InstanceControl, call: ApiCall[Why, LifecycleQuery]
) -> Mutation:
    match call.query.target:
        case "start":
            return start_again(view, instances, call)
        case "stop":
            return stop_instance(view, instances, call)
        case "restart":
            return restart_instance(view, instances, call)


ROUTES: Final[tuple[Route, ...]] = (
    Mutate(
        method="POST",
        path="/api/v1/instances/{id}/start",
        permission=Permission.INSTANCES_MANAGE,
        summary="Start an instance that has ended again, under its id; one that runs is left as it is",
        body=Why,
        query=AwaitRunning,
        response=InstanceShape,
        handler=start_again,
        revises=the_instance,
        settle=until_running,
        turn=placing,
    ),
    Mutate(
        method="PATCH",
        path="/api/v1/instances/{id}/lifecycle",
        permission=Permission.INSTANCES_MANAGE,
        summary="Start, stop or restart an instance, by name of what it shall do",
        body=Why,
        query=LifecycleQuery,
        response=InstanceShape,
        handler=change_lifecycle,
        revises=the_instance,
        turn=placing,
    ),
)
