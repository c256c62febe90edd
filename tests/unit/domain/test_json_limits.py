"""How deeply a value is nested: looked at without recursion, quickly where it is flat."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.json_limits import deeper_than, more_values_than

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


PLAIN = st.recursive(
    st.one_of(st.integers(), st.text('",[{\\:a', max_size=6)),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text('",[{\\a'), inner)),
)


def _entries(value: object) -> int:
    if isinstance(value, dict):
        return max(len(value), 1) + sum(map(_entries, value.values()))
    return max(len(value), 1) + sum(map(_entries, value)) if isinstance(value, list) else 0


@given(value=PLAIN, most=st.integers(0, 20))
def test_a_text_has_more_values_exactly_when_its_lists_and_objects_have(value: Any, most: int) -> None:
    assert more_values_than(json.dumps(value).encode(), most) is (_entries(value) > most)


@pytest.mark.parametrize("filler", ["a", ",", '"', "\\", '\\",['])
def test_what_stands_in_long_texts_is_not_counted(filler: str) -> None:
    for length in range(65_530, 65_540):
        raw = json.dumps([filler * length, "a,b", 1, 2]).encode()
        assert (more_values_than(raw, 3), more_values_than(raw, 4)) == (True, False)
