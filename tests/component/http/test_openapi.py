"""The description of the API: complete and valid. `test_fuzzed_api.py`: true when a fuzzer takes it at its word."""

from __future__ import annotations

from typing import Any

import httpx
import jsonschema_rs

from corral.controller.http.pipeline.route_table import PUBLIC, Page
from corral.controller.http.routes import ROUTES
from corral.domain.permissions import Permission

PATH = "/api/v1/openapi.json"


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


async def test_every_link_leads_to_an_operation_with_what_the_answer_has(client: httpx.AsyncClient) -> None:
    described = (await client.get(PATH)).json()
    operations = [each for methods in described["paths"].values() for each in methods.values()]
    by_id = {operation["operationId"]: operation for operation in operations}
    schemas, found = described["components"]["schemas"], 0
    for operation in operations:
        for answer in operation["responses"].values():
            for reference in answer.get("links", {}).values():
                link = described["components"]["links"][reference["$ref"].rpartition("/")[2]]
                known = {parameter["name"] for parameter in by_id[link["operationId"]]["parameters"]}
                assert set(link["parameters"]) <= known, link
                schema = answer["content"]["application/json"]["schema"]
                for expression in link["parameters"].values():
                    assert resolved(expression, schema, schemas), (operation["operationId"], expression)
                found += 1
    assert found > 100


def resolved(expression: str, schema: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """Whether the body of an answer of this schema has what the expression points to."""
    if not expression.startswith("$response.body#/"):
        return expression.startswith("$request.path.")
    kinds = [each for each in schema.get("anyOf", [schema]) if "$ref" in each]
    for word in expression.removeprefix("$response.body#/").split("/"):
        inner = [schemas[kind["$ref"].rpartition("/")[2]]["properties"] for kind in kinds]
        if word != "0":
            kinds = [fields[word].get("items", fields[word]) for fields in inner if word in fields]
        if not all("$ref" in kind for kind in kinds):
            return bool(kinds)
    return bool(kinds)
