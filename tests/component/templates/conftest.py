"""A template library over either store."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest
from moved_clock import MovedClock

from corral.store.engine_selection import open_store
from corral.store.port import Store
from corral.testing.postgres_server import PostgresServer


@pytest.fixture(scope="session", autouse=True)
def templates_postgres() -> Iterator[PostgresServer]:
    """Started before the first test, for the leak check counts children."""
    with PostgresServer() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, templates_postgres: PostgresServer, scratch: pathlib.Path
) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        store = await open_store("sqlite", data=scratch / "store")
        yield store
        await store.close()
    else:
        async with templates_postgres.database() as url:
            store = await open_store(url, data=scratch)
            yield store
            await store.close()


@pytest.fixture
async def sqlite(scratch: pathlib.Path) -> AsyncIterator[Store]:
    store = await open_store("sqlite", data=scratch / "store")
    yield store
    await store.close()


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()
