"""One path and its methods: gate, caller, permission, input, handler, answer, in this order."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import structlog

from corral.controller.http.answers import EVENT_STREAM, Answer, Headers, internal_error, refusal, shaped
from corral.controller.http.authentication import authenticate, authorise, is_within, redeem
from corral.controller.http.call import Call, Caller
from corral.controller.http.decoding import BodyDecoder, QueryDecoder
from corral.controller.http.idempotency import guard_of
from corral.controller.http.mutating import Mutator
from corral.controller.http.preconditions import parse_match
from corral.controller.http.request import ClientGone, Receive, Request, Scope, Send
from corral.controller.http.route_table import (
    PUBLIC,
    Act,
    Content,
    Download,
    Mutate,
    Probe,
    Read,
    Route,
    Socket,
    Stream,
)
from corral.controller.http.sending import send_answer
from corral.controller.http.setting import Gate, Leading, Setting
from corral.controller.http.sockets import serve_socket, ticket_of
from corral.controller.http.streaming import serve_download, serve_stream
from corral.domain.permissions import Permission
from corral.errors import Bug, Code, CorralError, Rejected, Retryable
from corral.system.entropy import new_id

log = structlog.get_logger(__name__)

_EMPTY_BODY: Final = b"{}"
_BYTES: Final = b"application/octet-stream"


class Endpoint:
    """Answers every request to one path; no request leaves without an answer in our shape."""

    def __init__(
        self, *, path: str, routes: Sequence[Route], setting: Setting, gate: Gate, mutator: Mutator
    ) -> None:
        self._path = path
        self._setting = setting
        self._methods = {
            route.method: _Served(route, setting=setting, gate=gate, mutator=mutator) for route in routes
        }
        if "GET" in self._methods:
            self._methods["HEAD"] = self._methods["GET"]
        self._allow: Headers = ((b"allow", ", ".join(sorted({*self._methods, "OPTIONS"})).encode()),)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = Request(scope, receive, entropy=self._setting.entropy)
        served = self._methods.get(request.method)
        answer: Answer | None
        if served is not None:
            answer = await self._guarded(served, request, send)
        elif request.method == "OPTIONS":
            answer = Answer(status=204, headers=self._allow)
        else:
            answer = refusal(self._wrong_method(request), headers=self._allow)
        if answer is not None:
            await send_answer(send, answer, request_id=request.id, socket=request.is_socket)
        self._count(request, answer, time.perf_counter() - began)

    def _count(self, request: Request, answer: Answer | None, seconds: float) -> None:
        self._setting.metrics.answered(
            method=request.method if request.method in self._methods else "(other)",
            route=self._path,
            status=answer.status if answer else 200,
            seconds=seconds if answer else None,
        )

    def _wrong_method(self, request: Request) -> Rejected:
        return Rejected(
            Code.METHOD_NOT_ALLOWED,
            f"{request.method} is not possible on {self._path}",
            hint=f"possible: {self._allow[0][1].decode()}",
        )

    async def _guarded(self, served: _Served, request: Request, send: Send) -> Answer | None:
        """The answer, whatever goes wrong; None when it was a stream, or nobody is left to hear it."""
        try:
            return await served.answer(request, send)
        except Bug as error:
            return self._confess(request, error)
        except CorralError as error:
            return refusal(error)
        except ClientGone:
            return None
        except Exception as error:
            return self._confess(request, error)

    def _confess(self, request: Request, error: Exception) -> Answer:
        error_id = new_id("err", self._setting.entropy)
        log.error(
            "http.internal_error",
            error_id=error_id,
            request_id=request.id.decode(),
            method=request.method,
            path=request.path,
            exc_info=error,
        )
        return internal_error(error_id)


class _Served:
    """A route with what it needs to be served."""

    def __init__(self, route: Route, *, setting: Setting, gate: Gate, mutator: Mutator) -> None:
        self._route = route
        self._setting = setting
        self._gate = gate
        self._mutator = mutator
        self._query = QueryDecoder(route.query)
        self._body = BodyDecoder(route.body) if route.body else None

    async def answer(self, request: Request, send: Send) -> Answer | None:
        now = self._setting.clock.now()
        if isinstance(self._route, Probe):
            return self._probe(self._route, request)
        leading = self._leading()
        query = None
        if isinstance(self._route, Stream) and self._route.ticketed:
            query = self._query.decode(request.query)  # the ticket is in there
        ticket = getattr(query, "ticket", None)
        if isinstance(self._route, Socket) and request.header(b"authorization") is None:
            ticket = ticket_of(request)
        caller = self._caller(leading, request, ticket=ticket)
        raw = await self._read_body(request)
        call: Call[Any, Any] = Call(
            caller=caller,
            path=_path(request.scope),
            body=self._body.decode(raw or _EMPTY_BODY) if self._body else None,
            query=query or self._query.decode(request.query),
            now=now,
            last_event_id=request.header(b"last-event-id"),
        )
        return await self._dispatch(leading, call, request, send, raw)

    def _leading(self) -> Leading:
        leading = self._gate()
        if leading is None:
            raise Retryable(
                Code.NOT_LEADER,
                "this controller does not lead at present",
                hint="ask the leader, or try again shortly",
                retry_after=1.0,
            )
        return leading

    def _caller(self, leading: Leading, request: Request, *, ticket: str | None) -> Caller:
        now = self._setting.clock.now()
        if ticket is not None:
            caller = redeem(leading, request, ticket, now=now)
        else:
            caller = authenticate(leading, request, now=now)
        assert isinstance(self._route.permission, Permission), "only probes are public"
        authorise(caller, self._route.permission)
        return caller

    async def _read_body(self, request: Request) -> bytes:
        if request.method in ("GET", "HEAD"):
            return b""
        raw = await request.read_body(limit=self._setting.body_limit)
        if raw and self._body is None:
            raise Rejected(Code.BAD_REQUEST, f"{self._route.name} takes no body")
        if raw:
            request.require_json()
        return raw

    async def _dispatch(
        self, leading: Leading, call: Call[Any, Any], request: Request, send: Send, raw: bytes
    ) -> Answer | None:
        route = self._route
        match route:
            case Read():
                return shaped(await route.handler(leading, call), status=route.status)
            case Stream() if request.method == "HEAD":
                return Answer(content_type=EVENT_STREAM)
            case Stream():
                await self._stream(route, leading, call, request, send)
                return None
            case Download() if request.method == "HEAD":
                return Answer(content_type=_BYTES)
            case Download() | Socket():
                await self._serve(route, leading, call, request, send)
                return None
            case Mutate() | Act():
                return await self._change(route, leading, call, request, raw)
            case _:
                raise Bug(f"{route.name} is of a kind that nobody serves")

    async def _change(
        self, route: Mutate | Act, leading: Leading, call: Call[Any, Any], request: Request, raw: bytes
    ) -> Answer:
        guard = guard_of(
            request.header(b"idempotency-key"),
            caller=call.caller,
            method=request.method,
            path=request.path,
            query=request.query,
            body=raw,
        )
        match = parse_match(request.header(b"if-match"))
        if isinstance(route, Mutate):
            return await self._mutator.mutate(route, leading, call, guard=guard, match=match)
        if match is not None:
            raise Rejected(Code.BAD_REQUEST, f"If-Match means nothing to {route.name}", field="If-Match")
        return await self._mutator.act(route, leading, call, guard=guard)

    async def _stream(
        self, route: Stream, leading: Leading, call: Call[Any, Any], request: Request, send: Send
    ) -> None:
        pump = await route.handler(leading, call)
        with (
            leading.streams.opened(call.caller.token) as stream,
            self._setting.metrics.streams(route.path).track_inprogress(),
        ):
            await serve_stream(
                request=request,
                send=send,
                stream=stream,
                pump=pump,
                headers=((b"x-request-id", request.id),),
            )

    async def _serve(
        self,
        route: Download | Socket,
        leading: Leading,
        call: Call[Any, Any],
        request: Request,
        send: Send,
    ) -> None:
        if isinstance(route, Socket) != request.is_socket:
            raise Rejected(
                Code.BAD_REQUEST,
                f"{route.path} " + ("is no WebSocket" if request.is_socket else "speaks WebSocket only"),
                hint="see GET /api/v1/openapi.json",
            )
        served = await route.handler(leading, call)
        with (
            leading.streams.opened(call.caller.token) as stream,
            self._setting.metrics.streams(route.path).track_inprogress(),
        ):
            if isinstance(served, Content):
                headers = ((b"x-request-id", request.id),)
                await serve_download(
                    request=request, send=send, stream=stream, content=served, headers=headers
                )
            else:
                await serve_socket(request=request, send=send, stream=stream, dialogue=served)

    def _probe(self, route: Probe, request: Request) -> Answer:
        self._query.decode(request.query)
        scraper = route.open_to_scrapers and is_within(request.address, self._setting.scrape_networks)
        if route.permission is not PUBLIC and not scraper:
            self._caller(self._leading(), request, ticket=None)
        return route.handler(self._setting, self._gate)


def _path(scope: Scope) -> Mapping[str, str]:
    found: Mapping[str, str] = scope.get("path_params", {})
    return found
