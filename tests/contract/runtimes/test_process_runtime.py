"""The process runtime, over every kind of control groups that this machine has."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import RuntimeContract
from corral.testing.runtime_nodes import ProcessHarness


class TestProcessRuntime(RuntimeContract):
    kinds = ("v2", "v1", "none")

    @pytest.fixture
    async def house(
        self, tmp_path: pathlib.Path, reaper: Reaper, cgroups: str
    ) -> AsyncIterator[ProcessHarness]:
        spares = 2 if cgroups == "v2" else 0  # starts with one and without go through the same tests
        async with ProcessHarness(tmp_path / "node", cgroups=cgroups, spare_shims=spares) as house:
            yield house
