"""What a module's share of the CPU is in terms of `nice`.

Weights are those of control groups: 1 to 10000, and 100 for who names none. One step of `nice` is worth a
quarter, so a module of twice the weight gets about twice the time of another one, where there is not enough
for both.
"""

from __future__ import annotations

import math
from typing import Final

DEFAULT_WEIGHT: Final = 100
DEFAULT_NICE: Final = 5
"""Of a module with the default weight: about a third of what its host gets."""
_STEP: Final = 1.25
_LOWEST: Final = 19


def nice_of(weight: int) -> int:
    """How much nicer than its host a module of this weight is, 0 to 19; never less: whatever a manifest says,
    no module goes before its host. A weight of 0 is the default."""
    steps = math.log((weight or DEFAULT_WEIGHT) / DEFAULT_WEIGHT, _STEP)
    return max(0, min(_LOWEST, DEFAULT_NICE - round(steps)))
