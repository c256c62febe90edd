"""A controller with templates, and daemons that only speak."""

from __future__ import annotations

import contextlib

import pytest
from depot import Depot


@pytest.fixture
async def depot(cluster, scratch):
    async with contextlib.AsyncExitStack() as stack:
        yield Depot(cluster, scratch, stack)
