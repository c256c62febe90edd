"""What can be changed of an instance itself: where it is reached."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.route_table import Mutate, Route
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.instances.instance_schemas import InstanceShape, InstanceView
from corral.controller.http.resources.instances.instances import changing, the_instance
from corral.controller.instances.instance_addresses import set_host_address
from corral.controller.instances.workspace import Workspace
from corral.controller.state.ledger import Mutation
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.permissions import Permission

HostAddress = Annotated[str, msgspec.Meta(max_length=255)]


class InstancePatch(RequestBody, frozen=True, kw_only=True):
    host_address: HostAddress | UnsetType = UNSET


def patch_instance(
    view: InstanceView, instances: InstanceControl, call: ApiCall[InstancePatch, NoQuery]
) -> Mutation:
    address = call.body.host_address

    def change(ws: Workspace, id: str) -> InstanceRecord:
        return ws.require_instance(id) if address is UNSET else set_host_address(ws, id, address)

    before = view.state.instances.require(call.path["id"]).record.host_address
    found = changing(view, instances, call, "instances.update", change)
    return msgspec.structs.replace(
        found, before={"host_address": before}, after={"host_address": found.body.host_address}
    )


ROUTES: Final[tuple[Route, ...]] = (
    Mutate(
        method="PATCH",
        path="/api/v1/instances/{id}",
        permission=Permission.INSTANCES_MANAGE,
        summary="Change where an instance is reached, until it is started again",
        body=InstancePatch,
        response=InstanceShape,
        handler=patch_instance,
        revises=the_instance,
    ),
)
