"""Spans of time as people write them: `90s`, `30m`, `1h30m`, `7d`; a bare number is seconds."""

from __future__ import annotations

import re
from typing import Final

_PART: Final = re.compile(r"([0-9]+)([smhdw])")
_DIGITS: Final = 15
"""More of them are no usable span either."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def span_seconds(text: str) -> int | None:
    """Whole seconds; None when it is no span. The caller decides whether it is usable."""
    text = text.strip().lower()
    if text.isascii() and text.isdecimal():
        return int(text[:_DIGITS])
    if not text or _PART.sub("", text):
        return None
    return sum(int(number[:_DIGITS]) * _UNITS[unit] for number, unit in _PART.findall(text))


def span_text(seconds: float) -> str:
    """A span as `span_seconds` reads it, in the largest units: `1d2h`, `5m`, `0s`."""
    left, parts = int(seconds), []
    for unit in ("d", "h", "m", "s"):
        number, left = divmod(left, _UNITS[unit])
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
