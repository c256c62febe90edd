"""One log surface: the controller's ring and the nodes' journals."""

from __future__ import annotations

import datetime as dt

import httpx
import pytest
from http_rig import Rig
from sse_client import following

from corral.controller.state.collections import node_log
from corral.domain.permissions import Role
from corral.domain.records import LogRecord

LOGS = "/api/v1/logs"


async def node_logs(rig: Rig, node: str, *messages: str, level: str = "INFO", **fields: str) -> None:
    journal = node_log(node)
    now = dt.datetime.now(dt.UTC)
    entries = [
        journal.append(LogRecord(at=now, level=level, logger="d", message=message, fields=fields))
        for message in messages
    ]
    await rig.ledger.commit(*entries)


async def read(client: httpx.AsyncClient, **query: object) -> tuple[list[str], str | None]:
    answer = await client.get(LOGS, params=query)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    return [item["message"] for item in answer.json()["items"]], answer.json()["next"]


async def fill(rig: Rig, source: str, *messages: str, level: str = "INFO", **fields: str) -> None:
    if source == "controller":
        for message in messages:
            rig.log.write(message, level=level, subject="s", **fields)
    else:
        await node_logs(rig, source.removeprefix("node:"), *messages, level=level, **fields)


SOURCES = pytest.mark.parametrize("source", ["controller", "node:node-1"])


@SOURCES
async def test_without_a_position_the_newest_records_are_shown_oldest_first(
    client: httpx.AsyncClient, rig: Rig, source: str
) -> None:
    await rig.node("node-1")
    await fill(rig, source, *(f"m{number}" for number in range(10)))
    assert await read(client, source=source, limit=3) == (["m7", "m8", "m9"], None)


@SOURCES
async def test_a_log_is_read_on_from_a_number_in_pages(
    client: httpx.AsyncClient, rig: Rig, source: str
) -> None:
    await rig.node("node-1")
    await fill(rig, source, *(f"m{number}" for number in range(7)))
    seen: list[str] = []
    after: str | None = "0"
    while after is not None:
        page, after = await read(client, source=source, limit=3, after=after)
        seen += page
    assert seen == [f"m{number}" for number in range(7)]


@SOURCES
async def test_a_level_hides_what_is_below_it(client: httpx.AsyncClient, rig: Rig, source: str) -> None:
    await rig.node("node-1")
    await fill(rig, source, "bad", level="ERROR")
    await fill(rig, source, *(f"m{number}" for number in range(1200)))
    await fill(rig, source, "odd", level="WARN")
    assert (await read(client, source=source, level="WARN", after=0))[0][-1] == "odd"
    assert (await read(client, source=source, level="WARN", limit=1))[0] == ["odd"]
    kept = ["bad", "odd"] if source.startswith("node") else ["odd"]  # the ring of the test keeps a thousand
    assert (await read(client, source=source, level="WARN"))[0] == kept
    if source.startswith("node"):
        page, next = await read(client, source=source, level="WARN", after=0, limit=1)
        assert page == ["bad"]
        assert (await read(client, source=source, level="WARN", after=next))[0] == ["odd"]


@SOURCES
async def test_a_log_is_followed_live(client: httpx.AsyncClient, rig: Rig, source: str) -> None:
    await rig.node("node-1")
    await fill(rig, source, "old-1", "old-2", "old-3")
    query = {"source": source, "tail": 2}
    async with following(client, f"{LOGS}/stream", params=query) as reader:
        assert [f.data["message"] for f in await reader.events(2) if f.data] == ["old-2", "old-3"]
        await fill(rig, source, "new-1", "new-2")
        frames = await reader.events(2)
        assert [f.data["message"] for f in frames if f.data] == ["new-1", "new-2"]
        assert frames[0].event == "log"
    resumed = {"Last-Event-ID": frames[0].id}
    async with following(client, f"{LOGS}/stream", params={"source": source}, headers=resumed) as reader:
        assert [f.data["message"] for f in await reader.events(1) if f.data] == ["new-2"]


@SOURCES
async def test_a_follower_without_a_tail_begins_with_what_comes(
    client: httpx.AsyncClient, rig: Rig, source: str
) -> None:
    await rig.node("node-1")
    await fill(rig, source, "old")
    async with following(client, f"{LOGS}/stream", params={"source": source}) as reader:
        await reader.frame()
        await fill(rig, source, "new")
        assert [f.data["message"] for f in await reader.events(1) if f.data] == ["new"]


async def test_a_record_has_all_its_parts(client: httpx.AsyncClient, rig: Rig) -> None:
    rig.log.write("hello", level="WARN", who="me")
    (item,) = (await client.get(f"{LOGS}?source=controller")).json()["items"]
    assert set(item) == {
        *("number", "at", "level", "logger", "message", "thread", "throwable", "fields", "dropped_before")
    }
    assert (item["number"], item["level"], item["fields"]) == (1, "WARN", {"who": "me"})


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 400),
        ("source=x", 400),
        ("source=node:", 400),
        ("source=node:ghost", 404),
        ("source=controller&after=-1", 400),
        ("source=controller&level=LOUD", 400),
        (f"source=controller&request={'x' * 129}", 400),
    ],
)
async def test_a_wrong_log_is_refused(client: httpx.AsyncClient, query: str, status: int) -> None:
    assert (await client.get(f"{LOGS}?{query}")).status_code == status
    if "level" not in query and "request" not in query:
        assert (await client.get(f"{LOGS}/stream?{query}")).status_code == status


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("", "it is empty"),
        ("-x", "it begins with '-'"),
        ("a b", "it has other characters"),
        ("x" * 129, "it has more than 128"),
    ],
)
async def test_what_cannot_be_the_id_of_a_request_is_refused(
    client: httpx.AsyncClient, id: str, why: str
) -> None:
    answer = await client.get(LOGS, params={"source": "controller", "request": id})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["field"]) == (400, "INVALID_FIELD", "request")
    assert why in error["message"]
    assert "X-Request-Id" in error["hint"]


@pytest.mark.parametrize("source", ["controller", "node:node-1"])
async def test_an_answer_says_since_when_records_are_kept(
    client: httpx.AsyncClient, rig: Rig, source: str
) -> None:
    await rig.node("node-1")
    await fill(rig, source, "one", "two", request="req-1")
    shown = (await client.get(LOGS, params={"source": source, "after": 0})).json()
    for more in ({}, {"request": "req-1"}, {"limit": 1}, {"request": "req-9", "after": 0}):
        answer = await client.get(LOGS, params={"source": source, **more})
        assert answer.json()["kept_since"] == shown["items"][0]["at"]


async def test_a_wrong_place_to_resume_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{LOGS}/stream?source=controller", headers={"Last-Event-ID": "5-5"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "INVALID_CURSOR")


async def test_the_level_of_a_node_is_stored_told_and_announced(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    body = {"source": "node:node-1", "level": "DEBUG"}
    assert (await client.put(f"{LOGS}/level", json=body)).json() == body
    assert rig.state.nodes.require("node-1").record.log_level == "DEBUG"
    assert rig.sessions.levels == [("node-1", "DEBUG")]
    items = (await client.get("/api/v1/events?types=LOG_LEVEL_CHANGED")).json()["items"]
    assert [event["data"] for event in items] == [body]
    await client.put(f"{LOGS}/level", json={"source": "node:node-1", "level": ""})
    assert rig.state.nodes.require("node-1").record.log_level == ""


async def test_the_level_of_the_controller_is_switched_and_announced(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await client.put(f"{LOGS}/level", json={"source": "controller", "level": "TRACE"})
    await client.put(f"{LOGS}/level", json={"source": "controller", "level": ""})
    assert rig.log.levels == ["TRACE", ""]
    refused = await client.put(f"{LOGS}/level", json={"source": "controller", "level": "LOUD"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "level")
    assert len(await rig.audits("logs.level")) == 2


@SOURCES
async def test_a_request_hides_the_records_of_others(
    client: httpx.AsyncClient, rig: Rig, source: str
) -> None:
    await rig.node("node-1")
    await fill(rig, source, "one", "two", request="req-1")
    await fill(rig, source, "other", request="req-11")
    await fill(rig, source, "none")
    await fill(rig, source, "odd", level="WARN", request="req-1")
    assert await read(client, source=source, request="req-1") == (["one", "two", "odd"], None)
    assert await read(client, source=source, request="req-1", after=0) == (["one", "two", "odd"], None)
    assert await read(client, source=source, request="req-1", level="WARN") == (["odd"], None)
    page, next = await read(client, source=source, request="req-1", after=0, limit=1)
    assert page == ["one"]
    assert await read(client, source=source, request="req-1", after=next) == (["two", "odd"], None)
    assert await read(client, source=source, request="req-2") == ([], None)


async def test_a_request_is_found_behind_many_records(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    await fill(rig, "node:node-1", "first", request="req-1")
    for _ in range(11):
        await fill(rig, "node:node-1", *(str(number) for number in range(1000)))
    await fill(rig, "node:node-1", "last", request="req-1")
    seen: list[str] = []
    after: str | None = "0"
    pages = 0
    while after is not None:
        page, after = await read(client, source="node:node-1", request="req-1", after=after)
        seen += page
        pages += 1
    assert seen == ["first", "last"]
    assert pages == 2, "one request does not read a whole journal"


async def test_a_viewer_reads_no_logs(rig: Rig) -> None:
    _, text = await rig.token(Role.VIEWER)
    async with rig.client(text) as viewer:
        assert (await viewer.get(f"{LOGS}?source=controller")).status_code == 403
        assert (await viewer.get(f"{LOGS}?source=controller&request=req-1")).status_code == 403
