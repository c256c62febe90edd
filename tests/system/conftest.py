"""Whole processes, each gone when its test ends."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from corral.testing.processes import ProcessCluster
from tests.system.estate import Estate
from tests.system.site_of_servers import CONTROLLER, Site, compiled_server


@pytest.fixture
async def processes(scratch):
    async with ProcessCluster(scratch) as processes:
        yield processes


@pytest.fixture
async def site(tmp_path: pathlib.Path) -> AsyncIterator[Site]:
    async with ProcessCluster(tmp_path) as processes:
        estate = Estate(processes, tmp_path)
        await estate.controller(**CONTROLLER)
        yield Site(estate)


@pytest.fixture(scope="session")
def server_jar(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return compiled_server(tmp_path_factory.mktemp("java"))
