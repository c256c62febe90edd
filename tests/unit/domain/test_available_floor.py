"""How many instances of a group stay healthy while its instances are moved."""

from __future__ import annotations

from typing import Any

import pytest

from corral.domain.groups.available_floor import available_floor
from corral.domain.groups.group_documents import parse_group
from corral.errors import Rejected


def floor(value: Any, wanted: int) -> int:
    group = parse_group({"name": "lobby", "command": ["serve"], "min_available": value})
    return available_floor(group, wanted)


@pytest.mark.parametrize(
    ("value", "wanted", "expected"),
    [
        (None, 3, 3),
        (0, 3, 0),
        (2, 3, 2),
        (5, 3, 3),
        ("50%", 3, 2),
        ("0%", 3, 0),
        ("100%", 3, 3),
        ("1%", 0, 0),
    ],
)
def test_shares_are_of_what_is_wanted_and_rounded_up(value: Any, wanted: int, expected: int) -> None:
    assert floor(value, wanted) == expected


@pytest.mark.parametrize("value", [-1, 10_001, "101%", "5", "-5%", "05%", "5%\n", "5 %", 1.5])
def test_other_values_are_refused_with_the_field(value: Any) -> None:
    with pytest.raises(Rejected) as refused:
        floor(value, 3)
    assert refused.value.field == "min_available"


def test_a_wrong_share_is_told_what_to_write() -> None:
    with pytest.raises(Rejected) as refused:
        floor("half", 3)
    assert refused.value.hint == "write a number, or a share such as 25%"
