"""Modules on nodes: where one stands on each, and what one node has."""

from __future__ import annotations

from typing import Final

from corral.controller.http.call import Call
from corral.controller.http.paging import Page, PageQuery, page_of_sorted
from corral.controller.http.resources.module_schemas import ONE
from corral.controller.http.resources.node_module_schemas import (
    ModuleOnNodeShape,
    NodeStateShape,
    module_on_node_shape,
    modules_of,
    node_state_shape,
    nodes_of,
)
from corral.controller.http.route_table import Read, Route
from corral.controller.modules.module_service import Modules
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState
from corral.domain.permissions import Permission


async def list_nodes_of_module(
    state: ClusterState, modules: Modules, nodes: LiveNodes, call: Call[None, PageQuery]
) -> Page[NodeStateShape]:
    record = state.modules.require(call.path["id"]).record
    return page_of_sorted(
        nodes_of(state, record),
        call.query,
        kind=f"module-nodes/{record.id}",
        key=str,
        shape=lambda node: node_state_shape(state, modules, nodes, call, record, node),
    )


async def list_modules_of_node(
    state: ClusterState, modules: Modules, nodes: LiveNodes, call: Call[None, PageQuery]
) -> Page[ModuleOnNodeShape]:
    node = state.nodes.require(call.path["id"]).record
    return page_of_sorted(
        modules_of(state, node.id),
        call.query,
        kind=f"node-modules/{node.id}",
        key=str,
        shape=lambda module: module_on_node_shape(state, modules, nodes, call, module, node.id),
    )


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path=f"{ONE}/nodes",
        permission=Permission.MODULES_READ,
        summary="List how a module stands on each node",
        query=PageQuery,
        response=Page[NodeStateShape],
        handler=list_nodes_of_module,
    ),
    Read(
        method="GET",
        path="/api/v1/nodes/{id}/modules",
        permission=Permission.MODULES_READ,
        summary="List the modules of a node",
        query=PageQuery,
        response=Page[ModuleOnNodeShape],
        handler=list_modules_of_node,
    ),
)
