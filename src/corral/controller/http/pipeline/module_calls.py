"""Calls of the routes of modules: checked here, answered by the module, and limited to the declared time.

The caller is authenticated before the existence of a route is revealed, and needs the permission that the
module declared. A request that may change something is audited before it is sent to the module: no request to
a module is missing in the audit, whatever its outcome.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import msgspec

from corral.controller.http.messages.call import Caller
from corral.controller.http.messages.request import CLIENT_CLOSED, PAGE_MODULE, ClientGone, HttpRequest
from corral.controller.http.messages.request_decoder import query_pairs
from corral.controller.http.messages.responses import ApiResponse, refusal, secured
from corral.controller.http.pipeline.api_context import TermContext
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.caller_limits import OpenStream
from corral.controller.http.pipeline.idempotency import guard_of
from corral.controller.http.pipeline.module_answers import (
    ModuleAnswer,
    checked,
    failed,
    in_doubt,
    public_failure,
    settle_failure,
)
from corral.controller.http.pipeline.scoping import Scoping, check_scope
from corral.controller.http.pipeline.sse_stream import cut, until_gone
from corral.domain.permissions import Permission
from corral.errors import Code, CorralError, Rejected
from corral.modules.services.route_table import RouteMatch
from corral.sdk.protocol.frames import MAX_FRAME
from corral.sdk.protocol.messages import ROUTE, CallerBody, RouteAnswer, RouteRequest
from corral.system.aio.tasks import first_of

T = TypeVar("T")

ACTION: Final = "modules.call"
BODY_MAX: Final = MAX_FRAME - 512 * 1024
"""Largest body that fits into a frame with everything else of the request."""

KEPT_MAX: Final = 64 * 1024
"""Largest answer that is kept under an idempotency key."""

_READING: Final = frozenset({"GET", "HEAD"})
_KEPT_BACK: Final = frozenset(
    {
        "authorization",
        "connection",
        "cookie",
        "cookie2",
        "expect",
        "forwarded",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "x-api-key",
        "x-auth-token",
        "x-client-ip",
        "x-real-ip",
    }
)
"""Headers of a request that are not passed on to modules: of one connection, of the caller's credentials, and claims
about the caller's address, which a module has from us."""
_KEPT_BACK_STARTS: Final = (
    "corral-",
    "proxy-",
    "sec-websocket-",
    "x-corral-",
    "x-csrf",
    "x-forwarded",
    "x-original-",
    "x-xsrf",
)
"""Beginnings of others."""


async def relay(leading: TermContext, caller: Caller, request: HttpRequest) -> ApiResponse | None:
    """Answer a request with the response of a module; None when it was sent in pieces.

    NOT_FOUND, METHOD_NOT_ALLOWED, FORBIDDEN, BODY_TOO_LARGE, MODULE_NOT_ACTIVE, MODULE_TIMEOUT,
    MODULE_FAILED, MODULE_BUSY, RATE_LIMITED.
    """
    names = request.scope["path_params"]
    module_id, path = str(names["id"]), f"/{names['path']}"
    if leading.state.modules.find(module_id) is not None:
        request.label = f"/api/v1/modules/{module_id}/{{path}}"  # one a module that is there: bounded
    method = "GET" if request.method == "HEAD" else request.method
    match = leading.modules.engine.routes.find(module_id, method, path)
    declared = declared_permission(match)
    authorise(caller, declared)
    check_scope(Scoping.EVERYWHERE, caller.access, declared, leading.state, names)
    with leading.streams.opened(caller) as stream:  # modules take their time
        asked = await _asked(leading, match, caller, request, path)
        leading.streams.check(stream)  # the body may have taken a while
        if stream.closing.done():
            raise leading.streams.ended(stream, f"nothing was done: {stream.closing.result()}")
        call = _ModuleCall(leading, match, asked, request)
        if method in _READING:
            return await call.answered(stream)
        return await _once(leading, caller, call, stream)


async def _once(
    leading: TermContext, caller: Caller, call: _ModuleCall, stream: OpenStream
) -> ApiResponse | None:
    """A request that may change something: audited before it is sent to the module, and with a key done once."""
    request, asked = call.request, call.asked
    guard = guard_of(
        request.header(b"idempotency-key"),
        caller=caller,
        method=request.method,
        path=request.path,
        query=request.query,
        body=asked.body,
    )
    async with leading.attempts.in_turn(guard):
        now = leading.setting.clock.now()
        attempt = leading.attempts.attempt(caller=caller, now=now, guard=guard, whole=True)
        if (kept := attempt.kept_answer) is not None:
            return kept
        if attempt.in_doubt:
            raise in_doubt(call.module_id, call.named)
        audited: dict[str, object] = {"method": asked.method, "path": asked.path}
        if PAGE_MODULE in request.scope:
            audited["page"] = request.scope[PAGE_MODULE]
        await attempt.begin(action=ACTION, subject=call.module_id, after=audited)
        async with attempt.concluded():
            try:
                answer = await call.answered(stream, stays=guard is not None)
            except CorralError as error:
                await settle_failure(attempt, error)
                raise
        await attempt.finish(answer=_kept(answer))
        return answer


def _kept(answer: ApiResponse | None) -> ApiResponse:
    """An answer as it is stored under a key. Of one that was streamed, or is large, that it was given."""
    if answer is not None and len(answer.body) <= KEPT_MAX:
        return answer
    error = Rejected(
        Code.ANSWER_NOT_KEPT,
        f"the request with this key was done, and its answer is not kept: it was streamed, or had more than {KEPT_MAX} bytes",
        hint="ask the module what came of it",
    )
    return refusal(error)


def declared_permission(match: RouteMatch) -> Permission:
    """The permission that the module declared; FORBIDDEN to all callers when there is no such permission."""
    try:
        return Permission(match.declaration.permission)
    except ValueError:
        raise Rejected(
            Code.FORBIDDEN,
            f"module '{match.scope.module_id}' asks for a permission that does not exist",
            hint="nobody can have it; the module has to be mended",
        ) from None


async def _asked(
    leading: TermContext, match: RouteMatch, caller: Caller, request: HttpRequest, path: str
) -> RouteRequest:
    body = b""
    if request.method not in _READING:
        body = await request.read_body(
            limit=min(match.declaration.max_body, BODY_MAX),
            pause_seconds=leading.setting.limits.body_pause_seconds,
        )
    return RouteRequest(
        route=match.declaration.number,
        method=request.method,
        path=path,
        parameters=dict(match.parameters),
        query=tuple(query_pairs(request.query)),
        headers=tuple(_passed_on(request)),
        body=body,
        caller=CallerBody(
            name=caller.actor.name, role=caller.access.role or "", address=caller.actor.address
        ),
    )


def _passed_on(request: HttpRequest) -> list[tuple[str, str]]:
    given = [
        (name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in request.scope["headers"]
    ]
    named = {
        each.strip().lower() for name, value in given if name == "connection" for each in value.split(",")
    }
    return [(name, value) for name, value in given if not _is_kept_back(name) and name not in named]


def _is_kept_back(name: str) -> bool:
    """Many frameworks take `x_real_ip` for `x-real-ip`."""
    name = name.replace("_", "-")
    return name in _KEPT_BACK or name.startswith(_KEPT_BACK_STARTS)


class _ModuleCall:
    """One call into a module on behalf of one request."""

    def __init__(
        self, leading: TermContext, match: RouteMatch, asked: RouteRequest, request: HttpRequest
    ) -> None:
        self._leading = leading
        self._match = match
        self.asked = asked
        self.request = request
        self.named = f"{match.declaration.method} {match.declaration.path}"
        self._what = f"route:{self.named}"
        self._deadline = match.declaration.deadline_ms / 1000
        self.module_id = match.scope.module_id
        self._begun = False

    async def answered(self, stream: OpenStream, *, stays: bool = False) -> ApiResponse | None:
        """The response of the module; None when it was sent in pieces. `stays`: the call goes on when the caller
        disconnects."""
        if self._match.declaration.streams:
            return await self.guarded(self.in_pieces(), stream)
        return await self.guarded(self.whole(), stays=stays)

    async def whole(self) -> ApiResponse:
        """Call, and give back all of the answer."""
        answer = await self._match.scope.call(
            self._what, ROUTE, self.asked, answer=RouteAnswer, deadline=self._deadline
        )
        found = checked(self.module_id, answer)
        if found.streamed:
            raise failed(self.module_id, "it streams an answer of a route that was not declared to")
        return self._in_one(found)

    async def in_pieces(self) -> ApiResponse | None:
        """Call, and send the answer on as fast as the caller takes it."""
        async with self._match.scope.stream(
            self._what, ROUTE, self.asked, answer=RouteAnswer, deadline=self._deadline
        ) as (answer, chunks):
            found = checked(self.module_id, answer)
            if not found.streamed:
                return self._in_one(found)
            await self._begin(found)
            if self.request.method != "HEAD":
                async for chunk in chunks:
                    await self._write(chunk, more=True)
        await self._write(b"", more=False)
        return None

    async def guarded(
        self, work: Coroutine[Any, Any, T], stream: OpenStream | None = None, *, stays: bool = False
    ) -> T | None:
        """Run `work` until the caller disconnects or its stream is closed: then the call is cancelled."""
        try:
            return await (work if stays else self._unless_gone(work, stream))
        except (CorralError, msgspec.MsgspecError) as error:
            if not self._begun:
                raise public_failure(self.module_id, self.named, error) from error
            await cut(self.request)  # half an answer never looks whole
            return None

    async def _unless_gone(self, work: Coroutine[Any, Any, T], stream: OpenStream | None) -> T | None:
        closing = () if stream is None else (stream.closing,)
        done, *_ = await first_of(
            work, until_gone(self.request), *closing, name=f"http/call/{self.module_id}"
        )
        if done is not None:
            return done.result()
        if stream is not None and stream.closing.done():
            raise self._ended(stream)
        self.request.status = CLIENT_CLOSED
        raise ClientGone

    def _ended(self, stream: OpenStream) -> CorralError:
        return self._leading.streams.ended(stream, stream.closing.result())

    def _in_one(self, found: ModuleAnswer) -> ApiResponse:
        return ApiResponse(
            status=found.status, body=found.body, content_type=found.content_type, headers=found.headers
        )

    async def _begin(self, found: ModuleAnswer) -> None:
        headers = [
            *secured(found.headers),
            (b"content-type", found.content_type),
            (b"x-accel-buffering", b"no"),
            self.request.id_header,
        ]
        self._begun = True
        self.request.status = found.status
        await self.request.send({"type": "http.response.start", "status": found.status, "headers": headers})

    async def _write(self, piece: bytes, *, more: bool) -> None:
        await self.request.send({"type": "http.response.body", "body": piece, "more_body": more})
