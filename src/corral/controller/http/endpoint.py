"""One path and its methods; no request leaves without an answer in our shape."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import structlog

from corral.controller.http.api_context import Gate, Setting
from corral.controller.http.request import ClientGone, Receive, Request, Scope, Send
from corral.controller.http.responses import Answer, Headers, internal_error, refusal
from corral.controller.http.route_servers.choice import RouteServer, server_of
from corral.controller.http.route_table import Route
from corral.controller.http.sending import send_answer
from corral.errors import Bug, Code, CorralError, Rejected
from corral.system import log_context
from corral.system.entropy import new_id

log = structlog.get_logger(__name__)

_NOUNS: Final = {
    "/api/v1/instances/{id}": "instance",
    "/api/v1/nodes/{id}": "node",
    "/api/v1/modules/{id}": "module",
}
"""The id in these paths is bound to log records."""
_LONGEST_ID: Final = 80


class Endpoint:
    """Answers every request to one path; no request leaves without an answer in our shape."""

    def __init__(self, *, path: str, routes: Sequence[Route], setting: Setting, gate: Gate) -> None:
        self._path = path
        self._noun = next((noun for start, noun in _NOUNS.items() if path.startswith(start)), None)
        self._setting = setting
        self._methods = {route.method: server_of(route, setting=setting, gate=gate) for route in routes}
        if "GET" in self._methods:
            self._methods["HEAD"] = self._methods["GET"]
        self._allow: Headers = ((b"allow", ", ".join(sorted({*self._methods, "OPTIONS"})).encode()),)

    def takes(self, method: str) -> bool:
        return method in self._methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        request = Request(scope, receive, send, entropy=self._setting.entropy)
        with log_context.only({"request": request.id, **self._subject(scope)}):
            await self._serve(request, began)

    def _subject(self, scope: Scope) -> dict[str, str]:
        """What the path is about, for log records: an instance, a node or a module."""
        if self._noun is None:
            return {}
        return {self._noun: scope.get("path_params", {}).get("id", "")[:_LONGEST_ID]}

    async def _serve(self, request: Request, began: float) -> None:
        server = self._methods.get(request.method)
        answer: Answer | None
        if server is not None:
            answer = await self._guarded(server, request)
        elif request.method == "OPTIONS":
            answer = Answer(status=204, headers=self._allow)
        else:
            answer = refusal(self._wrong_method(request), headers=self._allow)
        if answer is not None:
            await send_answer(request, answer)
        self._count(request, answer, time.perf_counter() - began)

    def _count(self, request: Request, answer: Answer | None, seconds: float) -> None:
        log.debug(
            "http.answered",
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

    def _wrong_method(self, request: Request) -> Rejected:
        return Rejected(
            Code.METHOD_NOT_ALLOWED,
            f"{request.method} is not possible on {self._path}",
            hint=f"possible: {self._allow[0][1].decode()}",
        )

    async def _guarded(self, server: RouteServer, request: Request) -> Answer | None:
        """The answer, whatever goes wrong; None when it was a stream, or nobody is left to hear it."""
        try:
            return await server.answer(request)
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
            method=request.method,
            path=request.path,
            exc_info=error,
        )
        return internal_error(error_id)
