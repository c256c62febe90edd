"""Keys that are kept in order equal the sorted set, whatever came and went, and whenever they were read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from corral.controller.state.sorted_keys import KeyIndex, SortedKeys

KEYS = st.text(alphabet="ab-1", max_size=3)


@given(st.lists(st.tuples(st.sampled_from(("toggle", "read")), KEYS), max_size=200))
def test_kept_keys_equal_the_sorted_set(steps: list[tuple[str, str]]) -> None:
    keys, model = SortedKeys(), set[str]()
    for step, key in steps:
        if step == "read":
            assert list(keys.in_order()) == sorted(model)
        elif key in model:
            model.discard(key)
            keys.discard(key)
        else:
            model.add(key)
            keys.add(key)
        assert len(keys) == len(model)
    assert list(keys) == sorted(model)


@given(st.lists(st.tuples(KEYS, st.sampled_from((None, "x", "y"))), max_size=60))
def test_an_index_lists_the_keys_of_each_value(moves: list[tuple[str, str | None]]) -> None:
    index, model = KeyIndex(), dict[str, str]()
    for key, value in moves:
        index.move(key, model.pop(key, None), value)
        if value is not None:
            model[key] = value
        for each in ("x", "y"):
            assert list(index.of(each)) == sorted(k for k, v in model.items() if v == each)
        assert set(index) == set(model.values())
