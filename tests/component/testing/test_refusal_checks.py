"""The suites notice a refusal that is not described."""

from __future__ import annotations

from typing import Any

import pytest

from corral.controller.http.messages.responses import refusal
from corral.controller.http.routes import ROUTES
from corral.errors import Code, Rejected
from corral.testing.refusal_checks import WatchedApi


def refusing(status: int, body: bytes) -> Any:
    async def api(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return api


async def faults(method: str, path: str, code: Code) -> list[str]:
    answer = refusal(Rejected(code, "no"))
    watched = WatchedApi(refusing(answer.status, answer.body), ROUTES)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await watched({"type": "http", "method": method, "path": path}, _nothing, send)
    assert sent[0]["status"] == code.status
    return watched.faults


async def _nothing() -> Any:
    return {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("method", "path", "code", "expected"),
    [
        ("GET", "/api/v1/groups/lobby", Code.NOT_FOUND, []),
        ("HEAD", "/api/v1/groups/lobby", Code.NOT_FOUND, []),
        (
            "GET",
            "/api/v1/groups/lobby",
            Code.DISK_FULL,
            ["GET /api/v1/groups/{name} refuses with 507 DISK_FULL"],
        ),
        (
            "GET",
            "/api/v1/groups/lobby",
            Code.TEMPLATE_NOT_FOUND,
            ["GET /api/v1/groups/{name} refuses with 404 TEMPLATE_NOT_FOUND"],
        ),
        ("POST", "/api/instances", Code.CONFLICT, []),
        ("POST", "/api/instances", Code.RESYNC_REQUIRED, ["POST /api/instances refuses with 410"]),
        ("GET", "/api/v1/groups/lobby", Code.INTERNAL, []),
        ("GET", "/api/v1/nothing", Code.NOT_FOUND, []),
        ("GET", "/api/v1/modules/m/its/own", Code.ALREADY_EXISTS, []),
    ],
)
async def test_a_refusal_that_its_route_does_not_describe_is_a_fault(
    method: str, path: str, code: Code, expected: list[str]
) -> None:
    assert await faults(method, path, code) == expected
