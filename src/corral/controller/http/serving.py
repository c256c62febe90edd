"""Serving one route: gate, caller, permission, input, handler, answer, in this order."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

from corral.controller.http.answers import EVENT_STREAM, Answer, shaped
from corral.controller.http.authentication import (
    authenticate,
    authenticate_workload,
    authorise,
    is_within,
    redeem,
)
from corral.controller.http.call import Call, Caller
from corral.controller.http.decoding import BodyDecoder, QueryDecoder
from corral.controller.http.form_spooling import HEADS, received_form, require_form
from corral.controller.http.idempotency import Guard, guard_of
from corral.controller.http.module_calls import relay
from corral.controller.http.mutating import Mutator, require
from corral.controller.http.preconditions import parse_match
from corral.controller.http.request import Request, Scope
from corral.controller.http.route_table import (
    PUBLIC,
    Act,
    Asset,
    Build,
    Content,
    Download,
    Intake,
    Mutate,
    Once,
    Probe,
    Read,
    Relay,
    Report,
    Route,
    Socket,
    Stream,
    Upload,
)
from corral.controller.http.setting import Gate, Leading, Setting
from corral.controller.http.sockets import serve_socket, ticket_of
from corral.controller.http.streaming import serve_download, serve_stream
from corral.controller.http.uploading import NOTHING_STORED, Incoming, take_in
from corral.domain.permissions import Permission
from corral.domain.sensitive_fields import redacted, sees_all
from corral.errors import Bug, Code, Rejected

_EMPTY_BODY: Final = b"{}"


class Served:
    """A route with what it needs to be served."""

    def __init__(self, route: Route, *, setting: Setting, gate: Gate, mutator: Mutator) -> None:
        self._route = route
        self._setting = setting
        self._gate = gate
        self._mutator = mutator
        self._query = QueryDecoder(route.query)
        self._body = BodyDecoder(route.body) if route.body else None

    async def answer(self, request: Request) -> Answer | None:
        now = self._setting.clock.now()
        if isinstance(self._route, Probe):
            return await self._probe(self._route, request)
        leading = self._leading()
        if isinstance(self._route, Report):
            return await self._report(self._route, leading, request)
        query = None
        if isinstance(self._route, Stream) and self._route.ticketed:
            query = self._query.decode(request.query)  # the ticket is in there
        ticket = getattr(query, "ticket", None)
        if isinstance(self._route, Socket) and request.header(b"authorization") is None:
            ticket = ticket_of(request)
        caller = self._caller(leading, request, ticket=ticket)
        if isinstance(self._route, Relay):
            return await relay(leading, caller, request)
        raw = b"" if isinstance(self._route, Upload | Intake) else await self._read_body(request)
        call: Call[Any, Any] = Call(
            caller=caller,
            path=_path(request.scope),
            body=await self._body.received(raw) if self._body else None,
            query=query or self._query.decode(request.query),
            now=now,
            last_event_id=request.header(b"last-event-id"),
        )
        return await self._dispatch(leading, call, request, raw)

    def _leading(self) -> Leading:
        leading = self._gate()
        if leading is None:
            raise self._setting.not_leading()
        return leading

    def _caller(self, leading: Leading, request: Request, *, ticket: str | None) -> Caller:
        now = self._setting.clock.now()
        try:
            if ticket is not None:
                caller = redeem(leading, request, ticket, now=now)
            else:
                caller = authenticate(leading, request, now=now)
        except Rejected:
            leading.rates.stranger(request.address)
            raise
        leading.rates.admit(caller.token.id)
        assert isinstance(self._route.permission, Permission), "only probes are public"
        authorise(caller, self._route.permission)
        return caller

    async def _read_body(self, request: Request) -> bytes:
        if request.method in ("GET", "HEAD"):
            return b""
        pause = self._setting.limits.body_pause_seconds
        raw = await request.read_body(limit=self._setting.body_limit, pause_seconds=pause)
        if raw and self._body is None:
            raise Rejected(Code.BAD_REQUEST, f"{self._route.name} takes no body")
        if raw:
            request.require_json()
        return raw

    async def _dispatch(
        self, leading: Leading, call: Call[Any, Any], request: Request, raw: bytes
    ) -> Answer | None:
        route = self._route
        match route:
            case Read():
                found = await route.handler(leading, call)
                return shaped(
                    found if sees_all(call.caller.token.role) else redacted(found), status=route.status
                )
            case Stream() if request.method == "HEAD":
                return Answer(content_type=EVENT_STREAM)
            case Stream():
                await self._stream(route, leading, call, request)
                return None
            case Download() | Socket():
                await self._serve(route, leading, call, request)
                return None
            case Asset():
                return _unless_held(await route.handler(leading, call), request)
            case Upload():
                return await self._upload(route, leading, call, request)
            case Intake():
                return await self._take_form(route, leading, call, request)
            case Mutate() | Build() | Act() | Once():
                return await self._change(route, leading, call, request, raw)
            case _:
                raise Bug(f"{route.name} is of a kind that nobody serves")

    async def _change(
        self,
        route: Mutate | Build | Act | Once,
        leading: Leading,
        call: Call[Any, Any],
        request: Request,
        raw: bytes,
    ) -> Answer:
        guard = _guard(request, call, raw)
        match = parse_match(request.header(b"if-match"))
        if isinstance(route, Mutate):
            return await self._mutator.mutate(route, leading, call, guard=guard, match=match)
        if isinstance(route, Build):
            return await self._mutator.build(route, leading, call, guard=guard, match=match)
        _refuse_match(route, request)
        if isinstance(route, Once):
            return await self._mutator.once(route, leading, call, guard=guard)
        return await self._mutator.act(route, leading, call, guard=guard)

    async def _upload(
        self, route: Upload, leading: Leading, call: Call[Any, Any], request: Request
    ) -> Answer:
        """Everything that can be refused without the body is refused before it is read."""
        match = parse_match(request.header(b"if-match"))
        keyed = _guard(request, call, b"") is not None
        require(route, leading, call, match)
        request.require_bytes()
        limit = route.limit(leading)
        request.refuse_declared(limit)
        incoming = Incoming(request, limit=limit, pace=self._setting.upload_pace(), digested=keyed)
        with leading.uploads.opened(call.caller.token) as stream:
            describe = await take_in(route, leading, call, incoming=incoming, stream=stream)
        guard = _guard(request, call, incoming.digest)
        return await self._mutator.commit_upload(route, leading, call, describe, guard=guard, match=match)

    async def _take_form(
        self, route: Intake, leading: Leading, call: Call[Any, Any], request: Request
    ) -> Answer:
        """Everything that can be refused without the body is refused before it is read."""
        _refuse_match(route, request)
        _guard(request, call, b"")
        content_type = request.header(b"content-type") or ""
        require_form(content_type)
        request.require_plain()
        limit = route.limit(leading)
        whole = limit + sum(route.small.values()) + HEADS
        request.refuse_declared(whole)
        incoming = Incoming(request, limit=whole, pace=self._setting.upload_pace(), digested=False)
        async with contextlib.AsyncExitStack() as stack:
            pieces = await stack.enter_async_context(contextlib.aclosing(incoming.pieces()))
            receiving = received_form(
                pieces,
                content_type=content_type,
                directory=route.directory(leading),
                limit=limit,
                small=route.small,
            )
            with leading.uploads.opened(call.caller.token) as stream:
                entering = stack.enter_async_context(receiving)
                form = await leading.uploads.within(stream, entering, otherwise=NOTHING_STORED)
            guard = _guard(request, call, form.digest)
            return await self._mutator.act_on_form(route, leading, call, form, guard=guard)

    async def _report(self, route: Report, leading: Leading, request: Request) -> Answer:
        run = authenticate_workload(leading, request, late=route.late)
        self._query.decode(request.query)
        raw = await self._read_body(request)
        body = await self._body.received(raw or _EMPTY_BODY) if self._body else None
        return shaped(route.handler(leading, run, body), status=route.status)

    async def _stream(self, route: Stream, leading: Leading, call: Call[Any, Any], request: Request) -> None:
        with (
            leading.streams.opened(call.caller.token) as stream,
            self._setting.metrics.streams(route.path).track_inprogress(),
        ):
            pump = await route.handler(leading, call)
            await serve_stream(
                request=request,
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
    ) -> None:
        if isinstance(route, Socket) != request.is_socket:
            raise Rejected(
                Code.BAD_REQUEST,
                f"{route.path} " + ("is no WebSocket" if request.is_socket else "speaks WebSocket only"),
                hint="see GET /api/v1/openapi.json",
            )
        with (
            leading.streams.opened(call.caller.token) as stream,
            self._setting.metrics.streams(route.path).track_inprogress(),
        ):
            served = await route.handler(leading, call)
            if isinstance(served, Content):
                headers = ((b"x-request-id", request.id),)
                await serve_download(request=request, stream=stream, content=served, headers=headers)
            else:
                await serve_socket(request=request, stream=stream, dialogue=served)

    async def _probe(self, route: Probe, request: Request) -> Answer:
        self._query.decode(request.query)
        scraper = route.open_to_scrapers and is_within(request.address, self._setting.scrape_networks)
        if route.permission is not PUBLIC and not scraper:
            self._caller(self._leading(), request, ticket=None)
        return await route.handler(self._setting, self._gate)


def _path(scope: Scope) -> Mapping[str, str]:
    found: Mapping[str, str] = scope.get("path_params", {})
    return found


def _refuse_match(route: Route, request: Request) -> None:
    if request.header(b"if-match") is not None:
        raise Rejected(Code.BAD_REQUEST, f"If-Match means nothing to {route.name}", field="If-Match")


def _unless_held(answer: Answer, request: Request) -> Answer:
    """An asset, or word that the caller has it already (RFC 9110: tags are compared weakly here)."""
    tag = dict(answer.headers).get(b"etag", b"").decode("latin-1")
    held = (request.header(b"if-none-match") or "").split(",")
    if answer.status != 200 or tag not in {each.strip().removeprefix("W/") for each in held}:
        return answer
    return Answer(status=304, headers=answer.headers)


def _guard(request: Request, call: Call[Any, Any], body: bytes) -> Guard | None:
    return guard_of(
        request.header(b"idempotency-key"),
        caller=call.caller,
        method=request.method,
        path=request.path,
        query=request.query,
        body=body,
    )
