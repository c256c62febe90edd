"""The runtimes with windows, over every kind of control groups that this machine has."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from corral.testing.process_house import CGROUP_KINDS
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import RuntimeContract
from corral.testing.session_house import SessionHouse


@pytest.mark.parametrize("cgroups", CGROUP_KINDS)
class TestTmuxRuntime(RuntimeContract):
    @pytest.fixture
    async def house(
        self, tmp_path: pathlib.Path, reaper: Reaper, cgroups: str
    ) -> AsyncIterator[SessionHouse]:
        async with SessionHouse(tmp_path / "node", multiplexer="tmux", cgroups=cgroups) as house:
            yield house


@pytest.mark.parametrize("cgroups", CGROUP_KINDS)
class TestScreenRuntime(RuntimeContract):
    @pytest.fixture
    async def house(
        self, tmp_path: pathlib.Path, reaper: Reaper, cgroups: str
    ) -> AsyncIterator[SessionHouse]:
        async with SessionHouse(tmp_path / "node", multiplexer="screen", cgroups=cgroups) as house:
            yield house
