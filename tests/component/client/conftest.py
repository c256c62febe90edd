"""Fixtures of the client's suite: both kinds, against a real controller."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from callers import Caller, calling

from corral.testing.cluster import LocalCluster, LocalController


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def controller(cluster: LocalCluster) -> LocalController:
    return await cluster.controller()


@pytest.fixture
async def caller(kind: str, controller: LocalController) -> AsyncIterator[Caller]:
    """The administrator."""
    async with calling(kind, controller.url, token=controller.admin_token) as made:
        yield made
