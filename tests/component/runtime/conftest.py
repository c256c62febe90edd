"""A node with the process runtime, on real files and real processes."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from corral.testing.reaper import Reaper
from corral.testing.runtime_nodes import ProcessHarness

pytest.register_assert_rewrite("corral.testing.runtime_contract")


@pytest.fixture
async def house(scratch: pathlib.Path, reaper: Reaper) -> AsyncIterator[ProcessHarness]:
    """Its directories can be traversed by other users, as a daemon that is root makes them."""
    data = scratch / "node"
    for directory in (scratch, data, data / "running"):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o711)
    async with ProcessHarness(data) as house:
        yield house
