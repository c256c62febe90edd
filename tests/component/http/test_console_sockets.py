"""Consoles over WebSockets: who typed what, output by credit, and frames that no viewer of ours would send."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import httpx
import pytest
from http_rig import Rig, http_rig
from sse_client import following
from test_console_streams import heard, named, socket_to, talking
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from corral.domain.groups.instance_records import ExitRecord
from corral.domain.instance_states import InstanceState
from corral.domain.permissions import Role
from corral.domain.sensitive_fields import HIDDEN
from corral.system.http_config import HttpLimitsSection
from corral.testing.waiting import eventually

MIB = 1024 * 1024


async def heard_of(ws: ClientConnection, name: str) -> dict[str, Any]:
    """The next message of this name, whatever comes before."""
    while name not in (message := await heard(ws)):
        pass
    found: dict[str, Any] = message[name]
    return found


async def test_two_viewers_see_each_others_lines_with_their_authors_and_places(rig: Rig) -> None:
    record, node, path = await talking(rig, b"ready\n")
    _, token = await rig.token(Role.OPERATOR)
    async with socket_to(rig, path) as mine, socket_to(rig, path, token) as theirs:
        await eventually(lambda: len(rig.leading.streams) == 2)
        await mine.send(json.dumps({"command": "list", "id": "m-1"}))
        place = {"incarnation": record.incarnation, "offset": 6}
        assert await heard_of(mine, "ack") == {"command": "list", "id": "m-1", **place}
        told = await heard_of(theirs, "command")
        assert told.items() >= {"line": "list", "id": "m-1", **place}.items()
        node.say(record.id, record.incarnation, b"nobody is here\n")
        await theirs.send(json.dumps({"command": "say hi"}))
        assert (await heard_of(theirs, "ack"))["offset"] == 21
        told = await heard_of(mine, "command")
        assert (told["line"], told["by_name"], told["id"], told["offset"]) == ("say hi", "t", None, 21)
        assert told["by"].startswith("token:")


async def test_who_does_not_see_what_is_sensitive_sees_that_somebody_typed(rig: Rig) -> None:
    _, _, path = await talking(rig, b"ready\n")
    _, token = await rig.token(Role.OPERATOR, permissions=["instances.read", "instances.console"])
    async with (
        rig.client(token) as client,
        socket_to(rig, path, token) as ws,
        following(client, path) as reader,
    ):
        await eventually(lambda: len(rig.leading.streams) == 2)
        async with rig.client() as admin:
            instance = path.removesuffix("/console/stream")
            taken = (await admin.post(f"{instance}/command", json={"command": "login secret"})).json()
            assert (taken["offset"], taken["command"]) == (6, "login secret")
        told = await heard_of(ws, "command")
        assert (told["line"], told["offset"]) == (HIDDEN, 6)
        streamed = await named(reader, "command")
        assert streamed.data == told
        listed = (await client.get(f"{instance}/commands")).json()
        assert [(item["line"], item["offset"]) for item in listed["items"]] == [(HIDDEN, 6)]


async def test_the_end_of_a_run_hides_the_line_that_ended_it_as_its_record_does(rig: Rig) -> None:
    record, _, path = await talking(rig, b"ready\n")
    exit = ExitRecord(
        known=True, code=0, signal=None, crashed=False, outcome="stopped", rung="stop secret", summary="it was stopped",
        ended_at=rig.clock.now(),
    )  # fmt: skip
    _, token = await rig.token(Role.OPERATOR, permissions=["instances.read", "instances.console"])
    async with socket_to(rig, path, token) as theirs, socket_to(rig, path) as mine:
        await eventually(lambda: len(rig.leading.streams) == 2)
        await rig.report(record.id, state=InstanceState.STOPPED, console_end=6, exit=exit)
        assert (await heard_of(mine, "end"))["exit"]["rung"] == "stop secret"
        hidden = (await heard_of(theirs, "end"))["exit"]
        assert (hidden["rung"], hidden["code"], hidden["summary"]) == (HIDDEN, 0, "it was stopped")


async def test_a_daemon_that_tells_no_places_leaves_what_was_received(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig, b"ready\n")
    node.tells_no_places = True
    async with socket_to(rig, path) as ws:
        await ws.send(json.dumps({"command": "list"}))
        assert (await heard_of(ws, "ack"))["offset"] == 6
    other = await client.post(f"/api/v1/instances/{record.id}/command", json={"command": "again"})
    assert other.json()["offset"] == 6


async def test_lines_that_were_sent_are_listed_by_page_and_time_also_after_a_restart(
    data: pathlib.Path,
) -> None:
    async with http_rig(data) as rig, rig.client() as client:
        record, _, path = await talking(rig, b"ready\n")
        instance = path.removesuffix("/console/stream")
        for number in range(7):
            assert (
                await client.post(f"{instance}/command", json={"command": f"c{number}"})
            ).status_code == 200
        middle = (await client.get(f"{instance}/commands", params={"limit": 1})).json()["items"][0]["at"]
        async with socket_to(rig, path) as ws:
            await ws.send(json.dumps({"command": "c7"}))
            await heard_of(ws, "ack")
    async with http_rig(data) as rig, rig.client() as client:
        page = (await client.get(f"{instance}/commands", params={"limit": 5})).json()
        assert [item["line"] for item in page["items"]] == ["c7", "c6", "c5", "c4", "c3"]
        item = page["items"][0]
        assert (item["incarnation"], item["offset"], item["node"]) == (record.incarnation, 6, "node-1")
        assert (item["by"].startswith("token:"), item["by_name"]) == (True, "first-admin")
        rest = (await client.get(f"{instance}/commands", params={"limit": 5, "cursor": page["next"]})).json()
        assert ([item["line"] for item in rest["items"]], rest["next"]) == (["c2", "c1", "c0"], None)
        since = (await client.get(f"{instance}/commands", params={"since": middle})).json()
        assert [item["line"] for item in since["items"]][:1] == ["c7"]
        until = (await client.get(f"{instance}/commands", params={"until": middle})).json()
        assert "c7" not in [item["line"] for item in until["items"]]
        assert (await client.get("/api/v1/instances/none/commands")).status_code == 404
        _, viewer = await rig.token(Role.VIEWER)
        async with rig.client(viewer) as stranger:
            assert (await stranger.get(f"{instance}/commands")).status_code == 403


@pytest.mark.parametrize("form", ["blocks", "lines"])
@pytest.mark.trap("T29")
async def test_no_more_is_sent_than_there_is_credit_for_and_nobody_else_waits(
    client: httpx.AsyncClient, rig: Rig, form: str
) -> None:
    record, node, path = await talking(rig, b"first\n")
    lines = [f"line {number} ü".encode() for number in range(40_000)]
    async with socket_to(rig, f"{path}?after=0&format={form}") as ws, following(client, path) as reader:
        assert "first" in json.dumps(await heard(ws)), "without credit it is sent as it comes"
        await ws.send('{"credit": 0}')
        await ws.send('{"command": "list"}')
        assert "ack" in await heard(ws), "messages are taken in their order, and answers need no credit"
        node.say(record.id, record.incarnation, b"\n".join(lines) + b"\n")
        count = 0
        while count < len(lines):
            frame = await reader.event()
            count += len((frame.data or {}).get("items", []))
        text, granted, received = "", 0, 0
        step = 20_000  # less than all that is there takes in one message
        while not text.endswith("line 39999 ü\n"):
            await ws.send(json.dumps({"credit": step}))
            granted += step
            await ws.send('{"command": "now"}')  # its answer comes after all that there was credit for
            while "ack" not in (message := json.loads(raw := await ws.recv())):
                received += len(raw.encode())
                assert received <= granted
                text += message.get("text", "") + "".join(
                    f"{item['line']}\n" for item in message.get("items", [])
                )
            step = 150_000 if text else step
            assert text or granted < 60_000, "little credit is used, too"
        assert text.encode() == b"\n".join(lines) + b"\n"
        assert rig.server.buffered_bytes() < MIB


async def test_what_is_no_message_is_answered_and_after_a_hundred_the_socket_ends(rig: Rig) -> None:
    _, _, path = await talking(rig)
    wrong: list[tuple[str | bytes, str]] = [
        ('{"credit": -1}', "INVALID_FIELD"),
        ('{"credit": 1e3}', "INVALID_FIELD"),
        ('{"credit": 99999999999999999999999999}', "INVALID_FIELD"),
        ('{"credit": "many"}', "INVALID_FIELD"),
        ('{"credit": true}', "INVALID_FIELD"),
        ('{"credit": null}', "MISSING_FIELD"),
        ("{}", "MISSING_FIELD"),
        ('{"credit": 1, "command": "x"}', "INVALID_FIELD"),
        ('{"credit": 1, "credit": 2}', "INVALID_JSON"),
        ("[" * 1000, "INVALID_FIELD"),
        (b"\xff\xfe\x00", "INVALID_JSON"),
        ("", "INVALID_JSON"),
        ("\x00", "INVALID_JSON"),
        ('"credit"', "INVALID_FIELD"),
    ]
    async with socket_to(rig, path) as ws:
        for sent, code in wrong:
            await ws.send(sent)
            assert (await heard(ws))["error"]["code"] == code, sent[:80]
        await ws.send('{"command": "still here"}')
        assert await heard_of(ws, "ack")
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(100):
                await ws.send("garbage")
                await heard_of(ws, "error")
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, "100 messages" in closed.value.rcvd.reason) == (1008, True)


@pytest.mark.parametrize("form", ["blocks", "lines"])
@pytest.mark.parametrize("text", [b"\0" * 200_000, b"\xff" * 200_000, b"\x1b" * 63 + b"\n", b"\n"])
async def test_credit_of_128_kib_is_enough_for_every_message(rig: Rig, form: str, text: bytes) -> None:
    record, node, path = await talking(rig, b"ready\n")
    text = text * (40_000 // max(20, len(text)) or 1) + b"\nthe last line\n"
    async with socket_to(rig, f"{path}?after=0&format={form}") as ws:
        await heard(ws)
        await ws.send('{"credit": 131072}')
        await ws.send('{"command": "list"}')
        await heard_of(ws, "ack")  # messages are taken in their order
        node.say(record.id, record.incarnation, text)
        while b"the last line" not in (raw := (await ws.recv()).encode()):
            await ws.send(json.dumps({"credit": len(raw)}))


async def test_credit_does_not_add_up_without_bound(rig: Rig) -> None:
    record, node, path = await talking(rig)
    async with socket_to(rig, path) as ws:
        for _ in range(3000):
            await ws.send('{"credit": 1073741824}')
        node.say(record.id, record.incarnation, b"hello\n")
        assert (await heard(ws))["items"][0]["line"] == "hello"


async def test_lines_on_a_socket_count_as_requests_of_their_token_and_wait_instead_of_being_refused(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, limits=HttpLimitsSection(requests_per_second=1, burst=30)) as rig:
        _, _, path = await talking(rig, b"ready\n")
        _, token = await rig.token(Role.OPERATOR)
        async with rig.client(token) as client, socket_to(rig, path, token) as ws:
            for number in range(25):
                await ws.send(json.dumps({"command": f"line {number}"}))
                assert (await heard_of(ws, "ack"))["command"] == f"line {number}"
            answers = [await client.get("/api/v1/auth/me") for _ in range(25)]
            assert 429 in [answer.status_code for answer in answers], "they share one rate"
            for number in range(2):
                await ws.send(json.dumps({"command": f"late {number}"}))
                assert (await heard_of(ws, "ack"))["command"] == f"late {number}", "it waits"
