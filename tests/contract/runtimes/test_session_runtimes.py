"""The runtimes with windows, over the kinds of control groups that this machine has. What they do with windows and
what they do with groups do not meet, and the process runtime goes through every kind: so each of them takes two
here, and all of them in the long campaigns (`make soak`)."""

from __future__ import annotations

import os
import pathlib
from collections.abc import AsyncIterator

import pytest

from corral.testing.process_house import CGROUP_KINDS
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import RuntimeContract
from corral.testing.session_house import SessionHouse


def kinds(left_out: str) -> list[str]:
    """Without the one that is left to the long campaigns."""
    return [kind for kind in CGROUP_KINDS if kind != left_out or "CORRAL_TEST_EVERY_KIND" in os.environ]


@pytest.mark.parametrize("cgroups", kinds(left_out="v2"))
class TestTmuxRuntime(RuntimeContract):
    @pytest.fixture
    async def house(
        self, tmp_path: pathlib.Path, reaper: Reaper, cgroups: str
    ) -> AsyncIterator[SessionHouse]:
        async with SessionHouse(tmp_path / "node", multiplexer="tmux", cgroups=cgroups) as house:
            yield house


@pytest.mark.parametrize("cgroups", kinds(left_out="v1"))
class TestScreenRuntime(RuntimeContract):
    @pytest.fixture
    async def house(
        self, tmp_path: pathlib.Path, reaper: Reaper, cgroups: str
    ) -> AsyncIterator[SessionHouse]:
        async with SessionHouse(tmp_path / "node", multiplexer="screen", cgroups=cgroups) as house:
            yield house
