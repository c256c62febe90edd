"""Fixtures for our tests and for those of module authors: uvloop, and leak checks that are always on."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import AsyncIterator, Callable, Iterator

import grpc
import pytest
import uvloop

from corral.testing.leaks import SETTLE_SECONDS, difference, leaks_since, lingering_tasks, take_census
from corral.testing.waiting import eventually

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def pytest_asyncio_loop_factories() -> dict[str, LoopFactory]:
    """Tests run on the loop that production runs on."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_configure() -> None:
    """A shell ignores SIGINT for what it runs in the background, and children would inherit that: a
    test that interrupts a program must find it interruptible, however the tests were started."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _warm_machinery() -> Iterator[None]:
    """gRPC makes descriptors and threads of its own once per process: before the first census, and
    kept until the last."""

    async def once() -> None:
        server = grpc.aio.server()
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 10)
        await server.stop(None)

    grpc.aio.init_grpc_aio()  # type: ignore[attr-defined]  # the stubs lack it
    asyncio.run(once())
    yield
    grpc.aio.shutdown_grpc_aio()  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _no_leaks(request: pytest.FixtureRequest, _warm_machinery: None) -> Iterator[None]:
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
