"""A cluster in this process, on either store."""

from __future__ import annotations

import pytest

from corral.testing.cluster import LocalCluster
from corral.testing.stepped_clock import SteppedClock


@pytest.fixture
async def cluster(scratch):
    async with LocalCluster(scratch) as cluster:
        yield cluster


@pytest.fixture
def clock():
    return SteppedClock()
