"""Frontend files and own routes of modules, and the OpenAPI document of the routes that a module declared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, Query
from corral.controller.http.messages.responses import ApiResponse
from corral.controller.http.openapi import OpenApiShape
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.route_table import Asset, Read, Relay, Route
from corral.controller.http.resources.modules.module_schemas import ONE
from corral.controller.http.resources.modules.modules import the_module
from corral.controller.modules.module_service import Modules
from corral.controller.state.cluster_state import ClusterState
from corral.domain.modules.manifest import FrontendPart
from corral.domain.modules.records import PackageRecord
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected
from corral.sdk.protocol.messages import RouteDeclaration

_KEPT: Final = b"private, max-age=31536000, immutable"
_ASKED_AGAIN: Final = b"private, no-cache"
_POLICY: Final = (
    b"sandbox allow-scripts allow-forms; default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; font-src 'self'; connect-src 'none'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'self'"
)
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


_PLACE: Final = re.compile(r"\{(\w+)(:path)?\}")


class AssetQuery(Query, frozen=True, kw_only=True):
    v: (
        Annotated[
            str, msgspec.Meta(max_length=128, description="Hash of the content, or of the archive: keep it.")
        ]
        | None
    ) = None


async def get_asset(state: ClusterState, modules: Modules, call: ApiCall[None, AssetQuery]) -> ApiResponse:
    record = the_module(state, call.path).record
    if record.manifest.frontend is None:
        raise Rejected(Code.NOT_FOUND, f"module '{record.id}' has no pages")
    for permission in _needed(record.manifest.frontend):
        authorise(call.caller, permission)
    file = await modules.read_frontend(record.id, call.path["path"])
    same = call.query.v is not None and call.query.v in (file.etag, record.sha256)
    return ApiResponse(
        body=file.content,
        content_type=file.content_type.encode("latin-1"),
        headers=(
            (b"etag", f'"{file.etag}"'.encode()),
            (b"cache-control", _KEPT if same else _ASKED_AGAIN),
            (b"content-security-policy", _POLICY),
            (b"x-frame-options", b"SAMEORIGIN"),
        ),
    )


def _needed(part: FrontendPart) -> list[Permission]:
    try:
        return [Permission(name) for name in part.permissions]
    except ValueError:
        raise Rejected(Code.FORBIDDEN, "the page asks for a permission that does not exist") from None


async def get_description(
    state: ClusterState, modules: Modules, call: ApiCall[None, NoQuery]
) -> OpenApiShape:
    record = the_module(state, call.path).record
    return describe_module(record, modules.engine.routes.of(record.id))


def describe_module(record: PackageRecord, routes: Sequence[RouteDeclaration]) -> OpenApiShape:
    """Empty of paths while the module does not serve."""
    paths: dict[str, Any] = {}
    for route in sorted(routes, key=lambda each: (each.path, each.method)):
        path = f"/api/v1/modules/{record.id}" + _PLACE.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(record.id, route)
    return OpenApiShape(
        openapi="3.1.0",
        info={
            "title": record.manifest.title or record.id,
            "version": record.version,
            "description": record.manifest.description,
        },
        paths=paths,
        components={"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    )


def _operation(module_id: str, route: RouteDeclaration) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{module_id}-{route.number}",
        "summary": route.summary or f"{route.method} {route.path}",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name, _ in _PLACE.findall(route.path)
        ],
        "responses": {"default": {"description": "What the module answers"}},
        "security": [{"token": []}],
        "x-permission": route.permission,
    }
    if route.request_schema is not None:
        schema = _whole(module_id, route, "request", route.request_schema)
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if route.response_schema is not None:
        schema = _whole(module_id, route, "response", route.response_schema)
        operation["responses"]["200"] = {
            "description": "What the module answers",
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _whole(module_id: str, route: RouteDeclaration, what: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that is a document of its own: what it refers to is found within it."""
    return {"$id": f"urn:corral:{module_id}:{route.number}:{what}", **schema}


def _relay(method: str) -> Relay:
    return Relay(
        method=method,
        path=f"{ONE}/{{path}}",
        permission=Permission.MODULES_READ,
        summary="A route of a module, which may ask for more permission",
        rest=True,
    )


_LAST: Final[tuple[Route, ...]] = tuple(_relay(method) for method in _METHODS)

ROUTES: Final[tuple[Route, ...]] = (
    Asset(
        method="GET",
        path=f"{ONE}/frontend/{{path}}",
        permission=Permission.MODULES_READ,
        summary="A file of a module's pages",
        query=AssetQuery,
        handler=get_asset,
        rest=True,
    ),
    Read(
        method="GET",
        path=f"{ONE}/openapi.json",
        permission=Permission.MODULES_READ,
        summary="The routes that a module has at present",
        response=OpenApiShape,
        handler=get_description,
    ),
    *_LAST,
)
"""The relays match everything beneath a module: they come last."""
