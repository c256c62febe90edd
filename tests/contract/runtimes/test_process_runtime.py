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
        async with ProcessHarness(tmp_path / "node", cgroups=cgroups) as house:
            yield house
