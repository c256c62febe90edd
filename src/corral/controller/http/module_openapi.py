"""The routes of one module as a small OpenAPI document, from what the module declared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from corral.controller.http.openapi import OpenApiShape
from corral.domain.module_records import PackageRecord
from corral.sdk.protocol.messages import RouteDeclaration

_PLACE: Final = re.compile(r"\{(\w+)(:path)?\}")


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
    said: dict[str, Any] = {
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
        said["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if route.response_schema is not None:
        schema = _whole(module_id, route, "response", route.response_schema)
        said["responses"]["200"] = {
            "description": "What the module answers",
            "content": {"application/json": {"schema": schema}},
        }
    return said


def _whole(module_id: str, route: RouteDeclaration, what: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that is a document of its own: what it refers to is found within it."""
    return {"$id": f"urn:corral:{module_id}:{route.number}:{what}", **schema}
