"""How much a claim does: all that its figure needs or, with `--small`, just enough that each of its lines runs once."""

from __future__ import annotations

import os
from typing import Final, TypeVar

SMALL: Final = "BENCHMARK_SMALL"
"""Set in the processes of a small run. Controllers refuse unknown variables named CORRAL_…."""

Size = TypeVar("Size", int, float)


def sized(full: Size, small: Size) -> Size:
    return small if os.environ.get(SMALL) else full
