"""A cluster in this process, on either store."""

from __future__ import annotations

import pathlib
import shutil
import tempfile

import pytest

from corral.testing.cluster import LocalCluster
from corral.testing.stepped_clock import SteppedClock


@pytest.fixture
def scratch():
    """A directory in memory: the root disk is slow with many small files."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="corral-", dir="/dev/shm"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
async def cluster(scratch):
    async with LocalCluster(scratch) as cluster:
        yield cluster


@pytest.fixture
def clock():
    return SteppedClock()
