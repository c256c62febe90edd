"""What the page about modules on nodes says in numbers and names, against the code."""

from __future__ import annotations

import pathlib

import pytest

from corral.daemon.hooks import change_validation as validation
from corral.daemon.modules.controller_capabilities import ARGUMENT_BYTES, MOST_CALLS
from corral.daemon.modules.event_publisher import MODULE_BYTES
from corral.daemon.modules.node_events import RING_BYTES, RING_EVENTS
from corral.modules.services.module_metrics import MAX_SERIES
from corral.system.daemon_config import NodeModulesSection

PAGE = (pathlib.Path(__file__).parents[3] / "docs" / "concepts" / "daemon-modules.md").read_text()
KIB, MIB = 1024, 1024 * 1024


def test_every_variable_that_modules_may_not_set_is_named() -> None:
    blocked = {*validation.BLOCKED_NAMES, *validation.BLOCKED_BEGINNINGS}
    assert [name for name in sorted(blocked) if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize(
    "sentence",
    [
        f"`modules.node_sync_timeout_seconds` ({NodeModulesSection().node_sync_timeout_seconds:g})",
        f"`modules.hook_budget_seconds` ({NodeModulesSection().hook_budget_seconds:g})",
        f"{validation.MOST_ITEMS} additions a module, {validation.LONGEST_ITEM // KIB} KiB each",
        f"{validation.MOST_BYTES // KIB} KiB in all",
        f"{RING_EVENTS:,} events (or {RING_BYTES // MIB} MiB of them)",
        f"Up to {MODULE_BYTES // MIB} MiB a module may wait",
        f"at most {ARGUMENT_BYTES // KIB} KiB, {MOST_CALLS} calls",
        f"its bound of {MAX_SERIES:,} series",
    ],
)
def test_numbers_are_those_of_the_code(sentence: str) -> None:
    assert sentence in PAGE
