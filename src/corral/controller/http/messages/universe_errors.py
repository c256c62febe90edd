"""Refusals on Universe's paths: `{"error": "<text>"}` in place of the error schema, whoever refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from corral.controller.http.messages.responses import JSON, ApiResponse, ErrorShape, encode
from corral.errors import Code

_FAMILIES: Final = (
    "/api/ping",
    "/api/node",
    "/api/cluster",
    "/api/instances",
    "/api/configurations",
    "/api/templates",
    "/api/commands",
    "/api/console",
)
_STATUSES: Final[Mapping[str, Mapping[str, int]]] = {
    "POST /api/instances": {
        Code.NOT_FOUND.name: 400,
        Code.NO_CAPACITY.name: 503,
        Code.PORT_RANGE_EXHAUSTED.name: 503,
    },
}
"""By route and by code of an error: where Universe's clients know another status than ours."""
_RETRY_SECONDS: Final = b"5"


class UniverseError(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every refusal on Universe's paths."""

    error: str


def is_universe_path(path: str) -> bool:
    """Whether a path is one of Universe's, or would be if there were something."""
    return any(path == family or path.startswith(f"{family}/") for family in _FAMILIES)


def universe_status(route: str, code: Code) -> int:
    """The status of a refusal by this route, such as `POST /api/instances`."""
    return _STATUSES.get(route, {}).get(code.name, code.status)


def in_universe_form(answer: ApiResponse, *, route: str = "") -> ApiResponse:
    """A refusal as Universe's clients know them; any other answer as it is."""
    if answer.status < 400 or not answer.body or answer.content_type != JSON:
        return answer
    detail = msgspec.json.decode(answer.body, type=ErrorShape).error
    status = universe_status(route, Code[detail.code])
    headers = answer.headers
    if status == 503 != answer.status:
        headers = (*headers, (b"retry-after", _RETRY_SECONDS))
    text = "; ".join(part for part in (detail.message, detail.hint) if part)
    return msgspec.structs.replace(
        answer, status=status, body=encode(UniverseError(error=text)), headers=headers
    )
