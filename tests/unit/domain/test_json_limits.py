"""How deeply a value is nested: looked at without recursion, quickly where it is flat."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.json_limits import deeper_than

VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(MappingProxyType),
    ),
    max_leaves=8,
)


def _levels(value: object) -> int:
    if isinstance(value, Mapping):
        return 1 + max(map(_levels, value.values()), default=0)
    if isinstance(value, list | tuple):
        return 1 + max(map(_levels, value), default=0)
    return 0


@given(value=VALUES, levels=st.integers(0, 5))
def test_a_value_is_deeper_exactly_when_more_maps_and_lists_are_nested(value: Any, levels: int) -> None:
    assert deeper_than(value, levels) is (_levels(value) > levels)


class Derived(dict[str, Any]):
    """Not exactly a dictionary, as libraries have them."""


@pytest.mark.parametrize("value", [{"a": 1}, Derived(a=1), {}, {"a": None, "b": True, "c": 1.5, "d": "x"}])
def test_a_flat_map_is_one_level(value: Any) -> None:
    assert deeper_than(value, 0)
    assert not deeper_than(value, 1)


@pytest.mark.parametrize("inner", [[], {}, (), Derived(), MappingProxyType({})])
def test_one_empty_container_in_a_flat_map_is_a_second_level(inner: Any) -> None:
    assert deeper_than({"a": 1, "b": inner}, 1)
    assert not deeper_than({"a": 1, "b": inner}, 2)


def test_a_value_that_contains_itself_is_too_deep_and_ends() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    assert deeper_than(value, 32)
