"""Fixtures for the tests of a module; `corral module test` loads them.

`house` is a real controller with a real daemon, in the test's own process; the module under test runs
in a process of its own, as it will for operators.
"""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from corral.testing.module_house import ModuleHouse


@pytest.fixture
async def house(request: pytest.FixtureRequest) -> AsyncIterator[ModuleHouse]:
    from corral.testing.cluster import LocalCluster  # all of Corral: imported only by tests that use it
    from corral.testing.module_house import ModuleHouse

    source = pathlib.Path(request.config.invocation_params.dir)
    with tempfile.TemporaryDirectory(prefix="corral-") as scratch:
        async with LocalCluster(pathlib.Path(scratch)) as cluster:
            controller = await cluster.controller()
            await cluster.daemon("test-node", controller)
            yield ModuleHouse(controller, source, pathlib.Path(scratch))
