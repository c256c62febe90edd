"""Every kind of control groups that this machine has."""

from __future__ import annotations

import pytest
from cgroup_runs import GROUPED, KINDS, machine_of


@pytest.fixture(params=KINDS)
async def machine(request):
    async with machine_of(request.param) as machine:
        yield machine


@pytest.fixture(params=GROUPED)
async def grouped(request):
    """The same without the kind that has no groups at all."""
    async with machine_of(request.param) as machine:
        yield machine
