"""Lists within sentences."""

from __future__ import annotations

import pytest

from corral.errors import counted, short_list


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (("a", "b"), "a, b"),
        (("a", "b", "c"), "a, b and 1 more"),
        (range(9), "0, 1 and 7 more"),
    ],
)
def test_the_first_two_are_named_and_the_others_counted(items: tuple[object, ...], text: str) -> None:
    assert short_list(items, 2) == text


def test_one_of_something_is_no_plural() -> None:
    assert [counted(number, "node") for number in (0, 1, 2)] == ["0 nodes", "1 node", "2 nodes"]
    assert [counted(number, "is", "are") for number in (0, 1, 2)] == ["0 are", "1 is", "2 are"]
