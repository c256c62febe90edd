"""Whole processes, each gone when its test ends."""

from __future__ import annotations

import pytest

from corral.testing.processes import ProcessCluster


@pytest.fixture
async def processes(scratch):
    async with ProcessCluster(scratch) as processes:
        yield processes
