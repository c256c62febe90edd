"""Consoles live: by server-sent events and by WebSocket, from run to run, for readers of any speed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from http_rig import DEADLINE, Rig, http_rig
from sse_client import Frame, SseClient, following, stalled
from stand_in_node import StandInNode
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from corral.controller.consoles.reader import ConsoleReader
from corral.controller.consoles.stream_messages import ConsolePlace, repeats_tail
from corral.controller.instances.instance_commands import CommandTarget, SentLine
from corral.controller.state.ledger import Actor
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.permissions import Role
from corral.system.http_config import HttpLimitsSection
from corral.testing.waiting import eventually

MIB = 1024 * 1024


async def talking(rig: Rig, text: bytes = b"") -> tuple[InstanceRecord, StandInNode, str]:
    record = await rig.instance()
    node = rig.sessions.links[NodeId("node-1")]
    if text:
        node.say(record.id, record.incarnation, text)
    return record, node, f"/api/v1/instances/{record.id}/console/stream"


async def lines_of(reader: SseClient, count: int) -> list[str]:
    """So many lines, over as many frames as they take."""
    found: list[str] = []
    while len(found) < count:
        frame = await reader.event()
        assert frame.data is not None
        found += [item["line"] for item in frame.data.get("items", [])]
    return found


async def named(reader: SseClient, event: str) -> Frame:
    while (frame := await reader.event()).event != event:
        pass
    return frame


@contextlib.asynccontextmanager
async def socket_to(
    rig: Rig, path: str, token: str | None = None, **options: Any
) -> AsyncIterator[ClientConnection]:
    headers = {"Authorization": f"Bearer {rig.admin if token is None else token}"}
    url = rig.url.replace("http://", "ws://") + path.replace("/stream", "/ws")
    async with connect(url, additional_headers=headers if token != "" else {}, proxy=None, **options) as made:
        yield made


async def heard(ws: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE):
        return json.loads(await ws.recv())


async def test_a_follower_without_a_place_sees_what_comes(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"old\n")
    async with following(client, path) as reader:
        assert (await reader.frame()).comment == "following"
        node.say(record.id, record.incarnation, b"new\nnewer\n")
        frame = await reader.event()
        assert frame.event == "page"
        assert frame.data is not None
        assert [item["line"] for item in frame.data["items"]] == ["new", "newer"]
        assert frame.id == f"{record.incarnation}-{frame.data['next_offset']}"


async def test_a_follower_from_a_place_gets_the_scroll_back_first(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    text = b"".join(b"%06d\n" % number for number in range(100_000))  # most of it only on the node
    record, node, path = await talking(rig, text)
    async with following(client, path, params={"after": 7}) as reader:
        node.say(record.id, record.incarnation, b"live\n")
        found = await lines_of(reader, 100_000)
    assert found == [f"{number:06d}" for number in range(1, 100_000)] + ["live"]


async def test_a_broken_stream_is_taken_up_where_it_broke(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"one\n")
    async with following(client, path, params={"after": 0}) as reader:
        place = (await reader.event()).id
    node.say(record.id, record.incarnation, b"two\n")
    headers = {"Last-Event-ID": place}
    async with following(client, path, params={"after": 0}, headers=headers) as reader:
        assert await lines_of(reader, 1) == ["two"]
    wrong = await client.get(path, headers={"Last-Event-ID": "zero"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "INVALID_CURSOR")


async def test_blocks_are_text_as_it_comes_and_never_cut_a_character(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig)
    euro = "€".encode()
    async with following(client, path, params={"after": 0, "format": "blocks"}) as reader:
        node.say(record.id, record.incarnation, b"no newline " + euro[:2])
        first = await reader.event()
        assert first.data is not None
        assert (first.event, first.data["text"], first.data["offset"]) == ("text", "no newline ", 0)
        node.say(record.id, record.incarnation, euro[2:] + b"!\n")
        second = await reader.event()
        assert second.data is not None
        assert (second.data["text"], second.data["offset"]) == ("€!\n", 11)
        assert second.id == f"{record.incarnation}-16"


async def test_blocks_name_what_is_missing_between_them_and_at_the_end(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig, b"before\n")
    node.skip(record.id, record.incarnation, 100)
    node.give_up(record.id, record.incarnation, 50)
    await rig.report(record.id, state=InstanceState.CRASHED, console_end=163)
    async with following(client, path, params={"after": 0, "format": "blocks"}) as reader:
        told = [await reader.event() for _ in range(5)]
    assert [frame.event for frame in told] == ["text", "gap", "text", "gap", "end"]
    gaps = [frame.data["gaps"][0] for frame in told if frame.event == "gap" and frame.data]
    assert [(gap["from_offset"], gap["to_offset"], gap["reason"]) for gap in gaps] == [
        (7, 107, "the disk was full"),
        (113, 163, "unknown"),
    ]


async def test_a_prompt_is_shown_before_its_line_is_finished(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig)
    async with following(client, path, params={"after": 0}) as reader:
        node.say(record.id, record.incarnation, b"Name? ")
        frame = await reader.event()
        assert frame.data is not None
        assert (frame.data["items"], frame.data["tail"]["line"]) == ([], "Name? ")
        assert frame.id == f"{record.incarnation}-0", "who comes back gets the whole line"
        node.say(record.id, record.incarnation, b"Bob\n")
        assert await lines_of(reader, 1) == ["Name? Bob"]


async def test_the_end_of_a_run_is_told_after_its_last_byte_and_the_next_run_is_followed(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig, b"begun\n")
    async with following(client, path, params={"after": 0}) as reader:
        assert await lines_of(reader, 1) == ["begun"]
        node.write(record.id, record.incarnation, b"last words")  # not sent before the end is known
        await rig.report(record.id, state=InstanceState.CRASHED, console_end=16)
        assert await lines_of(reader, 1) == ["last words"]
        end = await named(reader, "end")
        assert end.data is not None
        assert (end.data["state"], end.data["incarnation"]) == ("CRASHED", record.incarnation)
        again = record.incarnation + 1024
        await rig.report(record.id, state=InstanceState.RUNNING, incarnation=again, console_end=0)
        assert (await named(reader, "run")).data == {"incarnation": again, "node": "node-1"}
        node.say(record.id, again, b"anew\n")
        frame = await reader.event()
        assert frame.data is not None
        assert (frame.data["items"][0]["offset"], frame.data["items"][0]["line"]) == (0, "anew")


async def test_a_restart_by_the_node_loses_nothing_of_the_old_run(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig, b"one\n")
    async with following(client, path, params={"after": 0}) as reader:
        assert await lines_of(reader, 1) == ["one"]
        node.write(record.id, record.incarnation, b"two\nthree\n")
        await rig.report(record.id, incarnation=record.incarnation + 1)
        node.say(record.id, record.incarnation + 1, b"four\n")
        assert await lines_of(reader, 3) == ["two", "three", "four"]


async def test_a_follower_of_one_run_stays_with_it(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"one\n")
    await rig.report(record.id, incarnation=record.incarnation + 1)
    node.say(record.id, record.incarnation + 1, b"two\n")
    params = {"after": 0, "incarnation": record.incarnation}
    async with following(client, path, params=params) as reader:
        assert await lines_of(reader, 1) == ["one"]
        assert (await named(reader, "end")).data is not None


async def test_what_cannot_be_had_is_a_gap_and_the_stream_goes_on(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, _, path = await talking(rig, b"".join(b"%06d\n" % number for number in range(100_000)))
    del rig.sessions.links[NodeId("node-1")]
    async with following(client, path, params={"after": 0}) as reader:
        gap = await named(reader, "gap")
        assert gap.data is not None
        assert gap.data["gap"] is True
        assert "node-1" in gap.data["gaps"][0]["reason"]
        while (lines := await lines_of(reader, 1))[-1] != "099999":
            assert lines


def typed(record: InstanceRecord, line: str) -> SentLine:
    target = CommandTarget(instance=record.id, incarnation=record.incarnation, node=record.node)
    return SentLine(target=target, line=line, actor=Actor(name="token:x"), offset=5)


def reader_at(rig: Rig, record: InstanceRecord, offset: int, *, blocks: bool) -> ConsoleReader:
    return ConsoleReader(
        consoles=rig.consoles,
        state=rig.state,
        id=record.id,
        place=ConsolePlace(record.incarnation, offset),
        following=True,
        blocks=blocks,
    )


@pytest.mark.parametrize("blocks", [True, False])
async def test_readers_at_one_position_share_what_is_sent(rig: Rig, blocks: bool) -> None:
    record, node, _ = await talking(rig, b"one\ntwo\n")
    first, second = (reader_at(rig, record, 0, blocks=blocks) for _ in range(2))
    (mine,), (theirs,) = await first.take(), await second.take()
    assert mine.sse_frame() is theirs.sse_frame()
    assert mine.socket_message() is theirs.socket_message()
    assert mine.sse_frame().endswith(b"\ndata: %b\n\n" % mine.socket_message().encode())
    assert first.up_to_date
    node.say(record.id, record.incarnation, b"three\n")
    assert not first.up_to_date
    (later,) = await first.take()
    assert "three" in later.socket_message()
    assert "one" not in later.socket_message()


async def test_only_a_line_without_an_end_holds_back_what_follows(rig: Rig) -> None:
    """The echo of a typed command moves no position either, and its answer is about to come."""
    record, node, _ = await talking(rig, b"done\n")
    reader = reader_at(rig, record, 0, blocks=False)

    async def repeats() -> tuple[list[str], bool]:
        before = reader.place
        messages = await reader.take()
        return [each.name for each in messages], repeats_tail(messages, moved=reader.place != before)

    assert await repeats() == (["page"], False)
    assert await repeats() == ([], False)
    rig.consoles.add_input_line(typed(record, "say hello"))
    assert await repeats() == (["command"], False)
    node.say(record.id, record.incarnation, b"hel")
    assert await repeats() == (["page"], True)
    node.say(record.id, record.incarnation, b"lo\n")
    assert await repeats() == (["page"], False)


async def test_a_run_that_ends_with_the_echo_of_a_command_has_more_to_tell(rig: Rig) -> None:
    record, _, _ = await talking(rig, b"done\n")
    reader = reader_at(rig, record, 0, blocks=False)
    await reader.take()
    assert reader.up_to_date
    rig.consoles.add_input_line(typed(record, "stop"))
    await rig.report(record.id, state=InstanceState.CRASHED, console_end=5)
    assert [each.name for each in await reader.take()] == ["command"]
    assert not reader.up_to_date, "or a follower would wait for the next heartbeat"
    assert [each.name for each in await reader.take()] == ["end"]


async def test_the_node_is_told_while_somebody_watches(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"x\n")

    def watched() -> bool | None:
        return node.watched.get((record.id, record.incarnation))

    async with following(client, path):
        await eventually(lambda: watched() is True)
        (position,) = rig.consoles.positions(NodeId("node-1"))
        assert (position.offset, position.watched) == (2, True)
    await eventually(lambda: watched() is False)


async def test_a_stream_ends_with_its_instance(client: httpx.AsyncClient, rig: Rig) -> None:
    record, _, path = await talking(rig, b"x\n")
    await rig.report(record.id, state=InstanceState.STOPPED, console_end=2)
    async with following(client, path) as reader:
        await named(reader, "end")
        await client.delete(f"/api/v1/instances/{record.id}")
        assert await reader.end() == "the stream has ended"


@pytest.mark.trap("T25")
async def test_revoking_a_token_ends_consoles_of_both_kinds_within_a_second(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, _, path = await talking(rig, b"x\n")
    id, text = await rig.token(Role.OPERATOR)
    async with (
        rig.client(text) as operator,
        following(operator, path) as reader,
        socket_to(rig, path, text) as ws,
    ):
        await eventually(lambda: len(rig.leading.streams) == 2)
        await client.delete(f"/api/v1/tokens/{id}")
        assert await reader.end(deadline=1.0) == "the token was revoked"
        with pytest.raises(ConnectionClosed) as closed:
            async with asyncio.timeout(1.0):
                while True:
                    await ws.recv()
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, "the token was revoked")
    await eventually(lambda: len(rig.leading.streams) == 0)


async def test_a_socket_tells_pages_takes_commands_and_echoes_them_to_others(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig, b"old\n")
    async with socket_to(rig, f"{path}?after=0") as ws, following(client, path) as reader:
        page = await heard(ws)
        assert [item["line"] for item in page["items"]] == ["old"]
        await ws.send(json.dumps({"command": "say hi"}))
        told = [await heard(ws), await heard(ws)]
        place = {"incarnation": record.incarnation, "offset": 4}
        assert {"ack": {"command": "say hi", **place}} in told
        (echo,) = [message["command"] for message in told if "command" in message]
        me = (await client.get("/api/v1/auth/me")).json()
        assert {key: echo[key] for key in ("line", "by_name", "id", *place)} == {
            "line": "say hi",
            "by_name": me["token"]["name"],
            "id": None,
            **place,
        }
        assert node.commands == ["say hi"]
        other = await named(reader, "command")
        assert other.data is not None
        assert other.data["line"] == "say hi"
        node.say(record.id, record.incarnation, b"hi\n")
        assert [item["line"] for item in (await heard(ws))["items"]] == ["hi"]
    assert len(await rig.audits("instances.command")) == 1


async def test_commands_on_a_socket_are_taken_in_their_order(rig: Rig) -> None:
    _, node, path = await talking(rig)
    async with socket_to(rig, path) as ws:
        for number in range(50):
            await ws.send(json.dumps({"command": f"c{number}"}))
        acked: list[str] = []
        while len(acked) < 50:
            message = await heard(ws)
            if "ack" in message:
                acked.append(message["ack"]["command"])
    assert acked == node.commands == [f"c{number}" for number in range(50)]


async def test_what_a_socket_cannot_do_is_an_error_in_our_shape_and_does_not_end_it(rig: Rig) -> None:
    record, node, path = await talking(rig)
    async with socket_to(rig, path) as ws:
        for wrong, code in (
            ("no json", "INVALID_JSON"),
            ("[]", "INVALID_FIELD"),
            ('{"comand": "x"}', "UNKNOWN_FIELD"),
            ('{"command": "a\\nb"}', "INVALID_FIELD"),
        ):
            await ws.send(wrong)
            assert (await heard(ws))["error"]["code"] == code, wrong
        node.refuse_commands = "INPUT_NOT_READ"
        await ws.send(json.dumps({"command": "x"}))
        assert (await heard(ws))["error"]["code"] == "INPUT_NOT_READ"
        await rig.report(record.id, state=InstanceState.STOPPED, console_end=0)
        await ws.send(json.dumps({"command": "x"}))
        told = [await heard(ws), await heard(ws)]
        (refusal,) = (message["error"] for message in told if "error" in message)
        assert refusal["code"] == "NOT_RUNNING"
        assert f"corral instance restart {record.id}" in refusal["hint"]


async def test_who_may_not_send_commands_may_watch(rig: Rig) -> None:
    _, node, path = await talking(rig)
    _, token = await rig.token(Role.OPERATOR)
    async with socket_to(rig, path, token) as ws:
        await ws.send(json.dumps({"command": "x"}))
        told = [await heard(ws), await heard(ws)]
        assert sorted(key for message in told for key in message) == ["ack", "command"]
    _, viewer = await rig.token(Role.VIEWER)
    with pytest.raises(InvalidStatus) as refused:
        async with socket_to(rig, path, viewer):
            pass
    assert refused.value.response.status_code == 403
    assert json.loads(refused.value.response.body or b"")["error"]["code"] == "FORBIDDEN"
    assert node.commands == ["x"]


async def test_a_browser_comes_with_a_ticket_in_place_of_a_header(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, _, path = await talking(rig, b"hello\n")
    ticket = (await client.post("/api/v1/events/tickets")).json()["ticket"]
    protocols = ["corral.console", f"ticket.{ticket}"]
    async with socket_to(rig, f"{path}?after=0", "", subprotocols=protocols) as ws:
        assert ws.subprotocol == "corral.console"
        assert (await heard(ws))["items"][0]["line"] == "hello"
    with pytest.raises(InvalidStatus) as refused:
        async with socket_to(rig, path, "", subprotocols=protocols):
            pass
    assert refused.value.response.status_code == 401, "a ticket is good once"


async def test_a_socket_path_asked_without_a_socket_says_so_and_the_reverse(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, _, path = await talking(rig)
    plain = await client.get(path.replace("/stream", "/ws"))
    assert (plain.status_code, plain.json()["error"]["code"]) == (400, "BAD_REQUEST")
    for wrong in ("/api/v1/nodes", f"/api/v1/instances/{record.id}", "/none"):
        with pytest.raises(InvalidStatus) as refused:
            async with socket_to(rig, wrong):
                pass
        assert refused.value.response.status_code == 404
    with pytest.raises(InvalidStatus) as missing:
        async with socket_to(rig, "/api/v1/instances/none/console/ws"):
            pass
    assert missing.value.response.status_code == 404


async def test_a_message_that_is_too_long_ends_the_socket_and_nothing_else(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, _, path = await talking(rig)
    async with socket_to(rig, path) as ws:
        with pytest.raises(ConnectionClosed):
            await ws.send("x" * 100_000)
            async with asyncio.timeout(DEADLINE):
                while True:
                    await ws.recv()
    assert (await client.get("/ready")).status_code == 200


async def test_sockets_end_when_the_term_is_over_and_count_as_streams(data: pathlib.Path) -> None:
    async with http_rig(data, limits=HttpLimitsSection(all_streams=1)) as rig:
        _, _, path = await talking(rig)
        async with socket_to(rig, path) as ws:
            await eventually(lambda: len(rig.leading.streams) == 1)
            with pytest.raises(InvalidStatus) as refused:
                async with socket_to(rig, path):
                    pass
            assert refused.value.response.status_code == 429
            await rig.leading.close()
            with pytest.raises(ConnectionClosed) as closed:
                async with asyncio.timeout(DEADLINE):
                    await ws.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.reason == "this controller no longer leads"


async def stalled_socket(rig: Rig, path: str) -> socket.socket:
    """A client that opens a WebSocket and never reads from it."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await loop.sock_connect(sock, tuple(rig.server.address))
    request = (
        f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {rig.admin}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    await loop.sock_sendall(sock, request.encode())
    async with asyncio.timeout(DEADLINE):
        assert b"101" in await loop.sock_recv(sock, 64)
    return sock


@pytest.mark.system
@pytest.mark.trap("T29")
async def test_a_socket_that_is_not_read_delays_nobody_costs_little_and_is_cut_off(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, ping_seconds=2.0) as rig, rig.client() as client:
        record, node, path = await talking(rig)
        sock = await stalled_socket(rig, path.replace("/stream", "/ws?after=0"))
        with sock:
            async with (
                stalled(*rig.server.address, rig.admin, path),
                following(client, path, params={"after": 0}) as reader,
            ):
                await eventually(lambda: len(rig.leading.streams) == 3)
                for number in range(300):  # 18 MB, each step seen before the next
                    text = b"%06d" % number + b"x" * 60_000 + b"\n"
                    node.say(record.id, record.incarnation, text)
                    seen = ""
                    while not seen.endswith("x" * 1000) or len(seen) < 60_006:
                        seen += "".join(await lines_of(reader, 1))
                    assert seen[:6] == f"{number:06d}"
                assert rig.server.buffered_bytes() < MIB
                assert rig.consoles.rings.bytes < MIB
                await eventually(
                    lambda: len(rig.leading.streams) == 2, state=lambda: len(rig.leading.streams)
                )


@pytest.mark.trap("T29")
async def test_the_long_rest_of_an_ended_run_is_told_piece_by_piece(rig: Rig) -> None:
    """The end of a flood is known before its last megabytes came: they are not collected in memory."""
    record, node, _ = await talking(rig, b"begun\n")
    reader = ConsoleReader(
        consoles=rig.consoles,
        state=rig.state,
        id=record.id,
        place=ConsolePlace(record.incarnation, 0),
        following=True,
        blocks=True,
    )
    node.write(record.id, record.incarnation, b"0123456\n" * 500_000)
    await rig.report(record.id, state=InstanceState.CRASHED, console_end=4_000_006)
    text, names = "", []
    while "end" not in names:
        messages = await reader.take()
        assert messages
        assert sum(len(message.data) for message in messages) < MIB // 4
        names += [message.name for message in messages]
        text += "".join(json.loads(m.data)["text"] for m in messages if m.name == "text")
    assert text == "begun\n" + "0123456\n" * 500_000
    assert names[-1] == "end"
    assert await reader.take() == []


async def test_the_rest_of_an_ended_run_may_have_more_lines_than_a_page(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig)
    node.write(record.id, record.incarnation, b"x\n" * 20_000)  # never sent: read from the node
    await rig.report(record.id, state=InstanceState.CRASHED, console_end=40_000)
    async with following(client, path, params={"after": 0}) as reader:
        count = 0
        while (frame := await reader.event()).event != "end":
            assert frame.data is not None
            count += len(frame.data["items"])
        assert count == 20_000


async def test_an_end_whose_last_bytes_cannot_be_had_says_so(client: httpx.AsyncClient, rig: Rig) -> None:
    record, node, path = await talking(rig, b"begun\n")
    async with following(client, path, params={"after": 0}) as reader:
        assert await lines_of(reader, 1) == ["begun"]
        node.refuse_queries = "CONSOLE_GONE"
        await rig.report(record.id, state=InstanceState.CRASHED, console_end=100)
        gap = await named(reader, "gap")
        assert gap.data is not None
        assert (gap.data["gaps"][0]["from_offset"], gap.data["gaps"][0]["to_offset"]) == (6, 100)
        assert "not kept any more" in gap.data["gaps"][0]["reason"]
        await named(reader, "end")


async def test_what_the_ring_has_is_told_also_when_the_node_keeps_less(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    text = b"".join(b"%06d\n" % number for number in range(100_000))
    record, node, path = await talking(rig, text)
    ring = rig.consoles.ring((record.id, record.incarnation))
    assert ring is not None
    begin = ring.begin
    node.first[record.id, record.incarnation] = len(text) - 7000  # a small quota
    async with following(client, path, params={"after": 0}) as reader:
        gap = await named(reader, "gap")
        assert gap.data is not None
        assert (gap.data["gaps"][0]["from_offset"], gap.data["gaps"][0]["to_offset"]) == (0, begin)
        whole = [f"{number:06d}" for number in range(-(-begin // 7), 100_000)]
        assert (await lines_of(reader, len(whole)))[-len(whole) :] == whole


async def test_a_busy_node_delays_a_reader_that_is_behind_and_costs_it_nothing(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    _, node, path = await talking(rig, b"".join(b"%06d\n" % number for number in range(100_000)))
    rig.consoles.patience_seconds = 60.0
    node.refuse_queries = "RATE_LIMITED"
    async with following(client, path, params={"after": 0}) as reader:
        await eventually(lambda: len(node.queries) > 1)
        node.refuse_queries = ""
        assert await lines_of(reader, 100_000) == [f"{number:06d}" for number in range(100_000)]


@pytest.mark.trap("T25", "T29")
async def test_revoking_a_token_ends_a_socket_whose_client_does_not_read(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    record, node, path = await talking(rig)
    sock = await stalled_socket(rig, path.replace("/stream", "/ws?after=0"))
    with sock:
        while rig.server.buffered_bytes() <= 65_536:
            node.say(record.id, record.incarnation, b"x" * 60_000 + b"\n")
            await asyncio.sleep(0)
        (token,) = [stored.record.id for stored in rig.state.tokens]
        other_id, other = await rig.token(Role.ADMIN)
        async with rig.client(other) as admin:
            await admin.delete(f"/api/v1/tokens/{token}")
        await eventually(lambda: len(rig.leading.streams) == 0, deadline=1.0)
        assert rig.server.buffered_bytes() == 0, "what it has not taken is dropped"
        assert other_id
