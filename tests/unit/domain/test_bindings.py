"""Scopes of bindings, and the patterns in them."""

from __future__ import annotations

import fnmatch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.bindings import (
    EVERYTHING,
    MOST_BINDINGS,
    MOST_PATTERNS,
    Binding,
    Bindings,
    Scope,
    is_within,
    matches,
)

PATTERNS = st.text("ab*", min_size=1, max_size=8)
NAMES = st.text("ab", max_size=10)
PATTERN_LISTS = st.none() | st.lists(PATTERNS, max_size=3).map(tuple)
SCOPES = st.builds(Scope, groups=PATTERN_LISTS, nodes=PATTERN_LISTS)


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("lobby", "lobby", True),
        ("lobby", "lobby-2", False),
        ("lobby*", "lobby-2", True),
        ("*", "", True),
        ("*-eu", "bed-eu", True),
        ("*-eu", "bed-eu-2", False),
        ("a*a", "a", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*bc*c", "abc", False),
        ("a.c", "abc", False),
    ],
)
def test_a_star_stands_for_any_characters_and_nothing_else_is_special(
    pattern: str, name: str, expected: bool
) -> None:
    assert matches(pattern, name) is expected


@given(PATTERNS, NAMES)
def test_patterns_match_as_in_a_shell(pattern: str, name: str) -> None:
    assert matches(pattern, name) is fnmatch.fnmatchcase(name, pattern)


@given(SCOPES, SCOPES, NAMES)
def test_what_lies_within_a_scope_never_covers_more(inner: Scope, outer: Scope, name: str) -> None:
    if is_within(inner, outer):
        assert not inner.covers_group(name) or outer.covers_group(name)
        assert not inner.covers_node(name) or outer.covers_node(name)


@given(SCOPES)
def test_every_scope_lies_within_itself_and_within_everything(scope: Scope) -> None:
    assert is_within(scope, scope)
    assert is_within(scope, EVERYTHING)
    assert is_within(EVERYTHING, scope) is scope.is_everything


def test_an_empty_list_covers_nothing_and_no_list_everything() -> None:
    scope = Scope(groups=())
    assert not scope.covers_group("lobby")
    assert scope.covers_node("n1")
    assert not scope.is_everything


@pytest.mark.parametrize(
    "text",
    [
        '{"role": "VIEWER", "scope": {"group": ["lobby"]}}',
        '{"role": "VIEWER", "scopes": {"groups": ["lobby"]}}',
    ],
)
def test_a_misspelt_key_is_refused_and_does_not_widen_the_scope(text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(text, type=Binding)


@pytest.mark.parametrize(
    "pattern", ["", "a" * 64, "Lobby", "a b", "lobby\n", "a**b", "[a]", "a?", "../x/y", "a\x00"]
)
def test_a_pattern_that_no_name_could_fit_is_refused(pattern: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"groups": [pattern]}, Scope)


def test_numbers_of_patterns_and_bindings_are_bounded() -> None:
    assert msgspec.convert({"groups": ["a*"] * MOST_PATTERNS}, Scope).covers_group("ab")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"nodes": ["a*"] * (MOST_PATTERNS + 1)}, Scope)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert([{"role": "VIEWER"}] * (MOST_BINDINGS + 1), Bindings)
