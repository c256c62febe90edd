"""The edges of module processes: moments between two states, and values at their bounds."""

from __future__ import annotations

import asyncio
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest

from corral.errors import Code, Retryable
from corral.modules.process import Limits, ProcessPool
from corral.modules.process.call_failures import ModuleRaised
from corral.modules.process.sdk_directory import make_view
from corral.modules.process.zygote_link import ZygoteLink, open_zygote
from corral.sdk.protocol.messages import (
    HOOK_PREFIX,
    ROUTE,
    CallerBody,
    HookAnswer,
    HookArguments,
    RouteAnswer,
    RouteRequest,
)
from corral.sdk.runner.limit_watch import ProcessWatch
from corral.sdk.runner.proc_table import children, process
from corral.sdk.runner.zygote_messages import MAX_PACKET, Born, End, NotBorn, Spawn
from corral.testing.module_processes import DEADLINE, RecordedTraffic, Workbench, run_hook
from corral.testing.waiting import eventually

import msgspec  # isort: skip

_LINE = "from corral.sdk.protocol.frames import encode_frame\nfrom corral.sdk.protocol.frames import Chunk\nsock = line()\n"
_ORPHANS = """
from corral.sdk.runner.stray_processes import reap_orphans
from corral.sdk.runner.proc_table import children
plain, leader, first = os.fork(), -1, -1
if plain == 0: os._exit(7)
leader = os.fork()
if leader == 0: os.setsid(); os._exit(8)
first = os.fork()
if first == 0:
    os.setsid()
    if os.fork() == 0: os._exit(9)
    os._exit(0)
os.waitpid(first, 0)
for pid in (plain, leader): os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
while len(children(os.getpid())) > 2: reap_orphans()
reap_orphans()
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in (plain, leader)]
print("codes", *codes, flush=True)
"""
_DAEMONS_THAT_END = """
for _ in range(5):
    first = os.fork()
    if first == 0:
        os.setsid()
        if os.fork() == 0: time.sleep(0.1)
        os._exit(0)
    os.waitpid(first, 0)
"""
_UNWAITED = """
import os, time
for _ in range(20):
    if os.fork() == 0: os._exit(0)
print("made", flush=True)
time.sleep(1000)
"""


@pytest.fixture
async def house(scratch):
    async with ProcessPool(directory=scratch / "house") as house:
        yield house


@pytest.fixture
def bench(house, scratch):
    return Workbench(house, scratch / "module")


async def test_large_calls_at_once_wait_for_each_other_and_a_module_that_reads_is_not_cut_off(bench):
    process = await bench.start()
    request = RouteRequest(
        route=1, method="GET", path="/", body=b"x" * 3_000_000, caller=CallerBody(name="x", role="admin")
    )

    calls = [process.call(ROUTE, request, answer=RouteAnswer, deadline=60.0) for _ in range(24)]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [getattr(answer, "kind", answer) for answer in answers] == ["LookupError"] * 24


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("from corral.sdk import Refused\nraise Refused('x' * 6_000_000, hint='y' * 6_000_000)", "Refused"),
        ("from corral.sdk import Refused\nraise Refused('x\\udc80', hint='y\\udc80')", "Refused"),
        ("from corral.sdk import Refused\nbad = Refused('x')\nbad.message = 7\nraise bad", "Exception"),
        ("raise ValueError('x' * 100_000_000)", "ValueError"),
    ],
    ids=["large", "no text", "no string", "very large"],
)
async def test_whatever_an_exception_holds_the_call_is_answered(bench, code, kind):
    process = await bench.start(code)

    with pytest.raises(ModuleRaised) as raised:
        await run_hook(process)

    assert raised.value.kind == kind
    assert len(raised.value.message) < 20_000
    assert kind == "Exception" or raised.value.detail.startswith("x")


async def test_an_answer_of_the_host_that_cannot_be_sent_is_told_to_the_module(house, scratch):
    told = RecordedTraffic()

    async def serve(_method: str, _body: msgspec.Raw) -> object:
        return {"name": "a file \udc80"}

    told.serve = serve
    code = "try: ctx.run(ctx.events.publish('X'))\nexcept Exception as error: print(error.code, flush=True)"
    process = await Workbench(house, scratch / "module").start(code, recorded=told)

    await run_hook(process)

    await eventually(lambda: "INTERNAL" in told.messages, state=lambda: told.messages)


async def test_a_call_that_cannot_be_sent_is_a_failure_like_others(bench):
    process = await bench.start()
    with pytest.raises(ModuleRaised) as raised:
        await process.call(ROUTE, {"name": "a file \udc80"}, answer=RouteAnswer, deadline=DEADLINE)
    assert raised.value.kind == "BadCall"
    await run_hook(process)


async def test_an_answer_with_a_text_that_is_none_is_a_bad_answer(bench):
    code = "import msgspec\nfrom corral.sdk.protocol.frames import Answer\n"
    frame = r"sock.sendall(encode_frame(Answer(2, msgspec.Raw(b'\x81\xa5value\xa1\xff'))))"
    process = await bench.start(_LINE + code + frame)
    with pytest.raises(ModuleRaised) as raised:
        await run_hook(process)
    assert raised.value.kind == "BadAnswer"
    await run_hook(process, "on_stop")


async def test_small_chunks_that_wait_are_joined(bench):
    code = "for _ in range(2000): sock.sendall(encode_frame(Chunk(2, b'x')))\n"
    process = await bench.start(_LINE + code + "sock.sendall(encode_frame(Chunk(2, b'', True)))")

    streaming = process.stream(HOOK_PREFIX + "on_load", HookArguments(), answer=HookAnswer, deadline=DEADLINE)
    async with streaming as (_, chunks):
        pieces = [len(piece) async for piece in chunks]

    assert pieces == [2000]


async def test_a_birth_whose_descriptor_found_no_room_fails_alone():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    stand_in = await asyncio.to_thread(subprocess.Popen, ["sleep", "1000"])
    link = ZygoteLink(stand_in, ours, on_ended=lambda _: None, on_gone=lambda: None)
    with theirs:
        starting = asyncio.ensure_future(link.spawn(_order(1), [0, 0]))
        await asyncio.to_thread(theirs.recv, 65536)
        await asyncio.to_thread(theirs.send, msgspec.msgpack.encode(Born(1, stand_in.pid)))

        with pytest.raises(Retryable, match="open files") as failed:
            await starting

        assert failed.value.code is Code.SPAWN_FAILED
        order = await asyncio.to_thread(theirs.recv, 65536)
        assert msgspec.msgpack.decode(order, type=End) == End(1)
        link.kill()
        await link.close()


@pytest.mark.trap("T82")
@pytest.mark.parametrize(
    "packet",
    [b"\xc1\xc1", msgspec.msgpack.encode(NotBorn(1, "x" * 2 * MAX_PACKET)), b"\x91" * 5000],
    ids=["no report", "larger than may be", "without end"],
)
async def test_a_zygote_that_reports_what_nobody_understands_is_ended(packet):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    ours.setblocking(False)
    stand_in = await asyncio.to_thread(subprocess.Popen, ["sleep", "1000"])
    gone: list[bool] = []
    link = ZygoteLink(stand_in, ours, on_ended=lambda _: None, on_gone=lambda: gone.append(True))
    with theirs:
        await asyncio.to_thread(theirs.send, packet)
        await eventually(lambda: gone == [True])
        assert await asyncio.to_thread(stand_in.wait, 20) == -signal.SIGKILL
        await link.close()


async def test_a_zygote_that_misses_descriptors_says_so_and_goes_on(scratch):
    view = await asyncio.to_thread(make_view, scratch / "view")
    link = await open_zygote(
        view,
        mark="edge#",
        log=scratch / "zygote.log",
        on_ended=lambda _: None,
        on_gone=lambda: None,
    )
    for number in (1, 2):
        with pytest.raises(Retryable, match="descriptors did not arrive"):
            await link.spawn(_order(number), [])
    await link.close()


async def test_a_first_start_that_is_given_up_leaves_no_zygote(scratch):
    before = set(children(os.getpid()))
    log = scratch / "house" / "zygote.log"
    log.parent.mkdir()
    os.mkfifo(log)  # it is opened just before the zygote is started, and that waits for a reader
    async with ProcessPool(directory=scratch / "house") as house:
        starting = asyncio.ensure_future(Workbench(house, scratch / "module").start())
        reader = await eventually(lambda: _reader_of_a_writer(log))
        starting.cancel()
        await asyncio.wait([starting])
        left = set(children(os.getpid())) - before
        os.close(reader)

    assert starting.cancelled()
    assert left == set()


def _reader_of_a_writer(pipe: pathlib.Path) -> int | None:
    """Lets the writer go on that waits for this; None when there is none."""
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.read(reader, 1)
    except BlockingIOError:
        return reader
    os.close(reader)
    return None


async def test_a_house_whose_zygote_is_lost_while_it_closes_is_closed_all_the_same(scratch):
    house = ProcessPool(directory=scratch / "house")
    process = await Workbench(house, scratch / "module").start()
    zygote = house.zygote_pid
    os.kill(zygote, signal.SIGSTOP)  # it hears, and does nothing
    closing = [asyncio.ensure_future(house.close()) for _ in range(2)]
    for _ in range(20):
        await asyncio.sleep(0)

    os.kill(zygote, signal.SIGKILL)

    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*closing)
    assert process.death.result().reason == "zygote_lost"
    assert house.zygote_pid is None
    assert house.processes == {}


async def test_orphans_are_reaped_and_no_child_of_the_module_loses_its_status(bench):
    told = RecordedTraffic()
    process = await bench.start(_ORPHANS, recorded=told)
    await run_hook(process)
    await eventually(lambda: "codes 7 8" in told.messages, state=lambda: told.messages)


async def test_daemons_that_a_module_started_are_gone_when_they_have_ended(bench):
    subject = await bench.start(_DAEMONS_THAT_END)
    await run_hook(subject)
    await eventually(lambda: not children(subject.pid), state=lambda: children(subject.pid))
    await run_hook(subject)
    await subject.kill()


@pytest.mark.system
async def test_children_that_have_ended_do_not_count_as_processes_until_they_are_very_many():
    parent = await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-c", _UNWAITED], stdout=subprocess.PIPE
    )
    try:
        await asyncio.to_thread(parent.stdout.readline)
        made = children(parent.pid)
        await eventually(lambda: not any(process(pid).alive for pid in made))
        assert len(made) == 20
        assert _over(parent.pid, limit=10) == []
        assert _over(parent.pid, limit=4) == [parent.pid]
    finally:
        parent.kill()
        await asyncio.to_thread(parent.communicate)


def _over(pid: int, *, limit: int) -> list[int]:
    watch = ProcessWatch()
    watch.add(pid, limit)
    return watch.over_limit()


def _order(number: int) -> Spawn:
    limits = Limits(memory_mb=256, processes=64)
    return Spawn(number, "edge", (), limits.memory_mb << 20, limits.processes, limits.nice)
