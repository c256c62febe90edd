"""gzip of answers: of summaries and of the description of the API, and of nothing that may hold a secret."""

from __future__ import annotations

import gzip

import httpx
import msgspec
import pytest
from http_rig import Rig
from sse_client import following

from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.http.routes import ROUTES
from corral.domain.field_classes.field_class import FieldClass
from corral.domain.sensitive_fields import field_classes

GZIP = {"Accept-Encoding": "gzip"}
PLAIN = {"Accept-Encoding": "identity"}
DESCRIPTION = "/api/v1/openapi.json"
COMPACT = sorted(route.path for route in ROUTES if route.compact is not None)


async def raw(
    client: httpx.AsyncClient, path: str, headers: dict[str, str], method: str = "GET"
) -> tuple[httpx.Headers, bytes]:
    async with client.stream(method, path, headers=headers) as answer:
        assert answer.status_code == 200
        return answer.headers, b"".join([piece async for piece in answer.aiter_raw()])


@pytest.fixture
async def filled(rig: Rig) -> Rig:
    await rig.instance(reason="x" * 150)
    for number in range(20):
        await rig.group(f"group-{number}", min=0, labels={"a": "b" * 50})
        await rig.node(f"n-{number}")
    for _ in range(10):
        await rig.instance()
    return rig


async def test_summaries_and_the_description_are_compressed_for_those_who_accept_it(filled: Rig) -> None:
    async with filled.client() as client:
        assert COMPACT == ["/api/v1/groups", "/api/v1/instances", "/api/v1/nodes"]
        for path in (*(f"{each}?view=summary" for each in COMPACT), DESCRIPTION):
            plain_headers, plain = await raw(client, path, PLAIN)
            headers, body = await raw(client, path, GZIP)
            assert headers["content-encoding"] == "gzip"
            assert gzip.decompress(body) == plain, path
            assert int(headers["content-length"]) == len(body) < len(plain)
            assert "content-encoding" not in plain_headers
            assert headers["vary"] == plain_headers["vary"] == "Accept-Encoding"
            assert headers["content-type"] == plain_headers["content-type"]
            asked, nothing = await raw(client, path, GZIP, "HEAD")
            assert (asked["content-length"], nothing) == (headers["content-length"], b"")


async def test_no_other_read_is_compressed(filled: Rig) -> None:
    async with filled.client() as client:
        for route in ROUTES:
            if isinstance(route, Read) and route.method == "GET":
                path = with_ids(route)
                async with client.stream("GET", path, headers=GZIP) as answer:
                    assert "content-encoding" not in answer.headers, route.name
                    assert "Accept-Encoding" not in answer.headers.get("vary", ""), route.name


def with_ids(route: Route) -> str:
    """The path of something that is there."""
    noun = route.path.removeprefix("/api/v1/").partition("/")[0]
    id = {"instances": "lobby-1", "groups": "group-1", "nodes": "n-1"}.get(noun, "x")
    path = route.path
    for name in route.parameters:
        path = path.replace(f"{{{name}}}", id if name in ("id", "name") else "x")
    return f"{path}?source=controller" if noun == "logs" else path


async def test_answers_with_secrets_refusals_and_streams_are_sent_as_they_are(
    rig: Rig, client: httpx.AsyncClient
) -> None:
    made = await client.post("/api/v1/tokens", json={"name": "t" * 60, "role": "VIEWER"}, headers=GZIP)
    refused = await client.get("/api/v1/instances", params={"state": "x" * 190}, headers=GZIP)
    metrics = await client.get("/metrics", headers=GZIP)
    for answer in (made, refused, metrics):
        assert "content-encoding" not in answer.headers
    async with following(client, headers=GZIP) as reader:
        assert "content-encoding" not in reader.response.headers
        await rig.happen("node-1")
        assert (await reader.event()).event == "NODE_ERROR_REPORTED"


def test_what_is_compressed_has_open_fields_and_sentences_alone() -> None:
    kinds = [msgspec.inspect.type_info(route.compact) for route in ROUTES if route.compact is not None]
    assert kinds
    for page in kinds:
        assert isinstance(page, msgspec.inspect.StructType)
        items = next(field.type for field in page.fields if field.name == "items")
        assert isinstance(items, msgspec.inspect.ListType)
        assert isinstance(items.item_type, msgspec.inspect.StructType)
        classes = set(field_classes(items.item_type.cls).values())
        assert classes <= {FieldClass.OPEN, FieldClass.TEXT}, items.item_type.cls
