"""Requests that are not right: each one is answered in the one error shape, and says what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from typing import Any

import httpx
import pytest
from http_rig import DEADLINE, Rig, http_rig

TOKENS = "/api/v1/tokens"
GOOD = {"name": "t", "role": "VIEWER"}


async def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The refusal's details, after checking that it is one and hides nothing it must not show."""
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error"}
    error: dict[str, Any] = answer.json()["error"]
    assert (error["code"], error["status"]) == (code, status)
    assert set(error) <= {"code", "message", "status", "field", "hint"}
    assert "Traceback" not in answer.text
    return error


async def post(client: httpx.AsyncClient, content: bytes, **headers: str) -> httpx.Response:
    given = {"Content-Type": "application/json", **headers}
    return await client.post(TOKENS, content=content, headers=given)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"name": "t", role}', "byte 14"),
        (b'{"name": "t"', "byte 12"),
        (b'{"name": "t", "role": "VIEWER"} x', "byte 33"),
        (b'{"name": "\xff\xfe", "role": "VIEWER"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "byte 0"),
        (b'{"name": "\\ud800", "role": "VIEWER"}', "not JSON"),
    ],
    ids=["no quotes", "cut off", "trailing", "bad utf-8", "byte order mark", "lone surrogate"],
)
async def test_a_broken_body_is_refused_with_the_place(
    client: httpx.AsyncClient, content: bytes, said: str
) -> None:
    error = await refused(await post(client, content), 400, "INVALID_JSON")
    assert said in error["message"]


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"name": "t", "role": "VIEWER", "expires_in_second": 5}, "UNKNOWN_FIELD", "expires_in_second"),
        ({"name": "t"}, "MISSING_FIELD", "role"),
        ({"name": 7, "role": "VIEWER"}, "INVALID_FIELD", "name"),
        ({"name": "t", "role": "KING"}, "INVALID_FIELD", "role"),
        ({"name": "", "role": "VIEWER"}, "INVALID_FIELD", "name"),
        ({"name": "t\n", "role": "VIEWER"}, "INVALID_FIELD", "name"),
        ({"name": "t", "role": "VIEWER", "expires_in_seconds": 0}, "INVALID_FIELD", "expires_in_seconds"),
        (
            {"name": "t", "role": "VIEWER", "expires_in_seconds": 10**30},
            "INVALID_FIELD",
            "expires_in_seconds",
        ),
    ],
    ids=["unknown", "missing", "type", "choice", "empty", "line feed", "too small", "too large"],
)
async def test_a_wrong_field_is_refused_by_its_name(
    client: httpx.AsyncClient, body: dict[str, Any], code: str, field: str
) -> None:
    error = await refused(await client.post(TOKENS, json=body), 400, code)
    assert error["field"] == field


async def test_an_unknown_field_is_answered_with_the_nearest_known_one(client: httpx.AsyncClient) -> None:
    error = await refused(
        await client.post(TOKENS, json={**GOOD, "expire_in_seconds": 3}), 400, "UNKNOWN_FIELD"
    )
    assert "did you mean 'expires_in_seconds'?" in error["hint"]
    assert "known: expires_in_seconds, name, owner, permissions, role, scope" in error["hint"]


async def test_a_body_that_is_no_object_is_refused(client: httpx.AsyncClient) -> None:
    error = await refused(await post(client, b"[]"), 400, "INVALID_FIELD")
    assert "field" not in error
    await refused(await post(client, b"[" * 10_000), 400, "INVALID_FIELD")
    await refused(await post(client, b"[" * 100_000), 413, "BODY_TOO_LARGE")


@pytest.mark.parametrize("opening", ['{"env":', "["], ids=["objects", "lists"])
@pytest.mark.parametrize("depth", [65, 970, 974, 10_000])
async def test_a_body_that_is_nested_deeply_is_refused(
    rig: Rig, client: httpx.AsyncClient, depth: int, opening: str
) -> None:
    await rig.group()
    closing = "}" if opening.startswith("{") else "]"
    value = f'{{"patches": [{{"file": "a", "path": "b", "value": {opening * depth}1{closing * depth}}}]}}'
    answer = await client.patch(
        "/api/v1/groups/lobby", content=value, headers={"Content-Type": "application/json"}
    )
    error = await refused(answer, 400, "INVALID_JSON")
    assert "nested deeper than 64 levels" in error["message"]


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"name": "t", "role": "VIEWER", "role": "ADMIN"}', "role"),
        (b'{"name": "t", "role": "VIEWER", "n\\u0061me": "u"}', "name"),
    ],
)
async def test_a_key_that_stands_twice_is_refused(client: httpx.AsyncClient, body: bytes, name: str) -> None:
    error = await refused(await post(client, body), 400, "INVALID_JSON")
    assert f"'{name}' stands twice" in error["message"]


@pytest.mark.parametrize("letter", ["\u202e", "\u2066", "\u0085", "\u200b", "\u2028", "\x7f"])
async def test_a_name_that_could_look_like_another_is_refused(client: httpx.AsyncClient, letter: str) -> None:
    error = await refused(
        await client.post(TOKENS, json={"name": f"a{letter}b", "role": "VIEWER"}), 400, "INVALID_FIELD"
    )
    assert error["field"] == "name"
    assert (await client.post(TOKENS, json={"name": "Zoë 日本 👩‍🚀", "role": "VIEWER"})).status_code == 201


async def test_a_merge_patch_may_say_that_it_is_one(rig: Rig, client: httpx.AsyncClient) -> None:
    await rig.group()
    header = {"Content-Type": "application/merge-patch+json"}
    answer = await client.patch("/api/v1/groups/lobby", content=b'{"max": 3}', headers=header)
    assert (answer.status_code, answer.json()["max"]) == (200, 3)
    await refused(await post(client, b"{}", **header), 415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin-1", ""],
)
async def test_a_body_of_another_type_is_refused(client: httpx.AsyncClient, content_type: str) -> None:
    answer = await post(client, b'{"name":"t","role":"VIEWER"}', **{"Content-Type": content_type})
    error = await refused(answer, 415, "UNSUPPORTED_MEDIA_TYPE")
    assert "application/json" in error["hint"]


async def test_a_charset_of_utf_8_is_fine(client: httpx.AsyncClient) -> None:
    header = {"Content-Type": 'application/json; charset="UTF-8"'}
    assert (await post(client, b'{"name":"t","role":"VIEWER"}', **header)).status_code == 201


async def test_a_body_for_a_route_that_takes_none_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.request("DELETE", f"{TOKENS}/none", json={"a": 1})
    error = await refused(answer, 400, "BAD_REQUEST")
    assert "takes no body" in error["message"]


async def test_a_body_above_the_limit_is_refused_whether_its_length_is_announced_or_not(
    data: pathlib.Path,
) -> None:
    async def pieces() -> Any:
        for _ in range(64):
            yield b" " * 1024

    async with http_rig(data, body_limit=4096) as rig, rig.client() as client:
        await refused(await post(client, b" " * 5000), 413, "BODY_TOO_LARGE")
        answer = await client.post(TOKENS, content=pieces(), headers={"Content-Type": "application/json"})
        await refused(answer, 413, "BODY_TOO_LARGE")
        exact = b'{"name":"t","role":"VIEWER"}'.ljust(4096)
        assert (await post(client, exact)).status_code == 201


async def test_a_caller_who_hangs_up_in_the_middle_of_his_body_leaves_nothing_behind(rig: Rig) -> None:
    host, port = rig.server.address
    _, writer = await asyncio.open_connection(host, port)
    head = f"POST {TOKENS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {rig.admin}\r\nContent-Length: 90\r\n\r\n"
    writer.write(head.encode() + b'{"name"')
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    before = rig.state.number
    async with rig.client() as client:
        assert (await client.get("/api/v1/cluster")).json()["commit"] == before


WRONG_QUERIES = [
    ("limit=0", "INVALID_FIELD", "limit"),
    ("limit=501", "INVALID_FIELD", "limit"),
    ("limit=many", "INVALID_FIELD", "limit"),
    ("limit=1&limit=2", "INVALID_FIELD", "limit"),
    ("stat=ONLINE", "UNKNOWN_FIELD", "stat"),
    ("state=AWAY", "INVALID_FIELD", "state"),
    ("label=zone", "INVALID_FIELD", "label"),
    ("cursor=%00", "INVALID_CURSOR", "cursor"),
    ("cursor=WyJ0b2tlbnMiLCJ4Il0", "INVALID_CURSOR", "cursor"),
    ("cursor=%F0%9F%90%B4", "INVALID_CURSOR", "cursor"),
    ("cursor=" + "A" * 600, "INVALID_FIELD", "cursor"),
    ("limit=%ff", "BAD_REQUEST", None),
    ("&".join(f"a{n}=1" for n in range(200)), "BAD_REQUEST", None),
]


async def test_a_wrong_query_is_refused_by_its_name(client: httpx.AsyncClient) -> None:
    for query, code, field in WRONG_QUERIES:
        error = await refused(await client.get(f"/api/v1/nodes?{query}"), 400, code)
        assert error.get("field") == field, query


async def test_an_unknown_parameter_is_answered_with_the_nearest_known_one(client: httpx.AsyncClient) -> None:
    error = await refused(await client.get("/api/v1/nodes?limits=3"), 400, "UNKNOWN_FIELD")
    assert "did you mean 'limit'?" in error["hint"]
    error = await refused(await client.get("/health?verbose=1"), 400, "UNKNOWN_FIELD")
    assert error["hint"] == "it takes no parameters"


async def test_an_empty_parameter_means_not_given(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/v1/nodes?limit=&state=&cursor=&label=")).status_code == 200


@pytest.mark.parametrize("path", ["/api", "/api/v1/nodes/", "/api/v1/nope", "/api/v1/nodes/a%2Fb", "/%00"])
async def test_an_unknown_path_is_answered_in_the_error_shape(client: httpx.AsyncClient, path: str) -> None:
    await refused(await client.get(path), 404, "NOT_FOUND")


async def test_a_method_that_a_path_does_not_have_is_refused_with_those_it_has(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.put(TOKENS, json=GOOD)
    await refused(answer, 405, "METHOD_NOT_ALLOWED")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


async def test_options_tells_the_methods(client: httpx.AsyncClient) -> None:
    answer = await client.options("/api/v1/nodes/a/cordon")
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, "OPTIONS, POST", b"")


async def test_head_answers_like_get_without_the_body(client: httpx.AsyncClient) -> None:
    got, head = await client.get(TOKENS), await client.head(TOKENS)
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == str(len(got.content))
    stream = await client.head("/api/v1/events/stream")
    assert stream.status_code == 200


async def test_every_answer_carries_the_security_headers_and_a_request_id(client: httpx.AsyncClient) -> None:
    for path in ("/health", "/api/v1/nodes", "/api/v1/nope", "/api/v1/nodes?x=1", "/metrics"):
        headers = (await client.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-request-id"].startswith("req-")
        assert "server" not in headers
    assert (await client.get("/health", headers={"X-Request-Id": "abc-1"})).headers["x-request-id"] == "abc-1"
    for odd in ("a b", "-x", "", "x" * 129, "a\tb"):
        answer = await client.get("/health", headers={"X-Request-Id": odd})
        assert answer.headers["x-request-id"].startswith("req-"), odd


async def test_headers_without_end_are_cut_off(rig: Rig) -> None:
    reader, writer = await asyncio.open_connection(*rig.server.address)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 1_000_000)
    async with asyncio.timeout(DEADLINE):
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    async with rig.client("") as client:
        assert (await client.get("/health", headers={"X-Long": "x" * 30_000})).status_code == 200


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"]
)
async def test_what_is_no_http_is_cut_off_and_harms_nobody(rig: Rig, garbage: bytes) -> None:
    host, port = rig.server.address
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(garbage)
    async with asyncio.timeout(DEADLINE):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400") or not answer
    writer.close()
    await writer.wait_closed()
    async with rig.client("") as client:
        assert (await client.get("/health")).status_code == 200
