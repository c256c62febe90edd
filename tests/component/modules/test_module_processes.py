"""Module processes: started, called, streamed from, told to finish; and nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import signal
import socket

import pytest

from corral.errors import Code, Rejected, Retryable
from corral.modules.process import Limits, ProcessPool
from corral.modules.process.call_failures import CallOverrun, ModuleRaised, ProcessGone, failure_reason
from corral.modules.process.sdk_directory import make_view
from corral.modules.process.zygote_link import open_zygote
from corral.sdk.protocol.frames import STREAM_CREDIT
from corral.sdk.protocol.messages import (
    HEALTH,
    REGISTRATIONS,
    ROUTE,
    CallerBody,
    HealthAnswer,
    Nothing,
    Registrations,
    RouteAnswer,
    RouteRequest,
)
from corral.sdk.runner.proc_table import children
from corral.sdk.runner.zygote_messages import Spawn
from corral.testing.module_processes import DEADLINE, RecordedTraffic, Workbench, run_hook
from corral.testing.waiting import eventually

_FACTS = """
import resource
print(json.dumps({
    "environment": sorted(os.environ),
    "directory": os.getcwd(),
    "session": os.getsid(0) == os.getpid(),
    "nice": os.nice(0),
    "memory": resource.getrlimit(resource.RLIMIT_DATA)[0],
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "stdin": os.read(0, 1).decode(),
    "user": os.getuid(),
    "title": open("/proc/self/cmdline").read().strip("\\0"),
    "no_new_privileges": "NoNewPrivs:\\t1" in open("/proc/self/status").read(),
}), flush=True)
"""


@pytest.fixture
async def house(scratch):
    async with ProcessPool(directory=scratch / "house") as house:
        yield house


@pytest.fixture
def bench(house, scratch):
    return Workbench(house, scratch / "module")


def is_alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


async def facts(told: RecordedTraffic) -> dict:
    text = await eventually(lambda: next((m for m in told.messages if m.startswith("{")), ""))
    return json.loads(text)


async def test_a_module_answers_and_says_what_it_raised(bench):
    process = await bench.start("raise LookupError('no such player')")
    assert process.pid in bench.pool.processes

    with pytest.raises(ModuleRaised) as raised:
        await run_hook(process)

    assert (raised.value.kind, raised.value.detail) == ("LookupError", "no such player")
    assert "on_load" in raised.value.traceback
    assert raised.value.code is Code.MODULE_FAILED
    assert failure_reason(raised.value, "on_load") == "hook_failed:on_load"


async def test_it_has_a_clean_environment_a_session_and_limits_of_its_own(bench, monkeypatch):
    monkeypatch.setenv("CORRAL_SECRET", "hidden")
    told = RecordedTraffic()
    process = await bench.start(_FACTS, recorded=told, limits=Limits(memory_mb=200, processes=20, nice=7))
    await run_hook(process)

    found = await facts(told)

    assert set(found.pop("environment")) <= {"CORRAL_MODULE_HOUSE", "LANG", "LC_CTYPE", "PATH"}
    assert found == {
        "directory": "/",
        "session": True,
        "nice": os.nice(0) + 7,
        "memory": 200 << 20,
        "core": 0,
        "stdin": "",
        "user": os.getuid(),
        "title": "corral module bench",
        "no_new_privileges": True,
    }


async def test_nothing_of_corral_but_the_sdk_can_be_imported_there(bench):
    for name in ("corral.errors", "corral.modules", "structlog", "grpc"):
        process = await bench.start(f"import corral.sdk, msgspec, {name}")
        with pytest.raises(ModuleRaised) as raised:
            await run_hook(process)
        assert raised.value.kind == "ModuleNotFoundError"
        await process.kill()


async def test_a_call_that_overruns_ends_by_its_deadline_and_the_module_goes_on(bench):
    process = await bench.start("await asyncio.sleep(1000)")

    with pytest.raises(CallOverrun) as overrun:
        await run_hook(process, "on_start", deadline=0.1)

    assert overrun.value.code is Code.MODULE_TIMEOUT
    assert failure_reason(overrun.value, "on_start") == "hook_overrun:on_start"
    assert await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)


async def test_what_the_host_refuses_reaches_the_module_with_its_code(house, scratch):
    class Refusing(RecordedTraffic):
        async def serve(self, method, body):
            if method == "events.publish":
                raise Rejected(Code.QUERY_INVALID, "not like this", hint="like that")
            raise ZeroDivisionError

    bench = Workbench(house, scratch / "module")
    told = Refusing()
    process = await bench.start(
        "from corral.sdk.errors import HostError\n"
        "try:\n    await ctx.events.publish('A', {})\n"
        "except HostError as error: print(json.dumps([error.code, str(error)]), flush=True)\n"
        "try:\n    await ctx.events.subscribe('A', print)\n"
        "except HostError as error: print(json.dumps([error.code]), flush=True)\n",
        recorded=told,
    )
    await run_hook(process, "on_start")

    await eventually(
        lambda: any('"QUERY_INVALID"' in line for line in told.messages), state=lambda: told.lines
    )
    await eventually(lambda: any('"INTERNAL"' in line for line in told.messages), state=lambda: told.lines)


async def _streaming(bench) -> tuple:
    process = await bench.start()
    found = await process.call(REGISTRATIONS, Nothing(), answer=Registrations, deadline=DEADLINE)
    return process, found.routes[0].number


def _request(route: int, kilobytes: int) -> RouteRequest:
    return RouteRequest(
        route=route,
        method="GET",
        path="/bytes",
        query=(("kilobytes", str(kilobytes)),),
        caller=CallerBody(name="test", role="admin"),
    )


async def test_a_streamed_answer_comes_whole(bench):
    process, route = await _streaming(bench)
    size = 0

    async with process.stream(ROUTE, _request(route, 5000), answer=RouteAnswer, deadline=DEADLINE) as (
        head,
        chunks,
    ):
        assert head.streamed
        async for chunk in chunks:
            size += len(chunk)

    assert size == 5000 * 1024


async def test_a_module_streams_no_further_than_its_credit_and_stops_when_nobody_reads(bench):
    process, route = await _streaming(bench)

    async def handed() -> int:
        answer = await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)
        return int(answer.detail.split()[0])

    async with process.stream(ROUTE, _request(route, 50_000), answer=RouteAnswer, deadline=DEADLINE) as (
        _,
        chunks,
    ):
        await anext(chunks)
        await eventually(lambda: _at_least(handed, STREAM_CREDIT))
        for _ in range(20):
            assert await handed() < 3 * STREAM_CREDIT

    stopped = await handed()
    for _ in range(20):
        assert await handed() == stopped


async def test_a_stream_that_is_left_before_its_first_chunk_is_cancelled_too(bench):
    process, route = await _streaming(bench)
    async with process.stream(ROUTE, _request(route, 50_000), answer=RouteAnswer, deadline=DEADLINE):
        pass

    async def at_rest() -> bool:
        ending = await process.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)
        return ending.detail.endswith("closed")

    await eventually(at_rest)


async def test_a_stream_that_breaks_is_told_after_what_had_come(bench):
    process, route = await _streaming(bench)
    size = 0
    with pytest.raises(ProcessGone):
        async with process.stream(ROUTE, _request(route, 50_000), answer=RouteAnswer, deadline=DEADLINE) as (
            _,
            chunks,
        ):
            async for chunk in chunks:
                size += len(chunk)
                process.signal(signal.SIGKILL)
    assert size > 0


async def _at_least(handed, size: int) -> bool:
    return await handed() >= size


async def test_a_module_that_has_nothing_left_finishes_by_itself(bench):
    process = await bench.start()

    ending = await process.finish(grace=DEADLINE)

    assert (ending.killed, ending.death.reason) == (False, "process_exited:0")
    assert ending.lingering is not None
    assert bench.pool.leaked() == []
    assert not is_alive(process.pid)
    assert process.pid not in bench.pool.processes


async def test_a_module_with_a_thread_left_is_told_of_and_killed(bench):
    process = await bench.start(
        "threading.Thread(target=time.sleep, args=(1000,), name='forgotten', daemon=False).start()"
    )
    await run_hook(process)

    ending = await process.finish(grace=1.0)

    assert ending.killed
    assert ending.lingering is not None
    assert any("forgotten" in name for name in ending.lingering.threads)
    (leak,) = bench.pool.leaked()
    assert (leak.module_id, leak.pid, leak.killed) == ("bench", process.pid, True)
    assert not is_alive(process.pid)


async def test_one_that_lingers_is_listed_and_a_forced_clean_up_kills_it_at_once(bench):
    process = await bench.start("threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()")
    await run_hook(process)
    finishing = asyncio.ensure_future(process.finish(grace=100.0))
    leaks = await eventually(bench.pool.leaked)
    assert [leak.killed for leak in leaks] == [False]

    found = await bench.pool.force_cleanup()

    assert [leak.pid for leak in found] == [process.pid]
    assert not is_alive(process.pid)
    assert (await finishing).death.reason == "process_died:SIGKILL"


async def test_two_who_finish_the_same_process_see_the_same_end(bench):
    process = await bench.start()
    first, second = await asyncio.gather(process.finish(grace=DEADLINE), process.finish(grace=DEADLINE))
    assert first is second
    assert await process.kill() == first.death


async def test_a_call_after_the_end_is_refused_with_how_it_ended(bench):
    process = await bench.start()
    death = await process.kill()

    with pytest.raises(ProcessGone) as gone:
        await run_hook(process)

    assert gone.value.death == death
    assert failure_reason(gone.value, "on_load") == "process_died:SIGKILL"
    process.notify("capability_states", Nothing())


async def test_its_use_is_sampled_with_that_of_what_it_started(bench):
    process = await bench.start("import subprocess; module.sub = subprocess.Popen(['sleep', '1000'])")
    before = process.sample()
    await run_hook(process)

    after = process.sample()

    assert before.processes == 1
    assert after.processes == 2
    assert after.threads >= 3
    assert after.memory_bytes > 1_000_000
    assert after.open_files > 3
    death = await process.kill()
    assert death.strays <= 1
    assert death.sample.memory_bytes > 0


async def test_a_killed_zygote_takes_its_modules_along_and_another_one_comes(bench):
    process = await bench.start(
        "import subprocess\n"
        "subprocess.Popen(['sleep', '1000'], start_new_session=True)\n"
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)\n"
    )
    await run_hook(process)
    started = children(process.pid)
    assert len(started) == 2

    first = bench.pool.zygote_pid
    os.kill(first, signal.SIGKILL)
    death = await asyncio.shield(process.death)

    assert death.reason == "zygote_lost"
    assert not any(map(is_alive, [process.pid, *started]))
    again = await bench.start()
    assert await again.call(HEALTH, Nothing(), answer=HealthAnswer, deadline=DEADLINE)
    assert bench.pool.zygote_pid != first


async def test_what_an_earlier_host_left_is_ended_before_the_first_module(scratch):
    async with ProcessPool(directory=scratch / "house") as other:
        bench = Workbench(other, scratch / "module")
        process = await bench.start("if os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)")
        await run_hook(process)
        (left,) = children(process.pid)
        async with ProcessPool(directory=scratch / "house") as house:
            # another host of the same directory: the first one counts as gone
            await Workbench(house, scratch / "module").start()
            assert not is_alive(left)


async def test_a_start_that_is_given_up_leaves_nothing(bench):
    await (await bench.start()).kill()
    zygote = bench.pool.zygote_pid
    for turn in range(20):
        starting = asyncio.ensure_future(bench.start())
        for _ in range(turn % 7):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await starting.result().kill()
    for process in list(bench.pool.processes.values()):
        await process.kill()

    await eventually(lambda: not children(zygote), state=lambda: children(zygote))


async def test_a_closed_house_takes_nobody_in(scratch):
    house = ProcessPool(directory=scratch / "house")
    bench = Workbench(house, scratch / "module")
    process = await bench.start()
    zygote = house.zygote_pid
    await house.close()

    assert (await process.death).reason == "process_died:SIGKILL"
    assert not is_alive(zygote)
    with pytest.raises(Retryable) as refused:
        await bench.start()
    assert refused.value.code is Code.SHUTTING_DOWN


async def test_an_unknown_user_is_refused_before_anything_is_started(bench):
    with pytest.raises(Rejected) as refused:
        await bench.start(limits=Limits(memory_mb=64, processes=8, run_as="no-such-user"))
    assert refused.value.code is Code.RUN_AS_REFUSED
    assert bench.pool.zygote_pid is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose the user")
async def test_a_user_who_could_not_read_the_module_is_refused(bench, scratch):
    with pytest.raises(Rejected) as refused:
        await bench.start(limits=Limits(memory_mb=64, processes=8, run_as="65534"))
    assert refused.value.code is Code.RUN_AS_REFUSED
    assert bench.pool.zygote_pid is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose the user")
async def test_a_module_process_becomes_another_user_and_dies_with_its_zygote_all_the_same(scratch):
    """Below the house, which refuses where the interpreter lies in a directory of root's own."""
    ended: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    zygote = await open_zygote(
        make_view(scratch / "view"),
        mark=str(scratch),
        log=scratch / "log",
        on_ended=print,
        on_gone=lambda: ended.set_result(None),
    )
    ours, theirs = socket.socketpair()
    words = os.memfd_create("words")
    order = Spawn(1, "other", (), 256 << 20, 32, 0, 65534, 65534, (65534,))
    pid, pidfd = await zygote.spawn(order, [theirs.fileno(), words])
    theirs.close()
    status = pathlib.Path(f"/proc/{pid}/status")

    def fields() -> dict[str, list[str]]:
        return {
            name: rest.split()
            for name, _, rest in (line.partition(":") for line in status.read_text().splitlines())
        }

    await eventually(lambda: fields()["NoNewPrivs"] == ["1"])
    found = fields()
    zygote.kill()
    await ended

    assert found["Uid"] == found["Gid"] == ["65534"] * 4
    assert found["Groups"] == ["65534"]
    await eventually(lambda: not is_alive(pid))
    await zygote.close()
    ours.close()
    os.close(words)
    os.close(pidfd)


def test_the_plain_event_loop_will_do_as_well(scratch):
    async def use() -> str:
        async with ProcessPool(directory=scratch / "house") as house:
            process = await Workbench(house, scratch / "module").start()
            await run_hook(process, "on_stop")
            return (await process.finish(grace=DEADLINE)).death.reason

    assert asyncio.run(use()) == "process_exited:0"


@pytest.mark.system
@pytest.mark.trap("T30")
async def test_three_hundred_loads_and_unloads_leave_the_host_as_it_was(bench):
    async def once(turn: int) -> None:
        process = await bench.start(module_id=f"module-{turn}")
        ending = await process.finish(grace=DEADLINE)
        assert ending.death.reason == "process_exited:0", ending

    for turn in range(20):  # what is made once is made here
        await once(turn)
    before = _footprint()
    for turn in range(300):
        await once(turn)
    after = _footprint()

    # what an earlier test left may have ended meanwhile
    assert after["files"] <= before["files"]
    assert after["threads"] <= before["threads"]
    assert after["children"] == before["children"]
    assert after["resident"] - before["resident"] < 4 << 20, (before, after)
    assert children(bench.pool.zygote_pid) == []
    assert bench.pool.processes == {}


def _footprint() -> dict[str, int]:
    status = pathlib.Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return {
        "files": len(os.listdir("/proc/self/fd")),
        "threads": int(fields["Threads"]),
        "children": len(children(os.getpid())),
        "resident": int(fields["VmRSS"].split()[0]) * 1024,
    }
