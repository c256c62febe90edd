"""Capabilities: providers and users of each, and those without a provider."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.paging import PageQuery, page_of_sorted
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.http.resources.modules.module_schemas import MODULES
from corral.controller.modules.module_service import Modules
from corral.controller.state.cluster_state import ClusterState
from corral.domain.modules.capability_graph import UnresolvedReason
from corral.domain.modules.records import PackageRecord, awaited_capability
from corral.domain.permissions import Permission
from corral.modules.capabilities.capability_entries import CapabilityView


class CapabilityShape(msgspec.Struct, frozen=True, kw_only=True):
    """`provider` is a module, or `corral` for what is built in."""

    id: str
    version: str
    provider: str
    consumers: list[str]
    deprecated: bool
    calls: int
    failures: int


class UnresolvedShape(msgspec.Struct, frozen=True, kw_only=True):
    """A requirement that is not met, and why. `nodes`: where the module waits for it, as last reported; empty: at
    the controller. Of a node only the first requirement that it waits for is known, and no optional ones."""

    module: str
    id: str
    version_range: str
    why: str
    reason: str
    optional: bool
    nodes: list[str]


class CapabilityPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some capabilities; `unresolved` is whole on every page."""

    items: list[CapabilityShape]
    next: str | None
    unresolved: list[UnresolvedShape]


def _shape(view: CapabilityView) -> CapabilityShape:
    return CapabilityShape(
        id=view.id,
        version=view.version,
        provider=view.provider,
        consumers=sorted(view.consumers),
        deprecated=view.deprecated,
        calls=view.calls,
        failures=view.failures,
    )


def _unresolved_here(modules: Modules) -> list[UnresolvedShape]:
    return [
        UnresolvedShape(
            module=view.module,
            id=view.id,
            version_range=_needed(modules.find(view.module), view.id),
            why=str(view.why),
            reason=view.reason,
            optional=view.optional,
            nodes=[],
        )
        for view in modules.engine.capabilities.unresolved()
    ]


def _unresolved_on_nodes(state: ClusterState, modules: Modules) -> list[UnresolvedShape]:
    waiting: dict[tuple[str, str], list[str]] = {}
    for record in modules.all():
        for row in state.module_node_states.rows_of_module(record.id):
            if capability := awaited_capability(row):
                waiting.setdefault((record.id, capability), []).append(row.node)
    return [
        UnresolvedShape(
            module=module,
            id=capability,
            version_range=_needed(modules.find(module), capability),
            why=str(UnresolvedReason.MISSING_PROVIDER),
            reason=f"no active module provides {capability} there in the version that is needed",
            optional=False,
            nodes=sorted(nodes),
        )
        for (module, capability), nodes in sorted(waiting.items())
    ]


def _needed(record: PackageRecord, capability: str) -> str:
    """In which versions."""
    found = (each for each in record.manifest.capabilities.requires if each.id == capability)
    return next((each.version_range for each in found), "")


async def list_capabilities(
    state: ClusterState, modules: Modules, call: ApiCall[None, PageQuery]
) -> CapabilityPage:
    registry = modules.engine.capabilities
    page = page_of_sorted(
        sorted(registry.all(), key=lambda view: view.id),
        call.query,
        kind="capabilities",
        key=lambda view: view.id,
        shape=_shape,
    )
    return CapabilityPage(
        items=page.items,
        next=page.next,
        unresolved=[*_unresolved_here(modules), *_unresolved_on_nodes(state, modules)],
    )


def _listing(path: str) -> Read:
    return Read(
        method="GET",
        path=path,
        permission=Permission.MODULES_READ,
        summary="List capabilities, and requirements that nothing meets",
        query=PageQuery,
        response=CapabilityPage,
        handler=list_capabilities,
    )


ROUTES: Final[tuple[Route, ...]] = (
    _listing("/api/v1/capabilities"),
    _listing(f"{MODULES}/capabilities"),
)
