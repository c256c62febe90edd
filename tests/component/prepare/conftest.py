"""Parts of the preparation, each on a directory of its own."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest
from prepare_bench import Bench, plan_of, tree_of

from corral.domain.groups.plans import Plan


@pytest.fixture
async def bench(scratch):
    bench = Bench(scratch / "data")
    yield bench
    await bench.warm.close()


@pytest.fixture
def make_plan() -> Callable[..., Plan]:
    return plan_of


@pytest.fixture
def tree() -> Callable[[pathlib.Path], dict[str, bytes]]:
    return tree_of
