"""The runtimes with windows. What they do with windows and what they do with control groups do not meet, and the
process runtime always goes through every kind: so each of them takes one. What they do with runs is the same code:
`make test` takes `tmux` alone, and both in tests/component/runtime/test_session_windows.py."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator

import pytest

from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import RuntimeContract
from corral.testing.runtime_nodes import SessionHarness


class TestTmuxRuntime(RuntimeContract):
    kinds = ("none",)

    @pytest.fixture
    async def house(
        self, tmp_path: pathlib.Path, reaper: Reaper, cgroups: str
    ) -> AsyncIterator[SessionHarness]:
        async with SessionHarness(tmp_path / "node", multiplexer="tmux", cgroups=cgroups) as house:
            yield house


@pytest.mark.system
class TestScreenRuntime(RuntimeContract):
    kinds = ("v2",)

    @pytest.fixture
    async def house(
        self, tmp_path: pathlib.Path, reaper: Reaper, cgroups: str
    ) -> AsyncIterator[SessionHarness]:
        async with SessionHarness(tmp_path / "node", multiplexer="screen", cgroups=cgroups) as house:
            yield house
