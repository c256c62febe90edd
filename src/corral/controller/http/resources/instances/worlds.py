"""Places of static instances that do not run yet: their files are put there before their first start."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody, Text
from corral.controller.http.pipeline.route_table import Mutate, Route
from corral.controller.http.pipeline.scoping import refuse_start_outside
from corral.controller.http.pipeline.term_ports import FileDistribution, InstanceControl
from corral.controller.http.resources.instances.instance_changes import caller_name, placing, workspace
from corral.controller.http.resources.instances.instance_schemas import (
    InstanceShape,
    InstanceView,
    instance_shape,
)
from corral.controller.instances.world_changes import reserve_world
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.state.ledger import Mutation
from corral.domain.ids import instance_id
from corral.domain.permissions import Permission

_NAME_MAX: Final = 63


class NewWorld(RequestBody, frozen=True, kw_only=True):
    instance: Annotated[str, msgspec.Meta(max_length=_NAME_MAX)]
    node: Annotated[str, msgspec.Meta(max_length=_NAME_MAX)]
    reason: Text = ""


def make_world(
    view: InstanceView,
    instances: InstanceControl,
    distribution: FileDistribution,
    call: ApiCall[NewWorld, NoQuery],
) -> Mutation:
    asked, group = call.body, view.state.groups.require(call.path["name"]).record.spec.name
    refuse_start_outside(call.caller.access, Permission.INSTANCES_MANAGE, view.state, group, asked.node)
    distribution.require_worlds(asked.node)
    ws = workspace(instances, call, "instances.reserve")
    reason = asked.reason or f"reserved by {caller_name(call)}"
    id = instance_id(asked.instance, field="instance")
    record = reserve_world(ws, group, id, asked.node, reason=reason)
    return Mutation(
        action="instances.reserve",
        subject=record.id,
        steps=ws.steps(),
        body=instance_shape(view, StoredRecord(0, record)),
        after={"group": record.group, "node": record.node},
    )


ROUTES: Final[tuple[Route, ...]] = (
    Mutate(
        method="POST",
        path="/api/v1/groups/{name}/worlds",
        permission=Permission.INSTANCES_MANAGE,
        summary="Reserve the place of a static instance on a node, stopped, so that its files can be put there",
        body=NewWorld,
        response=InstanceShape,
        handler=make_world,
        turn=placing,
    ),
)
