"""Questions about the older parts of a console, over a real data channel."""

from __future__ import annotations

import asyncio
import hashlib
import os
from typing import Any

import pytest

from corral.daemon.console.consoles import NodeConsoles
from corral.daemon.console.queries import answer_to
from corral.daemon.link.connection import LinkConnection
from corral.daemon.node.known_controllers import KnownControllers
from corral.errors import Code, Rejected
from corral.runtimes.keeper.console_layout import INDEX_RECORD, index_name, segment_name
from corral.runtimes.keeper.console_pump import Pump
from corral.system.clock import SystemClock
from corral.testing.scripted_peers import ScriptedController
from corral.testing.waiting import eventually
from corral.wire.features import FEATURES
from corral.wire.v1.data_pb2 import Credit, PushAccepted, PushMessage, PushReply, PushStored
from corral.wire.v1.data_pb2_grpc import DataServiceServicer, add_DataServiceServicer_to_server
from corral.wire.v1.instance_pb2 import ConsoleQuery, ConsoleQueryResult
from corral.wire.v1.link_pb2 import ControllerMessage, DaemonMessage
from corral.wire.v1.node_pb2 import Handshake, HandshakeAck

LINES = [b"line %d %s\n" % (number, b"hit" if number % 1000 == 0 else b"miss") for number in range(50_000)]
CONTENT = b"".join(LINES)


def write_console(directory, content: bytes) -> None:
    directory.mkdir()
    source, sink = os.pipe()
    pump = Pump(str(directory), source, segment_bytes=100_000, quota_bytes=0)
    for start in range(0, len(content), 32768):
        os.write(sink, content[start : start + 32768])
        pump.drain()
    pump.close()
    os.close(source)
    os.close(sink)


@pytest.fixture
def directory(scratch):
    write_console(scratch / "console", CONTENT)
    return scratch / "console"


def asked(directory, **fields: Any) -> ConsoleQueryResult:
    return answer_to(ConsoleQuery(instance_id="lobby-1", incarnation=1, **fields), str(directory))


def joined(result: ConsoleQueryResult) -> bytes:
    return b"".join(block.data for block in result.blocks)


def test_a_range_is_read_page_by_page_without_a_seam(directory):
    read, at = b"", 1000
    while at < 500_000:
        result = asked(directory, from_offset=at, to_offset=500_000, max_bytes=123_456)
        assert 0 < len(joined(result)) <= 123_456
        assert all(block.times[0].offset == block.offset for block in result.blocks)
        read += joined(result)
        at = result.next_offset
    assert read == CONTENT[1000:500_000]
    assert (result.first_offset, result.end_offset) == (0, len(CONTENT))


def test_the_newest_part_begins_at_a_line_and_the_part_before_it_ends_there(directory):
    result = asked(directory, newest=True, max_bytes=1000)
    assert joined(result).startswith(b"line ")
    assert CONTENT.endswith(joined(result))
    before = asked(directory, newest=True, max_bytes=1000, to_offset=result.next_offset)
    assert CONTENT.endswith(joined(before) + joined(result))


def test_a_search_gives_each_line_as_a_block_with_its_time(directory):
    result = asked(directory, pattern="hit$", max_lines=3)
    assert [block.data for block in result.blocks] == [LINES[0], LINES[1000], LINES[2000]]
    assert all(block.times for block in result.blocks)
    newest = asked(directory, pattern="hit$", max_lines=2, newest=True)
    assert [block.data for block in newest.blocks] == [LINES[48_000], LINES[49_000]]
    assert asked(directory, pattern="no such thing").next_offset == len(CONTENT)


def test_what_lies_outside_is_empty_and_what_is_gone_is_a_gap(directory):
    assert joined(asked(directory, from_offset=len(CONTENT) + 5)) == b""
    assert joined(asked(directory, from_offset=10, to_offset=5)) == b""
    (directory / "00000000000000000000.log").unlink()
    result = asked(directory, max_bytes=100)
    assert [(gap.from_offset, gap.to_offset, gap.reason) for gap in result.gaps] == [
        (0, 100_000, "retention")
    ]
    assert joined(result) == CONTENT[100_000 : result.next_offset]


def test_a_bad_pattern_is_refused(directory):
    with pytest.raises(Rejected) as caught:
        asked(directory, pattern="(")
    assert caught.value.code is Code.INVALID_PATTERN


class Receiving(DataServiceServicer):
    """Takes pushes, gives little credit, and checks what it gets."""

    def __init__(self) -> None:
        self.received: dict[str, bytes] = {}

    async def Push(self, _: Any, context: Any) -> None:  # noqa: N802 - the name of the RPC
        opening = (await context.read()).open
        await context.write(PushReply(accepted=PushAccepted(offset=0, credit=10_000)))
        content = b""
        while len(content) < opening.size_bytes:
            message = await context.read()
            assert isinstance(message, PushMessage)
            assert message.chunk.offset == len(content)
            content += message.chunk.data
            await context.write(PushReply(credit=Credit(bytes=len(message.chunk.data))))
        assert hashlib.sha256(content).hexdigest() == opening.digest
        self.received[opening.transfer_id] = content
        await context.write(PushReply(stored=PushStored(digest=opening.digest, size_bytes=len(content))))


class Asking:
    """A controller with questions; answers come by push, refusals as messages."""

    def __init__(self) -> None:
        self.questions: asyncio.Queue[ConsoleQuery] = asyncio.Queue()
        self.refused: dict[str, str] = {}

    async def script(self, context: Any) -> None:
        await context.read()
        ack = HandshakeAck(session_id="s1", protocol_compatible=True, epoch=1, features=FEATURES)
        await context.write(ControllerMessage(handshake_ack=ack, epoch=1))
        asking = asyncio.create_task(self._ask(context), name="test/ask")
        try:
            while isinstance(frame := await context.read(), DaemonMessage):
                for message in frame.batch.messages or [frame]:
                    if message.WhichOneof("payload") == "console_query_failed":
                        failed = message.console_query_failed
                        self.refused[failed.request_id] = failed.error_code
        finally:
            asking.cancel()

    async def _ask(self, context: Any) -> None:
        while True:
            query = await self.questions.get()
            await context.write(ControllerMessage(console_query=query, epoch=1))


class Controller(ScriptedController):
    """Scripted, with a data service beside the script."""

    def __init__(self, asking: Asking) -> None:
        self.receiving = Receiving()
        super().__init__(
            asking.script, also=lambda server: add_DataServiceServicer_to_server(self.receiving, server)
        )


@pytest.mark.trap("T42")
async def test_answers_come_over_the_data_channel_and_refusals_at_once(scratch, directory):
    asking = Asking()
    async with Controller(asking) as controller, NodeConsoles(SystemClock()) as consoles:
        identity = controller.enrol(scratch / "data", "n1")
        connection = LinkConnection(
            address=controller.address,
            generation=1,
            identity=identity,
            memory=KnownControllers(scratch / "data", (controller.address,)),
            receive=lambda _, message: consoles.answer(message.console_query),
            clock=SystemClock(),
        )
        await connection.open(Handshake(node_id="n1", version="1", protocol_version=1), deadline=10)
        consoles.attach("lobby-1", 1, str(directory), ended=True)
        consoles.on_connected(connection)
        serving = asyncio.create_task(connection.serve(), name="test/serve")
        try:
            await ask_all(asking, controller.receiving.received)
        finally:
            consoles.on_disconnected()
            await connection.close()
            await asyncio.gather(serving, return_exceptions=True)


async def ask_all(asking: Asking, received: dict[str, bytes]) -> None:
    def ask(request_id: str, **fields: Any) -> None:
        fields = {"instance_id": "lobby-1", "incarnation": 1, **fields}
        asking.questions.put_nowait(ConsoleQuery(request_id=request_id, **fields))

    for number in range(20):
        ask(f"read-{number}", from_offset=number * 1000, max_bytes=5000)
    ask("bad", pattern="(")
    ask("hostile", pattern="(a+)+$")
    ask("other-run", incarnation=2)
    ask("nobody", instance_id="lobby-2")
    await eventually(lambda: len(asking.refused) == 3 and len(received) == 21, state=lambda: asking.refused)
    assert asking.refused == {"bad": "INVALID_PATTERN", "other-run": "CONSOLE_GONE", "nobody": "CONSOLE_GONE"}
    for number in range(20):
        result = ConsoleQueryResult.FromString(received[f"read-{number}"])
        assert joined(result) == CONTENT[number * 1000 : result.next_offset]
    assert joined(ConsoleQueryResult.FromString(received["hostile"])) == b""


def write_timed(directory, written: list[tuple[int, bytes]], *, segments: int = 1) -> None:
    """A console as its writer leaves it: each piece of bytes with the time at which it came."""
    directory.mkdir()
    offset = 0
    for number, (at, data) in enumerate(written):
        if number % (len(written) // segments) == 0:
            first = offset
        with (directory / segment_name(first)).open("ab") as log:
            log.write(data)
        with (directory / index_name(first)).open("ab") as index:
            index.write(INDEX_RECORD.pack(offset, at))
        offset += len(data)


@pytest.mark.parametrize("segments", [1, 2, 8])
def test_a_range_may_be_given_by_its_times(scratch, segments):
    lines = [b"line %d\n" % number for number in range(8)]
    console = scratch / "console"
    write_timed(console, [(1000 + 10 * n, line) for n, line in enumerate(lines)], segments=segments)
    for since in range(8):
        for until in range(since, 8):
            part = asked(console, since_ms=995 + 10 * since, until_ms=995 + 10 * until)
            assert joined(part) == b"".join(lines[since:until])
            assert (part.next_offset, part.end_offset, list(part.gaps)) == (7 * until, 7 * until, [])
    assert joined(asked(console, since_ms=1071)) == b""
    assert joined(asked(console, since_ms=1)) == b"".join(lines)
    assert joined(asked(console, since_ms=1020, from_offset=40)) == b"".join(lines)[40:]
    assert joined(asked(console, until_ms=1050, newest=True, max_bytes=10)) == lines[4]
    (console / index_name(0)).unlink()  # then all of that segment may have come then
    assert joined(asked(console, since_ms=1070)).endswith(lines[7])


def test_a_line_came_when_its_first_byte_did(scratch):
    console = scratch / "console"
    write_timed(console, [(1000, b"whole\nbeg"), (1010, b"un\n"), (1020, b"last\n")])
    assert joined(asked(console, since_ms=1010)) == b"last\n"
    assert joined(asked(console, until_ms=1010)) == b"whole\nbegun\n"
