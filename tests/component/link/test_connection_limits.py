"""Strangers at the gRPC ports: silent ones are cut in time, and there are not more of them than allowed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest
from structlog.testing import capture_logs

from corral.controller.sessions.address_guard import AddressGuard, Bound
from corral.domain.node_states import NodeState
from corral.system.addresses import LOOPBACK, counted_as, share_of
from corral.system.clock import SystemClock
from corral.testing.leaks import take_census

DEADLINE = 20.0


@contextlib.asynccontextmanager
async def strangers(address: str, count: int):
    """Connections that say nothing, in the order in which they were made."""
    host, _, port = address.rpartition(":")
    made = [await asyncio.open_connection(host, int(port)) for _ in range(count)]
    try:
        yield [reader for reader, _ in made]
    finally:
        for _, writer in made:
            writer.transport.abort()


async def cut(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(DEADLINE):
            await reader.read()


async def cut_first(readers: list[asyncio.StreamReader], count: int) -> int:
    """Wait until so many of them were cut; how many those are then."""
    waiting = [asyncio.create_task(cut(reader)) for reader in readers]
    try:
        async with asyncio.timeout(DEADLINE):
            while sum(task.done() for task in waiting) < count:
                await asyncio.wait(
                    [each for each in waiting if not each.done()], return_when="FIRST_COMPLETED"
                )
        return sum(task.done() for task in waiting)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.trap("T64")
@pytest.mark.parametrize("port", ["grpc_address", "bootstrap_address"])
async def test_a_stranger_that_says_nothing_is_cut_in_time(cluster, port):
    controller = await cluster.controller(grpc__handshake_seconds=0.3)
    async with strangers(getattr(controller, port), 3) as readers:
        assert await cut_first(readers, 3) == 3
    daemon = await cluster.daemon("n1", controller)  # who has a handshake to make is in time
    assert controller.node_state(daemon.node_id) is NodeState.ONLINE


@pytest.mark.trap("T64")
@pytest.mark.parametrize("port", ["grpc", "bootstrap"])
async def test_there_are_not_more_connections_than_allowed_and_nodes_that_are_there_stay(cluster, port):
    limits = {f"{port}__connections": 6, f"{port}__connections_per_address": 0}
    controller = await cluster.controller(**limits, grpc__handshake_seconds=600)
    await cluster.daemon("n1", controller)
    async with strangers(getattr(controller, f"{port}_address"), 12) as readers:
        assert 6 <= await cut_first(readers, 6) < 12
        assert controller.node_state("n1") is NodeState.ONLINE


@pytest.mark.trap("T64")
@pytest.mark.parametrize("port", ["grpc", "bootstrap"])
async def test_one_address_has_its_share_and_the_newest_beyond_it_go(cluster, port):
    limits = {f"{port}__connections": 16, f"{port}__connections_per_address": 2}  # the host itself has half
    controller = await cluster.controller(**limits, grpc__handshake_seconds=600)
    await cluster.daemon("n1", controller)
    async with strangers(getattr(controller, f"{port}_address"), 14) as readers:
        assert await cut_first(readers, 6) <= 10
        assert controller.node_state("n1") is NodeState.ONLINE


def test_a_guard_shuts_what_is_too_much_and_nothing_else():
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        guarded, other = (listener.getsockname() for listener in listeners)
        guard = AddressGuard({guarded[1]: Bound(per_address=2, most=4)}, clock=SystemClock())
        pairs = []
        for listener, address in [(listeners[0], guarded)] * 4 + [(listeners[1], other)] * 4:
            calling = stack.enter_context(socket.create_connection(address))
            pairs.append((calling, stack.enter_context(listener.accept()[0])))
            guard.sweep() if len(pairs) <= 2 else None
        before = len(os.listdir("/proc/self/fd"))
        assert guard.sweep() == 2
        assert len(os.listdir("/proc/self/fd")) == before
        for calling, _ in pairs:
            calling.setblocking(False)
        for number, (calling, _) in enumerate(pairs):
            if number in (2, 3):
                assert calling.recv(1) == b""
            else:
                with pytest.raises(BlockingIOError):
                    calling.recv(1)


def test_a_full_port_is_reported_once_and_closes_nobody():
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = listener.getsockname()
        guard = AddressGuard({address[1]: Bound(per_address=0, most=2)}, clock=SystemClock())

        def connect() -> socket.socket:
            calling = stack.enter_context(socket.create_connection(address))
            stack.enter_context(listener.accept()[0])
            calling.setblocking(False)
            return calling

        with capture_logs() as logs:
            calling = [connect()]
            assert (guard.sweep(), logs) == (0, [])
            calling.append(connect())
            assert [guard.sweep() for _ in range(3)] == [0, 0, 0]
        assert [(log["event"], log["most"]) for log in logs] == [("link_port.blocked", 2)]
        for each in calling:
            with pytest.raises(BlockingIOError):
                each.recv(1)


def test_a_guard_keeps_nothing_of_descriptors_that_become_others_while_it_looks(
    tmp_path: pathlib.Path,
) -> None:
    guard = AddressGuard({1: Bound(per_address=1, most=1)}, clock=SystemClock())
    ending = threading.Event()
    path = tmp_path / "file"
    path.touch()

    def churn() -> None:
        while not ending.is_set():
            with socket.socket():
                pass
            with path.open():
                pass

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        for _ in range(4000):
            guard.sweep()
    finally:
        ending.set()
        churning.join()
    assert str(path) not in take_census().descriptors


def test_a_guard_asks_again_about_what_it_could_not_find_out():
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        early = [stack.enter_context(socket.socket()) for _ in range(3)]
        for number, each in enumerate(early):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", early[0].getsockname()[1] if number else 0))
        port = early[0].getsockname()[1]
        guard = AddressGuard({port: Bound(per_address=2, most=4)}, clock=SystemClock())
        assert guard.sweep() == 0  # they have no peer yet
        for each, listener in zip(early, others, strict=True):
            each.connect(listener.getsockname())
        assert guard.sweep() == 1
        for each in early:
            each.setblocking(False)
        for each in early[:2]:
            with pytest.raises(BlockingIOError):
                each.recv(1)
        assert early[2].recv(1) == b""


_WITHOUT_DESCRIPTORS = """
import asyncio, os, resource, socket
from structlog.testing import capture_logs
from corral.controller.sessions.address_guard import AddressGuard, Bound
from corral.system.clock import SystemClock
from corral.testing.waiting import eventually

async def main():
    with socket.create_server(("127.0.0.1", 0)) as listener, capture_logs() as logs:
        address = listener.getsockname()
        guard = AddressGuard({address[1]: Bound(2, 4)}, clock=SystemClock(), every_seconds=0.01)
        pairs = [(socket.create_connection(address), listener.accept()[0]) for _ in range(4)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        held = []
        try:
            while True:
                held.append(os.dup(0))
        except OSError:
            pass
        running = asyncio.create_task(guard.run())
        await eventually(lambda: logs or running.done())
        assert [(log["event"], "Too many open files" in log["error"]) for log in logs] == [("link_guard.failed", True)]
        for each in held:
            os.close(each)
        await eventually(lambda: len(logs) > 1 or running.done())
        assert (logs[1]["event"], logs[1]["refused"]) == ("link_connection.refused", 2)
        assert not running.done()
        running.cancel()

asyncio.run(main())
"""


def test_a_guard_without_descriptors_says_so_and_goes_on():
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT_DESCRIPTORS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.8.9.1", LOOPBACK),
        ("::1", LOOPBACK),
        ("::ffff:127.0.0.1", LOOPBACK),
        ("/run/socket", ""),
    ],
)
def test_an_address_is_counted_as_what_one_peer_can_have(host: str, counted: str) -> None:
    assert counted_as(host) == counted


def test_the_host_itself_has_half_of_all() -> None:
    assert share_of("192.0.2.7", per_address=2, most=100) == 2
    assert share_of(LOOPBACK, per_address=2, most=100) == 50
    assert share_of(LOOPBACK, per_address=0, most=100) == 0


def test_a_controller_takes_as_many_descriptors_as_it_may_have() -> None:
    program = (
        "import resource as r; from corral.system.addresses import raise_descriptors as up, affordable;"
        "r.setrlimit(r.RLIMIT_NOFILE, (256, 512)); few = affordable(4096, part=2); up();"
        "print(few, affordable(4096, part=2), r.getrlimit(r.RLIMIT_NOFILE))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "128 256 (512, 512)\n"
