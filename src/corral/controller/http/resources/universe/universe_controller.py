"""Universe's view of the controller and of the nodes."""

from __future__ import annotations

import os
from typing import Any, Final

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_table import Act, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.pipeline.term_ports import ClusterControl, InstanceControl
from corral.controller.http.resources.groups.reload import ReloadInput, ReloadShape, reload_documents
from corral.controller.http.resources.instances.instance_schemas import InstanceView
from corral.controller.http.resources.universe.universe_schemas import (
    HUNDRED,
    UniverseController,
    UniverseNode,
    UniverseNodeDetail,
    UniverseResources,
    UniverseSystem,
    is_listed,
    universe_instance,
)
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.ledger import Ledger, Mutation
from corral.domain.permissions import Permission
from corral.domain.records import NodeRecord
from corral.system.addresses import parse_address
from corral.system.oidc_config import is_loopback


async def get_controller(
    state: ClusterState, cluster: ClusterControl, setting: ProcessContext, call: ApiCall[None, NoQuery]
) -> UniverseController:
    del call
    leader = cluster.leader()
    link, api = parse_address(leader.grpc), parse_address(leader.http)
    return UniverseController(
        id=leader.holder,
        cluster_name=state.identity.id,
        version=setting.version,
        master=True,  # a controller that does not lead refuses the request
        address=link.host,
        port=link.port,
        api_port=api.port,
        uptime_ms=str(int((setting.clock.monotonic() - setting.began) * 1000)),
        system=_system(),
    )


def _system() -> UniverseSystem:
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    return UniverseSystem(
        available_processors=len(os.sched_getaffinity(0)),
        system_load_average=os.getloadavg()[0],
        free_memory=str(page * os.sysconf("SC_AVPHYS_PAGES")),
        total_memory=str(total),
        max_memory=str(total),
    )


async def get_configuration(setting: ProcessContext, call: ApiCall[None, NoQuery]) -> dict[str, Any]:
    del call
    return dict(setting.configuration)


async def reload_node(
    instances: InstanceControl,
    ledger: Ledger,
    group_folder: GroupFolder | None,
    call: ApiCall[None, NoQuery],
) -> Mutation:
    return await reload_documents(instances, ledger, group_folder, call.with_body(ReloadInput()))


async def list_nodes(state: ClusterState, call: ApiCall[None, NoQuery]) -> list[UniverseNode]:
    access = call.caller.access
    return [
        UniverseNode(**_fields(state, stored))
        for stored in sorted(state.nodes, key=lambda each: each.record.id)
        if access.allows_on_node(Permission.NODES_READ, stored.record.id)
    ]


async def get_node(view: InstanceView, call: ApiCall[None, NoQuery]) -> UniverseNodeDetail:
    state, access = view.state, call.caller.access
    stored = state.nodes.require(call.path["id"])
    there = [
        universe_instance(view, each)
        for each in state.instances.of_node(stored.record.id)
        if is_listed(each.record, call.now)
        and access.allows_on_instance(Permission.INSTANCES_READ, each.record.group, each.record.node)
    ]
    return UniverseNodeDetail(**_fields(state, stored), instances=there)


def _fields(state: ClusterState, stored: StoredRecord[NodeRecord]) -> dict[str, Any]:
    record = stored.record
    usage = state.reservations.usage(record.id)
    return {
        "id": record.id,
        "name": record.id,
        "address": record.address,
        "port": 0,
        "local": is_loopback(record.address),
        "resources": UniverseResources(used_ram_mb=usage.memory_mb, used_cpu=usage.cpu * HUNDRED),
    }


_NODE: Final = "/api/node"
_NODES: Final = "/api/cluster/nodes"

ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path=_NODE,
        permission=Permission.CLUSTER_READ,
        scope=Scoping.NEUTRAL,
        summary="The controller that leads, and its host",
        response=UniverseController,
        handler=get_controller,
    ),
    Read(
        method="GET",
        path=f"{_NODE}/config",
        permission=Permission.SETTINGS_READ,
        summary="The configuration of the controller that is in effect, without secrets",
        response=dict[str, Any],
        handler=get_configuration,
    ),
    Act(
        method="POST",
        path=f"{_NODE}/reload",
        permission=Permission.GROUPS_MANAGE,
        summary="Read the directory of group documents again; a report by file",
        response=ReloadShape,
        handler=reload_node,
        action="groups.reload",
        subject=lambda _: "groups",
    ),
    Read(
        method="GET",
        path=_NODES,
        permission=Permission.NODES_READ,
        scope=Scoping.FILTERS,
        summary="List nodes",
        response=list[UniverseNode],
        handler=list_nodes,
    ),
    Read(
        method="GET",
        path=f"{_NODES}/{{id}}",
        permission=Permission.NODES_READ,
        summary="Show a node with its instances",
        response=UniverseNodeDetail,
        handler=get_node,
        lowered=frozenset({"id"}),
    ),
)
