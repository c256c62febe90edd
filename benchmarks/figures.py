"""The shape of a result, and percentiles."""

from __future__ import annotations

import math
from typing import Any


def result(
    name: str,
    value: float,
    unit: str,
    *,
    floor: float | None = None,
    target: str,
    ok: bool | None,
) -> dict[str, Any]:
    """One claim: our figure, the floor measured in the same run, and whether the target is met; None: there is none."""
    ratio = value / floor if floor else None
    return {
        "name": name,
        "value": round(value, 4),
        "unit": unit,
        "floor": None if floor is None else round(floor, 4),
        "ratio": None if ratio is None else round(ratio, 3),
        "target": target,
        "ok": ok,
    }


def percentile(values: list[float], share: float) -> float:
    """The value below which this share lies, by the nearest rank."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
