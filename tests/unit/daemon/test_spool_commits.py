"""What a spool costs: durable commits, counted in the database's own log."""

from __future__ import annotations

import asyncio
import itertools
import pathlib
import struct
import time

import pytest

from corral.daemon.link.spool import Spool
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually

A_MOMENT = 0.05
_HEADER, _FRAME = 32, 24


def durable_commits(directory: pathlib.Path) -> int:
    """The frames of the write-ahead log that end a transaction: each of them was flushed to the disk."""
    log = (directory / "spool.db-wal").read_bytes()
    (page,), salts = struct.unpack_from(">I", log, 8), log[16:24]
    places = range(_HEADER, len(log) - _FRAME - page + 1, _FRAME + page)
    own = itertools.takewhile(lambda at: log[at + 8 : at + 16] == salts, places)
    return sum(struct.unpack_from(">I", log, at + 4) != (0,) for at in own)


@pytest.fixture
async def spool(tmp_path):
    opened = Spool.open(tmp_path, entropy=SystemEntropy(), log_bytes=10**6, max_bytes=10**6)
    yield opened
    await opened.close()


async def test_a_record_that_is_streamed_costs_one_commit_from_its_addition_to_its_end(spool, tmp_path):
    spool.stream(True)
    await spool.put(b"the first")
    before = durable_commits(tmp_path)
    for _ in range(40):
        number = await spool.put(b"a state")
        (record,) = await spool.take(number - 1, limit=10)
        spool.confirm(record.sequence)
    # A machine that stands still for a second gives what is confirmed a commit of its own.
    assert 40 <= durable_commits(tmp_path) - before <= 44


async def test_handing_out_what_was_streamed_writes_nothing(spool, tmp_path):
    spool.stream(True)
    confirmed, number = await spool.put(b"a state"), await spool.put(b"another")
    before = (tmp_path / "spool.db-wal").read_bytes()
    spool.confirm(confirmed)
    assert len(await spool.take(0, limit=10)) == 1
    assert await spool.take(number, limit=10) == []
    assert (tmp_path / "spool.db-wal").read_bytes() == before


async def test_log_records_of_a_moment_share_a_commit(spool, tmp_path):
    before, began = durable_commits(tmp_path), time.monotonic()
    for number in range(100):
        spool.log(b"%d" % number)
        await asyncio.to_thread(lambda: None)  # the spool's thread has its turn
    await eventually(lambda: spool.head == 100)
    moments = (time.monotonic() - began) / A_MOMENT
    assert durable_commits(tmp_path) - before <= moments + 1
    taken = await spool.take(0, limit=1000)
    assert [int(record.body) for record in taken] == list(range(100))


async def test_log_records_ride_along_with_the_next_that_must_not_be_lost_in_their_order(spool, tmp_path):
    await spool.put(b"one")  # what comes first after a quiet time waits for nobody
    before = durable_commits(tmp_path)
    spool.log(b"two")
    spool.log(b"three")
    assert await spool.put(b"four") == 4
    assert durable_commits(tmp_path) - before == 1
    spool.log(b"five")
    await spool.put(b"six")
    taken = await spool.take(0, limit=10)
    assert [record.body for record in taken] == [b"one", b"two", b"three", b"four", b"five", b"six"]


async def test_what_is_confirmed_is_dropped_though_nothing_is_written_any_more(spool):
    number = await spool.put(b"a state")
    spool.confirm(number)
    assert spool.confirmed(number)
    assert not spool.confirmed(number + 1)
    await eventually(lambda: spool._table.committed.state_bytes == 0)
