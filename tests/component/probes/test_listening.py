"""Who listens on a port, as /proc says it; and the rule for instances without probes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from corral.daemon.probes.built_in_rule import BuiltInRule
from corral.daemon.probes.listening_sockets import RunSockets, SocketTables
from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.testing.waiting import eventually

TCP, UDP, BOTH = PortProtocol.TCP, PortProtocol.UDP, PortProtocol.BOTH


async def ourselves() -> tuple[int, ...]:
    return (os.getpid(),)


@contextlib.contextmanager
def listening(kind: socket.SocketKind, family: socket.AddressFamily = socket.AF_INET) -> Iterator[int]:
    with socket.socket(family, kind) as found:
        found.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            found.listen()
        yield found.getsockname()[1]


def leased(port: int, protocol: PortProtocol) -> LeasedPort:
    return LeasedPort(name="primary", port=port, protocol=protocol)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
@pytest.mark.parametrize(
    ("kind", "own", "other"), [(socket.SOCK_STREAM, TCP, UDP), (socket.SOCK_DGRAM, UDP, TCP)]
)
async def test_a_socket_is_found_by_its_port_and_protocol(kind, own, other, family):
    sockets = RunSockets(SocketTables(), ourselves)
    with listening(kind, family) as port:
        assert await sockets.missing(leased(port, own)) == ""
        assert await sockets.missing(leased(port, BOTH)) == ""
        assert f"nothing listens on {port}/{other} yet; its processes listen on" in await sockets.missing(
            leased(port, other)
        )
    assert await sockets.missing(leased(port, own), max_age=0)


async def test_a_connection_of_its_own_and_a_socket_of_another_do_not_count():
    sockets = RunSockets(SocketTables(), ourselves)
    with listening(socket.SOCK_STREAM) as port, socket.create_connection(("127.0.0.1", port)) as client:
        assert await sockets.missing(leased(client.getsockname()[1], TCP))

        async def somebody_else() -> tuple[int, ...]:
            return (sleeper.pid,)

        sleeper = await asyncio.create_subprocess_exec("sleep", "60")
        try:
            found = await RunSockets(SocketTables(), somebody_else).missing(leased(port, TCP))
            assert found == f"{port}/tcp belongs to a process that is not of this run"
        finally:
            sleeper.kill()
            await sleeper.wait()


async def test_a_run_of_countless_processes_and_descriptors_is_looked_at_in_part():
    """Whose the port is nobody finds out then; that somebody has it has to do."""
    sleeper = await asyncio.create_subprocess_exec("sleep", "60")

    async def asked(*pids: int, **limits: int) -> str:
        async def processes() -> tuple[int, ...]:
            return pids

        return await RunSockets(SocketTables(), processes, **limits).missing(leased(port, TCP))

    try:
        with listening(socket.SOCK_STREAM) as port:
            not_its = f"{port}/tcp belongs to a process that is not of this run"
            assert await asked(*[sleeper.pid] * 999, os.getpid()) == ""
            assert await asked(*[sleeper.pid] * 1000, os.getpid()) == not_its, "the last one is not looked at"
            assert await asked(*[sleeper.pid] * 20, most_descriptors=1000) == not_its
            assert await asked(*[sleeper.pid] * 20, most_descriptors=10) == ""
    finally:
        sleeper.kill()
        await sleeper.wait()


async def test_where_nobody_can_see_its_processes_it_counts_as_listening():
    async def elsewhere() -> None:
        return None

    assert await RunSockets(SocketTables(), elsewhere).missing(leased(1, TCP)) == ""


def bound_twice() -> tuple[socket.socket, socket.socket]:
    """A UDP and a TCP socket with one number; nothing listens on the second yet."""
    while True:
        datagrams, server = socket.socket(type=socket.SOCK_DGRAM), socket.socket()
        datagrams.bind(("127.0.0.1", 0))
        try:
            server.bind(datagrams.getsockname())
        except OSError:  # another process has that number
            datagrams.close()
            server.close()
        else:
            return datagrams, server


async def test_a_listen_probe_succeeds_when_the_socket_is_there(readiness):
    datagrams, server = bound_twice()
    port = datagrams.getsockname()[1]
    with datagrams, server:
        sockets = RunSockets(SocketTables(), ourselves)
        spec = ProbeSpec(kind=ProbeKind.LISTEN, protocol="tcp", interval_ms=50)
        waiting = readiness(spec, port=port, sockets=sockets)
        task = asyncio.create_task(waiting.until_ready())
        await eventually(lambda: f"nothing listens on {port}/tcp yet" in waiting.last_seen)
        server.listen()
        await asyncio.wait_for(task, 20)
        server.close()
        await asyncio.wait_for(
            readiness(ProbeSpec(kind=ProbeKind.LISTEN), port=port, sockets=sockets).until_ready(), 20
        )


async def test_readiness_goes_when_the_socket_does_and_comes_back_with_it():
    heard: list[tuple[bool, str]] = []
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        rule = BuiltInRule(
            sockets=RunSockets(SocketTables(), ourselves),
            port=leased(port, TCP),
            alive_in=lambda: 0.0,
            ready=False,
            changed=lambda ready, reason: heard.append((ready, reason)),
            waits=lambda _: None,
            late=lambda: None,
            name="one.1024",
            again_seconds=0.05,
        )
        task = asyncio.create_task(rule.follow())
        try:
            await eventually(lambda: heard == [(True, "")], state=lambda: heard)
            first.close()
            await eventually(lambda: len(heard) == 2, state=lambda: heard)
            assert not heard[1][0]
            assert f"nothing listens on {port}/tcp any more" in heard[1][1]
            with socket.create_server(("127.0.0.1", port)):
                await eventually(lambda: heard[2:] == [(True, "")], state=lambda: heard)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
