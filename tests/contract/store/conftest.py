"""One suite, run over both stores and over the failing wrapper that fails nothing by itself."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest
from store_cases import Desk as Desk
from store_cases import House, at_work

from corral.store.port import Store
from corral.testing.postgres_server import PostgresServer


@pytest.fixture(scope="session", autouse=True)
def _postgres_from_the_beginning(postgres: PostgresServer) -> None:
    pass


@pytest.fixture
def data(scratch: pathlib.Path) -> pathlib.Path:
    return scratch


@pytest.fixture
async def sqlite_house(data: pathlib.Path) -> AsyncIterator[House]:
    house = House("sqlite", "sqlite", data)
    yield house
    await house.close()


@pytest.fixture
async def postgres_house(postgres: PostgresServer, data: pathlib.Path) -> AsyncIterator[House]:
    async with postgres.database() as url:
        house = House("postgres", url, data)
        yield house
        await house.close()


@pytest.fixture
async def failing_house(data: pathlib.Path) -> AsyncIterator[House]:
    house = House("failing", "sqlite", data)
    yield house
    await house.close()


@pytest.fixture(params=["sqlite", "postgres", "failing"])
def house(request: pytest.FixtureRequest) -> House:
    found = request.getfixturevalue(f"{request.param}_house")
    assert isinstance(found, House)
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def real_house(request: pytest.FixtureRequest) -> House:
    """The two real stores, for tests that put a wrapper of their own around them."""
    found = request.getfixturevalue(f"{request.param}_house")
    assert isinstance(found, House)
    return found


@pytest.fixture
async def store(house: House) -> Store:
    return await house.open()


@pytest.fixture
async def desk(store: Store) -> AsyncIterator[Desk]:
    async with at_work(store) as desk:
        yield desk
