"""The shape of a result, percentiles, and results of several rounds."""

from __future__ import annotations

import math
import statistics
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


def combined(rounds: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The results of one claim over several rounds: medians. A ratio is the median of the rounds' own ratios, for
    a floor is of its round. A target is met when it was met in more than half of them."""
    if len(rounds) < 2:
        return [each for results in rounds for each in results]
    return [_median(list(same)) for same in zip(*rounds, strict=True)]


def _median(results: list[dict[str, Any]]) -> dict[str, Any]:
    met = [each["ok"] for each in results if each["ok"] is not None]
    return {
        **results[0],
        **{key: _middle([each[key] for each in results]) for key in ("value", "floor", "ratio")},
        "ok": sum(met) > len(met) / 2 if met else None,
    }


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(statistics.median(known), 4) if known else None
