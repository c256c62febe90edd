"""Servers of routes that change nothing in the store themselves: probes, reads, assets, reports of workloads, and those
whose response is sent in pieces (event streams, downloads, WebSockets, responses of modules)."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from corral.controller.http.messages.call import LoginCall, SharedCall
from corral.controller.http.messages.list_pages import SummaryPage
from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.responses import CURSOR, EVENT_STREAM, ApiResponse, Headers, shaped
from corral.controller.http.pipeline.admission import AdmittedRequest, RouteAdmission
from corral.controller.http.pipeline.api_context import TermContext
from corral.controller.http.pipeline.authentication import (
    authenticate_proxy,
    authenticate_workload,
    has_workload_token,
    require_private,
)
from corral.controller.http.pipeline.caller_limits import OpenStream
from corral.controller.http.pipeline.handler_parameters import bound
from corral.controller.http.pipeline.module_calls import relay
from corral.controller.http.pipeline.route_table import (
    PUBLIC,
    Asset,
    Download,
    LoginRoute,
    Page,
    Probe,
    ProxyRead,
    Read,
    Report,
    Socket,
    Stream,
)
from corral.controller.http.pipeline.sse_stream import serve_download, serve_stream
from corral.controller.http.pipeline.websockets import serve_socket, ticket_of
from corral.errors import Code, Rejected
from corral.system.addresses import is_within

_EMPTY_BODY: Final = b"{}"


class ProbeServer:
    """Serves a `Probe`: also on a standby, and without a token where the route is public."""

    def __init__(self, route: Probe, admission: RouteAdmission) -> None:
        self._route = route
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        admission = self._admission
        if self._route.permission is not PUBLIC and not self._is_scraper(request):
            admission.caller(admission.leading(), request)
        admission.query(request)
        return await self._route.handler(admission.setting, admission.gate)

    def _is_scraper(self, request: HttpRequest) -> bool:
        """Not through a proxy: whose word would count there, or a mistake in its configuration, could be used by anybody."""
        networks = self._admission.setting.scrape_networks
        return (
            self._route.open_to_scrapers and not request.is_forwarded and is_within(request.address, networks)
        )


class PageServer:
    """Serves a `Page`."""

    def __init__(self, route: Page, admission: RouteAdmission) -> None:
        self._handler = route.handler
        self._setting = admission.setting

    async def answer(self, request: HttpRequest) -> ApiResponse:
        return _unless_held(await self._handler(self._setting, request), request)


class ReadServer:
    """Serves a `Read`; what the caller may not see is hidden."""

    def __init__(self, route: Read, admission: RouteAdmission) -> None:
        self._status = route.status
        self._handler = bound(route.handler, given=1)
        self._admission = admission
        self._has_cursor = route.method == "GET"

    async def answer(self, request: HttpRequest) -> ApiResponse:
        admitted = await self._admission.admit(request)
        cursor = _cursor(admitted.leading) if self._has_cursor else ()
        found = await self._handler(admitted.leading, admitted.call)
        return shaped(
            admitted.shown(found),
            status=self._status,
            headers=cursor,
            compressible=isinstance(found, SummaryPage),
        )


def _cursor(leading: TermContext) -> Headers:
    """The position in the event log from which on a reader of the answer has to follow the events. Take it right before the
    handler is called: up to its first `await` a handler runs in the same step of the loop, and its answer is the state at
    this very position. What a handler reads after an `await` may be newer, never older."""
    return ((CURSOR, str(leading.hub.head).encode()),)


class ProxyReadServer:
    """Serves a `ProxyRead`; what the caller may not see is hidden, proxies see it."""

    def __init__(self, route: ProxyRead, admission: RouteAdmission) -> None:
        self._status = route.status
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        if not has_workload_token(request):
            admitted = await self._admission.admit(request)
            call = admitted.call
            asked = SharedCall(path=call.path, query=call.query, now=call.now, access=call.caller.access)
            cursor = _cursor(admitted.leading)
            found = await self._handler(admitted.leading, asked)
            return shaped(admitted.shown(found), status=self._status, headers=cursor)
        leading = self._admission.leading()
        run = authenticate_proxy(leading, request, cost=self._admission.cost(request))
        request.made_by(f"instance:{run.instance}")
        shared = SharedCall(
            path=request.scope.get("path_params", {}),
            query=self._admission.query(request),
            now=self._admission.setting.clock.now(),
        )
        cursor = _cursor(leading)
        return shaped(await self._handler(leading, shared), status=self._status, headers=cursor)


class AssetServer:
    """Serves an `Asset`, or a 304 when the caller has it already."""

    def __init__(self, route: Asset, admission: RouteAdmission) -> None:
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        admitted = await self._admission.admit(request)
        return _unless_held(await self._handler(admitted.leading, admitted.call), request)


class ReportServer:
    """Serves a `Report`: the caller is a run, known by its own token."""

    def __init__(self, route: Report, admission: RouteAdmission) -> None:
        self._route = route
        self._handler = bound(route.handler, given=2)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        leading = self._admission.leading()
        run = authenticate_workload(leading, request, late=self._route.late)
        request.made_by(f"instance:{run.instance}")
        self._admission.query(request)
        raw = await self._admission.read_body(request)
        body = await self._admission.decode_body(raw or _EMPTY_BODY)
        return shaped(self._handler(leading, run, body), status=self._route.status)


def _unless_held(answer: ApiResponse, request: HttpRequest) -> ApiResponse:
    """An asset, or a 304 when the caller has it already (RFC 9110: tags are compared weakly here)."""
    tag = dict(answer.headers).get(b"etag", b"").decode("latin-1")
    held = (request.header(b"if-none-match") or "").split(",")
    if answer.status != 200 or tag not in {each.strip().removeprefix("W/") for each in held}:
        return answer
    return ApiResponse(status=304, headers=answer.headers)


class LoginServer:
    """Serves a `LoginRoute`."""

    def __init__(self, route: LoginRoute, admission: RouteAdmission) -> None:
        self._guesses = route.shows_secret
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse:
        admission = self._admission
        leading = admission.leading()
        leading.rates.login(request.address, guesses=self._guesses)
        require_private(request, insecure=admission.setting.allow_insecure_login)
        query = admission.query(request)
        body = await admission.decode_body(await admission.read_body(request))
        now = admission.setting.clock.now()
        return await self._handler(leading, LoginCall(body=body, query=query, now=now, http=request))


class StreamServer:
    """Serves a `Stream`."""

    def __init__(self, route: Stream, admission: RouteAdmission) -> None:
        self._route = route
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse | None:
        admitted = await self._admission.admit(request, ticket_of=self._admission.ticket)
        if request.method == "HEAD":
            return ApiResponse(content_type=EVENT_STREAM)
        with _opened(self._admission, admitted, self._route.path) as stream:
            pump = await self._handler(admitted.leading, admitted.call)
            await serve_stream(request=request, stream=stream, pump=pump, headers=(request.id_header,))
        return None


class DownloadServer:
    """Serves a `Download`."""

    def __init__(self, route: Download, admission: RouteAdmission) -> None:
        self._path = route.path
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> None:
        admitted = await self._admission.admit(request, ticket_of=self._admission.ticket)
        with _opened(self._admission, admitted, self._path) as stream:
            content = await self._handler(admitted.leading, admitted.call)
            await serve_download(
                request=request, stream=stream, content=content, headers=(request.id_header,)
            )


class SocketServer:
    """Serves a `Socket`."""

    def __init__(self, route: Socket, admission: RouteAdmission) -> None:
        self._path = route.path
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: HttpRequest) -> None:
        admitted = await self._admission.admit(request, ticket_of=self._ticket)
        if not request.is_socket:
            raise Rejected(
                Code.BAD_REQUEST,
                f"{self._path} speaks WebSocket only",
                hint="see GET /api/v1/openapi.json",
            )
        with _opened(self._admission, admitted, self._path) as stream:
            dialogue = await self._handler(admitted.leading, admitted.call)
            wait_turn = functools.partial(admitted.leading.rates.wait_turn, admitted.call.caller)
            await serve_socket(request=request, stream=stream, dialogue=dialogue, wait_turn=wait_turn)

    def _ticket(self, request: HttpRequest) -> str | None:
        if request.header(b"authorization") is not None:
            return None
        return ticket_of(request) or self._admission.ticket(request)


class RelayServer:
    """Serves a `Relay`: everything after the check of the permission is up to the module."""

    def __init__(self, admission: RouteAdmission) -> None:
        self._admission = admission

    async def answer(self, request: HttpRequest) -> ApiResponse | None:
        leading = self._admission.leading()
        return await relay(leading, self._admission.caller(leading, request), request)


@contextmanager
def _opened(admission: RouteAdmission, admitted: AdmittedRequest, path: str) -> Iterator[OpenStream]:
    """One of the caller's streams, counted as long as it is open."""
    with (
        admitted.leading.streams.opened(admitted.call.caller) as stream,
        admission.setting.metrics.streams(path).track_inprogress(),
    ):
        yield stream
