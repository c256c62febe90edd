"""The description of the API: complete, valid, and true when a fuzzer takes it at its word."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import httpx
import hypothesis
import jsonschema_rs
import pytest
import schemathesis
from http_rig import Rig
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from corral.controller.http.pipeline.route_table import PUBLIC, Page, Stream
from corral.controller.http.routes import ROUTES
from corral.domain.permissions import Permission

PATH = "/api/v1/openapi.json"
EXAMPLES = 4
CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)


async def test_every_route_but_pages_is_described_with_its_permission(client: httpx.AsyncClient) -> None:
    routes = [route for route in ROUTES if not isinstance(route, Page)]
    described = (await client.get(PATH)).json()
    assert described["openapi"] == "3.1.0"
    found = {
        f"{method.upper()} {path}": operation
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
    }
    assert set(found) == {route.name for route in routes}
    for route in routes:
        operation = found[route.name]
        assert operation["summary"] == route.summary
        named = route.permission.value if isinstance(route.permission, Permission) else None
        assert operation.get("x-permission") == named
        assert bool(operation["security"]) == (route.permission is not PUBLIC)
    ids = [operation["operationId"] for operation in found.values()]
    assert len(set(ids)) == len(ids)


async def test_what_each_operation_may_refuse_has_its_codes_and_what_they_mean(
    client: httpx.AsyncClient,
) -> None:
    described = (await client.get(PATH)).json()
    responses = described["components"]["responses"]
    answers = described["paths"]["/api/v1/groups"]["post"]["responses"]
    assert "default" not in answers
    taken = responses[answers["409"]["$ref"].rpartition("/")[2]]
    assert "ALREADY_EXISTS" in taken["x-codes"]
    assert "- `ALREADY_EXISTS`: Something of this name exists." in taken["description"]
    error = {"error": {"code": "ALREADY_EXISTS", "message": "it exists", "status": 409}}
    schema = {**taken["content"]["application/json"]["schema"], "components": described["components"]}
    assert jsonschema_rs.validator_for(schema).is_valid(error)
    error["error"]["code"] = "DISK_FULL"
    assert not jsonschema_rs.validator_for(schema).is_valid(error)
    asset = described["paths"]["/api/v1/modules/{id}/frontend/{path}"]["get"]["responses"]
    assert "304" in asset


async def test_every_schema_is_a_schema(client: httpx.AsyncClient) -> None:
    described = (await client.get(PATH)).json()
    for schema in described["components"]["schemas"].values():
        assert jsonschema_rs.meta.is_valid(schema)


async def test_a_query_parameter_is_described_and_never_null(client: httpx.AsyncClient) -> None:
    parameters = (await client.get(PATH)).json()["paths"]["/api/v1/logs"]["get"]["parameters"]
    named = {parameter["name"]: parameter for parameter in parameters}
    assert named["source"]["required"] is True
    assert named["after"]["required"] is False
    assert named["after"]["schema"]["type"] == "integer"
    assert named["limit"]["schema"]["default"] == 100


def fuzz(url: str, token: str, described: dict[str, Any]) -> int:
    """Send what the description allows, and what it does not; every answer must be as described."""
    schema = schemathesis.openapi.from_dict(described)
    sent = 0
    fixed = {path for path in described["paths"] if "{" not in path}
    streams = {route.path for route in ROUTES if isinstance(route, Stream)}
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path in streams:
            continue  # these answer for ever; they have a suite of their own
        for mode in schemathesis.GenerationMode:
            if mode.is_negative and not (operation.body or operation.query or operation.headers):
                continue
            strategy = operation.as_strategy(generation_mode=mode)

            @hypothesis.settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                derandomize=True,
                suppress_health_check=list(hypothesis.HealthCheck),
                phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
            )
            @hypothesis.given(case=strategy)
            def attempt(case: schemathesis.Case) -> None:
                nonlocal sent
                if case.formatted_path in fixed and case.formatted_path != case.operation.path:
                    return  # an id that happens to be the name of a route beside it: that one answers
                response = case.call(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=15)
                case.validate_response(response, checks=CHECKS)
                sent += 1

            attempt()
    return sent


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_a_fuzzer_finds_no_server_error_and_no_answer_that_is_not_described(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.node("node-1")
    rig.log.write("something to read")
    await client.post("/api/v1/nodes/join-tokens")
    described = (await client.get(PATH)).json()

    def quietly() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the fuzzer's own machinery
            return fuzz(rig.url, rig.admin, described)

    assert await asyncio.to_thread(quietly) > 100
    assert (await client.get("/ready")).status_code == 200
