"""Documents for these tests, made at random, with comments between their lines."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
keys = st.one_of(
    st.sampled_from(
        ["port", "server-name", "a", "b.c", "8080", "yes", "on", "with space", "ü", "#x", "- y", "?"]
    ),
    texts.filter(bool),
)
numbers = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
awkward = st.sampled_from(
    ["8080", "true", "null", "~", "1e3", "0x1f", "2001-01-01", " a ", "#", "a: b", "*x", "&y", "no"]
)
scalars = st.booleans() | numbers | texts | awkward


def values(*, null: bool = True) -> st.SearchStrategy[Any]:
    leaves = scalars | st.none() if null else scalars
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
        max_leaves=6,
    )


def documents(*, null: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(keys, values(null=null), min_size=1, max_size=5)


@st.composite
def places(draw: st.DrawFn, document: dict[str, Any]) -> tuple[str, ...]:
    """A path in the document, to something that is there or that can be made."""
    steps: list[str] = []
    node: Any = document
    while True:
        if isinstance(node, dict):
            step = draw(st.sampled_from(sorted(node)) | keys) if node else draw(keys)
            steps.append(step)
            if step not in node:
                return (*steps, *draw(st.lists(keys, max_size=2)))
            node = node[step]
        else:
            at = draw(st.integers(0, len(node)))
            steps.append(str(at))
            if at == len(node):
                return (*steps, *draw(st.lists(keys, max_size=1)))
            node = node[at]
        if not isinstance(node, dict | list) or draw(st.booleans()):
            return tuple(steps)


def with_value(document: Any, steps: tuple[str, ...], value: Any) -> Any:
    """What the document says once the value is at its place."""
    if not steps:
        return value
    new = copy.copy(document)
    if isinstance(new, list):
        at = int(steps[0])
        new[at : at + 1] = [with_value(new[at] if at < len(new) else {}, steps[1:], value)]
    else:
        new[steps[0]] = with_value(new.get(steps[0], {}), steps[1:], value)
    return new


def merged_values(lower: Any, upper: Any) -> Any:
    if isinstance(lower, dict) and isinstance(upper, dict):
        both = {key: merged_values(lower[key], upper[key]) for key in lower if key in upper}
        return lower | upper | both
    return upper


def same(one: Any, other: Any) -> bool:
    """Equal, and of equal types all the way down."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other
