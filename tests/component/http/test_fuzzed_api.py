"""A fuzzer takes the description of the API at its word: what it allows and what it does not is sent to every operation, as
an administrator, as a VIEWER and by nobody. Every answer is as described, and none shows what was hidden."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from http_rig import Rig
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from test_sensitive_fields import MARK, plant

from corral.controller.http.pipeline.route_table import PUBLIC, Stream
from corral.controller.http.routes import ROUTES
from corral.domain.permissions import Role

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

PATH = "/api/v1/openapi.json"
CHECKS = (
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
STREAMS = {route.path for route in ROUTES if isinstance(route, Stream)}
"""These answer for ever; they have a suite of their own."""
PUBLIC_PATHS = {route.path for route in ROUTES if route.permission is PUBLIC}
EVERYTHING = tuple(schemathesis.GenerationMode)
ALLOWED = (schemathesis.GenerationMode.POSITIVE,)

Look = Callable[[schemathesis.Case, Any], None]


def fuzz(
    url: str, token: str, described: dict[str, Any], *, examples: int, modes: Any, look: Look | None = None
) -> int:
    """Send so many requests of each mode to each operation, and let `look` see every answer; how many were sent. What is
    wrong with one operation does not spare the others."""
    sent = 0
    faults: list[str] = []
    fixed = {path for path in described["paths"] if "{" not in path}
    headers = {"Authorization": f"Bearer {token}"} if token else {}

    def attempt(case: schemathesis.Case) -> None:
        nonlocal sent
        if case.formatted_path in fixed and case.formatted_path != case.operation.path:
            return  # an id that happens to be the name of a route beside it: that one answers
        response = case.call(base_url=url, headers=headers, timeout=15)
        case.validate_response(response, checks=CHECKS)
        assert response.status_code < 500, response.text
        if look is not None:
            look(case, response)
        sent += 1

    bounded = hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    for found in schemathesis.openapi.from_dict(described).get_all_operations():
        operation = found.ok()
        for mode in modes:
            nothing_wrong = not (operation.body or operation.query or operation.headers)
            if operation.path not in STREAMS and not (mode.is_negative and nothing_wrong):
                strategy = operation.as_strategy(generation_mode=mode)
                try:
                    bounded(hypothesis.given(case=strategy)(attempt))()
                except (Exception, FailureGroup) as error:
                    faults.append(_told(operation.label, error))
    assert not faults, "\n\n".join(faults)
    return sent


def _told(label: str, error: BaseException) -> str:
    parts = getattr(error, "exceptions", (error,))
    return "\n".join([f"{label}:", *(str(part)[:1500] for part in parts)])


async def fuzzed(rig: Rig, token: str, **options: Any) -> int:
    async with rig.client() as admin:
        described = (await admin.get(PATH)).json()

    def quietly() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the fuzzer's own machinery
            return fuzz(rig.url, token, described, **options)

    return await asyncio.to_thread(quietly)


async def test_an_administrator_gets_no_server_error_and_no_answer_that_is_not_described(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1")
    rig.log.write("something to read")
    await client.post("/api/v1/nodes/join-tokens")
    assert await fuzzed(rig, rig.admin, examples=8, modes=EVERYTHING) > 1000
    assert (await client.get("/ready")).status_code == 200


async def test_a_viewer_gets_answers_as_described_and_finds_nothing_that_is_hidden(rig: Rig) -> None:
    await plant(rig)
    _, token = await rig.token(Role.VIEWER)
    shown: set[int] = set()

    def look(case: schemathesis.Case, response: Any) -> None:
        shown.add(response.status_code)
        found = response.text + str(response.headers)
        assert MARK not in found, f"{case.operation.label} shows it"
        assert rig.admin not in found, f"{case.operation.label} shows the administrator's token"

    assert await fuzzed(rig, token, examples=6, modes=ALLOWED, look=look) > 500
    assert {200, 403, 404} <= shown


async def test_nobody_gets_past_the_front_door(rig: Rig) -> None:
    await plant(rig)

    def look(case: schemathesis.Case, response: Any) -> None:
        refused = response.status_code in (401, 403, 421)
        assert refused or case.operation.path in PUBLIC_PATHS, case.operation.label

    assert await fuzzed(rig, "", examples=2, modes=ALLOWED, look=look) > 200
