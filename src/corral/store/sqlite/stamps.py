"""Times as SQLite keeps them: whole microseconds since 1970, exact in both directions."""

from __future__ import annotations

import datetime as dt
from typing import Final

_ZERO: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def to_microseconds(at: dt.datetime) -> int:
    return (at - _ZERO) // _MICROSECOND


def from_microseconds(at: int) -> dt.datetime:
    return _ZERO + at * _MICROSECOND
