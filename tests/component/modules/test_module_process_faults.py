"""Modules that do the worst they can: the host's loop goes on, the reason is told, nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import sys

import pytest

from corral.modules.process import Limits, ModuleProcess, ProcessPool
from corral.modules.process.call_failures import (
    CallOverrun,
    ModuleBusy,
    ModuleRaised,
    ProcessGone,
    failure_reason,
)
from corral.sdk.protocol.frames import MAX_CALLS_TO_MODULE
from corral.sdk.protocol.messages import (
    HEALTH,
    HOOK_PREFIX,
    ROUTE,
    CallerBody,
    HealthAnswer,
    HookAnswer,
    HookArguments,
    Nothing,
    RouteAnswer,
    RouteRequest,
)
from corral.sdk.runner.proc_table import all_processes, children
from corral.testing.module_processes import DEADLINE, RecordedTraffic, Workbench, measured_lag, run_hook
from corral.testing.waiting import eventually

LAG = 30.0
"""Seconds the host's loop may be late on a busy machine; what a module does to it must not show."""

_LINE = "from corral.sdk.protocol.frames import encode_frame, encode_body\nfrom corral.sdk.protocol.frames import *\nsock = line()\n"
_SPIN_IN_C = "import re\nre.match('(a+)+$', 'a' * 60 + 'b')"
_IGNORING = (
    "import signal\n"
    "for _ in range(3):\n"
    "    if os.fork() == 0:\n"
    "        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, signal.SIG_IGN)\n"
    "        time.sleep(1000)\n"
)
_DAEMONS = (
    "for _ in range(3):\n"
    "    first = os.fork()\n"
    "    if first == 0:\n"
    "        os.setsid()\n"
    "        if os.fork(): os._exit(0)\n"
    "        os.setsid()\n"
    "        time.sleep(1000)\n"
    "    os.waitpid(first, 0)\n"
)


@pytest.fixture
async def house(scratch):
    async with ProcessPool(directory=scratch / "house") as house:
        yield house


@pytest.fixture
async def bench(house, scratch):
    """The loop is watched as long as the test lasts."""
    async with measured_lag() as lag:
        yield Workbench(house, scratch / "module")
    assert lag.worst < LAG


def is_alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def marked(directory: pathlib.Path) -> list[int]:
    """Whoever was born in the house at this directory."""
    entry = f"CORRAL_MODULE_HOUSE={directory}#".encode()
    found = []
    for one in all_processes():
        try:
            environment = pathlib.Path(f"/proc/{one.pid}/environ").read_bytes()
        except OSError:
            continue
        if entry in environment and is_alive(one.pid):
            found.append(one.pid)
    return found


async def nothing_left(house: ProcessPool) -> None:
    """Of any module; the zygote lives."""
    await eventually(lambda: not children(house.zygote_pid), state=lambda: children(house.zygote_pid))
    assert house.processes == {}


ENDINGS = [
    ("os._exit(3)", "process_exited:3"),
    ("os._exit(0)", "process_exited:0"),
    ("import ctypes; ctypes.string_at(0)", "process_died:SIGSEGV"),
    ("os.kill(os.getpid(), 9)", "process_died:SIGKILL"),
    ("os.abort()", "process_died:SIGABRT"),
    ("import signal; os.kill(os.getpid(), signal.SIGRTMIN + 3)", "process_died:SIGRTMIN+3"),
]


async def test_a_process_that_ends_in_a_hook_is_told_with_its_reason(bench):
    for code, reason in ENDINGS:
        process = await bench.start(code)

        with pytest.raises(ProcessGone) as gone:
            await run_hook(process)

        assert gone.value.death.reason == reason, code
        assert failure_reason(gone.value, "on_load") == reason, code
        await nothing_left(bench.pool)


async def test_a_crash_tells_where_it_happened(bench):
    process = await bench.start("import ctypes; ctypes.string_at(0)")
    with pytest.raises(ProcessGone) as gone:
        await run_hook(process)
    assert "string_at" in gone.value.death.last_words


async def test_what_it_said_last_is_still_heard(bench):
    told = RecordedTraffic()
    process = await bench.start(
        "ctx.logger.error('so long')\nawait asyncio.sleep(0.2)\nos._exit(1)", recorded=told
    )
    with pytest.raises(ProcessGone):
        await run_hook(process, "on_start")
    assert "so long" in told.messages


async def test_a_module_that_spins_or_hangs_ends_with_its_deadline_and_dies_when_killed(bench):
    for hook, code in (
        ("on_load", "while True: pass"),
        ("on_start", "while True: pass"),
        ("on_start", _SPIN_IN_C),
        ("on_start", "time.sleep(1000)"),
        ("on_start", "threading.Event().wait()"),
    ):
        process = await bench.start(code)

        with pytest.raises(CallOverrun):
            await run_hook(process, hook, deadline=0.5)
        death = await process.kill()

        assert death.reason == "process_died:SIGKILL", code
        await nothing_left(bench.pool)


async def test_endless_recursion_is_an_error_like_any_other(bench):
    process = await bench.start("def again(): again()\nagain()")
    with pytest.raises(ModuleRaised) as raised:
        await run_hook(process)
    assert raised.value.kind == "RecursionError"
    assert await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)


async def test_a_stack_that_overflows_in_c_is_a_death_with_a_reason(bench):
    code = "sys.setrecursionlimit(10**9)\nclass A:\n  def __repr__(self): return repr(self)\nrepr(A())"
    process = await bench.start(code)
    with pytest.raises(ProcessGone) as gone:
        await run_hook(process)
    assert gone.value.death.reason in ("process_died:SIGSEGV", "memory_limit")


async def test_two_gigabytes_at_once_are_refused_by_the_limit(bench):
    process = await bench.start("bytearray(2 << 30)")
    with pytest.raises(ModuleRaised) as raised:
        await run_hook(process)
    assert raised.value.kind == "MemoryError"
    assert failure_reason(raised.value, "on_load") == "memory_limit"


async def test_memory_taken_bit_by_bit_ends_at_the_limit(bench):
    code = "held = []\nwhile True: held.append(bytes(range(256)) * 4096)"
    process = await bench.start(code, limits=Limits(memory_mb=96, processes=16))
    with pytest.raises((ModuleRaised, ProcessGone)) as failed:
        await run_hook(process)
    assert failure_reason(failed.value, "on_load") == "memory_limit"
    death = await process.kill()
    assert death.sample.memory_bytes < 140 << 20


async def test_native_code_that_gets_no_memory_dies_of_the_memory_limit(bench):
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
        "libc.malloc.argtypes = [ctypes.c_size_t]\nlibc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]\n"
        "while True: libc.memset(libc.malloc(1 << 20), 1, 1 << 20)"
    )
    process = await bench.start(code, limits=Limits(memory_mb=128, processes=16))
    with pytest.raises(ProcessGone) as gone:
        await run_hook(process)
    assert gone.value.death.reason == "memory_limit"


BREAKING = [
    ("line().shutdown(socket.SHUT_RDWR)\ntime.sleep(1000)", "cut_off:socket_closed"),
    ("line().shutdown(socket.SHUT_RDWR)\n" + _SPIN_IN_C, "cut_off:socket_closed"),
    (_LINE + "sock.sendall(bytes([255, 255, 255, 127]))\ntime.sleep(1000)", "cut_off:bad_frame"),
    (
        _LINE + "sock.sendall(bytes([16, 0, 0, 0]) + bytes(range(200, 216)))\ntime.sleep(1000)",
        "cut_off:bad_frame",
    ),
    (
        _LINE + "sock.sendall(bytes([4, 0, 0, 0]) + b'\\xa3\\xff\\xfe\\xfd')\ntime.sleep(1000)",
        "cut_off:bad_frame",
    ),
    (
        _LINE + "sock.sendall((200000).to_bytes(4, 'little') + b'\\x91' * 200000)\ntime.sleep(1000)",
        "cut_off:bad_frame",
    ),
    (_LINE + "while True: sock.sendall(os.urandom(65536))", "cut_off:bad_frame"),
]


async def test_a_module_that_breaks_the_line_is_cut_off(bench):
    for code, reason in BREAKING:
        process = await bench.start(code)
        with pytest.raises(ProcessGone) as gone:
            await run_hook(process)
        assert gone.value.death.reason == reason, code
        assert ("bytes" in gone.value.death.why) == (reason == "cut_off:bad_frame"), code
        await nothing_left(bench.pool)


async def test_more_unanswered_calls_than_allowed_cut_a_module_off(house, scratch):
    class Silent(RecordedTraffic):
        async def serve(self, method, body):
            await asyncio.Event().wait()

    bench = Workbench(house, scratch / "module")
    calls = (
        "for n in range(10000): sock.sendall(encode_frame(Call(10**6 + n, 'x', encode_body({}), 60000)))\n"
    )
    process = await bench.start(_LINE + calls + "time.sleep(1000)", recorded=Silent())
    with pytest.raises(ProcessGone) as gone:
        await run_hook(process)
    assert gone.value.death.reason == "cut_off:flood"
    assert "256 are allowed" in gone.value.death.why
    await nothing_left(house)


async def test_calls_that_are_given_up_do_not_make_room_for_more_work(house, scratch):
    """They end late here; no more of them is served at once than may be, and nobody is cut off."""

    class Slow(RecordedTraffic):
        now = most = 0

        async def serve(self, method, body):
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                await asyncio.Event().wait()
            finally:
                try:
                    await asyncio.shield(asyncio.sleep(0.01))
                finally:
                    self.now -= 1

    bench = Workbench(house, scratch / "module")
    told = Slow()
    flood = (
        "for n in range(3000):\n"
        "    sock.sendall(encode_frame(Call(10**6 + n, 'x', encode_body({}), 60000)) + encode_frame(Cancel(10**6 + n)))\n"
    )
    process = await bench.start(_LINE + flood, recorded=told)
    await run_hook(process)
    assert told.most <= 258
    await process.kill()


async def test_a_flood_of_notices_is_slowed_down_and_other_modules_are_served_meanwhile(bench):
    told = RecordedTraffic()
    other = await bench.start(module_id="other")
    flood = "frame = encode_frame(Notice('log', encode_body({'level': 'INFO', 'message': 'x'})))\n"
    process = await bench.start(_LINE + flood + "while True: sock.sendall(frame * 1000)", recorded=told)
    began = asyncio.get_running_loop().time()
    with pytest.raises(CallOverrun):
        await run_hook(process, deadline=1.0)

    for _ in range(50):
        await other.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)

    passed = asyncio.get_running_loop().time() - began
    assert told.notices < 3000 + passed * 2000
    assert not process.death.done()
    await process.kill()


async def test_chunks_beyond_the_credit_cut_a_module_off(bench):
    flood = "while True: sock.sendall(encode_frame(Chunk({number}, b'x' * 65536)))"
    process = await bench.start(_LINE + flood.format(number=2))
    streaming = process.stream(HOOK_PREFIX + "on_load", HookArguments(), answer=HookAnswer, deadline=DEADLINE)
    with pytest.raises(ProcessGone) as gone:
        async with streaming:
            raise AssertionError("there is no answer")
    assert gone.value.death.reason == "cut_off:flood"


async def test_answers_nobody_asked_for_are_dropped(bench):
    frames = "for n in range(5000): sock.sendall(encode_frame(Answer(n + 10**6, encode_body({}))))\n"
    process = await bench.start(
        _LINE + frames + "for n in range(5000): sock.sendall(encode_frame(Chunk(n + 10**6, b'x')))"
    )
    await run_hook(process)
    assert await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)


async def spinning(bench: Workbench) -> ModuleProcess:
    """A module that reads nothing, since it does not let go of its interpreter."""
    told = RecordedTraffic()
    notice = "sock.sendall(encode_frame(Notice('log', encode_body({'level': 'INFO', 'message': 'x'}))))\n"
    process = await bench.start(_LINE + notice + _SPIN_IN_C, recorded=told)
    hook = asyncio.create_task(run_hook(process))
    await eventually(lambda: told.notices)
    hook.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await hook
    return process


async def test_a_module_that_does_not_read_is_cut_off_when_too_much_waits_for_it(bench):
    process = await spinning(bench)

    for _ in range(20):
        process.notify("capability_states", {"filler": "x" * 1_000_000})

    death = await asyncio.shield(process.death)
    assert death.reason == "cut_off:not_reading"
    await nothing_left(bench.pool)


@pytest.mark.system
async def test_calls_to_a_module_that_does_not_read_wait_and_it_is_cut_off_when_nothing_moves(bench):
    process = await spinning(bench)
    request = RouteRequest(
        route=1, method="GET", path="/", body=b"x" * 1_000_000, caller=CallerBody(name="x", role="admin")
    )

    calls = [process.call(ROUTE, request, answer=RouteAnswer, deadline=60.0) for _ in range(20)]
    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(answer) for answer in answers] == [ProcessGone] * 20
    assert answers[0].death.reason == "cut_off:not_reading"


async def test_so_many_calls_may_wait_and_no_more(bench):
    process = await bench.start("await asyncio.sleep(1000)")
    waiting = [
        asyncio.ensure_future(run_hook(process, "on_start", deadline=DEADLINE))
        for _ in range(MAX_CALLS_TO_MODULE)
    ]
    await asyncio.sleep(0)
    with pytest.raises(ModuleBusy):
        await run_hook(process, "on_start")
    await process.kill()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(end) for end in ends} <= {ProcessGone, ModuleRaised}


@pytest.mark.parametrize(("code", "count"), [(_IGNORING, 3), (_DAEMONS, 3)], ids=["deaf", "daemons"])
@pytest.mark.parametrize("how", ["kill", "exit", "finish"])
async def test_what_a_module_started_ends_with_it_however_it_ends(bench, code, count, how):
    process = await bench.start(code)
    await run_hook(process)
    await eventually(lambda: len([pid for pid in children(process.pid) if is_alive(pid)]) == count)
    started = [pid for pid in children(process.pid) if is_alive(pid)]

    if how == "kill":
        await process.kill()
    elif how == "exit":
        process.signal(signal.SIGKILL)
        await asyncio.shield(process.death)
    else:
        ending = await process.finish(grace=DEADLINE)
        assert ending.killed
        assert ending.death.strays == count
        assert len(bench.pool.leaked()) == 1

    assert not any(map(is_alive, started))
    await nothing_left(bench.pool)


@pytest.mark.parametrize(
    "leaving",
    [
        pytest.param("", id="one group"),
        pytest.param("os.setsid()", id="own sessions", marks=pytest.mark.system),
    ],
)
async def test_a_fork_bomb_is_stopped_at_the_limit_and_nothing_of_it_is_left(bench, scratch, leaving):
    """It stops itself at 300, in case nobody else does."""
    bomb = (
        "import mmap\nleft = mmap.mmap(-1, 4096)\nleft[0:2] = (300).to_bytes(2, 'little')\n"
        "def bomb():\n"
        "    while (n := int.from_bytes(left[0:2], 'little')) > 0:\n"
        "        left[0:2] = (n - 1).to_bytes(2, 'little')\n"
        f"        if os.fork() == 0:\n            {leaving or 'pass'}\n"
        "    time.sleep(1000)\n"
        "bomb()"
    )
    other = await bench.start(module_id="other")
    process = await bench.start(bomb, limits=Limits(memory_mb=256, processes=40))

    with pytest.raises(ProcessGone) as gone:
        await run_hook(process, deadline=60.0)

    assert gone.value.death.reason == "process_limit"
    assert await other.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)
    assert children(bench.pool.zygote_pid) == [other.pid]
    assert sorted(marked(scratch / "house")) == sorted([bench.pool.zygote_pid, other.pid])


async def test_more_threads_than_allowed_end_a_module_too(bench):
    code = "for _ in range(100): threading.Thread(target=time.sleep, args=(1000,)).start()\ntime.sleep(1000)"
    process = await bench.start(code, limits=Limits(memory_mb=1024, processes=40))
    with pytest.raises(ProcessGone) as gone:
        await run_hook(process)
    assert gone.value.death.reason == "process_limit"


async def test_a_module_within_its_limit_is_left_alone_however_busy_the_machine(bench):
    code = "import subprocess\nfor _ in range(60): subprocess.run(['true'])"
    process = await bench.start(code, limits=Limits(memory_mb=256, processes=12))
    await run_hook(process)
    assert await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)


async def test_a_stopped_process_is_killed_all_the_same(bench):
    process = await bench.start()
    process.signal(signal.SIGSTOP)
    with pytest.raises(CallOverrun):
        await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=0.2)
    ending = await process.finish(grace=0.2)
    assert (ending.killed, ending.lingering) == (True, None)


async def test_a_service_manager_that_terminates_all_at_once_does_not_end_modules(bench):
    process = await bench.start()
    process.signal(signal.SIGTERM)
    os.kill(bench.pool.zygote_pid, signal.SIGTERM)
    assert await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)
    assert (await process.finish(grace=DEADLINE)).death.reason == "process_exited:0"


_HOST = """
import asyncio, pathlib, sys
from corral.modules.process import ProcessPool
from corral.testing.module_processes import Workbench, run_hook

async def main():
    directory = pathlib.Path(sys.argv[1])
    async with ProcessPool(directory=directory / "house") as house:
        process = await Workbench(house, directory / "module").start(sys.argv[2])
        await run_hook(process)
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_host_that_is_killed_takes_everything_along(scratch):
    code = _DAEMONS + _IGNORING + "threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()"
    host = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _HOST, str(scratch), code, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        while b"ready" not in (line := await host.stdout.readline()):
            assert line, "the host ended"
    assert len(marked(scratch / "house")) >= 8

    host.kill()
    await host.wait()

    await eventually(lambda: not marked(scratch / "house"), state=lambda: marked(scratch / "house"))
    host._transport.close()
