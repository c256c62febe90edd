"""The spool's file: put aside only when it is damaged, and never touched when the disk is in trouble."""

from __future__ import annotations

import pathlib
import sqlite3
import subprocess
import sys

import pytest

from corral.daemon.link.spool import Spool
from corral.errors import Code, Rejected, Retryable
from corral.system.entropy import SystemEntropy

KILLED_WRITER = """
import asyncio, os, pathlib, signal, sys
from corral.daemon.link.spool import Spool
from corral.system.entropy import SystemEntropy
async def main():
    spool = Spool.open(pathlib.Path(sys.argv[1]), entropy=SystemEntropy(), log_bytes=10**8, max_bytes=10**8)
    for index in range(50):
        await spool.put(b"crash report %d" % index)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""

OPENER_ON_A_FULL_DISK = """
import asyncio, os, pathlib, resource, sys
from corral.daemon.link.spool import Spool
from corral.errors import CorralError
from corral.system.entropy import SystemEntropy
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
async def look() -> None:
    spool = Spool.open(pathlib.Path(sys.argv[1]), entropy=SystemEntropy(), log_bytes=10**8, max_bytes=10**8)
    print("found", spool.head)
    try:
        await spool.put(b"one more")
    except CorralError as error:
        print("refused", error.code.name, flush=True)
    os.kill(os.getpid(), 9)
asyncio.run(look())
"""


def run(program: str, directory: pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, str(directory)], capture_output=True, text=True)


def open_spool(directory: pathlib.Path) -> Spool:
    return Spool.open(directory, entropy=SystemEntropy(), log_bytes=10_000, max_bytes=100_000)


def contents(directory: pathlib.Path) -> dict[str, bytes]:
    """What may hold records; the index beside the log is made anew at every start."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".db-shm"}


@pytest.mark.trap("T72")
async def test_on_a_full_disk_the_spool_opens_takes_nothing_and_is_whole_when_there_is_room_again(tmp_path):
    assert run(KILLED_WRITER, tmp_path).returncode == -9
    before = contents(tmp_path)
    assert b"crash report 49" in before["spool.db-wal"], "the records lie in the log only"
    (tmp_path / "spool.db-shm").unlink()  # as after the end of the host
    opened = run(OPENER_ON_A_FULL_DISK, tmp_path)
    assert "found 50" in opened.stdout, opened
    assert "refused STORE_UNAVAILABLE" in opened.stdout, opened
    assert contents(tmp_path) == before
    spool = open_spool(tmp_path)
    records = await spool.take(0, limit=100)
    assert [record.body for record in records] == [b"crash report %d" % index for index in range(50)]
    await spool.close()


def test_a_spool_that_cannot_be_opened_is_refused_by_name(tmp_path):
    (tmp_path / "spool.db").mkdir()
    with pytest.raises(Retryable) as caught:
        open_spool(tmp_path)
    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert str(tmp_path / "spool.db") in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["spool.db"]


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


async def test_damage_among_the_records_is_found_at_the_start_and_put_aside(tmp_path):
    spool = open_spool(tmp_path)
    for _ in range(100):
        await spool.put(b"x" * 500)
    await spool.close()
    content = bytearray((tmp_path / "spool.db").read_bytes())
    content[-40 * 1024 :] = b"\xff" * 40 * 1024
    (tmp_path / "spool.db").write_bytes(content)
    again = open_spool(tmp_path)
    (aside,) = (path for path in tmp_path.glob("spool.damaged-*") if not path.name.endswith(("-wal", "-shm")))
    assert aside.read_bytes() == content
    assert await again.put(b"x") == 1
    await again.close()


async def test_a_damaged_spool_is_put_aside_with_all_that_was_only_in_its_log(tmp_path):
    assert run(KILLED_WRITER, tmp_path).returncode == -9
    log = (tmp_path / "spool.db-wal").read_bytes()
    # Page 1 lies in the log as well; with its first frame gone the damage of the file shows.
    broken = log[:32] + b"\xff" * 64 + log[96:]
    (tmp_path / "spool.db-wal").write_bytes(broken)
    (tmp_path / "spool.db").write_bytes(b"this is no database" * 1000)
    spool = open_spool(tmp_path)
    (kept,) = tmp_path.glob("spool.damaged-*-wal")
    assert kept.read_bytes() == broken
    assert kept.with_name(kept.name.removesuffix("-wal")).exists()
    assert await spool.take(0, limit=10) == []
    await spool.close()


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


async def test_a_spool_that_was_made_before_sending_was_counted_is_taken_over(tmp_path):
    spool = open_spool(tmp_path)
    name = spool.spool_id
    for _ in range(3):
        await spool.put(b"x")
    await spool.close()
    connection = sqlite3.connect(tmp_path / "spool.db")
    connection.execute("drop table sent")
    connection.close()
    again = open_spool(tmp_path)
    assert again.spool_id == name
    assert again.sent == 3, "whatever it held may have been sent"
    assert len(await again.take(0, limit=10)) == 3
    await again.close()


async def test_a_spool_that_lost_its_id_in_a_crash_gets_one(tmp_path):
    await open_spool(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "spool.db")
    connection.execute("delete from meta")
    connection.commit()
    connection.close()
    spool = open_spool(tmp_path)
    assert spool.spool_id
    assert not list(tmp_path.glob("spool.damaged-*"))
    await spool.close()


async def test_the_spool_is_for_its_owner_alone(tmp_path):
    spool = open_spool(tmp_path / "spool")
    assert (tmp_path / "spool" / "spool.db").stat().st_mode & 0o077 == 0
    await spool.close()
