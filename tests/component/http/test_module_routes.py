"""Routes of a real module in its own process, called over the API."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from http_rig import Rig, http_rig
from module_archives import module_zip
from module_source import ROUTED
from raw_client import raw_call

from corral.domain.permissions import Role
from corral.testing.waiting import eventually

BASE = "/api/v1/modules/routed"


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.fixture
async def rig(data: pathlib.Path) -> AsyncIterator[Rig]:
    async with http_rig(data) as made:
        installed = await made.install(module_zip("routed", source=ROUTED, name="Routed"))
        assert installed["phase"] == "ACTIVE", installed
        yield made


async def state(client: httpx.AsyncClient) -> dict[str, Any]:
    return (await client.get(f"{BASE}/state")).json()


async def until_ended(client: httpx.AsyncClient, name: str) -> None:
    async with asyncio.timeout(15):
        while name not in (await state(client))["ended"]:
            await asyncio.sleep(0.02)  # between two questions


async def test_a_module_sees_the_request_and_who_sent_it(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{BASE}/echo/a%20b?x=1&x=2&y=", headers={"X-Mine": "yes", "Cookie": "a=b"})
    assert answer.status_code == 200, answer.text
    seen = answer.json()
    assert (seen["method"], seen["path"]) == ("GET", "/echo/a b")
    assert seen["parameters"] == {"name": "a b"}
    assert seen["query"] == [["x", "1"], ["x", "2"], ["y", ""]]
    assert seen["headers"]["x-mine"] == "yes"
    assert not {"authorization", "cookie", "connection"} & set(seen["headers"])
    assert seen["caller"][0].startswith("token:")
    assert seen["caller"][1] == "ADMIN"
    rest = (await client.get(f"{BASE}/files/a/b/c.txt")).json()
    assert rest["parameters"] == {"rest": "a/b/c.txt"}


async def test_a_module_sees_no_credentials_and_no_claims_about_the_caller(client: httpx.AsyncClient) -> None:
    kept_back = {
        "Cookie": "corral=x",
        "Cookie2": "x",
        "X-Corral-CSRF": "x",
        "X_Corral_CSRF": "x",
        "X-CSRF-Token": "x",
        "X-XSRF-Token": "x",
        "X-Api-Key": "x",
        "X-Auth-Token": "x",
        "Forwarded": "for=10.0.0.1",
        "Via": "1.1 x",
        "X-Forwarded-For": "10.0.0.1",
        "X-Forwarded-Proto": "https",
        "X_Forwarded_Host": "evil.example.org",
        "X-Forwarded": "x",
        "X-Real-IP": "10.0.0.1",
        "X-Client-IP": "10.0.0.1",
        "X-Original-URL": "/",
        "Proxy-Authorization": "Basic x",
        "Proxy-Anything": "x",
        "Sec-WebSocket-Protocol": "ticket.x",
        "TE": "trailers",
        "Keep-Alive": "x",
        "X-Hop": "of this connection",
    }
    headers = {**kept_back, "Connection": "keep-alive, X-Hop", "X-Mine": "yes", "Host": "localhost"}
    for method in ("GET", "HEAD"):
        answer = await client.request(method, f"{BASE}/echo/x", headers=headers)
        assert answer.status_code == 200, answer.text
        assert "set-cookie" not in answer.headers
    seen = (await client.get(f"{BASE}/echo/x", headers=headers)).json()["headers"]
    assert not {"authorization", "connection", *(name.lower() for name in kept_back)} & set(seen)
    assert seen["x-mine"] == "yes"


async def test_an_answer_carries_our_headers(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{BASE}/echo/x")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-request-id"].startswith("req")
    assert len(answer.headers.get_list("content-security-policy")) == 1


async def test_a_typed_body_is_checked_by_the_module(client: httpx.AsyncClient) -> None:
    made = await client.post(f"{BASE}/points", json={"x": 7})
    assert (made.status_code, made.json()) == (201, {"x": 7, "y": 0})
    assert error(await client.post(f"{BASE}/points", json={"x": "seven"})) == (400, "INVALID_FIELD")
    assert (await state(client))["posted"] == [7]


async def test_what_does_not_exist_is_told_apart(client: httpx.AsyncClient) -> None:
    assert error(await client.get("/api/v1/modules/rooted/echo/x")) == (404, "NOT_FOUND")
    assert error(await client.get(f"{BASE}/nowhere")) == (404, "NOT_FOUND")
    assert error(await client.patch(f"{BASE}/echo/x")) == (405, "METHOD_NOT_ALLOWED")
    assert error(await client.get(f"{BASE}/")) == (404, "NOT_FOUND")


async def test_every_route_needs_the_permission_it_declares(rig: Rig) -> None:
    _, viewer = await rig.token(Role.VIEWER)
    _, operator = await rig.token(Role.OPERATOR)
    async with rig.client(viewer) as looking, rig.client(operator) as working, rig.client("") as nobody:
        assert (await looking.get(f"{BASE}/echo/x")).status_code == 200
        assert error(await looking.post(f"{BASE}/points", json={"x": 1})) == (403, "FORBIDDEN")
        assert error(await looking.delete(f"{BASE}/echo/x")) == (403, "FORBIDDEN")
        assert (await working.post(f"{BASE}/points", json={"x": 2})).status_code == 201
        assert (await working.delete(f"{BASE}/echo/x")).status_code == 200
        assert error(await working.get(f"{BASE}/admins")) == (403, "FORBIDDEN")
        assert error(await nobody.get(f"{BASE}/echo/x")) == (401, "UNAUTHENTICATED")
        assert error(await nobody.get(f"{BASE}/nowhere")) == (401, "UNAUTHENTICATED")
    async with rig.client() as admin:
        assert (await admin.get(f"{BASE}/admins")).status_code == 200
        assert (await state(admin))["posted"] == [2], "who was refused reached nothing"


async def test_a_body_is_as_large_as_the_route_allows(client: httpx.AsyncClient, rig: Rig) -> None:
    assert (await client.put(f"{BASE}/raw", content=b"x" * 1000)).json() == {"size": 1000}
    assert error(await client.put(f"{BASE}/raw", content=b"x" * 1001)) == (413, "BODY_TOO_LARGE")
    async with raw_call(rig, "PUT", f"{BASE}/raw", Content_Length="100000000") as call:
        status, _, _ = await call.answer()  # not a byte of it was sent
    assert status == 413


async def test_a_module_that_does_not_answer_in_time_is_not_waited_for(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{BASE}/slow")
    assert error(answer) == (504, "MODULE_TIMEOUT")
    assert answer.json()["error"]["hint"]
    await until_ended(client, "slow")
    assert error(await client.post(f"{BASE}/slow")) == (504, "MODULE_TIMEOUT")


async def test_an_exception_is_told_by_its_name_alone(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{BASE}/raises")
    assert error(answer) == (502, "MODULE_FAILED")
    assert "ValueError" in answer.text
    assert "geheim" not in answer.text
    assert "Traceback" not in answer.text
    shown = (await client.get(BASE)).json()["live"]["log"]
    assert any("ValueError" in line and "geheim" in line for line in shown), shown


async def test_an_error_the_module_means_is_its_answer(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{BASE}/refuses")
    assert answer.status_code == 409
    assert answer.json()["error"]["message"] == "not now"


async def test_a_process_that_dies_is_told_and_comes_back(client: httpx.AsyncClient) -> None:
    assert error(await client.get(f"{BASE}/dies")) == (503, "MODULE_NOT_ACTIVE")

    async def serves_again() -> bool:
        return (await client.get(f"{BASE}/echo/x")).status_code == 200

    async with asyncio.timeout(20):
        while not await serves_again():
            await asyncio.sleep(0.05)  # between two questions


async def test_a_document_is_sandboxed(client: httpx.AsyncClient) -> None:
    for kind in ("html", "svg"):
        answer = await client.get(f"{BASE}/answer/{kind}")
        (policy,) = answer.headers.get_list("content-security-policy")
        assert policy.startswith("sandbox;")
    assert answer.headers["x-frame-options"] == "DENY"


async def test_a_module_sets_no_cookie_and_no_policy(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{BASE}/answer/cookie")
    assert (answer.status_code, answer.text) == (200, "x")
    for name in ("set-cookie", "access-control-allow-origin", "x-accel-redirect", "clear-site-data"):
        assert name not in answer.headers
    assert answer.headers["x-mine"] == "yes"
    assert answer.headers.get_list("cache-control") == ["max-age=5"]
    assert answer.headers["x-request-id"] != "mine"
    assert answer.headers["content-length"] == "1"


async def test_an_answer_that_cannot_be_sent_fails_whole(client: httpx.AsyncClient) -> None:
    for kind in ["injected", "early", "garbage", "name", "many"]:
        answer = await client.get(f"{BASE}/answer/{kind}")
        assert error(answer) == (502, "MODULE_FAILED"), kind
        assert "set-cookie" not in answer.headers, kind
        assert "Traceback" not in answer.text, kind


async def test_statuses_without_a_body_have_none(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{BASE}/answer/none")).status_code == 204
    for status in (204, 304, 418, 599):
        answer = await client.get(f"{BASE}/answer/{status}")
        assert answer.status_code == status
        assert answer.text == ("" if status in (204, 304) else "body")


async def test_head_answers_without_the_body(client: httpx.AsyncClient) -> None:
    whole = await client.get(f"{BASE}/answer/418")
    head = await client.head(f"{BASE}/answer/418")
    assert (head.status_code, head.content) == (418, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]
    streamed = await client.head(f"{BASE}/held")
    assert (streamed.status_code, streamed.content) == (200, b"")
    await until_ended(client, "held")


async def test_a_stream_arrives_piece_by_piece(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{BASE}/numbers")
    assert (answer.text, answer.headers["content-type"]) == ("0\n1\n2\n", "text/plain")
    assert "content-length" not in answer.headers
    assert (await client.get(f"{BASE}/plain")).json()["path"] == "/plain", "it need not stream"
    async with client.stream("GET", f"{BASE}/held?say=1") as held:
        async with asyncio.timeout(15):
            assert await anext(held.aiter_bytes()) == b"one"  # while the rest is still to come
    await until_ended(client, "held")


async def test_a_module_is_told_when_nobody_listens_any_more(client: httpx.AsyncClient, rig: Rig) -> None:
    for path, name in (("wait", "wait"), ("held", "held"), ("flood", "flood")):
        before = (await state(client))["begun"]
        async with raw_call(rig, "GET", f"{BASE}/{path}") as call:
            async with asyncio.timeout(15):
                while (await state(client))["begun"] == before:
                    await asyncio.sleep(0.02)  # between two questions
            call.drop()
        await until_ended(client, name)
    await eventually(lambda: len(rig.leading.streams) == 0)


async def test_a_stream_goes_no_faster_than_its_reader(client: httpx.AsyncClient, rig: Rig) -> None:
    async with raw_call(rig, "GET", f"{BASE}/flood"):
        before, now = -1, (await state(client))["begun"]
        async with asyncio.timeout(30):
            while before != now or not now:
                before = now
                await asyncio.sleep(0.3)  # until nothing moves any more
                now = (await state(client))["begun"]
        assert now * 65_536 < 32 * 1024 * 1024, "the rest waits in the module"
        assert rig.server.buffered_bytes() < 8 * 1024 * 1024
        assert (await client.get(f"{BASE}/echo/x")).status_code == 200, "others are served meanwhile"
    await until_ended(client, "flood")


@pytest.mark.parametrize("path", ["broken", "stalls"])
async def test_a_stream_that_breaks_off_never_looks_whole(client: httpx.AsyncClient, path: str) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        await client.get(f"{BASE}/{path}")
    assert (await client.get(f"{BASE}/echo/x")).status_code == 200


@pytest.mark.trap("T25")
async def test_a_token_that_is_revoked_ends_its_stream_at_once(client: httpx.AsyncClient, rig: Rig) -> None:
    id, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as looking, looking.stream("GET", f"{BASE}/held?say=1") as held:
        pieces = held.aiter_bytes()
        assert await anext(pieces) == b"one"
        await client.delete(f"/api/v1/tokens/{id}")
        with pytest.raises(httpx.RemoteProtocolError):
            async with asyncio.timeout(2):
                await anext(pieces)
    await until_ended(client, "held")


async def test_what_may_change_something_is_audited_and_reading_is_not(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.get(f"{BASE}/echo/x")
    await client.post(f"{BASE}/points", json={"x": 1})
    await client.delete(f"{BASE}/echo/y")
    await client.post(f"{BASE}/slow")
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as looking:
        await looking.post(f"{BASE}/points", json={"x": 1})
    entries = await rig.audits("modules.call")
    assert sorted((entry["after"]["method"], entry["after"]["path"]) for entry in entries) == [
        ("DELETE", "/echo/y"),
        ("POST", "/points"),
        ("POST", "/slow"),
    ]
    assert {entry["subject"] for entry in entries} == {"routed"}
    assert all(entry["actor"].startswith("token:") for entry in entries)


async def test_routes_are_counted_by_module_and_not_by_path(client: httpx.AsyncClient) -> None:
    for path in ("echo/1", "echo/2", "nowhere", "answer/599", "answer/298"):
        await client.get(f"{BASE}/{path}")
    await client.get("/api/v1/modules/none/echo/x")
    text = (await client.get("/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith("corral_http_requests_total{")]
    labels = {line.split('route="')[1].split('"')[0] for line in lines if "/modules" in line}
    assert labels == {"/api/v1/modules", "/api/v1/modules/routed/{path}", "/api/v1/modules/{id}/{path}"}
    assert not any('status="599"' in line or 'status="298"' in line for line in lines)


async def test_routes_go_with_the_module_and_come_back(client: httpx.AsyncClient) -> None:
    assert (await client.post(f"{BASE}/deactivate")).status_code == 200
    gone = await client.get(f"{BASE}/echo/x")
    assert error(gone) == (503, "MODULE_NOT_ACTIVE")
    assert "retry-after" in gone.headers
    assert (await client.post(f"{BASE}/activate")).json()["phase"] == "ACTIVE"
    assert (await client.get(f"{BASE}/echo/x")).status_code == 200
    assert (await client.delete(BASE)).status_code == 204
    assert error(await client.get(f"{BASE}/echo/x")) == (404, "NOT_FOUND")


async def test_a_module_describes_its_routes(client: httpx.AsyncClient) -> None:
    described = (await client.get(f"{BASE}/openapi.json")).json()
    assert described["info"]["version"] == "1.0.0"
    echo = described["paths"]["/api/v1/modules/routed/echo/{name}"]
    assert set(echo) == {"get", "delete"}
    assert echo["get"]["summary"] == "Say what was asked"
    assert (echo["get"]["x-permission"], echo["delete"]["x-permission"]) == ("modules.read", "nodes.manage")
    files = described["paths"]["/api/v1/modules/routed/files/{rest}"]["get"]
    assert files["parameters"][0]["name"] == "rest"
    point = described["paths"]["/api/v1/modules/routed/points"]["post"]
    assert "requestBody" in point
    assert "200" in point["responses"]


async def test_a_command_of_a_module_needs_its_permission_everywhere_as_its_routes_do(rig: Rig) -> None:
    _, text = await rig.token(Role.ADMIN, scope={"groups": ["lobby"]})
    async with rig.client(text) as scoped:
        for line in ("echo a", "echo admin a"):
            refused = await scoped.post("/api/v1/commands/execute", json={"command": line})
            assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
            assert "within a scope only" in refused.json()["error"]["message"]
    assert await rig.audits("commands.execute") == []


async def test_commands_are_listed_and_run(client: httpx.AsyncClient, rig: Rig) -> None:
    listed = (await client.get("/api/v1/commands")).json()["items"]
    assert [item["name"] for item in listed] == ["echo", "echo admin", "fail"]
    assert listed[0] == {
        "name": "echo",
        "module": "routed",
        "help": "Say it again",
        "permission": "modules.use",
        "usage": "echo <word>",
        "parameters": [{"name": "word", "required": True, "help": ""}],
    }
    run = "/api/v1/commands/execute"
    said = await client.post(run, json={"command": "echo 'a b'"})
    assert (said.status_code, said.json()) == (
        200,
        {
            "command": "echo 'a b'",
            "output": ["ADMIN said", "a b"],
            "exit_code": 0,
            "error": None,
            "module": "routed",
        },
    )
    assert (await rig.audits("commands.execute"))[0]["after"] == {"command": "echo 'a b'"}
    assert error(await client.post(run, json={"command": "ecko x"})) == (404, "NOT_FOUND")
    assert error(await client.post(run, json={"command": "echo"})) == (400, "BAD_REQUEST")
    assert error(await client.post(run, json={"command": "echo 'x"})) == (400, "INVALID_FIELD")
    assert error(await client.post(run, json={"command": " "})) == (400, "INVALID_FIELD")
    failed = await client.post(run, json={"command": "fail"})
    assert (error(failed), "geheim" in failed.text) == ((502, "MODULE_FAILED"), False)
    told = [entry["after"]["command"] for entry in await rig.audits("commands.execute")]
    assert sorted(told) == ["echo 'a b'", "fail"]  # once each, also what failed
    _, operator = await rig.token(Role.OPERATOR)
    async with rig.client(operator) as working:
        assert (await working.post(run, json={"command": "echo x"})).json()["output"][0] == "OPERATOR said"
        assert error(await working.post(run, json={"command": "echo admin"})) == (403, "FORBIDDEN")


@pytest.mark.trap("T25")
async def test_a_module_gets_no_request_whose_token_was_revoked_while_the_body_came(rig: Rig) -> None:
    id, text = await rig.token(Role.OPERATOR)
    body = b'{"x": 7, "y": 8}'
    head = {"Content_Type": "application/json", "Content_Length": str(len(body))}
    async with rig.client() as admin, raw_call(rig, "POST", f"{BASE}/points", token=text, **head) as call:
        await call.send(body[:5])
        await eventually(lambda: len(rig.leading.streams) == 1)
        assert (await admin.delete(f"/api/v1/tokens/{id}")).status_code == 204
        await call.send(body[5:])
        status, _, answer = await call.answer()
        assert (status, answer["error"]["code"]) == (401, "UNAUTHENTICATED")
        assert (await state(admin))["posted"] == []
