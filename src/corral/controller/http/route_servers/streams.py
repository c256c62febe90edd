"""Servers of routes whose answer is sent in pieces: event streams, downloads, sockets, and answers of modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from corral.controller.http.admission import Admission, AdmittedRequest
from corral.controller.http.caller_limits import OpenStream
from corral.controller.http.handler_parameters import bound
from corral.controller.http.module_calls import relay
from corral.controller.http.request import Request
from corral.controller.http.responses import EVENT_STREAM, Answer
from corral.controller.http.route_table import Download, Socket, Stream
from corral.controller.http.sse_stream import serve_download, serve_stream
from corral.controller.http.websockets import serve_socket, ticket_of
from corral.errors import Code, Rejected


class StreamServer:
    """Serves a `Stream`."""

    def __init__(self, route: Stream, admission: Admission) -> None:
        self._route = route
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: Request) -> Answer | None:
        admitted = await self._admission.admit(request, ticket_of=self._ticket)
        if request.method == "HEAD":
            return Answer(content_type=EVENT_STREAM)
        with _opened(self._admission, admitted, self._route.path) as stream:
            pump = await self._handler(admitted.leading, admitted.call)
            await serve_stream(request=request, stream=stream, pump=pump, headers=(request.id_header,))
        return None

    def _ticket(self, request: Request) -> str | None:
        return getattr(self._admission.query(request), "ticket", None) if self._route.ticketed else None


class DownloadServer:
    """Serves a `Download`."""

    def __init__(self, route: Download, admission: Admission) -> None:
        self._path = route.path
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: Request) -> None:
        admitted = await self._admission.admit(request)
        with _opened(self._admission, admitted, self._path) as stream:
            content = await self._handler(admitted.leading, admitted.call)
            await serve_download(
                request=request, stream=stream, content=content, headers=(request.id_header,)
            )


class SocketServer:
    """Serves a `Socket`."""

    def __init__(self, route: Socket, admission: Admission) -> None:
        self._path = route.path
        self._handler = bound(route.handler, given=1)
        self._admission = admission

    async def answer(self, request: Request) -> None:
        admitted = await self._admission.admit(request, ticket_of=_unless_authorised)
        if not request.is_socket:
            raise Rejected(
                Code.BAD_REQUEST,
                f"{self._path} speaks WebSocket only",
                hint="see GET /api/v1/openapi.json",
            )
        with _opened(self._admission, admitted, self._path) as stream:
            dialogue = await self._handler(admitted.leading, admitted.call)
            await serve_socket(request=request, stream=stream, dialogue=dialogue)


class RelayServer:
    """Serves a `Relay`: everything behind the permission is the module's."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    async def answer(self, request: Request) -> Answer | None:
        leading = self._admission.leading()
        return await relay(leading, self._admission.caller(leading, request), request)


@contextmanager
def _opened(admission: Admission, admitted: AdmittedRequest, path: str) -> Iterator[OpenStream]:
    """One of the caller's streams, counted as long as it is open."""
    with (
        admitted.leading.streams.opened(admitted.call.caller.token) as stream,
        admission.setting.metrics.streams(path).track_inprogress(),
    ):
        yield stream


def _unless_authorised(request: Request) -> str | None:
    return ticket_of(request) if request.header(b"authorization") is None else None
