"""The steps of a path: into lists, and through maps that are not there yet."""

from __future__ import annotations

from typing import Any, Final

from corral.daemon.config_files.faults import Impossible

_MAX_DIGITS: Final = 9


def item_place(step: str, count: int, *, where: str, may_append: bool) -> int:
    """Which item of a list of so many a step names; `may_append`: also the place right behind the last one."""
    if step.isdecimal() and len(step) <= _MAX_DIGITS:
        place = int(step)
        if place < count or (place == count and may_append):
            return place
    raise Impossible(f"{where} is a list of {count}, and has no '{step}'")


def nested(steps: tuple[str, ...], value: Any) -> Any:
    """The value within maps of one key each."""
    for step in reversed(steps):
        value = {step: value}
    return value
