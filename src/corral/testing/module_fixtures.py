"""Fixtures for the tests of a module; `corral module test` loads them.

`house` is a real controller with a real daemon, in the test's own process; the module under test runs
in a process of its own, as it will for operators.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import AsyncIterator

import pytest

from corral.testing.cluster import LocalCluster
from corral.testing.module_house import ModuleHouse


@pytest.fixture
async def house(request: pytest.FixtureRequest) -> AsyncIterator[ModuleHouse]:
    source = pathlib.Path(request.config.invocation_params.dir)
    with tempfile.TemporaryDirectory(prefix="corral-") as scratch:
        async with LocalCluster(pathlib.Path(scratch)) as cluster:
            controller = await cluster.controller()
            await cluster.daemon("test-node", controller)
            yield ModuleHouse(controller, source, pathlib.Path(scratch))
