"""Routes of a platform module below `/api/v1/modules/ID`.

A query string is parsed as a struct, as the API does: unknown and repeated parameters are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypedDict, TypeVar, Unpack

import msgspec

from corral.sdk.errors import BadRegistration
from corral.sdk.http_messages import Caller, HttpError, Request, Response, place_of
from corral.sdk.protocol.chunk_streams import Streamed
from corral.sdk.protocol.messages import RouteAnswer, RouteDeclaration, RouteRequest
from corral.sdk.runner_port import Invoke

RouteHandler: TypeAlias = Callable[[Request], object]
"""`def` or `async def`; returns a Response, a value that becomes JSON, or None (204)."""
MAX_ROUTES: Final = 200
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+|\{[a-z_][a-z0-9_]*(:path)?\}")


class RouteOptions(TypedDict, total=False):
    """Options of `get`, `post` and the others by name; as for `Routes.add`."""

    permission: str | None
    body: Any
    query: Any
    answer: Any
    summary: str
    deadline_ms: int
    max_body: int
    streams: bool


class _Route:
    def __init__(self, declaration: RouteDeclaration, handler: RouteHandler, body: Any, query: Any) -> None:
        self.declaration = declaration
        self.handler = handler
        self.body = body
        self.query = query


class Routes:
    """Given to `register_routes`.

    ```python
    def register_routes(self, routes):
        routes.get("/players/{name}", self.player)
        routes.post("/players", self.add, body=NewPlayer, summary="Add a player")
        routes.get("/export", self.export, query=Window, streams=True)
    ```

    `permission` is one of Corral's; without it reading needs `modules.read`, everything else `modules.use`.
    `body` and `query` are msgspec types: a request that does not fit is answered 400 with the field, and
    the handler is not called. `answer` is for the API's description.
    """

    def __init__(self) -> None:
        self._routes: list[_Route] = []

    def get(self, path: str, handler: RouteHandler, **options: Unpack[RouteOptions]) -> None:
        """Options: see `add`."""
        self.add("GET", path, handler, **options)

    def post(self, path: str, handler: RouteHandler, **options: Unpack[RouteOptions]) -> None:
        """Options: see `add`."""
        self.add("POST", path, handler, **options)

    def put(self, path: str, handler: RouteHandler, **options: Unpack[RouteOptions]) -> None:
        """Options: see `add`."""
        self.add("PUT", path, handler, **options)

    def patch(self, path: str, handler: RouteHandler, **options: Unpack[RouteOptions]) -> None:
        """Options: see `add`."""
        self.add("PATCH", path, handler, **options)

    def delete(self, path: str, handler: RouteHandler, **options: Unpack[RouteOptions]) -> None:
        """Options: see `add`."""
        self.add("DELETE", path, handler, **options)

    def add(
        self,
        method: str,
        path: str,
        handler: RouteHandler,
        *,
        permission: str | None = None,
        body: Any = None,
        query: Any = None,
        answer: Any = None,
        summary: str = "",
        deadline_ms: int = 10_000,
        max_body: int = 1_048_576,
        streams: bool = False,
    ) -> None:
        """Raises BadRegistration for an invalid path, a type that msgspec does not support, or a route that
        exists already."""
        where = f"{method} {path}"
        self._check(where, method, path, handler)
        if query is not None and not (isinstance(query, type) and issubclass(query, msgspec.Struct)):
            raise BadRegistration(f"{where}: the type of a query has to be a msgspec.Struct")
        declaration = RouteDeclaration(
            number=len(self._routes) + 1,
            method=method,
            path=path,
            permission=permission or ("modules.read" if method == "GET" else "modules.use"),
            summary=summary,
            deadline_ms=deadline_ms,
            max_body=max_body,
            streams=streams,
            request_schema=_schema(where, body),
            response_schema=_schema(where, answer),
        )
        self._routes.append(_Route(declaration, handler, body, query))

    def _check(self, where: str, method: str, path: str, handler: RouteHandler) -> None:
        check_path(where, path)
        if method not in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            raise BadRegistration(f"{where}: unknown method '{method}'")
        if not callable(handler):
            raise BadRegistration(f"{where}: the handler cannot be called")
        if len(self._routes) >= MAX_ROUTES:
            raise BadRegistration(f"{where}: a module has at most {MAX_ROUTES} routes")
        shape = _shape(path)
        for route in self._routes:
            if route.declaration.method == method and _shape(route.declaration.path) == shape:
                raise BadRegistration(f"{where} is registered twice")

    def _declarations(self) -> tuple[RouteDeclaration, ...]:
        return tuple(route.declaration for route in self._routes)

    async def _answer(self, body: RouteRequest, invoke: Invoke) -> RouteAnswer | Streamed:
        if not 1 <= body.route <= len(self._routes):
            raise LookupError(f"route {body.route} is not registered")
        route = self._routes[body.route - 1]
        declaration = route.declaration
        try:
            request = _request(body, route)
            value = await invoke(f"route {declaration.method} {declaration.path}", route.handler, request)
            response = Response.of(value)
        except HttpError as error:
            response = error.as_response()
        if response.chunks is None:
            return RouteAnswer(status=response.status, headers=response.headers, body=response.body)
        if not declaration.streams:
            raise TypeError(f"{declaration.method} {declaration.path} streams; register it with streams=True")
        head = RouteAnswer(status=response.status, headers=response.headers, streamed=True)
        return Streamed(answer=head, chunks=response.chunks)


def _request(body: RouteRequest, route: _Route) -> Request:
    caller = Caller(name=body.caller.name, role=body.caller.role, address=body.caller.address)
    request = Request(
        method=body.method,
        path=body.path,
        parameters=body.parameters,
        headers={name.lower(): value for name, value in body.headers},
        caller=caller,
        raw_query=body.query,
        raw_body=body.body,
    )
    query = dict(body.query) if route.query is None else read_query(body.query, route.query)
    typed = None if route.body is None else body.body if route.body is bytes else request.json(route.body)
    return msgspec.structs.replace(request, body=typed, query=query)


def check_path(where: str, path: str) -> None:
    if not path.startswith("/") or len(path) > 256:
        raise BadRegistration(f"{where}: a path has to begin with '/' and have at most 256 letters")
    segments = path[1:].split("/") if path != "/" else []
    for number, segment in enumerate(segments):
        if segment in (".", "..") or _SEGMENT.fullmatch(segment) is None:
            raise BadRegistration(f"{where}: '{segment}' is no part of a path; `name` or `{{name}}` is")
        if segment.endswith(":path}") and number != len(segments) - 1:
            raise BadRegistration(f"{where}: '{segment}' has to be the last part")
    names = re.findall(r"\{([a-z0-9_]+)", path)
    if len(set(names)) != len(names):
        raise BadRegistration(f"{where}: a name occurs twice")


def _shape(path: str) -> str:
    """The path without its parameter names: two paths of the same shape match the same requests."""
    return re.sub(r"\{[a-z0-9_]+", "{", path)


def _schema(where: str, kind: Any) -> dict[str, Any] | None:
    if kind is None or kind is bytes:
        return None
    try:
        msgspec.json.Decoder(kind)
        return msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        raise BadRegistration(f"{where}: {error}") from error


T = TypeVar("T", bound=msgspec.Struct)


def read_query(pairs: tuple[tuple[str, str], ...], kind: type[T]) -> T:
    """Raises HttpError 400 with the field. A field that is a list takes every value of its name."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in pairs:
        field = fields.get(name)
        if field is None:
            known = ", ".join(sorted(fields)) or "none"
            raise HttpError(
                400, f"unknown parameter '{name}'", code="UNKNOWN_FIELD", hint=f"known: {known}", field=name
            )
        if _takes_many(field.type):
            values.setdefault(name, []).append(value)
        elif name in values:
            raise HttpError(400, f"{name} is given twice", code="INVALID_FIELD", field=name)
        else:
            values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        message, place = place_of(error)
        raise HttpError(400, message, code="INVALID_FIELD", field=place) from error


def _takes_many(kind: Any) -> bool:
    many = (
        msgspec.inspect.ListType,
        msgspec.inspect.SetType,
        msgspec.inspect.FrozenSetType,
        msgspec.inspect.VarTupleType,
    )
    return isinstance(msgspec.inspect.type_info(kind), many)
