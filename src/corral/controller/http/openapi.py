"""OpenAPI document of the API, generated from the route table so that it cannot differ from it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import inspect

from corral.controller.http.examples import add_examples, with_example
from corral.controller.http.meanings import explain_fields, explain_parameter
from corral.controller.http.messages.call import NoQuery
from corral.controller.http.messages.request import PATCH_TYPE
from corral.controller.http.messages.responses import ApiResponse, ErrorShape, encode
from corral.controller.http.messages.universe_errors import UniverseError, is_universe_path
from corral.controller.http.messages.uploads import FILE, RAW_TYPES
from corral.controller.http.openapi_events import DATA_TYPES, EVENT_MARK, event_frames
from corral.controller.http.openapi_links import add_links
from corral.controller.http.openapi_refusals import RefusalResponses
from corral.controller.http.pipeline.api_context import CurrentTerm, ProcessContext
from corral.controller.http.pipeline.route_table import (
    PUBLIC,
    WORKLOAD,
    Act,
    Asset,
    CommitRoute,
    Download,
    FormUpload,
    Once,
    Page,
    Probe,
    ProxyRead,
    Read,
    Relay,
    Route,
    Socket,
    Stream,
    Upload,
)
from corral.controller.http.pipeline.scoping import Scoping
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import field_classes
from corral.version import VERSION

PATH: Final = "/api/v1/openapi.json"

_REF: Final = "#/components/schemas/{name}"
_JSON: Final = "application/json"
_CURSOR_HEADER: Final = {
    "Corral-Cursor": {
        "description": "EPOCH-SEQUENCE: the position in the event log that the answer reflects. Follow the events from there "
        "(`after`), and none is missed.",
        "schema": {"type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,19}$"},
    }
}
_BINARY: Final = {"schema": {"type": "string", "format": "binary"}}


class OpenApiShape(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenAPI 3.1 document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]


def with_description(routes: Sequence[Route]) -> tuple[Route, ...]:
    """The routes, and one more that describes them all; built when first asked for."""
    table: list[Route] = list(routes)
    cached: list[ApiResponse] = []

    async def handler(setting: ProcessContext, gate: CurrentTerm) -> ApiResponse:
        del setting, gate
        if not cached:  # aside from the loop: it takes some tenths of a second
            body = await asyncio.to_thread(lambda: encode(describe(table)))
            cached.append(ApiResponse(body=body, compressible=True))
        return cached[0]

    table.append(
        Probe(
            method="GET",
            path=PATH,
            permission=Permission.SELF_READ,
            scope=Scoping.NEUTRAL,
            summary="This description",
            response=OpenApiShape,
            handler=handler,
        )
    )
    return tuple(table)


def describe(table: Sequence[Route]) -> OpenApiShape:
    """Without pages: they are no part of the API."""
    routes = [route for route in table if not isinstance(route, Page)]
    types = {id(type): type for route in routes for type in _types(route)}
    types |= {id(type): type for type in DATA_TYPES.values()}
    refusals = (ErrorShape, UniverseError)
    schemas, components = msgspec.json.schema_components([*types.values(), *refusals], ref_template=_REF)
    by_type = dict(zip([*types, *map(id, refusals)], schemas, strict=True))
    _write_tuples_as_lists(components)
    paths: dict[str, Any] = {}
    operations: dict[str, dict[str, Any]] = {}
    refused = RefusalResponses()
    for route in routes:
        operation = operations[route.name] = _operation(route, by_type, components)
        operation["responses"] |= refused.of(route)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    queries = {route.query.__name__ for route in routes}
    shown = {name: schema for name, schema in components.items() if name not in queries}
    shown |= event_frames(shown, [type.__name__ for route in routes for type in _schemas(route)])
    explain_fields(shown)
    add_examples(shown, whole=[*_bodies(routes, by_type), ErrorShape.__name__])
    _add_classes(shown, routes)
    return OpenApiShape(
        openapi="3.1.0",
        info={
            "title": "Corral",
            "version": VERSION,
            "description": "Control plane for fleets of long-running processes. Each operation lists what it may refuse, by status "
            "and code. `500 INTERNAL`, a bug in Corral, is listed nowhere.",
        },
        paths=paths,
        components={
            "schemas": shown,
            "responses": refused.components,
            "links": add_links(routes, operations),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "workload": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of a run, as in CORRAL_INSTANCE_TOKEN.",
                },
                "ticket": {"type": "apiKey", "in": "query", "name": "ticket"},
            },
        },
    )


def _bodies(routes: Sequence[Route], by_type: dict[int, Any]) -> list[str]:
    """The names of the schemas of whole bodies, of requests and of answers."""
    kinds = (kind for route in routes for kind in (route.body, route.response) if kind is not None)
    refs = (by_type[id(kind)].get("$ref", "") for kind in kinds)
    return sorted({ref.rpartition("/")[2] for ref in refs if ref})


def _add_classes(schemas: dict[str, Any], routes: Sequence[Route]) -> None:
    """Say of each field of an answer who sees it: `x-class` is open, sensitive or secret."""
    for kind in shown_structs(routes):
        properties = schemas.get(kind.__name__, {}).get("properties", {})
        for field in msgspec.structs.fields(kind):
            found = field_classes(kind).get(field.name)
            if found is not None and field.encode_name in properties:
                properties[field.encode_name]["x-class"] = found.level


def shown_structs(routes: Sequence[Route]) -> set[type[msgspec.Struct]]:
    """The structures of all answers and messages, refusals and dry runs included."""
    answers: list[Any] = [ErrorShape, UniverseError]
    for route in routes:
        answers += [
            route.response,
            route.compact,
            _dry_run(route),
            *_schemas(route),
            *route.messages.values(),
        ]
    seen: set[Any] = set()
    for info in inspect.multi_type_info([answer for answer in answers if answer is not None]):
        _collect(info, seen)
    return {getattr(kind, "__origin__", kind) for kind in seen}


def _collect(info: inspect.Type, seen: set[Any]) -> None:
    if isinstance(info, inspect.StructType) and info.cls not in seen:
        seen.add(info.cls)
        for field in info.fields:
            _collect(field.type, seen)
    parts = [getattr(info, name, None) for name in ("type", "item_type", "value_type", "key_type")]
    for part in (*parts, *getattr(info, "types", ()), *getattr(info, "item_types", ())):
        if isinstance(part, inspect.Type):
            _collect(part, seen)


def _schemas(route: Route) -> tuple[Any, ...]:
    return route.schemas if isinstance(route, Stream) else ()


def _dry_run(route: Route) -> Any:
    return getattr(route, "dry_run", None)


def _write_tuples_as_lists(schema: Any) -> None:
    """`items` in place of `prefixItems`: generators of clients read no positions, and ours are all alike."""
    if isinstance(schema, list):
        for each in schema:
            _write_tuples_as_lists(each)
    elif isinstance(schema, dict):
        if "prefixItems" in schema:
            first, *others = schema.pop("prefixItems")
            assert all(each == first for each in others), "a tuple of several types has no form as a list"
            schema["items"] = first
        for each in schema.values():
            _write_tuples_as_lists(each)


def _types(route: Route) -> list[Any]:
    types = [
        route.query,
        route.body,
        route.response,
        route.compact,
        _dry_run(route),
        *_schemas(route),
        *route.messages.values(),
    ]
    return [type for type in types if type is not None]


def _operation(route: Route, by_type: dict[int, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": [
            with_example(explain_parameter(each, _tag(route)), _tag(route))
            for each in (*_path_parameters(route), *_query_parameters(route, components), *_headers(route))
        ],
        "responses": _responses(route, by_type),
        "security": _security(route),
    }
    if route.description:
        operation["description"] = route.description
    if route.messages:
        operation["x-messages"] = {name: by_type[id(kind)] for name, kind in route.messages.items()}
    if isinstance(route.permission, Permission):
        operation["x-permission"] = route.permission.value
    if isinstance(route, Upload):
        operation["requestBody"] = {"required": True, "content": dict.fromkeys(route.media, _BINARY)}
    if isinstance(route, FormUpload):
        operation["requestBody"] = {"required": True, "content": _form(route)}
    if isinstance(route, Relay) and route.method != "GET":
        operation["requestBody"] = {"required": False, "content": {"application/octet-stream": _BINARY}}
    if route.body is not None:
        optional = isinstance(route.body, type) and not any(
            field.required for field in msgspec.structs.fields(route.body)
        )
        media = (_JSON, PATCH_TYPE) if route.method == "PATCH" else (_JSON,)
        content: dict[str, Any] = {each: {"schema": by_type[id(route.body)]} for each in media}
        if isinstance(route, FormUpload):
            content = {**_form(route), **content}
        operation["requestBody"] = {"required": not optional, "content": content}
    return operation


def _form(route: FormUpload) -> dict[str, Any]:
    if route.bare:
        return {"application/octet-stream": _BINARY}
    parts = {name: {"type": "string", "format": "binary"} for name in (FILE, *route.small)}
    schema = {"type": "object", "properties": parts, "required": [FILE]}
    return {"multipart/form-data": {"schema": schema}, **dict.fromkeys(RAW_TYPES[:2], _BINARY)}


def _responses(route: Route, by_type: dict[int, Any]) -> dict[str, Any]:
    good = {101} if isinstance(route, Socket) else {route.status}
    if (isinstance(route, FormUpload) and not route.bare) or (
        isinstance(route, CommitRoute) and route.creates
    ):
        good.add(201)
    answers = {str(status): _success(route, by_type) for status in sorted(good)}
    if isinstance(route, CommitRoute) and route.dry_run is not None:
        kinds = [
            by_type[id(kind)] for kind in (route.dry_run, route.response if 200 in good else None) if kind
        ]
        schema = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        answers["200"] = {"description": route.summary, "content": {_JSON: {"schema": schema}}}
    if isinstance(route, Asset):
        answers["304"] = {"description": "The caller has it already: `If-None-Match` names its `ETag`"}
    return dict(sorted(answers.items()))


def _operation_id(route: Route) -> str:
    words = route.path.removeprefix("/api/v1").replace("-", "_").replace(".", "_").split("/")
    named = [word.strip("{}") if word.startswith("{") else word for word in words if word.strip("_")]
    return "_".join([route.method.lower(), *named])


def _tag(route: Route) -> str:
    if is_universe_path(route.path):
        return "universe"
    words = route.path.removeprefix("/api/v1").strip("/").split("/")
    return words[0] if route.path.startswith("/api/v1") else "probes"


def _security(route: Route) -> list[dict[str, list[str]]]:
    if route.permission is PUBLIC:
        return []
    if route.permission is WORKLOAD:
        return [{"workload": []}]
    schemes: list[dict[str, list[str]]] = [{"token": []}]
    if isinstance(route, ProxyRead) or (isinstance(route, Act) and route.by_itself is not None):
        schemes.append({"workload": []})
    if route.ticketed:
        schemes.append({"ticket": []})
    return schemes


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in route.parameters
    ]


def _query_parameters(route: Route, components: dict[str, Any]) -> list[dict[str, Any]]:
    if route.query is NoQuery:
        return []
    schema = components[route.query.__name__]
    required = set(schema.get("required", ()))
    return [
        {"name": name, "in": "query", "required": name in required, "schema": _not_null(property)}
        for name, property in schema["properties"].items()
        if name != "ticket"  # that one is among the security schemes
    ]


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query string has no null: the parameter is left out instead."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if not kinds:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}


def _headers(route: Route) -> list[dict[str, Any]]:
    found = []
    relayed = isinstance(route, Relay) and route.method != "GET"
    if relayed or isinstance(route, CommitRoute | Act | FormUpload | Once):
        key = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
        found.append(_header("Idempotency-Key", "The same key takes effect once.", key))
    if isinstance(route, CommitRoute) and route.revises is not None:
        match = {"type": "string", "pattern": '^(\\*|"[0-9]+")$'}
        found.append(_header("If-Match", "Only if the revision is still this ETag.", match))
    if isinstance(route, FormUpload) and route.bare:
        digest = {"type": "string", "pattern": '^(\\*|"[0-9a-f]{64}")$'}
        found.append(
            _header("If-Match", "Only if the file still has this digest; `*`: if there is one.", digest)
        )
        absent = {"type": "string", "enum": ["*"]}
        found.append(_header("If-None-Match", "`*`: only if there is no such file.", absent))
    if isinstance(route, Stream):
        found.append(_header("Last-Event-ID", "Where the stream broke off.", {"type": "string"}))
    if isinstance(route, Relay):
        about = "The module whose page asks: then nothing but its own routes is answered."
        found.append(_header("Corral-Page", about, {"type": "string", "maxLength": 80}))
    if isinstance(route, Asset):
        found.append(_header("If-None-Match", "Only if it is not this ETag.", {"type": "string"}))
    return found


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


def _success(route: Route, by_type: dict[int, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": route.summary}
    if isinstance(route, Stream):
        response["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
        if route.frames:
            response["content"]["text/event-stream"][EVENT_MARK] = {"$ref": _REF.format(name=route.frames)}
    elif isinstance(route, Download):
        response["content"] = {route.media: _BINARY}
        if route.counts:
            number = {"type": "integer", "minimum": 0}
            response["headers"] = {
                name: {"description": about, "schema": number} for name, about in route.counts.items()
            }
    elif isinstance(route, Asset | Relay):
        response["content"] = {"*/*": _BINARY}
    elif isinstance(route, Probe) and route.response is None:
        response["content"] = {route.content_type: {"schema": {"type": "string"}}}
    elif route.response is not None:
        schema = by_type[id(route.response)]
        if route.compact is not None:
            schema = {"anyOf": [schema, by_type[id(route.compact)]]}
        response["content"] = {_JSON: {"schema": schema}}
    if isinstance(route, Read | ProxyRead) and route.method == "GET":
        response["headers"] = _CURSOR_HEADER
    return response
