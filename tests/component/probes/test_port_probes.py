from __future__ import annotations

import asyncio

import pytest

from corral.daemon.probes.port_probes import NotYet, try_http, try_tcp
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.errors import Code, Retryable
from corral.sdk.runtime import Execution
from corral.testing.ports import free_range
from corral.testing.reaper import Reaper
from corral.testing.runtime_nodes import ProcessHarness
from corral.testing.waiting import eventually

HOST = "127.0.0.1"


def answering(data: bytes, *, close: bool = True):
    async def talk(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        await writer.drain()
        if not close:
            await asyncio.Event().wait()

    return talk


def http(**given) -> ProbeSpec:
    return ProbeSpec(kind=ProbeKind.HTTP, **given)


async def test_a_port_that_accepts_is_ready_and_one_that_does_not_says_why(serve):
    port = await serve(answering(b""))
    await try_tcp(HOST, port)
    free, _ = free_range(1)
    with pytest.raises(NotYet, match=f"no connection to port {free}.*refused"):
        await try_tcp(HOST, free)


@pytest.mark.parametrize(("listening", "asked"), [("::1", HOST), (HOST, "::1")])
async def test_a_workload_on_the_other_loopback_address_is_found(serve, listening, asked):
    try:
        port = await serve(answering(b"HTTP/1.1 200 OK\r\n\r\n"), host=listening)
    except OSError:
        pytest.skip("this machine has no IPv6")
    await try_tcp(asked, port)
    await try_http(http(), asked, port)


async def test_a_server_that_listens_later_becomes_ready(serve, readiness):
    port, _ = free_range(1)
    found = readiness(ProbeSpec(kind=ProbeKind.TCP, interval_ms=50), port=port)
    waiting = asyncio.create_task(found.until_ready())
    await eventually(lambda: "refused" in found.last_seen, state=lambda: found.last_seen)
    assert found.last_seen.startswith("tcp probe of port 'primary': no connection")
    await serve(answering(b""), port)
    async with asyncio.timeout(60):
        await waiting


@pytest.mark.parametrize("status", [200, 204, 301, 399])
async def test_http_is_ready_with_a_good_status_and_follows_no_redirect(serve, status):
    answer = f"HTTP/1.1 {status} X\r\nLocation: http://127.0.0.1:1/\r\n\r\n".encode()
    await try_http(http(), HOST, await serve(answering(answer, close=False)))


async def test_http_asks_as_a_client_does_and_takes_the_statuses_that_were_named(serve):
    asked: list[bytes] = []

    async def talk(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\nHTTP/1.0 503\r\n\r\n")

    port = await serve(talk)
    await try_http(http(path="/health check?a=b\r\nX: y", statuses=(503,)), HOST, port)
    assert asked[0].startswith(b"GET /health%20check?a=b%0D%0AX:%20y HTTP/1.1\r\nHost: 127.0.0.1:")
    with pytest.raises(NotYet, match="answered 503; wanted: 200 to 399"):
        await try_http(http(), HOST, port)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\r\n",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 \xff\xff\xff\r\n\r\n",
        b"x" * 10_000_000,
        b"HTTP/1.1 100 Go on\r\n" * 100_000,
        b"HTTP/1.1 100 Go on\r\n\r\n" * 100,
    ],
)
async def test_garbage_is_not_http(serve, answer):
    port = await serve(answering(answer))
    async with asyncio.timeout(60):
        with pytest.raises(NotYet):
            await try_http(http(), HOST, port)


@pytest.mark.parametrize("kind", [ProbeKind.HTTP, ProbeKind.MINECRAFT])
async def test_a_server_that_never_answers_costs_one_attempt_its_time(serve, readiness, kind):
    async def silence(reader, writer):
        await asyncio.Event().wait()

    found = readiness(ProbeSpec(kind=kind, timeout_ms=60, interval_ms=50), port=await serve(silence))
    waiting = asyncio.create_task(found.until_ready())
    await eventually(lambda: "no answer within 0.06 s" in found.last_seen, state=lambda: found.last_seen)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_server_that_drips_is_cut_off_in_time(serve, readiness):
    async def drip(reader, writer):
        while True:
            writer.write(b"H")
            await asyncio.sleep(0.01)

    found = readiness(http(timeout_ms=100, interval_ms=50), port=await serve(drip))
    waiting = asyncio.create_task(found.until_ready())
    await eventually(lambda: "no answer within" in found.last_seen, state=lambda: found.last_seen)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_port_nobody_gave_is_named(readiness):
    found = readiness(ProbeSpec(kind=ProbeKind.TCP, port="query", interval_ms=50))
    waiting = asyncio.create_task(found.until_ready())
    await eventually(lambda: "no port 'query'" in found.last_seen)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
async def test_a_workload_that_listens_everywhere_is_called_locally(serve, readiness, host):
    found = readiness(ProbeSpec(kind=ProbeKind.TCP), port=await serve(answering(b"")), host=host)
    async with asyncio.timeout(60):
        await found.until_ready()


async def test_no_probe_at_all_is_ready_at_once(readiness):
    found = readiness()
    await found.until_ready()
    assert found.ready


async def test_the_workload_may_say_ready_before_anybody_asks(readiness):
    found = readiness(ProbeSpec(kind=ProbeKind.WORKLOAD))
    assert "workload/ready" in found.last_seen
    found.workload_reported_ready()
    await found.until_ready()
    assert found.ready


async def test_a_probe_that_succeeded_once_is_not_asked_again(serve, readiness):
    connections = 0

    async def count(reader, writer):
        nonlocal connections
        connections += 1

    port = await serve(count)
    found = readiness(
        ProbeSpec(kind=ProbeKind.TCP, interval_ms=50), ProbeSpec(kind=ProbeKind.WORKLOAD), port=port
    )
    waiting = asyncio.create_task(found.until_ready())
    await eventually(lambda: found.last_seen.startswith("workload"))
    await asyncio.sleep(0.2)
    found.workload_reported_ready()
    await waiting
    assert connections == 1


async def test_a_command_is_run_until_it_exits_with_zero(readiness):
    answers = [
        Execution(code=3, output="not \x1b[31myet\n"),
        Retryable(Code.TIMEOUT, "it took longer than 0.1 s"),
        RuntimeError("a fault of ours"),
        Execution(code=0),
    ]
    seen: list[str] = []

    async def execute(command, timeout):
        assert (command, timeout) == (("check", "it"), 0.1)
        seen.append(found.last_seen)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    probe = ProbeSpec(kind=ProbeKind.COMMAND, command=("check", "it"), interval_ms=50, timeout_ms=100)
    found = readiness(probe, execute=execute)
    async with asyncio.timeout(60):
        await found.until_ready()
    assert seen == [
        "command probe 'check': there was no attempt yet",
        "command probe 'check': the command exited with 3, its output ends with 'not \\x1b[31myet'",
        "command probe 'check': it took longer than 0.1 s",
        "command probe 'check': the probe failed: RuntimeError",
    ]


async def test_a_command_runs_beside_a_real_workload(scratch, reaper: Reaper, readiness):
    data = scratch / "node"
    data.mkdir()
    async with ProcessHarness(data) as house:
        spec = house.spec("/bin/sh", "-c", "echo here > mark; read forever")
        handle = await house.provider.start(spec)
        probe = ProbeSpec(kind=ProbeKind.COMMAND, command=("/bin/cat", "mark"), interval_ms=50)
        found = readiness(
            probe, execute=lambda command, timeout: house.provider.execute(handle, command, timeout=timeout)
        )
        async with asyncio.timeout(60):
            await found.until_ready()
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)
