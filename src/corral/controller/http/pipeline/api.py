"""The API as an ASGI application: finds the endpoint of a path and the server of its route, and sends every refusal in
the one error schema."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, Protocol

import structlog
from starlette.routing import BaseRoute, Match, Router, WebSocketRoute
from starlette.routing import Route as PathPattern

from corral.controller.events.hub import EventHub
from corral.controller.http.messages.request import ClientGone, HttpRequest, Receive, Scope, Send
from corral.controller.http.messages.responses import (
    ApiResponse,
    Headers,
    internal_error,
    refusal,
    send_answer,
)
from corral.controller.http.messages.universe_errors import in_universe_form, is_universe_path
from corral.controller.http.pipeline.admission import RouteAdmission
from corral.controller.http.pipeline.api_context import CurrentTerm, ProcessContext
from corral.controller.http.pipeline.mutation_servers import (
    ActServer,
    BuildServer,
    IntakeServer,
    MutateServer,
    OnceServer,
    TermEndServer,
    UploadServer,
)
from corral.controller.http.pipeline.page_requests import check_page
from corral.controller.http.pipeline.read_servers import (
    AssetServer,
    DownloadServer,
    LoginServer,
    PageServer,
    ProbeServer,
    ProxyReadServer,
    ReadServer,
    RelayServer,
    ReportServer,
    SocketServer,
    StreamServer,
)
from corral.controller.http.pipeline.route_table import (
    Act,
    Asset,
    Build,
    Download,
    FormUpload,
    LoginRoute,
    Mutate,
    Once,
    Page,
    Probe,
    ProxyRead,
    Read,
    Relay,
    Report,
    Route,
    Socket,
    Stream,
    Upload,
    check_table,
)
from corral.controller.http.server.metrics import Players
from corral.errors import Bug, Code, CorralError, Rejected
from corral.system import log_context
from corral.system.entropy import new_id

_UNROUTED: Final = "(none)"


log = structlog.get_logger("corral.controller.http")
_NOUNS: Final = {
    "/api/v1/instances/{id}": "instance",
    "/api/v1/nodes/{id}": "node",
    "/api/v1/modules/{id}": "module",
    "/api/instances/{id}": "instance",
    "/api/cluster/nodes/{id}": "node",
}
"""The id in these paths is bound to log records."""
_LONGEST_ID: Final = 80


class Api:
    """Serves a table of routes. `gate` gives the parts of the present term, or None on a standby."""

    def __init__(self, *, setting: ProcessContext, gate: CurrentTerm, routes: Sequence[Route]) -> None:
        check_table(routes)
        self.routes = tuple(routes)
        self._setting = setting
        self._gate = gate
        setting.metrics.watch_hub(self._hub)
        setting.metrics.watch_players(self._players)
        by_path: dict[str, list[Route]] = {}
        for route in routes:
            by_path.setdefault(route.path, []).append(route)
        endpoints = {
            path: Endpoint(path=path, routes=there, setting=setting, gate=gate)
            for path, there in by_path.items()
        }
        # A literal path beats a pattern, and most requests are found without any matching.
        self._literal = {path: endpoint for path, endpoint in endpoints.items() if "{" not in path}
        patterns: list[BaseRoute] = [
            PathPattern(by_path[path][0].pattern, endpoint)
            for path, endpoint in endpoints.items()
            if "{" in path
        ]
        patterns += [
            WebSocketRoute(path, endpoints[path])
            for path, there in by_path.items()
            if any(isinstance(route, Socket) for route in there)
        ]
        self._patterns = Router(patterns, redirect_slashes=False, default=self._not_found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            raise RuntimeError(f"cannot serve '{scope['type']}'")
        endpoint = self._literal.get(scope["path"])
        if endpoint is not None and scope["type"] == "http" and self._is_meant(endpoint, scope):
            await endpoint(scope, receive, send)
        else:
            await self._patterns(scope, receive, send)

    def _is_meant(self, endpoint: Endpoint, scope: Scope) -> bool:
        """A literal path means itself, unless it has no such method and a pattern of its form has:
        `import` is an operation on templates, and may be the name of one."""
        if endpoint.takes(scope["method"]) or scope["method"] == "OPTIONS":
            return True
        found = [route for route in self._patterns.routes if route.matches(scope)[0] is Match.FULL]
        others = [route.endpoint for route in found if isinstance(route, PathPattern)]
        return not any(isinstance(each, Endpoint) and each.takes(scope["method"]) for each in others)

    async def _not_found(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = HttpRequest(scope, receive, send, entropy=self._setting.entropy)
        error = Rejected(
            Code.NOT_FOUND,
            f"there is nothing at '{request.path[:200]}'",
            hint="GET /api/v1/openapi.json lists all paths",
        )
        try:
            self._setting.browsers.check(request)
        except Rejected as refused:
            error = refused
        answer = refusal(error)
        await send_answer(request, in_universe_form(answer) if is_universe_path(request.path) else answer)
        self._setting.metrics.answered(
            method="(any)", route=_UNROUTED, status=error.code.status, seconds=None
        )

    def _hub(self) -> EventHub | None:
        leading = self._gate()
        return leading.hub if leading else None

    def _players(self) -> list[Players]:
        leading = self._gate()
        return leading.workload.vitals.all_players() if leading else []


class Endpoint:
    """Serves every request to one path; every failure is answered in the error schema."""

    def __init__(
        self, *, path: str, routes: Sequence[Route], setting: ProcessContext, gate: CurrentTerm
    ) -> None:
        self._path = path
        self._universe = is_universe_path(path)
        self._noun = next((noun for start, noun in _NOUNS.items() if path.startswith(start)), None)
        self._setting = setting
        self._routes = {route.method: route for route in routes}
        self._methods = {route.method: server_of(route, setting=setting, gate=gate) for route in routes}
        if "GET" in self._methods:
            self._methods["HEAD"] = self._methods["GET"]
            self._routes["HEAD"] = self._routes["GET"]
        self._allow: Headers = ((b"allow", ", ".join(sorted({*self._methods, "OPTIONS"})).encode()),)

    def takes(self, method: str) -> bool:
        return method in self._methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = HttpRequest(scope, receive, send, entropy=self._setting.entropy)
        with log_context.only({"request": request.id, **self._subject(scope)}):
            await self._serve(request, began)

    def _subject(self, scope: Scope) -> dict[str, str]:
        """The subject of the path, for log records: an instance, a node or a module."""
        if self._noun is None:
            return {}
        return {self._noun: scope.get("path_params", {}).get("id", "")[:_LONGEST_ID]}

    async def _serve(self, request: HttpRequest, began: float) -> None:
        answer = await self._guarded(request)
        if answer is not None and self._universe:
            answer = in_universe_form(answer, route=f"{request.method} {self._path}")
        if answer is not None:
            await send_answer(request, answer)
        self._count(request, answer, time.perf_counter() - began)

    def _count(self, request: HttpRequest, answer: ApiResponse | None, seconds: float) -> None:
        log.debug(
            "http_request.answered",
            method=request.method,
            route=request.label or self._path,
            status=answer.status if answer else request.status,
            took_ms=round(seconds * 1000, 1),
            address=request.address,
        )
        self._setting.metrics.answered(
            method=request.method if request.method in self._methods else "(other)",
            route=request.label or self._path,
            status=answer.status if answer else request.status,
            seconds=seconds if answer else None,
        )

    def _wrong_method(self, request: HttpRequest) -> Rejected:
        return Rejected(
            Code.METHOD_NOT_ALLOWED,
            f"{request.method} is not possible on {self._path}",
            hint=f"possible: {self._allow[0][1].decode()}",
        )

    async def _answer(self, request: HttpRequest) -> ApiResponse | None:
        route = self._routes.get(request.method)
        self._setting.browsers.check(
            request, browser=route is not None and route.browser, stream=isinstance(route, Stream)
        )
        check_page(request, route)
        server = self._methods.get(request.method)
        if server is not None:
            return await server.answer(request)
        if request.method == "OPTIONS":
            return ApiResponse(status=204, headers=self._allow)
        return refusal(self._wrong_method(request), headers=self._allow)

    async def _guarded(self, request: HttpRequest) -> ApiResponse | None:
        """The response, whatever fails; None when it was a stream, or the caller has disconnected."""
        try:
            answer = await self._answer(request)
            if answer is None or not answer.compressible:
                return answer
            return await self._setting.compression.applied(request, answer)
        except Bug as error:
            return self._internal_error(request, error)
        except CorralError as error:
            return refusal(error)
        except ClientGone:
            return None
        except Exception as error:
            return self._internal_error(request, error)

    def _internal_error(self, request: HttpRequest, error: Exception) -> ApiResponse:
        error_id = new_id("err", self._setting.entropy)
        log.error(
            "http_request.failed",
            error_id=error_id,
            method=request.method,
            path=request.shown_path,
            exc_info=error,
        )
        return internal_error(error_id)


class RouteServer(Protocol):
    """Serves one route."""

    async def answer(self, request: HttpRequest) -> ApiResponse | None:
        """The answer; None when it was sent in pieces. Every refusal is raised."""


def server_of(route: Route, *, setting: ProcessContext, gate: CurrentTerm) -> RouteServer:
    admission = RouteAdmission(route, setting=setting, gate=gate)
    match route:
        case Probe():
            return ProbeServer(route, admission)
        case Page():
            return PageServer(route, admission)
        case Read():
            return ReadServer(route, admission)
        case ProxyRead():
            return ProxyReadServer(route, admission)
        case LoginRoute():
            return LoginServer(route, admission)
        case Asset():
            return AssetServer(route, admission)
        case Report():
            return ReportServer(route, admission)
        case Stream():
            return StreamServer(route, admission)
        case Download():
            return DownloadServer(route, admission)
        case Socket():
            return SocketServer(route, admission)
        case Relay():
            return RelayServer(admission)
        case Mutate():
            return MutateServer(route, admission)
        case Build():
            return BuildServer(route, admission)
        case Upload():
            return UploadServer(route, admission)
        case Act(ends_term=True):
            return TermEndServer(route, admission)
        case Act():
            return ActServer(route, admission)
        case Once():
            return OnceServer(route, admission)
        case FormUpload():
            return IntakeServer(route, admission)
        case _:
            raise Bug(f"{route.name} is of a kind that has no server")
