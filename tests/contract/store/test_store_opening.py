"""Opening: schema versions, foreign and damaged files, one owner."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import sqlite3
import stat
import subprocess
import sys
import threading

import asyncpg
import pytest
from store_cases import House, at_work, put
from structlog.testing import capture_logs

from corral.errors import Bug, Code, Rejected
from corral.store.engine_selection import open_store
from corral.store.migrations import Migration, load_migrations, pending
from corral.store.postgres.engine import check_server_version
from corral.store.store_errors import StorageFailed, StoreUnavailable


async def test_what_was_stored_is_there_after_closing_and_opening(house: House) -> None:
    store = await house.open()
    async with at_work(store) as desk:
        await desk.commit(put("a"))
    await house.close()
    reopened = await house.open()
    async with at_work(reopened) as successor:
        assert successor.memory == desk.memory
        assert successor.epoch > desk.epoch
        assert (await successor.commit(put("b"))).number == 2


async def test_a_newer_schema_is_refused_and_left_alone(house: House) -> None:
    await house.open()
    await house.close()
    newer = "insert into schema_version (version, name) values (9999, 'from the future')"
    if house.kind == "postgres":
        connection = await asyncpg.connect(house.url)
        await connection.execute(newer)
        await connection.close()
    else:
        with sqlite3.connect(house.data / "corral.db") as database:
            database.execute(newer)
        database.close()
    with pytest.raises(Rejected) as refused:
        await house.open()
    assert refused.value.code is Code.FORMAT_TOO_NEW
    assert "9999" in refused.value.message


async def test_controllers_that_start_together_migrate_once(postgres_house: House) -> None:
    await asyncio.gather(*(postgres_house.open() for _ in range(4)))
    connection = await asyncpg.connect(postgres_house.url)
    applied = await connection.fetchval("select count(*) from schema_version")
    await connection.close()
    assert applied == len(load_migrations("corral.store.postgres"))


def test_migrations_are_numbered_without_a_hole_and_only_go_forward() -> None:
    for package in ("corral.store.sqlite", "corral.store.postgres"):
        migrations = load_migrations(package)
        assert [m.version for m in migrations] == list(range(1, len(migrations) + 1))
    steps = [Migration(version=n, name=str(n), sql="") for n in (1, 2, 3)]
    assert pending(steps, current=1, where="here") == steps[1:]
    assert pending(steps, current=3, where="here") == []
    with pytest.raises(Rejected):
        pending(steps, current=4, where="here")


def test_a_hole_in_the_migrations_is_a_bug(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "holey" / "migrations"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "0001_base.sql").touch()
    (folder / "0003_more.sql").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Bug):
        load_migrations("holey")


async def test_a_second_opener_of_a_data_directory_is_refused(sqlite_house: House) -> None:
    await sqlite_house.open()
    with pytest.raises(Rejected) as refused:
        await sqlite_house.open()
    assert refused.value.code is Code.DATA_DIRECTORY_LOCKED


async def test_a_refused_opener_leaves_no_thread_and_no_lock(sqlite_house: House) -> None:
    (sqlite_house.data / "corral.db").write_bytes(b"this is not a database, but long enough " * 100)
    with pytest.raises(Rejected) as refused:
        await sqlite_house.open()
    assert refused.value.code is Code.FORMAT_INVALID
    assert [t.name for t in threading.enumerate() if t.name.startswith("corral/store")] == []
    (sqlite_house.data / "corral.db").unlink()
    await sqlite_house.open()


async def test_a_damaged_database_is_refused_in_words_an_operator_can_act_on(
    sqlite_house: House,
) -> None:
    store = await sqlite_house.open()
    async with at_work(store) as desk:
        await desk.commit(put("a"))
    await sqlite_house.close()
    path = sqlite_house.data / "corral.db"
    content = bytearray(path.read_bytes())
    content[100:4096] = bytes(3996)
    path.write_bytes(content)
    with pytest.raises(Rejected) as refused:
        await sqlite_house.open()
    assert refused.value.code is Code.FORMAT_INVALID
    assert refused.value.hint


async def test_a_damaged_page_is_logged_once_with_what_to_do_when_it_is_read(sqlite_house: House) -> None:
    store = await sqlite_house.open()
    async with at_work(store) as desk:
        await desk.commit(put("a"))
    await sqlite_house.close()
    path = sqlite_house.data / "corral.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        (size,) = database.execute("PRAGMA page_size").fetchone()
        pages = database.execute("SELECT rootpage FROM sqlite_master WHERE tbl_name = 'entry'").fetchall()
    content = bytearray(path.read_bytes())
    for (page,) in pages:
        content[(page - 1) * size : page * size] = b"\xff" * size
    path.write_bytes(content)
    reads = (await sqlite_house.open()).reads
    with capture_logs() as logs:
        for _ in range(2):
            with pytest.raises(StorageFailed):
                await reads.journals()
        await reads.head()
    (logged,) = [each for each in logs if each["event"] == "store_read.failed"]
    assert "damaged" in logged["reason"]
    assert "backup" in logged["hint"]


async def test_a_database_of_another_program_is_refused_and_left_alone(sqlite_house: House) -> None:
    path = sqlite_house.data / "corral.db"
    with sqlite3.connect(path) as database:
        database.execute("create table bookmarks (url)")
    database.close()
    with pytest.raises(Rejected) as refused:
        await sqlite_house.open()
    assert refused.value.code is Code.FORMAT_INVALID
    database = sqlite3.connect(path)
    assert database.execute("select name from sqlite_master").fetchall() == [("bookmarks",)]
    database.close()


async def test_the_files_are_readable_by_their_owner_alone(sqlite_house: House) -> None:
    store = await sqlite_house.open()
    async with at_work(store) as desk:
        await desk.commit(put("a"))
        for name in ("corral.db", "corral.db-wal"):
            assert stat.S_IMODE((sqlite_house.data / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((sqlite_house.data / "artifacts").stat().st_mode) == 0o700


async def test_closing_ends_every_thread(sqlite_house: House) -> None:
    store = await sqlite_house.open()
    await store.reads.head()
    await sqlite_house.close()
    assert [t.name for t in threading.enumerate() if t.name.startswith("corral/store")] == []
    with pytest.raises(StoreUnavailable):
        await store.reads.head()


async def test_an_unknown_kind_of_store_is_refused_with_the_known_ones(data: pathlib.Path) -> None:
    with pytest.raises(Rejected) as refused:
        await open_store("mongodb://localhost/corral", data=data)
    assert refused.value.code is Code.INVALID_CONFIG
    assert "postgres" in str(refused.value)
    assert "sqlite" in str(refused.value)


async def test_a_database_that_does_not_exist_is_told_apart_from_one_out_of_reach(
    postgres_house: House, data: pathlib.Path
) -> None:
    with pytest.raises(Rejected) as refused:
        await open_store(postgres_house.url.replace("/test_", "/absent_"), data=data)
    assert refused.value.code is Code.INVALID_CONFIG
    with pytest.raises(StoreUnavailable):
        await open_store(f"postgresql://postgres@/x?host={data}", data=data)


def test_a_server_that_is_too_old_is_refused() -> None:
    check_server_version(14, where="here")
    with pytest.raises(Rejected):
        check_server_version(13, where="here")


def test_opening_the_embedded_store_does_not_import_the_driver_of_the_other() -> None:
    program = """
import asyncio, pathlib, sys, tempfile
from corral.store.engine_selection import open_store
async def main():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as data:
        await (await open_store("sqlite", data=pathlib.Path(data))).close()
asyncio.run(main())
sys.exit("asyncpg" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
