"""The database's clock steps by an hour, forwards and backwards: no lease moves."""

from __future__ import annotations

import asyncio
import datetime as dt
import pathlib
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from store_cases import House, ManualClock, at_work, put
from test_store_leases import CountingLeases

from corral.store.leadership import Leadership, LeaseTiming
from corral.system.clock import SystemClock
from corral.testing.postgres_server import PostgresServer
from corral.testing.waiting import eventually

TIMING = LeaseTiming(ttl=60.0, renew=0.1, margin=10.0, poll=0.02)
"""On a clock that the test moves: a machine that is busy for a while ends no lease."""
FAKETIME = sorted(pathlib.Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))


class SteppedServer:
    """A PostgreSQL server whose wall clock a test can set off."""

    def __init__(self, server: PostgresServer, offset: pathlib.Path) -> None:
        self.server = server
        self._offset = offset

    def step(self, seconds: int) -> None:
        self._offset.write_text(f"{seconds:+d}\n")


@pytest.fixture
def stepped(data: pathlib.Path) -> Iterator[SteppedServer]:
    if not FAKETIME:
        pytest.skip("needs Debian's package libfaketime (apt-get install libfaketime)")
    data.chmod(0o755)
    offset = data / "offset"
    offset.write_text("+0\n")
    environment = {
        "LD_PRELOAD": str(FAKETIME[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
    with PostgresServer(environment=environment) as server:
        yield SteppedServer(server, offset)


@pytest.fixture
async def stepped_house(stepped: SteppedServer, data: pathlib.Path) -> AsyncIterator[House]:
    house = House("postgres", stepped.server.url(), data)
    yield house
    await house.close()


async def _database_is_off_by(url: str) -> float:
    connection = await asyncpg.connect(url)
    try:
        there = await connection.fetchval("select clock_timestamp()")
    finally:
        await connection.close()
    return float((there - dt.datetime.now(dt.UTC)).total_seconds())


@pytest.mark.trap("T53")
async def test_a_step_of_the_databases_clock_moves_no_lease(
    stepped: SteppedServer, stepped_house: House
) -> None:
    store = await stepped_house.open()
    leases, other = CountingLeases(store.leases), CountingLeases((await stepped_house.open()).leases)
    clock = ManualClock()
    term = await Leadership(leases, clock=clock, holder="a", timing=TIMING).acquire()
    holding = asyncio.create_task(term.hold())
    waiting = asyncio.create_task(Leadership(other, clock=clock, holder="b", timing=TIMING).acquire())
    await eventually(lambda: other.reads >= 2)
    async with at_work(store, epoch=term.epoch) as desk:
        for seconds in (3600, -3600, 0):
            stepped.step(seconds)
            assert abs(await _database_is_off_by(stepped.server.url()) - seconds) < 60
            renewals, reads = leases.renewals, other.reads
            await eventually(lambda: leases.renewals >= renewals + 3 and other.reads >= reads + 3)  # noqa: B023
            assert term.valid()
            assert not waiting.done()
            commit = await desk.commit(put(f"at {seconds}"))
            assert abs((commit.at - SystemClock().now()).total_seconds()) < 60

    stepped.step(-3600)
    holding.cancel()
    reads = other.reads
    await eventually(lambda: other.reads >= reads + 3)  # the last renewal was seen
    assert not waiting.done()

    def taken() -> bool:
        clock.running += TIMING.ttl
        return waiting.done()

    await eventually(taken)
    successor = await waiting
    assert not term.valid()
    assert successor.epoch > term.epoch
