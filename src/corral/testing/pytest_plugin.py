"""Fixtures for our tests and for those of module authors: uvloop, and leak checks that are always on.

A test fails when it leaves a thread, a task, a descriptor, a child, or any process that lives in its
directories. A test that leaves instances running on purpose uses the fixture `reaper`; they are ended all the
same.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

import grpc
import pytest
import uvloop

from corral.system.logger import log_plainly
from corral.testing.leaks import SETTLE_SECONDS, difference, leaks_since, lingering_tasks, take_census
from corral.testing.ports import claim_ports
from corral.testing.reaper import Guardian, Reaper
from corral.testing.waiting import eventually

_DIRECTORIES: Final = ("tmp_path", "scratch")
"""Fixtures that yield a directory of one test alone."""

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories() -> dict[str, LoopFactory]:
    """Tests run on the loop that production runs on."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """A shell ignores SIGINT for what it runs in the background, and children would inherit that: a
    test that interrupts a program must find it interruptible, however the tests were started. The marker is
    that of the runtimes' contract. Tracebacks in what is logged show no values of variables."""
    log_plainly()
    config.addinivalue_line("markers", "control_groups: how it goes depends on the kind of control groups")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _warm_machinery() -> Iterator[None]:
    """gRPC and libuv make descriptors and threads of their own once per process, and the ports of this process are
    claimed by one: before the first census, and kept until the last."""
    claim_ports()
    uvloop.new_event_loop().close()

    async def once() -> None:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            async with asyncio.timeout(10):
                await channel.channel_ready()
        await server.stop(None)

    grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # the stubs lack it
    asyncio.run(once())
    yield
    grpc.aio.shutdown_grpc_aio()  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def _guardian() -> Iterator[Guardian]:
    guardian = Guardian()
    yield guardian
    guardian.close()


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest, _warm_machinery: None, _guardian: Guardian) -> Iterator[None]:
    """A test fails when it leaves a thread, a child process, a descriptor or a task behind."""
    if inspect.iscoroutinefunction(request.function):
        request.getfixturevalue("_no_leaks_in_loop")
        yield
        return
    before = take_census()
    yield
    found = leaks_since(before)
    if found:
        pytest.fail("left behind: " + "; ".join(found), pytrace=False)


@pytest.fixture
async def _no_leaks_in_loop() -> AsyncIterator[None]:
    await asyncio.to_thread(int)  # the loop's own wake-up sockets and executor exist before the census
    before = take_census()
    tasks = set(lingering_tasks())
    yield

    def found() -> list[str]:
        new = [f"task {name}" for name in lingering_tasks() if name not in tasks]
        return new + difference(before, take_census())

    try:
        await eventually(lambda: not found(), deadline=SETTLE_SECONDS)
    except AssertionError:
        pytest.fail("left behind: " + "; ".join(found()), pytrace=False)


@pytest.fixture(autouse=True)
def _no_survivors(request: pytest.FixtureRequest, _no_leaks: None, _guardian: Guardian) -> Iterator[Reaper]:
    """Runs when the test's own fixtures are done and its directories still exist: processes in them are
    ended, and the test fails unless it uses `reaper`."""
    reaper = Reaper(_guardian)
    for name in _DIRECTORIES:
        if name in request.fixturenames:
            reaper.watch(request.getfixturevalue(name))
    yield reaper
    found = [] if reaper.quiet else reaper.lingering(seconds=SETTLE_SECONDS)
    if found or reaper.quiet:
        reaper.close()
    else:
        reaper.release()  # without another scan
    if found:
        pytest.fail("left running: " + "; ".join(map(str, found)), pytrace=False)


@pytest.fixture
def reaper(_no_survivors: Reaper) -> Reaper:
    """For a test that leaves instances running: they are ended without failing it."""
    _no_survivors.quiet = True
    return _no_survivors
