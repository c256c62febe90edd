"""The lower bound for the healthy instances of a group while they are moved to other nodes."""

from __future__ import annotations

from corral.domain.groups.group import GroupSpec
from corral.domain.spec import share_of


def available_floor(spec: GroupSpec, wanted: int) -> int:
    """How many instances of a group stay healthy while one of them leaves its node; never more than are wanted."""
    if spec.min_available is None:
        return wanted
    return min(wanted, share_of(spec.min_available, wanted))
