"""The API as an ASGI application: finds the endpoint of a path, and answers what has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.routing import BaseRoute, Match, Router, WebSocketRoute
from starlette.routing import Route as PathPattern

from corral.controller.events.hub import EventHub
from corral.controller.http.api_context import Gate, Setting
from corral.controller.http.endpoint import Endpoint
from corral.controller.http.metrics import Players
from corral.controller.http.request import Receive, Request, Scope, Send
from corral.controller.http.responses import refusal
from corral.controller.http.route_table import Route, Socket, check_table
from corral.controller.http.sending import send_answer
from corral.errors import Code, Rejected

_UNROUTED: Final = "(none)"


class Api:
    """Serves a table of routes. `gate` gives the parts of the present term, or None on a standby."""

    def __init__(self, *, setting: Setting, gate: Gate, routes: Sequence[Route]) -> None:
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
        request = Request(scope, receive, send, entropy=self._setting.entropy)
        error = Rejected(
            Code.NOT_FOUND,
            f"there is nothing at '{request.path[:200]}'",
            hint="GET /api/v1/openapi.json lists all paths",
        )
        await send_answer(request, refusal(error))
        self._setting.metrics.answered(
            method="(any)", route=_UNROUTED, status=error.code.status, seconds=None
        )

    def _hub(self) -> EventHub | None:
        leading = self._gate()
        return leading.hub if leading else None

    def _players(self) -> list[Players]:
        leading = self._gate()
        return leading.workload.vitals.all_players() if leading else []
