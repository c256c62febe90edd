"""A cluster in this process, on either store, and the log of this process."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from corral.system.logs import Logs, start_logging
from corral.testing.cluster import LocalCluster
from corral.testing.stepped_clock import SteppedClock


@pytest.fixture
async def cluster(scratch):
    async with LocalCluster(scratch) as cluster:
        yield cluster


@pytest.fixture
def clock():
    return SteppedClock()


@pytest.fixture
def logs(tmp_path: pathlib.Path) -> Iterator[Logs]:
    """The log of this process, in which the controller and the daemons of `cluster` run."""
    with (tmp_path / "stderr").open("w") as stream:
        started = start_logging(
            role="both", directory=tmp_path / "logs", level="INFO", format="json", stream=stream
        )
        with started:
            yield started
