"""Enumerations that may grow: a member that a newer controller knows does not break an older client."""

from __future__ import annotations

import enum
from typing import Self


class OpenEnum(enum.StrEnum):
    """A closed list today. A value that is not in it becomes a member of its own, equal to its text, and in no list of members."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value
        member._value_ = value
        return member
