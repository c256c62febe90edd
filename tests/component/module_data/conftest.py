"""Module data over both stores, and a real Valkey."""

from __future__ import annotations

import pytest
import uvloop
from data_rig import office_of
from valkey_server import ValkeyServer

from corral.store.engine_selection import open_store


@pytest.fixture(scope="session", autouse=True)
def _postgres_from_the_beginning(postgres):
    pass


@pytest.fixture(scope="session", autouse=True)
def valkey():
    with ValkeyServer() as server:
        yield server


@pytest.fixture(scope="session", autouse=True)
def _first_loop():
    """The first loop of a process makes descriptors that stay; a test of hypothesis must not be the one
    that makes it, for its own loop comes only after the census."""
    uvloop.new_event_loop().close()


@pytest.fixture
async def sqlite_store(scratch):
    store = await open_store("sqlite", data=scratch)
    yield store
    await store.close()


@pytest.fixture
async def postgres_store(postgres, scratch):
    async with postgres.database() as url:
        store = await open_store(url, data=scratch)
        yield store
        await store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request):
    return request.getfixturevalue(f"{request.param}_store")


@pytest.fixture
async def office(store, clock):
    async with office_of(store, clock=clock) as office:
        yield office


@pytest.fixture
async def one_office(sqlite_store, clock):
    """For what does not depend on the store."""
    async with office_of(sqlite_store, clock=clock) as office:
        yield office
