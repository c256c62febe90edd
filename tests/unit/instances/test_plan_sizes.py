"""Plans that would be too large are refused before they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from world import World, spec

from corral.domain.groups.group import StopRungSpec
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.groups.plan_sizes import MOST_BYTES
from corral.domain.spec import VariableSpec
from corral.errors import Code, Rejected
from corral.testing.counted_calls import counted_calls

LONG = "x" * 100_000
SHARED = (LONG,) * 20_000
"""2 GB as JSON."""


LARGE: dict[str, Callable[[], Any]] = {
    "args": lambda: SHARED,
    "merge": lambda: SHARED,
    "env": lambda: {f"KEY{number}": LONG for number in range(20_000)},
    "variables": lambda: {f"key{number}": "" for number in range(2_000_000)},
    "properties": lambda: {f"key{number}": LONG for number in range(8)},
    "stop": lambda: (StopRungSpec(command="save"),) * 500_000,
    "variable_types": lambda: {f"key{number}": VariableSpec(default=LONG) for number in range(8)},
}


@pytest.mark.parametrize("field", LARGE)
def test_a_plan_that_would_be_too_large_is_not_made(field: str) -> None:
    ws = World().workspace()
    group = spec(**{field: LARGE[field]()})
    with counted_calls() as count, pytest.raises(Rejected, match="has more than 786432 bytes") as refused:
        ws.resolve(group)
    assert refused.value.code is Code.BODY_TOO_LARGE
    assert count.of(resolve_plan) == 0
    assert count.calls < 1_000_000


def test_what_fits_is_not_refused() -> None:
    ws = World().workspace()
    small = len(ws.resolve(spec()).record.body)
    room = MOST_BYTES - small - 1000
    group = spec(args=("x" * 97,) * (room // 100), properties={"a": "b"}, env={"A": "B"})
    assert MOST_BYTES - 2000 < len(ws.resolve(group).record.body) <= MOST_BYTES
    with pytest.raises(Rejected, match="the plan of group 'lobby' has"):
        ws.resolve(spec(args=("x" * 97,) * (MOST_BYTES // 100)))
