"""A template library over either store."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
from moved_clock import MovedClock

from corral.store.engine_selection import open_store
from corral.store.port import Store
from corral.testing.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, postgres: PostgresServer, scratch: pathlib.Path
) -> AsyncIterator[Store]:
    if request.param == "sqlite":
        store = await open_store("sqlite", data=scratch / "store")
        yield store
        await store.close()
    else:
        async with postgres.database() as url:
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
