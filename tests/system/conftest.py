"""Whole processes, each gone when its test ends."""

from __future__ import annotations

import pathlib
import shutil
import tempfile

import pytest

from corral.testing.processes import ProcessCluster


@pytest.fixture
def scratch():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="corral-", dir="/dev/shm"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
async def processes(scratch):
    async with ProcessCluster(scratch) as processes:
        yield processes
