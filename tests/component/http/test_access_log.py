"""The access log: one record a request when it is on, none when it is off, and never a secret."""

from __future__ import annotations

import asyncio
import json
import pathlib
from typing import Any

import httpx
import pytest
from sse_client import following

from corral.system.logs import Logs
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually

SECRET = "hush-4711"
FIELDS = {"method", "page", "path", "status", "bytes", "seconds", "principal", "request", "address"}


@pytest.fixture
async def controller(cluster: LocalCluster, logs: Logs) -> LocalController:
    return await cluster.controller(http__access_log=True)


def client_of(controller: LocalController, **headers: str) -> httpx.AsyncClient:
    given = {"Authorization": f"Bearer {controller.admin_token}", **headers}
    return httpx.AsyncClient(base_url=controller.url, headers=given, timeout=30)


def logged(logs: Logs, request: str) -> list[dict[str, str]]:
    """The records of a request in the access log."""
    return [
        record.fields
        for _, record in logs.ring.tail(10_000)
        if record.message == "http_request.ended" and record.fields["request"] == request
    ]


async def only(logs: Logs, request: str) -> dict[str, str]:
    """The record of a request: it is made when the answer was sent, which may be a moment after it was read."""
    (record,) = await eventually(lambda: logged(logs, request))
    return record


async def test_a_record_says_who_asked_for_what_and_how_it_ended(
    controller: LocalController, logs: Logs
) -> None:
    async with client_of(controller) as client:
        answer = await client.get("/api/v1/nodes", params={"limit": "7"})
        posted = await client.post("/api/v1/tokens", json={"name": SECRET, "role": "VIEWER"})
        me = (await client.get("/api/v1/tokens")).json()["items"]
    record = await only(logs, answer.headers["x-request-id"])
    assert set(record) == FIELDS
    assert (record["method"], record["path"], record["status"]) == ("GET", "/api/v1/nodes", "200")
    assert record["bytes"] == str(len(answer.content))
    assert 0 < float(record["seconds"]) < 30
    assert record["address"] == "127.0.0.1"
    assert record["principal"] in {f"token:{token['id']}" for token in me if token["role"] == "ADMIN"}
    assert record["page"] == ""
    made = await only(logs, posted.headers["x-request-id"])
    assert (made["method"], made["path"], made["status"]) == ("POST", "/api/v1/tokens", "201")


async def test_a_record_names_the_module_whose_page_asked(controller: LocalController, logs: Logs) -> None:
    async with client_of(controller) as client:
        for module, named in (("ghost", "ghost"), ("g" * 300, "g" * 80)):
            answer = await client.get(f"/api/v1/modules/{module}/x", headers={"Corral-Page": module})
            record = await only(logs, answer.headers["x-request-id"])
            assert (record["status"], record["page"]) == ("404", named)
        refused = await client.get("/api/v1/nodes", headers={"Corral-Page": "ghost"})
        record = await only(logs, refused.headers["x-request-id"])
        assert (record["status"], record["page"]) == ("403", "")


REFUSED = [
    ("GET", "/api/v1/nodes", "", "401"),
    ("GET", "/api/v1/nodes", f"corral_{SECRET}", "401"),
    ("GET", "/api/v1/nodes/ghost", None, "404"),
    ("GET", "/nowhere", None, "404"),
    ("PUT", "/api/v1/nodes", None, "405"),
    ("HEAD", "/api/v1/nodes", None, "200"),
]


async def test_a_refused_request_is_logged_too(controller: LocalController, logs: Logs) -> None:
    for method, path, token, status in REFUSED:
        headers = {} if token is None else {"Authorization": f"Bearer {token}" if token else ""}
        async with client_of(controller, **headers) as client:
            answer = await client.request(method, path)
        record = await only(logs, answer.headers["x-request-id"])
        assert (record["method"], record["path"], record["status"]) == (method, path, status), (method, path)
        assert record["bytes"] == str(len(answer.content)), (method, path)
        assert bool(record["principal"]) == (
            token is None and path.startswith("/api/v1/nodes") and method != "PUT"
        ), (method, path)


async def test_neither_a_query_nor_a_token_nor_a_body_is_in_the_log(
    controller: LocalController, logs: Logs, tmp_path: pathlib.Path
) -> None:
    async with client_of(controller, Cookie=SECRET) as client:
        await client.get("/api/v1/events", params={"after": SECRET, SECRET: "x"})
        await client.get(f"/api/v1/events/stream?ticket={SECRET}", headers={"Authorization": ""})
        await client.post("/api/v1/tokens", json={"name": SECRET, "role": SECRET})
        last = await client.get(
            "/health", headers={"Authorization": f"Bearer {SECRET}", "User-Agent": SECRET}
        )
    await only(logs, last.headers["x-request-id"])
    assert logs.flush(timeout=60)
    lines = (tmp_path / "stderr").read_text().splitlines()
    ours = [
        line for line in lines if json.loads(line)["logger"] != "httpx"
    ]  # the client logs what it asks for
    text = "\n".join(ours)
    assert text.count('"http_request.ended"') == 4
    assert SECRET not in text
    assert controller.admin_token not in text


UPGRADE = (
    "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


async def raw(controller: LocalController, head: str) -> bytes:
    """Write the head of a request as it is; what comes until the server closes the connection."""
    host, _, port = controller.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"{head}\r\n".encode("latin-1"))
        async with asyncio.timeout(30):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("on", [True, False])
async def test_a_ticket_is_in_no_log_however_it_is_sent(
    cluster: LocalCluster, logs: Logs, tmp_path: pathlib.Path, on: bool
) -> None:
    controller = await cluster.controller(http__access_log=on)
    logs.set_level("TRACE")
    async with client_of(controller) as client:
        ticket = (await client.post("/api/v1/events/tickets")).json()["ticket"]
    ws = "/api/v1/instances/lobby-1/console/ws"
    targets = [f"{ws}?ticket={ticket}", f"{ws}?after=1&%74icket={ticket}", f"/nowhere?ticket={ticket}"]
    encoded = [f"/x%3Fticket={ticket}", f"/x%253Fticket%253D{ticket}", f"/x/{ticket}", f"/ticket.{ticket}"]
    for target in (*targets, *encoded, *(f"{each}\xff" for each in targets)):
        await raw(controller, f"GET {target} HTTP/1.1\r\n{UPGRADE}Authorization: Bearer x\r\n")
        await raw(
            controller, f"GET {target} HTTP/1.1\r\n{UPGRADE}Sec-WebSocket-Protocol: ticket.{ticket}\r\n"
        )
        await raw(controller, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n")
    async with client_of(controller, **{"X-Request-Id": "req-last"}) as client:
        await client.get("/api/v1/nodes")
    if on:
        await only(logs, "req-last")
    assert logs.flush(timeout=60)
    text = (tmp_path / "stderr").read_text() + (tmp_path / "logs" / "both.log").read_text()
    ours = [line for line in text.splitlines() if not json.loads(line)["logger"].startswith("http")]
    assert ours
    assert [line for line in ours if ticket in line] == []
    assert [line for line in ours if "WebSocket" in line or "connection rejected" in line] == []
    records = [json.loads(line) for line in ours]
    loud = {record["message"] for record in records if record["level"] in ("WARN", "ERROR")}
    assert loud <= {"loop.blocked"}  # what a busy machine makes of any test


async def test_a_stream_is_logged_once_at_its_end(controller: LocalController, logs: Logs) -> None:
    async with client_of(controller, **{"X-Request-Id": "req-stream"}) as client:
        async with following(client):
            await asyncio.sleep(0.2)
            assert logged(logs, "req-stream") == []
        record = await only(logs, "req-stream")
    assert (record["path"], record["status"]) == ("/api/v1/events/stream", "200")
    assert int(record["bytes"]) > 0
    assert float(record["seconds"]) >= 0.2
    assert record["principal"]


async def test_requests_at_once_have_one_record_each(controller: LocalController, logs: Logs) -> None:
    names = [f"req-{number}" for number in range(30)]

    async def get(client: httpx.AsyncClient, name: str) -> None:
        path = f"/api/v1/nodes/{name}"
        assert (await client.get(path, headers={"X-Request-Id": name})).status_code == 404

    async with client_of(controller) as client:
        await asyncio.gather(*(get(client, name) for name in names))
    records: list[dict[str, Any]] = [await only(logs, name) for name in names]
    assert [record["path"] for record in records] == [f"/api/v1/nodes/{name}" for name in names]


@pytest.mark.system
async def test_a_flood_is_counted_and_leaves_other_records_in_the_log(
    cluster: LocalCluster, logs: Logs
) -> None:
    flood = 300
    controller = await cluster.controller(http__access_log=True)

    async def ask(client: httpx.AsyncClient, path: str, times: int) -> None:
        for _ in range(times):
            await client.get(path)

    async with client_of(controller) as known, client_of(controller, Authorization="") as unknown:
        me = (await known.get("/api/v1/tokens")).json()["items"][0]["id"]
        await asyncio.gather(
            ask(known, "/api/v1/nodes/ghost", flood),
            ask(unknown, "/nowhere", flood // 2),
            ask(unknown, "/api/v1/nodes", flood // 2),
        )
    await controller.app.stop()
    records = [record for _, record in logs.ring.tail(10_000)]
    ended = [record.fields for record in records if record.message == "http_request.ended"]
    skipped = [record.fields for record in records if record.message == "access_log.skipped"]
    assert len(ended) < flood, "most are left out"
    assert len(ended) + sum(int(each["count"]) for each in skipped) == 2 * flood + 1
    callers = " ".join(each["callers"] for each in skipped)
    assert f"token:{me} (" in callers
    assert "127.0.0.1 (" in callers


async def test_a_path_of_any_length_is_cut(controller: LocalController, logs: Logs) -> None:
    async with client_of(controller, **{"X-Request-Id": "req-long"}) as client:
        await client.get("/" + "x" * 5000)
    assert len((await only(logs, "req-long"))["path"]) == 512


async def test_nothing_is_logged_when_it_is_off(cluster: LocalCluster, logs: Logs) -> None:
    controller = await cluster.controller()
    async with client_of(controller) as client:
        for path in ("/health", "/api/v1/nodes", "/nowhere"):
            await client.get(path)
        async with following(client):
            pass
    await asyncio.sleep(0.2)
    messages = {record.message for _, record in logs.ring.tail(10_000)}
    assert "http_server.started" in messages
    assert "http_request.ended" not in messages
