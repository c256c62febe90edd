"""Capabilities: who provides what, who uses it, and what nobody provides."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.http.call import Call
from corral.controller.http.paging import PageQuery, page_of_sorted
from corral.controller.http.resources.module_shapes import MODULES
from corral.controller.http.route_table import Read, Route
from corral.controller.http.setting import Leading
from corral.domain.permissions import Permission
from corral.modules.capability_entries import CapabilityView, UnresolvedView


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
    """A requirement that is not met, and why."""

    module: str
    id: str
    why: str
    reason: str
    optional: bool


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


def _unresolved_shape(view: UnresolvedView) -> UnresolvedShape:
    return UnresolvedShape(
        module=view.module, id=view.id, why=str(view.why), reason=view.reason, optional=view.optional
    )


async def list_capabilities(leading: Leading, call: Call[None, PageQuery]) -> CapabilityPage:
    registry = leading.modules.engine.capabilities
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
        unresolved=[_unresolved_shape(view) for view in registry.unresolved()],
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
