"""What a module may send at once: each limit of the table, kept by a host against a peer that goes past the SDK.

The bodies that are too large are no msgpack: whoever decoded them would take them for a bad frame.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
import pytest

from corral.domain import json_limits as nesting
from corral.errors import Bug, Code
from corral.modules.process.call_failures import ModuleRaised, ProcessGone
from corral.modules.process.exit_reasons import crash_output_file
from corral.modules.process.frame_heads import NoFrame, read_head
from corral.modules.process.module_process import ModuleProcess
from corral.modules.process.process_values import FinishResult, Limits, OverLimit, Sample
from corral.modules.services.host_operations import Operation, OperationTable
from corral.modules.services.module_metrics import ModuleMetrics
from corral.sdk.protocol import messages, storage_messages
from corral.sdk.protocol.frame_limits import FAILURE_BYTES, FROM_MODULE, MAX_DEPTH, METRIC_SAMPLES, limit_of
from corral.sdk.protocol.frames import (
    MAX_CHUNK,
    MAX_FRAME,
    Answer,
    Call,
    Chunk,
    Failure,
    FrameReader,
    Message,
    Notice,
    encode_body,
    encode_frame,
)
from corral.sdk.protocol.messages import (
    CAPABILITY_STATES,
    METRIC,
    PUBLISH,
    MetricSample,
    MetricSamples,
    Nothing,
)
from corral.sdk.runner.zygote_messages import Ended
from corral.testing.waiting import eventually

pytestmark = pytest.mark.trap("T82")

NO_MSGPACK: Final = b"\xc1"
DEADLINE_BYTES: Final = 9
"""At most what follows the body of a call: so much more is seen to be too much by the head of a frame alone."""
_NOT_METHODS: Final = {"FORGOTTEN", "DOCUMENTS_PREFIX", "KEY_VALUE_PREFIX", "CAPABILITY_STATES"}
"""Words in bodies, beginnings of names, and what the host alone says."""
ANSWERED: Final = (
    "CONSTRUCT", "HOOK_PREFIX", "REGISTRATIONS", "DELIVER", "RUN_TASK", "ROUTE", "CAPABILITY", "COMMAND",
    "HEALTH", "FINISH",
)  # fmt: skip
ANSWERS: Final = sorted(
    {getattr(messages, name) for name in ANSWERED} | {messages.HOOK_PREFIX + "on_instance_starting"}
)
NOTICES: Final = (messages.METRIC, messages.LOG)
CALLS: Final = sorted(FROM_MODULE.keys() - set(ANSWERS) - set(NOTICES))


class _Keeper:
    """The house, for a process of which only its socket is of interest."""

    def __init__(self) -> None:
        self.ended = False
        self.reason = ""
        """What the zygote has ended it for already."""

    def end(self, process: ModuleProcess) -> None:
        self.ended = True
        process.ended(Ended(process.number, 9, self.reason, 0, 0.0, 0))

    def usage(self, _process: ModuleProcess) -> Sample | None:
        return None

    def lingers(self, process: ModuleProcess, lingering: object) -> None: ...

    def finished(self, process: ModuleProcess, ending: FinishResult) -> None: ...


class Peer:
    """A module's end of the socket, for somebody who sends whatever it likes."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._reader = FrameReader()
        self._got: list[Message] = []

    def hang_up(self) -> None:
        self._sock.close()

    async def send(self, *frames: bytes) -> None:
        for frame in frames:
            await asyncio.get_running_loop().sock_sendall(self._sock, frame)

    async def receive(self) -> Message:
        while not self._got:
            data = await asyncio.get_running_loop().sock_recv(self._sock, 1 << 20)
            assert data, "the host has closed the line"
            self._got += self._reader.feed(data)
        return self._got.pop(0)


class Rig:
    def __init__(self, process: ModuleProcess, peer: Peer, keeper: _Keeper, served: list[Any]) -> None:
        self.process = process
        self.peer = peer
        self.keeper = keeper
        self.served = served
        """Method and size of what got through, calls and notices."""


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    served: list[Any] = []

    async def serve(method: str, body: msgspec.Raw) -> object:
        served.append((method, len(body)))
        return Nothing()

    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    keeper = _Keeper()
    process = ModuleProcess(
        "raw",
        number=1,
        pid=child.pid,
        pidfd=os.pidfd_open(child.pid),
        words=crash_output_file(),
        connection=ours,
        limits=Limits(memory_mb=64, processes=4),
        serve=serve,
        on_notice=lambda method, body: served.append((method, len(body))),
        pool=keeper,
    )
    yield Rig(process, Peer(theirs), keeper, served)
    process.end()
    await process.settled()
    theirs.close()
    child.communicate(b"\n")


def frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + payload


def bytes_of(size: int) -> msgspec.Raw:
    """Good msgpack of exactly this size."""
    return msgspec.Raw(b"\xc6" + (size - 5).to_bytes(4, "big") + bytes(size - 5))


def nested(levels: int) -> msgspec.Raw:
    return msgspec.Raw(b"\x91" * (levels - 1) + b"\x90")


def bad(message: Message, body: msgspec.Raw) -> bytes:
    """The frame, with what is no msgpack in the place of its body."""
    encoded = encode_frame(message)[4:]
    place = encoded.index(bytes(body))
    return frame(encoded[:place] + NO_MSGPACK * len(body) + encoded[place + len(body) :])


@pytest.mark.parametrize("reason", ["", "process_limit", "memory_limit"])
async def test_a_socket_that_closes_long_before_the_end_hides_no_reason(rig: Rig, reason: str) -> None:
    """Its process is there for seconds yet, as one that the zygote killed on a busy machine may be."""
    rig.keeper.reason = reason
    rig.peer.hang_up()
    death = await asyncio.wait_for(asyncio.shield(rig.process.death), 20)
    assert death.reason == (reason or "cut_off:socket_closed")


def test_each_method_that_is_known_has_its_limit() -> None:
    known = {
        value
        for module in (messages, storage_messages)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str) and name not in _NOT_METHODS
    }
    assert set(FROM_MODULE) == known | {messages.HOOK_PREFIX + "on_instance_starting"}
    assert all(0 < limit.size < MAX_FRAME for limit in FROM_MODULE.values())
    assert CAPABILITY_STATES not in FROM_MODULE
    assert MAX_DEPTH == nesting.MAX_DEPTH, "one bound for values, decoded or not"


def test_an_operation_without_a_limit_cannot_be_offered() -> None:
    async def handler(_scope: Any, _body: Any) -> None: ...

    with pytest.raises(Bug, match=r"files\.rename"):
        OperationTable([Operation(method="files.rename", body=Nothing, handler=handler)])


@pytest.mark.parametrize("method", [*CALLS, "nobody.knows"])
async def test_a_call_over_its_limit_is_refused_undecoded_and_one_at_its_limit_is_served(
    rig: Rig, method: str
) -> None:
    most = limit_of(method).size
    over = bytes_of(most + DEADLINE_BYTES)

    await rig.peer.send(
        bad(Call(6, method, over, 1000), over),
        encode_frame(Call(7, method, bytes_of(most + 1), 1000)),
        encode_frame(Call(8, method, bytes_of(most), 1000)),
    )
    *refused, answered = [await rig.peer.receive() for _ in range(3)]

    too_large = Code.BODY_TOO_LARGE.name
    assert [(each.id, each.code) for each in refused if isinstance(each, Failure)] == [
        (6, too_large),
        (7, too_large),
    ]
    assert isinstance(answered, Answer)
    assert rig.served == [(method, most)]
    assert not rig.process.death.done()


@pytest.mark.parametrize("method", NOTICES)
async def test_a_notice_over_its_limit_is_dropped_undecoded(rig: Rig, method: str) -> None:
    most = limit_of(method).size
    over = bytes_of(most + 1)
    await rig.peer.send(bad(Notice(method, over), over), encode_frame(Notice(method, bytes_of(most))))
    await eventually(lambda: rig.served == [(method, most)], state=lambda: rig.served)
    assert not rig.process.death.done()


async def asked(rig: Rig, method: str, reply: Callable[[int], bytes]) -> object:
    """What the host gets for a call that is answered like this."""

    async def answer() -> None:
        called = await rig.peer.receive()
        assert isinstance(called, Call)
        await rig.peer.send(reply(called.id))

    answering = asyncio.create_task(answer())
    try:
        return await rig.process.call(method, Nothing(), answer=msgspec.Raw, deadline=20.0)
    finally:
        await answering


@pytest.mark.parametrize("method", [*ANSWERS, messages.HOOK_PREFIX + "on_load"])
async def test_an_answer_over_its_limit_is_refused_undecoded_and_one_at_its_limit_is_taken(
    rig: Rig, method: str
) -> None:
    most = limit_of(method).size
    over = bytes_of(most + 1)

    with pytest.raises(ModuleRaised, match="at most") as refused:
        await asked(rig, method, lambda number: bad(Answer(number, over), over))
    taken = await asked(rig, method, lambda number: encode_frame(Answer(number, bytes_of(most))))

    assert refused.value.kind == "BadAnswer"
    assert isinstance(taken, msgspec.Raw)
    assert len(taken) == most


async def test_the_story_of_an_exception_has_its_limit_too(rig: Rig) -> None:
    with pytest.raises(ModuleRaised) as refused:
        await asked(rig, "route", lambda number: encode_frame(Failure(number, "X", "x" * FAILURE_BYTES)))
    assert refused.value.kind == "BadAnswer"


@pytest.mark.parametrize("method", sorted(FROM_MODULE.keys() - {*ANSWERS, *NOTICES}))
async def test_what_is_nested_too_deep_is_refused_before_it_is_served(rig: Rig, method: str) -> None:
    deepest = limit_of(method).levels + MAX_DEPTH
    await rig.peer.send(
        encode_frame(Call(7, method, nested(deepest + 1), 1000)),
        encode_frame(Call(8, method, nested(deepest), 1000)),
    )
    refused, answered = await rig.peer.receive(), await rig.peer.receive()
    assert isinstance(refused, Failure)
    assert (refused.id, refused.code) == (7, Code.BODY_TOO_LARGE.name)
    assert isinstance(answered, Answer)
    assert len(rig.served) == 1


@pytest.mark.parametrize("method", ANSWERS)
async def test_an_answer_that_is_nested_too_deep_is_refused(rig: Rig, method: str) -> None:
    deepest = limit_of(method).levels + MAX_DEPTH
    with pytest.raises(ModuleRaised, match="nested deeper"):
        await asked(rig, method, lambda number: encode_frame(Answer(number, nested(deepest + 1))))
    assert await asked(rig, method, lambda number: encode_frame(Answer(number, nested(deepest))))


async def cut_off(rig: Rig) -> ProcessGone:
    death = await asyncio.wait_for(asyncio.shield(rig.process.death), 20.0)
    return ProcessGone("raw", death)


async def test_who_goes_on_over_its_limits_is_cut_off_and_the_reason_names_the_limit(rig: Rig) -> None:
    over = bytes_of(limit_of(PUBLISH).size + 1)
    await rig.peer.send(*(encode_frame(Call(number, PUBLISH, over, 1000)) for number in range(1, 10)))
    gone = await cut_off(rig)
    assert gone.death.reason == "cut_off:flood"
    assert "81,921 bytes, at most 81,920" in gone.message
    assert rig.served == []


async def test_answers_that_come_too_late_are_no_fault_whatever_their_size(rig: Rig) -> None:
    late = encode_frame(Answer(4000, bytes_of(1 << 20)))
    await rig.peer.send(*[late] * 12, encode_frame(Call(1, PUBLISH, encode_body({}), 1000)))
    assert isinstance(await rig.peer.receive(), Answer)
    assert not rig.process.death.done()


async def test_a_chunk_over_its_limit_cuts_off_at_once(rig: Rig) -> None:
    await rig.peer.send(encode_frame(Chunk(1, bytes(MAX_CHUNK + 1000))))
    assert (await cut_off(rig)).death.reason == "cut_off:flood"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x93",
        b"\xdc\x00\x03\xa6notice\xa3log\x80",
        b"\x93\xa5notic\xa3log\x80",
        b"\x93\xa6answer\xc0\x80",
        b"\x93\xa6answer\xcf\x01",
        b"\x93\xa6notice\xd9\xff" + b"x" * 255 + b"\x80",
        b"\x93\xa6notice\xa3\xff\xff\xff\x80",
        b"\x93\xa6notice\xda\x00\x03log\x80",
    ],
)
async def test_what_begins_like_no_message_of_ours_is_no_frame(rig: Rig, payload: bytes) -> None:
    with pytest.raises(NoFrame):
        read_head(payload)
    await rig.peer.send(frame(payload))
    assert (await cut_off(rig)).death.reason == "cut_off:bad_frame"


@pytest.mark.parametrize(
    "number", [0, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**63 - 1, -1, -200, -(2**40)]
)
def test_the_head_of_a_frame_is_what_its_decoder_finds(number: int) -> None:
    for message in (
        Call(number, "documents.find", encode_body({}), 1),
        Answer(number, encode_body({})),
        Failure(number, "X", "x"),
        Chunk(number, b"x"),
    ):
        head = read_head(encode_frame(message)[4:])
        assert (head.number, head.method) == (number, getattr(message, "method", ""))
        assert head.tag == type(message).__struct_config__.tag


def test_more_samples_than_may_come_at_once_are_dropped_as_a_whole() -> None:
    class _Scope:
        module_id = "raw"
        closed = True

    kept = ModuleMetrics()
    sample = MetricSample(name="a", kind="gauge", value=1.0)
    scope: Any = _Scope()
    kept.take(scope, encode_body(MetricSamples(samples=(sample,) * METRIC_SAMPLES)))
    with pytest.raises(OverLimit):
        kept.take(scope, encode_body(MetricSamples(samples=(sample,) * (METRIC_SAMPLES + 1))))
    assert kept.dropped["raw", "samples"] == METRIC_SAMPLES + 1
    assert METRIC in kept.notices()
