"""The spool: durable, numbered once, in order, bounded."""

from __future__ import annotations

import pathlib
import signal
import sqlite3
import subprocess
import sys

import pytest

from corral.daemon.link.spool import Kind, Spool
from corral.errors import Code, CorralError, Rejected
from corral.system.entropy import SystemEntropy


def open_spool(directory: pathlib.Path, *, log_bytes: int = 10_000, max_bytes: int = 100_000) -> Spool:
    return Spool.open(directory, entropy=SystemEntropy(), log_bytes=log_bytes, max_bytes=max_bytes)


async def test_records_keep_their_order_and_numbers_across_a_restart(tmp_path):
    spool = open_spool(tmp_path)
    numbers = [await spool.put(b"state %d" % index) for index in range(5)]
    spool.log(b"log")
    name = spool.spool_id
    await spool.close()
    again = open_spool(tmp_path)
    assert again.spool_id == name
    waiting = await again.waiting(0, limit=100)
    assert [record.body for record in waiting] == [
        b"state 0",
        b"state 1",
        b"state 2",
        b"state 3",
        b"state 4",
        b"log",
    ]
    assert [record.sequence for record in waiting][:5] == numbers
    await again.close()


async def test_confirmed_records_are_gone_and_their_numbers_are_never_used_again(tmp_path):
    spool = open_spool(tmp_path)
    last = [await spool.put(b"x") for _ in range(3)][-1]
    await spool.confirm(last)
    assert await spool.waiting(0, limit=10) == []
    await spool.close()
    spool = open_spool(tmp_path)
    assert await spool.put(b"y") > last
    await spool.close()


async def test_old_log_records_make_room_and_the_oldest_survivor_counts_them(tmp_path):
    spool = open_spool(tmp_path, log_bytes=1000)
    await spool.put(b"must stay")
    for index in range(100):
        spool.log(b"%03d" % index + b"x" * 97)
    waiting = await spool.waiting(0, limit=1000)
    logs = [record for record in waiting if record.kind is Kind.LOG]
    assert waiting[0].body == b"must stay"
    assert logs[0].dropped == 100 - len(logs)
    assert all(record.dropped == 0 for record in logs[1:])
    assert logs[-1].body.startswith(b"099")
    assert sum(len(record.body) for record in logs) <= 1000
    await spool.close()


async def test_what_must_not_be_lost_is_refused_when_full_and_taken_again_after_confirmation(tmp_path):
    spool = open_spool(tmp_path, log_bytes=100, max_bytes=1000)
    first = await spool.put(b"x" * 900)
    with pytest.raises(CorralError) as caught:
        await spool.put(b"y" * 200)
    assert caught.value.code is Code.STORE_UNAVAILABLE
    await spool.confirm(first)
    assert await spool.put(b"y" * 200) > first
    await spool.close()


async def test_a_damaged_spool_is_put_aside_and_a_new_one_begins(tmp_path):
    spool = open_spool(tmp_path)
    name = spool.spool_id
    await spool.close()
    (tmp_path / "spool.db").write_bytes(b"this is no database" * 100)
    again = open_spool(tmp_path)
    assert again.spool_id != name
    assert await again.put(b"x") == 1
    assert list(tmp_path.glob("spool.damaged-*"))
    await again.close()


def test_a_spool_of_a_newer_version_is_refused_and_left_alone(tmp_path):
    connection = sqlite3.connect(tmp_path / "spool.db")
    connection.execute("pragma user_version = 99")
    connection.execute("create table future (x)")
    connection.close()
    with pytest.raises(Rejected) as caught:
        open_spool(tmp_path)
    assert caught.value.code is Code.FORMAT_TOO_NEW
    connection = sqlite3.connect(tmp_path / "spool.db")
    assert connection.execute("select count(*) from future").fetchone() == (0,)
    connection.close()


async def test_the_spool_is_for_its_owner_alone(tmp_path):
    spool = open_spool(tmp_path / "spool")
    assert (tmp_path / "spool" / "spool.db").stat().st_mode & 0o077 == 0
    await spool.close()


WRITER = """
import asyncio, pathlib, sys
from corral.daemon.link.spool import Spool
from corral.system.entropy import SystemEntropy
async def main():
    spool = Spool.open(pathlib.Path(sys.argv[1]), entropy=SystemEntropy(), log_bytes=10**8, max_bytes=10**8)
    index = 0
    while True:
        await spool.put(b"%d" % index)
        print(index, flush=True)
        index += 1
asyncio.run(main())
"""


async def test_whatever_was_acknowledged_survives_a_kill(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    acknowledged = [int(writer.stdout.readline()) for _ in range(300)][-1]
    writer.send_signal(signal.SIGKILL)
    writer.stdout.close()
    writer.wait()
    spool = open_spool(tmp_path)
    bodies = [int(record.body) for record in await spool.waiting(0, limit=100_000)]
    assert bodies == list(range(len(bodies)))
    assert len(bodies) > acknowledged
    await spool.close()
