"""Keys sort as values do: the promise that every index rests on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.modules.document_values import (
    KEY_LENGTH,
    MISSING,
    cut,
    entry_id,
    is_cut,
    key_of,
    order,
    range_between,
    range_of_prefix,
    rank,
    same,
)

MANY = settings(max_examples=120)

TEXTS = st.one_of(
    st.text(max_size=6),
    st.text(
        alphabet=st.sampled_from(["\x00", "\x01", "\x02", "\x03", "a", "!", ":", "/", "\U0010ffff", "é"]),
        max_size=6,
    ),
    st.text(alphabet="ab", min_size=KEY_LENGTH - 3, max_size=KEY_LENGTH + 3),
)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        [0.0, -0.0, 5e-324, -5e-324, 2.0**53, 2**53 + 1, 2**53 - 1, 1e308, -1e308, 2**62, 2.0**62]
    ),
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
VALUES = st.one_of(
    st.just(MISSING),
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=2), inner, max_size=3)
        ),
        max_leaves=5,
    ),
)


@MANY
@given(one=VALUES, other=VALUES)
def test_keys_are_ordered_as_values_are(one: object, other: object) -> None:
    assert (key_of(one) < key_of(other)) == (order(one) < order(other))
    assert (key_of(one) == key_of(other)) == (order(one) == order(other))


@MANY
@given(one=NUMBERS, other=NUMBERS)
def test_keys_of_numbers_are_ordered_by_what_they_are_worth(one: float, other: float) -> None:
    assert (key_of(one) < key_of(other)) == (one < other)
    assert (key_of(one) == key_of(other)) == (one == other)


@MANY
@given(one=VALUES, other=VALUES)
def test_no_key_begins_another_one_so_they_can_be_joined(one: object, other: object) -> None:
    if not same(one, other):
        assert not key_of(other).startswith(key_of(one))


@MANY
@given(one=st.tuples(VALUES, VALUES), other=st.tuples(VALUES, VALUES))
def test_joined_keys_are_ordered_by_the_first_difference(one, other) -> None:
    keys = [key_of(a) + key_of(b) for a, b in (one, other)]
    orders = [tuple(map(order, pair)) for pair in (one, other)]
    assert (keys[0] < keys[1]) == (orders[0] < orders[1])


@MANY
@given(value=VALUES)
def test_a_key_can_be_stored_and_is_bounded(value: object) -> None:
    key = entry_id(key_of(value), "x" * 200)
    assert "\0" not in key
    assert len(key.encode()) < 2000


@MANY
@given(one=VALUES, other=VALUES)
def test_cut_keys_are_equal_only_for_equal_values(one: object, other: object) -> None:
    assert (cut(key_of(one)) == cut(key_of(other))) == same(one, other)


@MANY
@given(first=VALUES, second=VALUES, prefix=VALUES)
def test_a_range_of_a_prefix_holds_every_entry_that_begins_so(first, second, prefix) -> None:
    found = range_of_prefix([prefix])
    inside = found.after < entry_id(key_of(first) + key_of(second), "id") < (found.before or "")
    if same(first, prefix):
        assert inside
    elif not is_cut(key_of(prefix)):
        assert not inside


@MANY
@given(
    value=VALUES, low=SCALARS, high=SCALARS, first=SCALARS, owner=st.sampled_from(["", "id", "\U0010ffff"])
)
def test_a_range_between_bounds_misses_nothing(value, low, high, first, owner) -> None:
    kind = rank(low)
    bounds = {"low": low} | ({"high": high} if rank(high) == kind else {})
    found = range_between([first], kind, **bounds)
    inside = found.after < entry_id(key_of(first) + key_of(value), owner) < (found.before or "")
    fits = rank(value) == kind and order(low) <= order(value)
    if "high" in bounds:
        fits = fits and order(value) <= order(high)
    if fits:
        assert inside
    elif not is_cut(key_of(first) + key_of(value)) and not is_cut(key_of(first) + key_of(low) + key_of(high)):
        assert not inside


@pytest.mark.parametrize("number", [0, 1, -1, 2**63 - 1, -(2**63), 0.1, -math.pi, 1e-300])
def test_a_number_has_the_same_key_however_it_is_written(number: float) -> None:
    assert key_of(number) == key_of(float(number)) or float(number) != number


def test_the_kinds_of_values_are_ordered() -> None:
    ladder = [MISSING, None, False, True, -1, 0, 1.5, "", "a", [], [1], {}, {"a": 1}]
    assert sorted(ladder, key=order) == ladder
    assert sorted(map(key_of, ladder)) == [key_of(value) for value in ladder]
