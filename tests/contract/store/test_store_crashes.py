"""Crashes: a killed writer, a full disk, a database that goes away in the middle of a batch."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import asyncpg
import pytest
from store_cases import Desk, House, at_work, happened, put

from corral.domain.events import START, Event
from corral.store.port import Entry, Head, Store
from corral.store.store_errors import StoreUnavailable
from corral.testing.postgres_server import PostgresServer
from corral.testing.small_disk import small_disk
from corral.testing.waiting import eventually

HERE = pathlib.Path(__file__).parent


async def test_everything_acknowledged_before_kill_9_is_there_and_nothing_is_half_there(
    real_house: House,
) -> None:
    for acknowledged_before_the_kill in (1, 120, 400):
        before = await _kill_after(real_house, acknowledged_before_the_kill)
        store = await real_house.open()
        head, documents, events, entries = await _everything(store)
        assert before <= documents
        assert [event.cursor.sequence for event in events] == list(range(1, head.sequence + 1))
        assert [entry.number for entry in entries] == list(range(1, head.entry + 1))
        # One document, one event and one entry a transaction: all three or none.
        assert {event.subject for event in events} == {e.body.decode() for e in entries} == documents
        assert len(events) == len(entries) == head.commit
        await real_house.close()


async def _everything(store: Store) -> tuple[Head, set[str], list[Event], list[Entry]]:
    """What is stored at one moment. A database may still be storing what it had received from a killed writer."""
    while True:
        head = await store.reads.head()
        documents = {document.id for document in (await store.reads.snapshot()).documents}
        events = await store.reads.events(START, limit=1_000_000)
        entries = await store.reads.entries("log", limit=1_000_000)
        if await store.reads.head() == head:
            return head, documents, events, entries


async def _kill_after(house: House, count: int) -> set[str]:
    """Run a busy writer, kill it after so many acknowledgements; returns all it had given."""
    process = subprocess.Popen(
        [sys.executable, HERE / "busy_writer.py", house.url, str(house.data)],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            lines = [await asyncio.to_thread(process.stdout.readline) for _ in range(count)]
        finally:
            process.kill()
        rest = await asyncio.to_thread(process.stdout.read)
    # The last line may be cut in the middle: it was not acknowledged to anybody.
    whole = "".join(lines) + rest[: rest.rfind("\n") + 1]
    return set(whole.split())


@pytest.fixture
def disk(data: pathlib.Path) -> Iterator[pathlib.Path]:
    with small_disk(data / "small", size="4m") as place:
        yield place


async def test_a_full_disk_changes_nothing_that_is_not_stored_and_heals_by_itself(
    disk: pathlib.Path,
) -> None:
    ballast = disk / "ballast"
    house = House("sqlite", "sqlite", disk)
    async with contextlib.AsyncExitStack() as stack:
        store = await house.open()
        stack.push_async_callback(house.close)
        desk = await stack.enter_async_context(at_work(store))
        await desk.commit(put("first", b"small"))
        with ballast.open("wb") as file:
            file.write(bytes(1_500_000))
        acknowledged, refused = await _fill(desk)
        assert not refused.in_doubt
        assert not desk.writer.healthy
        assert len(desk.memory) == 1 + acknowledged
        assert await desk.stored() == desk.memory

        ballast.unlink()
        await eventually(lambda: desk.writer.healthy, state=lambda: desk.writer.reason)
        await desk.commit(put("afterwards", os.urandom(50_000)), happened("afterwards"))
        assert await desk.stored() == desk.memory
        events = await store.reads.events(START, limit=10_000)
        assert [e.cursor.sequence for e in events] == list(range(1, acknowledged + 2))
        assert desk.fatal == []

    # And the same to somebody who opens it afresh.
    store = await house.open()
    assert {(d.collection, d.id) for d in (await store.reads.snapshot()).documents} == set(desk.memory)
    await house.close()


async def _fill(desk: Desk) -> tuple[int, StoreUnavailable]:
    """Commit until the store refuses; how many it took, and what it said."""
    for acknowledged in range(1000):
        try:
            await desk.commit(put(f"big{acknowledged}", os.urandom(50_000)), happened("big"))
        except StoreUnavailable as error:
            return acknowledged, error
    raise AssertionError("a disk of four megabytes took fifty")


async def test_a_full_disk_refuses_an_artifact_and_keeps_nothing_of_it(disk: pathlib.Path) -> None:
    house = House("sqlite", "sqlite", disk)
    store = await house.open()

    async def too_much():
        for _ in range(100):
            yield os.urandom(100_000)

    with pytest.raises(StoreUnavailable):
        await store.blobs.put_blob(too_much())
    await eventually(lambda: not list((disk / "artifacts" / ".incoming").iterdir()))
    async with at_work(store) as desk:
        await desk.commit(put("fine"))
    await house.close()


async def test_a_writer_whose_back_end_is_killed_learns_the_truth_and_goes_on(
    postgres_house: House,
) -> None:
    store = await postgres_house.open()
    killer = await asyncpg.connect(postgres_house.url)
    async with at_work(store) as desk:
        await desk.commit(put("d"))
        outcomes = {True: 0, False: 0}
        for turn in range(10):
            writes = [asyncio.create_task(desk.commit(put(f"{turn}-{n}"), happened("x"))) for n in range(20)]
            await asyncio.sleep(0)  # every call has its place in line now
            await killer.execute(
                """select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and application_name like 'corral-writer:%'"""
            )
            for result in await asyncio.gather(*writes, return_exceptions=True):
                told_as_stored = not isinstance(result, StoreUnavailable)
                outcomes[told_as_stored] += 1
            await eventually(lambda: desk.writer.healthy, state=lambda: desk.writer.reason)
        assert len(desk.memory) == 1 + outcomes[True]
        assert await desk.stored() == desk.memory
        events = await store.reads.events(START, limit=10_000)
        assert [e.cursor.sequence for e in events] == list(range(1, outcomes[True] + 1))
        assert desk.fatal == desk.fenced == []
    await killer.close()


async def test_none_of_a_batch_stuck_in_a_lost_connection_ever_appears_later(
    postgres_house: House,
) -> None:
    store = await postgres_house.open()
    blocker = await asyncpg.connect(postgres_house.url)
    async with at_work(store) as desk:
        await desk.commit(put("a", b"before"))
        async with blocker.transaction():
            await blocker.execute("select from document where id = 'a' for update")
            write = asyncio.create_task(desk.commit(put("a", b"stuck")))
            await eventually(lambda: _stuck(blocker))
            # The client's end of the line breaks while the server goes on executing.
            store.commits._batches._connection._transport.abort()
            with pytest.raises(StoreUnavailable) as told:
                await write
            assert not told.value.in_doubt
        await eventually(lambda: desk.writer.healthy)
        found = await store.reads.get("things", "a")
        assert found is not None
        assert found.body == b"before"
        assert await desk.stored() == desk.memory
    await blocker.close()


async def _stuck(connection: asyncpg.Connection) -> bool:
    return bool(
        await connection.fetchval(
            """select count(*) > 0 from pg_stat_activity where datname = current_database()
            and application_name like 'corral-writer:%' and wait_event_type = 'Lock'"""
        )
    )


async def test_a_database_that_crashes_and_comes_back_is_used_again(data: pathlib.Path) -> None:
    with PostgresServer(durable=True) as server:
        house = House("postgres", server.url(), data)
        store = await house.open()
        async with at_work(store) as desk:
            await desk.commit(put("a"))
            await asyncio.to_thread(server.restart, immediate=True)
            with contextlib.suppress(StoreUnavailable):
                await desk.commit(put("b"))
            await eventually(lambda: desk.writer.healthy, state=lambda: desk.writer.reason)
            await desk.commit(put("c"))
            assert await desk.stored() == desk.memory
            assert ("things", "c") in desk.memory
        await house.close()
