"""Refusals in the OpenAPI document: of each operation the statuses, with the codes of each and what they mean. Operations
that refuse alike share a response of the components."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from corral.controller.http.meanings import code_meanings
from corral.controller.http.messages.responses import ErrorShape
from corral.controller.http.messages.universe_errors import UniverseError, is_universe_path
from corral.controller.http.pipeline.route_table import Relay, Route
from corral.controller.http.refusals import refusals_of
from corral.errors import Code

_REF: Final = "#/components/responses/{}"
_SCHEMA: Final = "#/components/schemas/{}"
_JSON: Final = "application/json"
_OF_MODULE: Final = {"description": "Whatever else the module answers", "content": {"*/*": {}}}
_RETRY_AFTER: Final = {"description": "The seconds to wait.", "schema": {"type": "integer", "minimum": 1}}


class RefusalResponses:
    """Makes the responses of operations, and keeps each that is made in `components`, by name."""

    def __init__(self) -> None:
        self.components: dict[str, dict[str, Any]] = {}

    def of(self, route: Route) -> dict[str, dict[str, Any]]:
        """The refusals of a route, by status."""
        universe = is_universe_path(route.path)
        found = {
            str(status): {"$ref": _REF.format(self._named(status, codes, universe=universe))}
            for status, codes in refusals_of(route).items()
        }
        return {**found, "default": _OF_MODULE} if isinstance(route, Relay) else found

    def _named(self, status: int, codes: Sequence[Code], *, universe: bool) -> str:
        words = [*(["Universe"] if universe else []), str(status), *(code.name for code in codes)]
        name = "-".join(words)
        if name not in self.components:
            self.components[name] = _response(status, codes, universe=universe)
        return name


def _response(status: int, codes: Sequence[Code], *, universe: bool) -> dict[str, Any]:
    names = [code.name for code in codes]
    told = code_meanings()
    shape = UniverseError if universe else ErrorShape
    schema: dict[str, Any] = {"$ref": _SCHEMA.format(shape.__name__)}
    if not universe:
        detail = {"properties": {"code": {"enum": names}, "status": {"const": status}}}
        schema = {"allOf": [schema, {"properties": {"error": detail}}]}
    response: dict[str, Any] = {
        "description": "\n".join(f"- `{name}`: {told[name]}" for name in names),
        "content": {_JSON: {"schema": schema}},
        "x-codes": names,
    }
    if status in (429, 503):
        response["headers"] = {"Retry-After": _RETRY_AFTER}
    return response
