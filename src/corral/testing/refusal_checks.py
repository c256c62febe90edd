"""Whether a controller refuses as documented: each refusal has to be among those that the description of its route has."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.routing import compile_path

from corral.controller.app import ControllerApp
from corral.controller.http.messages.request import AsgiApp, Receive, Scope, Send
from corral.controller.http.messages.responses import ErrorShape
from corral.controller.http.messages.universe_errors import is_universe_path
from corral.controller.http.pipeline.route_table import Page, Relay, Route
from corral.controller.http.refusals import refusals_of
from corral.controller.http.routes import ROUTES
from corral.errors import Code

_BUGS: Final = (Code.INTERNAL.status,)
"""Any route may have one, and no route describes it."""
_COUNTED: Final = "corral_http_requests"


class WatchedApi:
    """The API, with every refusal that it sends compared with the description of its route."""

    def __init__(self, api: AsgiApp, routes: Sequence[Route]) -> None:
        self._api = api
        self._table = RefusalTable(routes)
        self.faults: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused: list[int] = []
        body = bytearray()

        async def watched(message: Any) -> None:
            kind = message["type"]
            if kind.endswith("http.response.start") and message["status"] >= 400:
                refused.append(message["status"])
            if refused and kind.endswith("http.response.body"):
                body.extend(message.get("body", b""))
            await send(message)

        await self._api(scope, receive, watched)
        if refused:
            self.faults += self._table.faults(scope, refused[0], bytes(body))


class RefusalTable:
    """What each route may refuse with. A request finds its route as in the API: a literal path beats a pattern."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = {route.name: route for route in routes if not isinstance(route, Page)}
        self._refusals = functools.cache(lambda name: refusals_of(self._routes[name]))
        self._relays = {route.name for route in routes if isinstance(route, Relay)}
        self._patterns: list[tuple[re.Pattern[str], str]] = sorted(
            ((compile_path(route.pattern)[0], route.path) for route in routes),
            key=lambda each: "{" in each[1],
        )

    def faults(self, scope: Scope, status: int, body: bytes) -> list[str]:
        """How this refusal differs from its description; nothing where no route answered it."""
        method = "GET" if scope.get("method", "GET") == "HEAD" else scope.get("method", "GET")
        matching = [path for pattern, path in self._patterns if pattern.match(scope["path"])]
        name = next((f"{method} {path}" for path in matching if f"{method} {path}" in self._routes), "")
        if not name or status in _BUGS:
            return []
        if name in self._relays or is_universe_path(scope["path"]) or method == "HEAD" or not body:
            return self.status_faults(name, status)
        try:
            found = msgspec.json.decode(body, type=ErrorShape).error.code
        except msgspec.MsgspecError:
            found = ""  # an answer of a module, or of a probe
        if not found or found in {code.name for code in self._refusals(name).get(status, ())}:
            return [] if found else self.status_faults(name, status)
        return [f"{name} refuses with {status} {found}"]

    def status_faults(self, name: str, status: int) -> list[str]:
        """A fault for a status that the route does not describe."""
        if status in _BUGS or name in self._relays or name not in self._routes:
            return []
        return [] if status in self._refusals(name) else [f"{name} refuses with {status}"]


def refusal_faults(app: ControllerApp) -> list[str]:
    """The refusals that a controller has counted since it leads or led, and its routes do not describe."""
    leading = app.role.http_gate()
    if leading is None:
        return []
    refused = [
        (f"{sample.labels['method']} {sample.labels['route']}", int(sample.labels["status"]))
        for metric in leading.setting.metrics.registry.restricted_registry([f"{_COUNTED}_total"]).collect()
        for sample in metric.samples
        if sample.name == f"{_COUNTED}_total" and int(sample.labels["status"]) >= 400
    ]
    table = RefusalTable(ROUTES) if refused else None
    return [fault for each in refused if table is not None for fault in table.status_faults(*each)]
